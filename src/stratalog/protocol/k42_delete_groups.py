"""DeleteGroups, API key 42.

Behaviour
  Deletes groups without members, with their offsets. Goes to the coordinator.

Version notes
  1: throttled clients get the reply at once.
  2: flexible.
  3: an error message for each group.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message):
    api_key = 42
    versions = (0, 3)
    flexible = 2

    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(since=3, nullable=3, default=None, ignorable=True)


class DeleteGroupsResponse(Message):
    api_key = 42
    versions = (0, 3)
    flexible = 2

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
