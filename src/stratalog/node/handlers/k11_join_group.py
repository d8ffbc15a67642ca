"""JoinGroup (11): a client becomes a member, or takes part in the next generation.

Answered when the generation begins.  Before version 1 the session timeout is the rebalance timeout too; from 4 on a new
member is sent back with an id first; from 9 on a static leader that comes back may be told to skip the assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k11_join_group import JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k11_join_group import JoinGroupRequest


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: JoinGroupRequest = request.body
    version = request.version
    parked = node.park(request)

    def done(reply: ev.JoinReply) -> None:
        protocol = reply.protocol
        if protocol is None and version < 7:
            protocol = ""  # null has no encoding before version 7
        parked.reply(
            JoinGroupResponse(
                error_code=reply.error,
                generation_id=reply.generation,
                protocol_type=reply.protocol_type,
                protocol_name=protocol,
                leader=reply.leader,
                # Version 9 put it on the wire; an older client is never told to skip.
                skip_assignment=reply.skip_assignment and version >= 9,
                member_id=reply.member_id,
                members=[
                    JoinGroupResponseMember(
                        member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
                    )
                    for member in reply.members
                ],
            )
        )

    event = ev.Join(
        done,
        body.group_id,
        body.member_id,
        body.protocol_type,
        [(protocol.name, bytes(protocol.metadata)) for protocol in body.protocols],
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if version >= 1 else body.session_timeout_ms,
        instance_id=body.group_instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.peer.host}",
        requires_member_id=version >= 4,
        can_skip_assignment=version >= 9,
    )
    node.groups.submit(event, body.group_id)
    return parked
