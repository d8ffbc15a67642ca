"""SyncGroup, API key 14.

Behaviour
  The second half of a rebalance: the leader brings each member's assignment, the others an empty list; all get their
  own back once the leader's has been stored.

Version notes
  1: throttle time.
  3: group instance id.
  4: flexible.
  5: protocol type and name, checked against the group's.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Message):
    api_key = 14
    versions = (0, 5)
    flexible = 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message):
    api_key = 14
    versions = (0, 5)
    flexible = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = bytes_()
