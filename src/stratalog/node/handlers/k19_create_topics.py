"""19 CreateTopics: new topics, each for itself.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k19_create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.create_topics(request.body, now), refuse)


def refuse(node: Node, request: Request, code: ErrorCode) -> CreateTopicsResponse:
    """Every part of the request answered with one error."""
    body = body_of(request, CreateTopicsRequest)
    topics = [
        CreatableTopicResult(name=topic.name, error_code=int(code), error_message=code.text, configs=[])
        for topic in body.topics
    ]
    return CreateTopicsResponse(topics=topics)
