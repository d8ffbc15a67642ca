"""LeaveGroup (13): members go at once, without waiting for their session.  One member until version 2, whose error is
the response's; a list from 3 on, each with its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k13_leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k13_leave_group import LeaveGroupRequest


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: LeaveGroupRequest = request.body
    is_batch = request.version >= 3
    parked = node.park(request)

    def done(reply: ev.LeaveReply) -> None:
        code = reply.error
        if not is_batch:
            if not code and reply.members:
                code = reply.members[0][1]
            parked.reply(LeaveGroupResponse(error_code=code))
            return
        parked.reply(
            LeaveGroupResponse(
                error_code=code,
                members=[
                    MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error)
                    for leaver, error in reply.members
                ],
            )
        )

    if is_batch:
        leavers = [ev.Leaver(member.member_id, member.group_instance_id) for member in body.members]
    else:
        leavers = [ev.Leaver(body.member_id)]
    node.groups.submit(ev.Leave(done, body.group_id, leavers), body.group_id)
    return parked
