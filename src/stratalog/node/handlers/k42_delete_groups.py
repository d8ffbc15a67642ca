"""DeleteGroups (42): groups without members go, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.coordinator.group import events as ev
from stratalog.protocol.k42_delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.node.request import Parked, Request
    from stratalog.protocol.k42_delete_groups import DeleteGroupsRequest


def handle(node: Node, request: Request, now: Millis) -> Parked:
    body: DeleteGroupsRequest = request.body
    parked = node.park(request)
    response = DeleteGroupsResponse(results=[])
    names = list(dict.fromkeys(body.groups_names))
    waiting = len(names)
    if not waiting:
        parked.reply(response)
        return parked
    for group_id in names:
        result = DeletableGroupResult(group_id=group_id)
        response.results.append(result)

        def done(reply: ev.DeleteGroupReply, result: DeletableGroupResult = result) -> None:
            nonlocal waiting
            result.error_code = reply.error
            waiting -= 1
            if not waiting:
                parked.reply(response)

        node.groups.submit(ev.DeleteGroup(done, group_id), group_id)
    return parked
