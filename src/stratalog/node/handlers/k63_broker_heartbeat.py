"""63 BrokerHeartbeat: a broker is alive, and says how far it has come.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.types import Millis
from stratalog.node.admin import forward
from stratalog.node.request import Request

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.broker_heartbeat(request.body, now))
