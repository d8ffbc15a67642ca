"""FindCoordinator (10): which broker coordinates a group.

The first question creates `__consumer_offsets`; until it is there the answer is COORDINATOR_NOT_AVAILABLE and clients
ask again.  Groups only (key type 0): transactions (1) and share groups (2) are not served and get INVALID_REQUEST,
which clients take as final instead of asking for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.coordinator.group.coordinator import TOPIC
from stratalog.protocol.k10_find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Request
    from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest

GROUP = 0


def handle(node: Node, request: Request, now: Millis) -> FindCoordinatorResponse:
    body: FindCoordinatorRequest = request.body
    if request.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(node, request, body.key_type, key, now) for key in body.coordinator_keys]
        )
    found = _find(node, request, body.key_type, body.key, now)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(node: Node, request: Request, key_type: int, key: str, now: Millis) -> Coordinator:
    if key_type != GROUP:
        return _nobody(key, ErrorCode.INVALID_REQUEST, "this broker coordinates groups only")
    if node.image.topic(TOPIC) is None:
        try:
            node.controller.ensure_internal_topic(TOPIC, now)
        except ApiError as error:  # a full disk; whoever looks for a coordinator knows this code, and asks again
            return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    topic = node.image.topic(TOPIC)  # the controller may have committed at once
    if topic is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    partition = topic.partitions.get(node.groups.partition_of(key))
    broker = None if partition is None else node.image.brokers.get(partition.leader)
    endpoint = None if broker is None else broker.endpoint(request.listener)
    if broker is None or endpoint is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message or error.text)
