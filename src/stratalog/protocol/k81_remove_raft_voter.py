"""RemoveRaftVoter, API key 81.

Behaviour
  Removes a voter from the metadata quorum.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message):
    api_key = 81
    versions = (0, 0)
    flexible = 0

    cluster_id: str | None = string(nullable=0)
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Message):
    api_key = 81
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, ignorable=True)
