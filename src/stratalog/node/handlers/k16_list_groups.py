"""ListGroups (16): the groups that this broker coordinates, filtered by state (version 4) and type (5), without regard
to case.  This broker has classic groups only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.protocol.k16_list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Request
    from stratalog.protocol.k16_list_groups import ListGroupsRequest


def handle(node: Node, request: Request, now: Millis) -> ListGroupsResponse:
    body: ListGroupsRequest = request.body
    states = [state.lower() for state in body.states_filter]
    types = [kind.lower() for kind in body.types_filter]
    error, groups = node.groups.list_groups()
    if error is not ErrorCode.NONE:
        return ListGroupsResponse(error_code=error, groups=[])
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
        ]
    )
