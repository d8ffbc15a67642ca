"""62 BrokerRegistration: a broker makes itself known.  This node's own takes the same way without a socket.

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
    return forward(node, request, now, lambda controller: controller.register_broker(request.body, now))
