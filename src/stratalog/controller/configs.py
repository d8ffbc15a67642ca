"""Configurations of topics, brokers and groups: replaced as a whole or changed key by key.

Each resource of a request succeeds or fails for itself, all of its keys or none.  The default of all brokers and a
topic's overrides are different resources: changing one never touches the other (R30).  Called by
`controller.controller`; pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stratalog.base.config import ConfigError, ConfigType, Scope, Table
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.controller.topics import why_bad_name
from stratalog.metadata.broker_config import BROKER_KEYS, is_foreign, names_code
from stratalog.metadata.effective import check_cleaners, normalized, topic_defaults
from stratalog.metadata.group_config import GROUP_KEYS
from stratalog.metadata.image import ConfigResource, ResourceType
from stratalog.metadata.topic_config import TOPIC_KEYS, validate
from stratalog.protocol.disk.metadata import ConfigRecord
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller
    from stratalog.protocol.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from stratalog.protocol.k44_incremental_alter_configs import (
        AlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
CLEANERS: Final = ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size")


def alter_configs(controller: Controller, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
    from stratalog.protocol.k33_alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    records: list[Message] = []
    responses = []
    for item in request.resources:
        resource = ConfigResource(item.resource_type, item.resource_name)
        code, message = ErrorCode.NONE, None
        try:
            if times[resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            new: dict[str, str] = {}
            for config in item.configs:
                if config.name in new:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"the request sets {config.name} twice")
                if config.value is None:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name} has no value")
                new[config.name] = config.value
            made = change(controller, resource, new)
            if not request.validate_only:
                records += made
        except ApiError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
            )
        )
    return Result(records, AlterConfigsResponse(responses=responses))


def incremental_alter_configs(
    controller: Controller, request: IncrementalAlterConfigsRequest
) -> Result[IncrementalAlterConfigsResponse]:
    from stratalog.protocol.k44_incremental_alter_configs import (
        AlterConfigsResourceResponse,
        IncrementalAlterConfigsResponse,
    )

    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    records: list[Message] = []
    responses = []
    for item in request.resources:
        resource = ConfigResource(item.resource_type, item.resource_name)
        code, message = ErrorCode.NONE, None
        try:
            if times[resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            check_resource(controller, resource)
            new = dict(controller.image.configs.get(resource, {}))
            seen: set[str] = set()
            for config in item.configs:
                if config.name in seen:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"the request changes {config.name} twice")
                seen.add(config.name)
                _operate(controller, resource, new, config)
            made = change(controller, resource, new, touched=seen)
            if not request.validate_only:
                records += made
        except ApiError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
            )
        )
    return Result(records, IncrementalAlterConfigsResponse(responses=responses))


def table_of(type: int) -> Table:
    """The keys of a kind of resource; `ApiError` for one whose configuration cannot be changed here."""
    if type == ResourceType.TOPIC:
        return TOPIC_KEYS
    if type == ResourceType.BROKER:
        return BROKER_KEYS
    if type == ResourceType.GROUP:
        return GROUP_KEYS
    if type == ResourceType.BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "this broker has no loggers with levels of their own")
    if type == ResourceType.CLIENT_METRICS:
        raise ApiError(ErrorCode.INVALID_REQUEST, "this broker takes no metrics from clients")
    raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown resource type {type}")


def _operate(controller: Controller, resource: ConfigResource, values: dict[str, str], config: AlterableConfig) -> None:
    """One operation of IncrementalAlterConfigs on the resource's values."""
    name, operation, value = config.name, config.config_operation, config.value
    if operation == DELETE:
        values.pop(name, None)
        return
    if operation not in (SET, APPEND, SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown operation {operation} on {name}")
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
    if operation == SET:
        values[name] = value
        return
    key = table_of(resource.type).get(name)
    if key is None or key.type != ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is no list: it cannot be appended to or subtracted from")
    before = values.get(name)
    if before is None:
        before = topic_defaults(controller.settings.layers).get(name) if resource.type == ResourceType.TOPIC else None
    items = _items(key.default or "" if before is None else before)
    change = _items(value)
    if operation == APPEND:
        items += [item for item in change if item not in items]
    else:
        items = [item for item in items if item not in change]
    values[name] = ",".join(items)


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def check_resource(controller: Controller, resource: ConfigResource) -> None:
    """Whether the resource is one that has configurations, and is there."""
    table_of(resource.type)
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic's name is empty")
        bad = why_bad_name(resource.name)
        if bad is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, bad)
        if resource.name not in controller.image.topics_by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{resource.name}'")
    elif resource.type == ResourceType.BROKER:
        if resource.name and (not resource.name.isascii() or not resource.name.isdigit()):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a broker's name is its number, not '{resource.name}'")
        if resource.name and int(resource.name) not in controller.image.brokers:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {resource.name} is not registered")
    elif not resource.name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a group's name is empty")


