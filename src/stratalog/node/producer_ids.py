"""Producer ids that this broker gives away, in blocks from the controller.  Loop only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node

Taken = Callable[[int | None, ErrorCode], None]


class ProducerIds:
    """The block of producer ids that this broker gives away.  Loop only."""

    __slots__ = ("_end", "_next", "_requested", "_waiting")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._requested = False
        self._waiting: list[Taken] = []

    def take(self) -> int | None:
        """The next id, None when the block is used up."""
        if self._next >= self._end:
            return None
        identity = self._next
        self._next += 1
        return identity

    def wait(self, node: Node, callback: Taken, now: Millis) -> None:
        """Ask for a block, once for all that wait."""
        self._waiting.append(callback)
        if self._requested:
            return
        self._requested = True
        try:
            request = AllocateProducerIdsRequest(broker_id=node.node_id, broker_epoch=node.broker_epoch)
            node.controller.submit(lambda core: core.allocate_producer_ids(request, now), self._allocated, now)
        except ApiError as error:
            self._answer(error.code)

    def _allocated(self, response: AllocateProducerIdsResponse) -> None:
        if not response.error_code:
            self._next = response.producer_id_start
            self._end = response.producer_id_start + response.producer_id_len
        self._answer(ErrorCode(response.error_code))

    def _answer(self, error: ErrorCode) -> None:
        self._requested = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            # More may wait than a block has: they ask again.
            callback(self.take(), error or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
