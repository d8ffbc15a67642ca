"""LeaveGroup, API key 13.

Behaviour
  Members leave a classic group at once, without waiting for the session timeout.

Version notes
  0-2: one member id.
  1: throttle time.
  3: a list of members with instance ids, each with its own error.
  4: flexible.
  5: a reason in words.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    reason: str | None = string(since=5, nullable=5, default=None, ignorable=True)


class LeaveGroupRequest(Message):
    api_key = 13
    versions = (0, 5)
    flexible = 4

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3)
    error_code: int = int16(since=3)


class LeaveGroupResponse(Message):
    api_key = 13
    versions = (0, 5)
    flexible = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
