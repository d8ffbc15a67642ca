"""32 DescribeConfigs: configurations with where each value comes from, on wish with synonyms and documentation.

Topics and groups are described from the image and this broker's layers; a broker only describes itself, and the
default of all brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stratalog.base.config import ConfigKey, Scope, Table
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.controller.topics import why_bad_name
from stratalog.metadata.broker_config import BROKER_KEYS
from stratalog.metadata.effective import Entry, Layers, Source, scaled, synonyms
from stratalog.metadata.group_config import GROUP_KEYS
from stratalog.metadata.image import MetadataImage, ResourceType
from stratalog.metadata.topic_config import TOPIC_KEYS
from stratalog.node.admin import body_of
from stratalog.node.request import Request
from stratalog.protocol.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> DescribeConfigsResponse:
    body: DescribeConfigsRequest = request.body
    results = []
    # A resource that is asked for twice is told once: its answer may be a thousand times as large as its name.
    asked = set()
    for resource in body.resources:
        keys = resource.configuration_keys
        question = (resource.resource_type, resource.resource_name, None if keys is None else tuple(keys))
        if question in asked:
            continue
        asked.add(question)
        code, message = ErrorCode.NONE, None
        configs: list[DescribeConfigsResourceResult] = []
        try:
            configs = _describe(node, resource, body.include_synonyms, body.include_documentation)
            if request.version == 0:
                for config in configs:  # its only word on where a value comes from
                    config.is_default = config.config_source == Source.DEFAULT
        except ApiError as error:
            code, message = error.code, error.message
        results.append(
            DescribeConfigsResult(
                error_code=int(code),
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(results=results)


def refuse(node: Node, request: Request, code: ErrorCode) -> DescribeConfigsResponse:
    """Every resource answered with one error."""
    body = body_of(request, DescribeConfigsRequest)
    results = [
        DescribeConfigsResult(
            error_code=int(code),
            error_message=code.text,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        for resource in body.resources
    ]
    return DescribeConfigsResponse(results=results)


def _describe(
    node: Node, resource: DescribeConfigsResource, with_synonyms: bool, with_documentation: bool
) -> list[DescribeConfigsResourceResult]:
    image: MetadataImage = node.image
    layers: Layers = node.config.layers
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        bad = why_bad_name(name)
        if bad is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, bad)
        if name not in image.topics_by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{name}'")
        rows = _over_broker(TOPIC_KEYS, image.topic_config(name), Source.TOPIC, layers)
    elif kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS) and not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the resource's name is empty")
    elif kind == ResourceType.GROUP:
        rows = _over_broker(GROUP_KEYS, image.config(kind, name), Source.GROUP, layers)
    elif kind == ResourceType.BROKER:
        rows = _broker(image, layers, name, node.node_id)
    elif kind == ResourceType.CLIENT_METRICS:
        rows = []
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configuration here")
    wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
    return [
        _result(key, entries, value, with_synonyms, with_documentation, per_broker=kind == ResourceType.BROKER)
        for key, entries, value in rows
        if wanted is None or key.name in wanted
    ]


Row = tuple[ConfigKey, list[Entry], str | None]
"""A key, the layers that set it (the winning one first), and its value."""


def _over_broker(table: Table, overrides: Mapping[str, str], source: int, layers: Layers) -> list[Row]:
    rows: list[Row] = []
    for name, key in table.items():
        if key.internal:
            continue
        below = synonyms(key, layers)
        entries = [entry for entry, _ in below]
        if name in overrides:
            entries.insert(0, Entry(name, overrides[name], source))
            value: str | None = overrides[name]
        elif below:
            value = scaled(key, below[0][0].value, below[0][1])
        else:
            value = key.default
            if value is not None:
                entries.append(Entry(name, value, Source.DEFAULT))
        rows.append((key, entries, value))
    return rows


def _broker(image: MetadataImage, layers: Layers, name: str, node_id: int) -> list[Row]:
    if name == "":  # the default of all brokers: only what is set there
        default = image.config(ResourceType.BROKER, "")
        return [
            (BROKER_KEYS[key], [Entry(key, default[key], Source.DYNAMIC_DEFAULT_BROKER)], default[key])
            for key in sorted(default)
            if key in BROKER_KEYS
        ]
    if name != str(node_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}; broker '{name}' describes itself")
    return [(key, layers.entries(key.name), layers.text(key.name)) for key in BROKER_KEYS.values() if not key.internal]


def _result(
    key: ConfigKey,
    entries: list[Entry],
    value: str | None,
    with_synonyms: bool,
    with_documentation: bool,
    *,
    per_broker: bool,
) -> DescribeConfigsResourceResult:
    source = entries[0].source if entries else Source.DEFAULT
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.sensitive else value,
        read_only=per_broker and key.scope == Scope.READ_ONLY,
        config_source=source,
        is_sensitive=key.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=entry.name, value=None if key.sensitive else entry.value, source=entry.source)
            for entry in (entries if with_synonyms else ())
        ],
        config_type=int(key.type),
        documentation=key.documentation if with_documentation else None,
    )
