"""BrokerHeartbeat, API key 63.

Behaviour
  A broker reports how far it has read the metadata log and asks to be unfenced or to shut down; the reply tells its
  state. Missing heartbeats fence it.

Version notes
  1: directories that went offline.
  2: directories closed to new replicas.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, array, boolean, int16, int32, int64, tag, uuid


class BrokerHeartbeatRequest(Message):
    api_key = 63
    versions = (0, 2)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = tag(0, array(uuid), since=1)
    cordoned_log_dirs: list[Uuid] | None = tag(1, array(uuid, nullable=2, default=None), since=2)


class BrokerHeartbeatResponse(Message):
    api_key = 63
    versions = (0, 2)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
