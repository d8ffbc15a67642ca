"""22 InitProducerId: an id for an idempotent producer.

Ids come in blocks from the controller, whose records say which were given away, so that none is given twice after a
crash; a block's rest is lost with the process, as in Kafka.  With a transactional id: there is no transaction
coordinator yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.request import Parked, Request
from stratalog.protocol.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> InitProducerIdResponse | Parked:
    body: InitProducerIdRequest = request.body
    if body.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if body.transactional_id == "" else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(code)
    if (body.producer_id >= 0) != (body.producer_epoch >= 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    identity = node.producer_ids.take()
    if identity is not None:
        return InitProducerIdResponse(producer_id=identity, producer_epoch=0)
    parked = node.park(request)

    def allocated(identity: int | None, error: ErrorCode) -> None:
        if identity is None:
            parked.reply(_refused(error))
        else:
            parked.reply(InitProducerIdResponse(producer_id=identity, producer_epoch=0))

    node.producer_ids.wait(node, allocated, now)
    return parked


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
