"""ApiVersions, API key 18.

Behaviour
  Which APIs and versions the broker speaks, and its features. Sent first, before authentication too. A broker that
  does not know the request's version answers in version 0 with UNSUPPORTED_VERSION and its own range of this API. The
  response header is always version 0, so that a client can read it before it knows anything.

Version notes
  0: the list.
  1: throttle time.
  3: flexible; name and version of the client's software; supported and finalized features in tagged fields.
  4: a feature's lowest level may be 0.
  5: the client says which cluster and node it means to talk to, and gets REBOOTSTRAP_REQUIRED when that is
    somebody else.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string, tag


class ApiVersionsRequest(Message):
    api_key = 18
    versions = (0, 5)
    flexible = 3

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    node_id: int = int32(since=5, default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


class FinalizedFeatureKey(Struct):
    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


class ApiVersionsResponse(Message):
    api_key = 18
    versions = (0, 5)
    flexible = 3

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = tag(0, array(SupportedFeatureKey, ignorable=True), since=3)
    finalized_features_epoch: int = tag(1, int64(default=-1, ignorable=True), since=3)
    finalized_features: list[FinalizedFeatureKey] = tag(2, array(FinalizedFeatureKey, ignorable=True), since=3)
    zk_migration_ready: bool = tag(3, boolean(ignorable=True), since=3)
