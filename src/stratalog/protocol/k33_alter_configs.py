"""AlterConfigs, API key 33.

Behaviour
  Replaces a resource's whole configuration by the one given. Superseded by IncrementalAlterConfigs.

Version notes
  1: throttled clients get the reply at once.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message):
    api_key = 33
    versions = (0, 2)
    flexible = 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message):
    api_key = 33
    versions = (0, 2)
    flexible = 2

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
