"""IncrementalAlterConfigs, API key 44.

Behaviour
  Sets, deletes, appends to or subtracts from single configuration values (operations 0 to 3); all of a resource or
  nothing. Topics go to the controller, a broker's own keys to that broker.

Version notes
  1: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message):
    api_key = 44
    versions = (0, 1)
    flexible = 1

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message):
    api_key = 44
    versions = (0, 1)
    flexible = 1

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
