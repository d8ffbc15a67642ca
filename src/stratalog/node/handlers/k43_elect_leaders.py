"""43 ElectLeaders: partitions led by their preferred replica, or by any that is alive.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    if request.body.topic_partitions == []:
        return ElectLeadersResponse(replica_election_results=[])  # nothing takes no time
    try:
        return forward(node, request, now, lambda controller: controller.elect_leaders(request.body, now), refuse)
    except ApiError as error:
        return refuse(node, request, error.code)


def refuse(node: Node, request: Request, code: ErrorCode) -> ElectLeadersResponse:
    """The whole and every part of the request answered with one error: version 0 has no place for the whole's."""
    body = body_of(request, ElectLeadersRequest)
    return ElectLeadersResponse(
        error_code=int(code) if request.version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=int(code), error_message=code.text)
                    for number in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )
