"""JoinGroup, API key 11.

Behaviour
  A consumer enters a classic group or takes part in its next generation, with the protocols it supports and their
  metadata. The coordinator holds the reply until all members have joined or the rebalance timeout is over; the
  leader's reply has all members with their metadata, so that it can assign.

Version notes
  0: session timeout only.
  1: separate rebalance timeout.
  2: throttle time.
  4: a new member is first sent back with MEMBER_ID_REQUIRED and the id to use.
  5: group instance id (static membership).
  6: flexible.
  7: the reply names the protocol type; protocol name may be null.
  8: a reason in words.
  9: `skip_assignment` for a static leader that returns.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Message):
    api_key = 11
    versions = (0, 9)
    flexible = 6

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    metadata: bytes = bytes_()


class JoinGroupResponse(Message):
    api_key = 11
    versions = (0, 9)
    flexible = 6

    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