def change(
    controller: Controller,
    resource: ConfigResource,
    new: Mapping[str, str],
    *,
    touched: set[str] | None = None,
) -> list[Message]:
    """Records that make `new` the resource's overrides, once they are checked.  `touched`: the keys that the request
    names (all, where it replaces the whole); what else a resource has was checked when it was set."""
    check_resource(controller, resource)
    try:
        if resource.type == ResourceType.TOPIC:
            validate(
                new,
                topic_defaults(controller.settings.layers),
                remote_storage=bool(controller.settings["remote.log.storage.system.enable"]),
            )
        elif resource.type == ResourceType.BROKER:
            _check_broker(new if touched is None else touched, new, per_broker=bool(resource.name))
            _check_together(controller, resource, new)
        else:
            _check_group(controller, new)
    except ConfigError as error:
        # Kafka's brokers look at their own values before the controller does, and call a bad one a bad request.
        of_broker = resource.type == ResourceType.BROKER
        code = ErrorCode.INVALID_REQUEST if of_broker else ErrorCode.INVALID_CONFIG
        raise ApiError(code, str(error)) from None
    table = table_of(resource.type)
    old = controller.image.configs.get(resource, {})
    records: list[Message] = []
    value: str | None
    for name in dict.fromkeys((*old, *new)):
        value = new.get(name)
        if value is not None and name in table:
            value = normalized(table[name], value)
        if value != old.get(name):
            records.append(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            )
    return records


def _check_group(controller: Controller, new: Mapping[str, str]) -> None:
    """What a group asks for lies between the broker's bounds for it."""
    settings = controller.settings
    for name, text in new.items():
        value = GROUP_KEYS.parse(name, text)
        kind, _, what = name.partition(".")
        low, high = (f"group.{kind}.{bound}.{what}" for bound in ("min", "max"))
        if low in BROKER_KEYS and high in BROKER_KEYS and not settings[low] <= value <= settings[high]:
            raise ConfigError(name, text, f"has to be from {settings[low]} to {settings[high]} ({low}, {high})")


def _check_together(controller: Controller, resource: ConfigResource, new: Mapping[str, str]) -> None:
    """Keys that are only right beside others.  The values of another broker's file are not known here."""
    before = controller.settings.layers
    if resource.name and resource.name != str(controller.node_id):
        return
    after = replace(before, own=new) if resource.name else replace(before, default=new)
    if any(after.get(name) != before.get(name) for name in CLEANERS):
        check_cleaners(after, before)


def _check_broker(touched: Mapping[str, str] | set[str], new: Mapping[str, str], *, per_broker: bool) -> None:
    for name in sorted(touched):
        if name in new and names_code(name):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{name} names code, a file or an address: only server.properties may"
            )
        key = BROKER_KEYS.get(name)
        if key is None:
            if not is_foreign(name):
                BROKER_KEYS.parse(name, new.get(name, ""))  # raises, with the nearest known name
            continue
        if key.scope == Scope.READ_ONLY:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can only be changed in server.properties")
        if key.scope == Scope.PER_BROKER and not per_broker:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is set for one broker, not for all")
        if name in new:
            key.parse(new[name])
