"""ListConfigResources, API key 74.

Behaviour
  The names of configuration resources. In version 0 client metrics resources only.

Version notes
  1: resource types, to filter and in the reply; an empty list means all.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message):
    api_key = 74
    versions = (0, 1)
    flexible = 0

    resource_types: list[int] = array(int8, since=1)


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Message):
    api_key = 74
    versions = (0, 1)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
