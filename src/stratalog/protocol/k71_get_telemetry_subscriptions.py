"""GetTelemetrySubscriptions, API key 71.

Behaviour
  A client asks which metrics the broker wants, how often and in which encodings; the zero id asks for a new instance
  id.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Message):
    api_key = 71
    versions = (0, 0)
    flexible = 0

    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Message):
    api_key = 71
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
