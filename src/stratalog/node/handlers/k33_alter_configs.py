"""33 AlterConfigs: the whole configuration of resources, replaced.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k33_alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.alter_configs(request.body, now), refuse)


def refuse(node: Node, request: Request, code: ErrorCode) -> AlterConfigsResponse:
    """Every part of the request answered with one error."""
    body = body_of(request, AlterConfigsRequest)
    responses = [
        AlterConfigsResourceResponse(
            error_code=int(code),
            error_message=code.text,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in body.resources
    ]
    return AlterConfigsResponse(responses=responses)
