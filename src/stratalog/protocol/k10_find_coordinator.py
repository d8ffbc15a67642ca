"""FindCoordinator, API key 10.

Behaviour
  Which broker coordinates a key: a group (key type 0), a transactional id (1), or a share partition (2,
  `groupId:topicId:partition`). Any broker answers; asking may create the internal topic behind it.

Version notes
  0: groups only.
  1: key type, throttle time, error message.
  3: flexible.
  4: many keys of one type at once; the single answer moves into `coordinators`.
  5: TRANSACTION_ABORTABLE may come.
  6: share partitions.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message):
    api_key = 10
    versions = (0, 6)
    flexible = 3

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class Coordinator(Struct):
    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable=4, ignorable=True)


class FindCoordinatorResponse(Message):
    api_key = 10
    versions = (0, 6)
    flexible = 3

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
