"""What several handlers of administration share: authorized operations, offline replicas, forwarding to the controller.
Loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.types import MAX_INT32, Millis
from stratalog.controller.controller import Controller, Result
from stratalog.metadata.image import MetadataImage, PartitionImage
from stratalog.node.request import Parked, Request

if TYPE_CHECKING:
    from stratalog.node.node import Node

NOT_ASKED: Final = -MAX_INT32 - 1
"""In a response: the authorized operations were not asked for."""


def _bits(*operations: int) -> int:
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


TOPIC_OPERATIONS: Final = _bits(3, 4, 5, 6, 7, 8, 10, 11)
"""Read, write, create, delete, alter, describe, describe and alter configs: without an authorizer, everything."""
CLUSTER_OPERATIONS: Final = _bits(5, 7, 8, 9, 10, 11, 12)
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""


def forward(node: Node, request: Request, now: Millis, handle: Callable[[Controller], Result[Any]]) -> Parked:
    """Have the controller handle a request and answer it once that is committed."""
    parked = node.park(request)
    node.controller.submit(handle, parked.reply, now)
    return parked


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Replicas whose broker is not there, or fenced."""
    brokers = image.brokers
    return [id for id in partition.replicas if id not in brokers or brokers[id].fenced]
