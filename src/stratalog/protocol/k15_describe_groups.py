"""DescribeGroups, API key 15.

Behaviour
  State, protocol and members of classic groups, with each member's metadata and assignment as the clients wrote them.
  Goes to the coordinator.

Version notes
  1: throttle time.
  3: authorized operations on wish.
  4: group instance ids.
  5: flexible.
  6: GROUP_ID_NOT_FOUND and a message, where a dead group was invented before.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Message):
    api_key = 15
    versions = (0, 6)
    flexible = 5

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-2147483648)


class DescribeGroupsResponse(Message):
    api_key = 15
    versions = (0, 6)
    flexible = 5

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
