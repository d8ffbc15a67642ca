"""What several handlers of administration share: authorized operations, offline replicas, forwarding to the controller.
Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import MAX_INT32, Millis
from stratalog.controller.controller import Controller, Result
from stratalog.metadata.image import MetadataImage, PartitionImage
from stratalog.node.request import Request
from stratalog.protocol.schema import Message

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


M = TypeVar("M", bound=Message)
_WITH_TIME: Final = frozenset((19, 20, 37, 43, 45))
"""API keys whose `timeout_ms` the controller obeys, as Kafka's does."""
Refuse = Callable[["Node", Request, ErrorCode], Any]
"""A handler's `refuse`: the answer that gives every part of the request the same error."""


def forward(
    node: Node,
    request: Request,
    now: Millis,
    handle: Callable[[Controller], Result[Any]],
    refuse: Refuse | None = None,
) -> Any:
    """Have the controller handle a request and answer it once that is committed.  `refuse`, for answers without an
    error of their own at the top, says no to the whole (the metadata log takes no records)."""
    if request.key in _WITH_TIME and request.body.timeout_ms <= 0:
        assert refuse is not None  # the time has passed already: nothing is done
        return refuse(node, request, ErrorCode.REQUEST_TIMED_OUT)
    parked = node.park(request)
    try:
        node.controller.submit(handle, parked.reply, now)
    except ApiError as error:
        if refuse is None:
            raise
        return refuse(node, request, error.code)
    return parked


def body_of(request: Request, kind: type[M]) -> M:
    """The request's body for a `refuse`, which may be called before it was decoded (`Node.refusals`)."""
    if request.frame is not None:
        request.body = kind.decode(request.frame[request.position :], request.version)
        request.frame = None
    body: M = request.body
    return body


def by_topic(rows: Iterable[tuple[str, Iterable[int]]]) -> dict[str, set[int]]:
    """The partitions that a request names, by topic: a topic may stand in several rows."""
    found: dict[str, set[int]] = {}
    for topic, partitions in rows:
        found.setdefault(topic, set()).update(partitions)
    return found


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Replicas whose broker is not there, or fenced."""
    brokers = image.brokers
    return [id for id in partition.replicas if id not in brokers or brokers[id].fenced]
