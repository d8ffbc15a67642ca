"""CreateAcls, API key 30.

Behaviour
  Adds access control entries, each with its own result.

Version notes
  1: pattern type of the resource.
  2: flexible.
  3: user resources.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(since=1, default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message):
    api_key = 30
    versions = (0, 3)
    flexible = 2

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class CreateAclsResponse(Message):
    api_key = 30
    versions = (0, 3)
    flexible = 2

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
