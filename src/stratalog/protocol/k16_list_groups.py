"""ListGroups, API key 16.

Behaviour
  The groups that this broker coordinates, each with its protocol type; an admin client asks all brokers.

Version notes
  1: throttle time.
  3: flexible.
  4: filter by state, and the state in the reply.
  5: filter by type (classic, consumer, share, streams), and the type in the reply.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message):
    api_key = 16
    versions = (0, 5)
    flexible = 3

    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Message):
    api_key = 16
    versions = (0, 5)
    flexible = 3

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
