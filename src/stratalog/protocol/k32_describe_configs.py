"""DescribeConfigs, API key 32.

Behaviour
  Configuration of topics, brokers, loggers, groups or client metrics, each value with where it comes from. Null keys
  mean all. Values of sensitive keys are null.

Version notes
  0: a flag says whether a value is the default.
  1: the source as a number, and synonyms on wish.
  2: throttled clients get the reply at once.
  3: type and documentation.
  4: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=0)


class DescribeConfigsRequest(Message):
    api_key = 32
    versions = (0, 4)
    flexible = 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    name: str = string(since=1)
    value: str | None = string(since=1, nullable=0)
    source: int = int8(since=1)


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    is_default: bool = boolean(until=0)
    config_source: int = int8(since=1, default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=0, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message):
    api_key = 32
    versions = (0, 4)
    flexible = 4

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
