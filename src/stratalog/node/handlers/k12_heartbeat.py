"""Heartbeat (12): a member is alive; REBALANCE_IN_PROGRESS tells it to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k12_heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k12_heartbeat import HeartbeatRequest


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: HeartbeatRequest = request.body
    parked = node.park(request)

    def done(reply: ev.HeartbeatReply) -> None:
        parked.reply(HeartbeatResponse(error_code=reply.error))

    event = ev.Heartbeat(done, body.group_id, body.member_id, body.generation_id, body.group_instance_id)
    node.groups.submit(event, body.group_id)
    return parked
