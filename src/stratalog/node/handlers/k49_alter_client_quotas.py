"""49 AlterClientQuotas: quotas of users, client ids and addresses.

The controller decides; the answer comes once the records are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.node.admin import body_of, forward
from stratalog.node.request import Request
from stratalog.protocol.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataResponse,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> Any:
    return forward(node, request, now, lambda controller: controller.alter_client_quotas(request.body, now), refuse)


def refuse(node: Node, request: Request, code: ErrorCode) -> AlterClientQuotasResponse:
    """Every part of the request answered with one error."""
    body = body_of(request, AlterClientQuotasRequest)
    entries = [
        EntryDataResponse(error_code=int(code), error_message=code.text, entity=entry.entity) for entry in body.entries
    ]
    return AlterClientQuotasResponse(entries=entries)
