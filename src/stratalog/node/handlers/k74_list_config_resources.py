"""74 ListConfigResources: names of what can be configured, by type; topics and brokers are all there, whether they
have overrides or not, groups where they have some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.metadata.image import MetadataImage, ResourceType
from stratalog.node.request import Request
from stratalog.protocol.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node

_ALL: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(node: Node, request: Request, now: Millis) -> ListConfigResourcesResponse:
    body: ListConfigResourcesRequest = request.body
    wanted = [ResourceType.CLIENT_METRICS] if request.version == 0 else list(dict.fromkeys(body.resource_types)) or _ALL
    resources = []
    for kind in wanted:
        if kind not in _ALL:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unknown resource type {kind}")
        resources += [ConfigResource(resource_name=name, resource_type=kind) for name in _names(node.image, kind)]
    return ListConfigResourcesResponse(error_code=0, config_resources=resources)


def _names(image: MetadataImage, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return list(image.topics_by_name)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(id) for id in sorted(image.brokers)]
    return [resource.name for resource in image.configs if resource.type == kind]
