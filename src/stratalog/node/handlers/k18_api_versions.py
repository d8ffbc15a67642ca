"""18 ApiVersions: what this broker serves, and its features.  The first thing that a client asks.

What has a handler is offered, in the versions that its schema knows; what a later issue brings has none.  A request in
a version above ours is answered in version 0 with UNSUPPORTED_VERSION and the whole list (Kafka sends only the row of
ApiVersions itself; clients look for that row).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.types import Millis
from stratalog.metadata import features
from stratalog.node.request import Request
from stratalog.protocol.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, request: Request, now: Millis) -> ApiVersionsResponse:
    body: ApiVersionsRequest = request.body
    if request.version >= 3:
        name, version = body.client_software_name, body.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        request.peer.software = name[:64]
        request.peer.software_version = version[:64]
    if request.version >= 5:
        strange = body.cluster_id is not None and body.cluster_id != node.cluster_id
        if strange or (body.node_id >= 0 and body.node_id != node.node_id):
            return ApiVersionsResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))
    response = ApiVersionsResponse(error_code=0, api_keys=_keys(node))
    if request.version >= 3:
        supported = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(node.features().items())
        ]
        if request.version < 4:
            # A lowest level of 0 came with version 4; older clients refuse it.
            supported = [feature for feature in supported if feature.min_version > 0]
        response.supported_features = supported
        image = node.image
        if image is not None:
            response.finalized_features_epoch = image.offset
            response.finalized_features = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(features.finalized(image).items())
            ]
    return response


def unsupported(node: Node) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=_keys(node))


def _keys(node: Node) -> list[ApiVersion]:
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in node.served()]
