"""Heartbeat, API key 12.

Behaviour
  A member of a classic group says that it is alive. REBALANCE_IN_PROGRESS tells it to join again.

Version notes
  1: throttle time.
  3: group instance id.
  4: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message):
    api_key = 12
    versions = (0, 4)
    flexible = 4
    one_of_each = True

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


class HeartbeatResponse(Message):
    api_key = 12
    versions = (0, 4)
    flexible = 4
    one_of_each = True

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
