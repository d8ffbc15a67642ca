"""45 AlterPartitionReassignments: replicas moved to other brokers.

The controller decides; it knows no other brokers yet, so only what is so already can be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    if not request.body.topics:
        return AlterPartitionReassignmentsResponse(error_message=None, responses=[])  # nothing takes no time
    return forward(
        node, request, now, lambda controller: controller.alter_partition_reassignments(request.body, now), refuse
    )


def refuse(node: Node, request: Request, code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    """The whole and every part of the request answered with one error."""
    body = body_of(request, AlterPartitionReassignmentsRequest)
    return AlterPartitionReassignmentsResponse(
        error_code=int(code),
        error_message=code.text,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=row.partition_index, error_code=int(code), error_message=code.text
                    )
                    for row in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )
