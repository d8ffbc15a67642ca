"""DescribeClientQuotas, API key 48.

Behaviour
  The quotas of users, client ids and addresses that match a filter of components (match 0 exact name, 1 the default
  entity, 2 any); `strict` excludes entities with further components.

Version notes
  1: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


class DescribeClientQuotasRequest(Message):
    api_key = 48
    versions = (0, 1)
    flexible = 1

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message):
    api_key = 48
    versions = (0, 1)
    flexible = 1

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entries: list[EntryData] | None = array(EntryData, nullable=0)
