"""SyncGroup (14): the leader brings the assignments, everyone gets its own once they are in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k14_sync_group import SyncGroupRequest


def handle(node: Node, request: Request, now: Millis) -> Parked | SyncGroupResponse:
    body: SyncGroupRequest = request.body
    if request.version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        return SyncGroupResponse(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    parked = node.park(request)

    def done(reply: ev.SyncReply) -> None:
        parked.reply(
            SyncGroupResponse(
                error_code=reply.error,
                protocol_type=reply.protocol_type,
                protocol_name=reply.protocol,
                assignment=reply.assignment,
            )
        )

    event = ev.Sync(
        done,
        body.group_id,
        body.member_id,
        body.generation_id,
        body.group_instance_id,
        body.protocol_type,
        body.protocol_name,
        [(given.member_id, bytes(given.assignment)) for given in body.assignments],
    )
    node.groups.submit(event, body.group_id)
    return parked
