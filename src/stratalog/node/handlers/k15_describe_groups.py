"""DescribeGroups (15): state, protocol and members of classic groups.

A group that does not exist is Dead, without an error before version 6 and with GROUP_ID_NOT_FOUND from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k15_describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k15_describe_groups import DescribeGroupsRequest

_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what there is to do with a group; without ACLs all of it."""
_NOT_ASKED = -(1 << 31)


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: DescribeGroupsRequest = request.body
    parked = node.park(request)
    response = DescribeGroupsResponse(groups=[])
    waiting = len(body.groups)
    if not waiting:
        parked.reply(response)
        return parked
    operations = _OPERATIONS if body.include_authorized_operations else _NOT_ASKED
    for group_id in body.groups:
        answer = DescribedGroup(
            group_id=group_id, group_state="", protocol_type="", protocol_data="", authorized_operations=operations
        )
        response.groups.append(answer)

        def done(reply: ev.DescribeReply, answer: DescribedGroup = answer) -> None:
            nonlocal waiting
            _fill(answer, reply, request.version)
            waiting -= 1
            if not waiting:
                parked.reply(response)

        node.groups.submit(ev.DescribeGroup(done, group_id), group_id)
    return parked


def _fill(answer: DescribedGroup, reply: ev.DescribeReply, version: int) -> None:
    answer.group_state = reply.state
    if reply.error is ErrorCode.GROUP_ID_NOT_FOUND:
        if version >= 6:
            answer.authorized_operations = _NOT_ASKED
            answer.error_code = reply.error
            answer.error_message = f"Group {answer.group_id} not found."
        return
    answer.error_code = reply.error
    answer.protocol_type = reply.protocol_type
    answer.protocol_data = reply.protocol
    answer.members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in reply.members
    ]
