"""DescribeAcls, API key 29.

Behaviour
  The access control entries that match a filter.

Version notes
  1: pattern type of the resource.
  2: flexible.
  3: user resources.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message):
    api_key = 29
    versions = (0, 3)
    flexible = 2

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message):
    api_key = 29
    versions = (0, 3)
    flexible = 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
