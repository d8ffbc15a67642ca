"""DeleteTopics, API key 20.

Behaviour
  Deletes topics, each for itself. Forwarded to the controller.

Version notes
  1: throttle time.
  3: TOPIC_DELETION_DISABLED may come.
  4: flexible.
  5: error messages; THROTTLING_QUOTA_EXCEEDED may come.
  6: topics by name or by id.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(since=6, nullable=6, default=None)
    topic_id: Uuid = uuid(since=6)


class DeleteTopicsRequest(Message):
    api_key = 20
    versions = (0, 6)
    flexible = 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable=6)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=5, default=None, ignorable=True)


class DeleteTopicsResponse(Message):
    api_key = 20
    versions = (0, 6)
    flexible = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
