"""AddRaftVoter, API key 80.

Behaviour
  Adds a voter to the metadata quorum, one at a time.

Version notes
  1: whether to reply when the change is committed or already when it is written.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Message):
    api_key = 80
    versions = (0, 1)
    flexible = 0

    cluster_id: str | None = string(nullable=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(since=1, default=True)


class AddRaftVoterResponse(Message):
    api_key = 80
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, ignorable=True)
