"""Quotas of users, client ids and addresses.  Called by `controller.controller`; pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.metadata.image import QuotaEntity, quota_record
from stratalog.protocol.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
)
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_WHOLE_KEYS: Final = frozenset(("producer_byte_rate", "consumer_byte_rate"))
_CLIENT_KEYS: Final = _WHOLE_KEYS | {"request_percentage", "controller_mutation_rate"}
_IP_KEYS: Final = frozenset(("connection_creation_rate",))


def alter_client_quotas(controller: Controller, request: AlterClientQuotasRequest) -> Result[AlterClientQuotasResponse]:
    records: list[Message] = []
    entries: list[EntryDataResponse] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            entity = check_entity(entry.entity)
            if entity in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the entity twice")
            seen.add(entity)
            made = _change(controller, entity, entry)
            if not request.validate_only:
                records += made
        except ApiError as error:
            code, message = error.code, error.message
        entries.append(EntryDataResponse(error_code=code, error_message=message, entity=entry.entity))
    return Result(records, AlterClientQuotasResponse(entries=entries))


def check_entity(parts: list[EntityData]) -> QuotaEntity:
    """The entity that a request names; `ApiError` for a combination that has no meaning."""
    types = [part.entity_type for part in parts]
    if not types:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an entity without a type")
    if len(set(types)) != len(types):
        raise ApiError(ErrorCode.INVALID_REQUEST, "an entity names a type twice")
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown entity type '{part.entity_type}'")
        if part.entity_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the name of the {part.entity_type} is empty")
        if part.entity_type == IP and part.entity_name is not None and not _is_address(part.entity_name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"'{part.entity_name}' is no address")
    if IP in types and len(types) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an ip goes with no other entity type")
    return tuple(sorted((part.entity_type, part.entity_name) for part in parts))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _change(controller: Controller, entity: QuotaEntity, entry: EntryData) -> list[Message]:
    allowed = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    has = controller.image.quotas.get(entity, {})
    records: list[Message] = []
    seen: set[str] = set()
    for op in entry.ops:
        if op.key not in allowed:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"'{op.key}' is no quota of this entity; it takes {', '.join(sorted(allowed))}",
            )
        if op.key in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request changes {op.key} twice")
        seen.add(op.key)
        if op.remove:
            if op.key in has:
                records.append(quota_record(entity, op.key, None))
            continue
        if not 0 < op.value < float("inf"):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{op.key} has to be a number above 0")
        if op.key in _WHOLE_KEYS | _IP_KEYS and op.value != int(op.value):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{op.key} has to be a whole number")
        if has.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records
