"""45 AlterPartitionReassignments: replicas moved to other brokers.

The controller decides; it knows no other brokers yet, so only what is so already can be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.types import Millis
from stratalog.node.admin import forward
from stratalog.node.request import Request

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.alter_partition_reassignments(request.body, now))
