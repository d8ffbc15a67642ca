"""37 CreatePartitions: more partitions for a topic.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.create_partitions(request.body, now), refuse)


def refuse(node: Node, request: Request, code: ErrorCode) -> CreatePartitionsResponse:
    """Every part of the request answered with one error."""
    body = body_of(request, CreatePartitionsRequest)
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=int(code), error_message=code.text)
        for topic in body.topics
    ]
    return CreatePartitionsResponse(results=results)
