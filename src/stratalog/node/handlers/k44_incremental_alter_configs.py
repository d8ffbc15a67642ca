"""44 IncrementalAlterConfigs: configurations changed key by key.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.node.admin import forward
from stratalog.node.request import Parked, Request

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Parked:
    return forward(node, request, now, lambda controller: controller.incremental_alter_configs(request.body, now))
