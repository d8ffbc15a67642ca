"""60 DescribeCluster: cluster id, controller and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.node.admin import CLUSTER_OPERATIONS, NOT_ASKED
from stratalog.node.request import Request
from stratalog.protocol.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(node: Node, request: Request, now: Millis) -> DescribeClusterResponse:
    body: DescribeClusterRequest = request.body
    if body.endpoint_type == CONTROLLERS:
        raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener, it knows brokers")
    if body.endpoint_type != BROKERS:
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {body.endpoint_type}")
    brokers = []
    for id in sorted(node.image.brokers):
        broker = node.image.brokers[id]
        endpoint = broker.endpoint(request.listener)
        if endpoint is None or (broker.fenced and not body.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
            )
        )
    return DescribeClusterResponse(
        error_code=0,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=brokers,
        cluster_authorized_operations=(CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED),
    )
