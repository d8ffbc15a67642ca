"""20 DeleteTopics: topics, by name or by id, go away with their data.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.delete_topics(request.body, now), refuse)


def refuse(node: Node, request: Request, code: ErrorCode) -> DeleteTopicsResponse:
    """Every part of the request answered with one error."""
    body = body_of(request, DeleteTopicsRequest)
    asked = [(topic.name, topic.topic_id) for topic in body.topics]
    asked += [(name, ZERO_UUID) for name in body.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(code), error_message=code.text)
            for name, topic_id in asked
        ]
    )
