"""PushTelemetry, API key 72.

Behaviour
  A client's metrics, as the subscription asked for them (OpenTelemetry protobuf, perhaps compressed).

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Message):
    api_key = 72
    versions = (0, 0)
    flexible = 0

    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Message):
    api_key = 72
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
