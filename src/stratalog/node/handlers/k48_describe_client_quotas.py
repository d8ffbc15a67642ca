"""48 DescribeClientQuotas: the quotas of the entities that match a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.metadata.image import QuotaEntity
from stratalog.node.request import Request
from stratalog.protocol.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
_TYPES: Final = ("user", "client-id", "ip")


def handle(node: Node, request: Request, now: Millis) -> DescribeClientQuotasResponse:
    try:
        return _describe(node, request.body)
    except ApiError as error:  # the entries are then null, not none
        return DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)


def _describe(node: Node, body: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    components: dict[str, ComponentData] = {}
    for component in body.components:
        if not component.entity_type:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the filter has an entity type without a name")
        if component.entity_type not in _TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type '{component.entity_type}'")
        if component.entity_type in components:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the filter names {component.entity_type} twice")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
        if (component.match_type == EXACT) != (component.match is not None):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a name goes with the exact match, and with nothing else")
        components[component.entity_type] = component
    if "ip" in components and len(components) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an ip goes with no other entity type")
    entries = [
        EntryData(
            entity=[EntityData(entity_type=type, entity_name=name) for type, name in entity],
            values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
        )
        for entity, values in node.image.quotas.items()
        if _matches(entity, components, body.strict)
    ]
    return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=entries)


def _matches(entity: QuotaEntity, components: dict[str, ComponentData], strict: bool) -> bool:
    names = dict(entity)
    if strict and set(names) != set(components):
        return False
    for type, component in components.items():
        if type not in names:
            return False
        name = names[type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True
