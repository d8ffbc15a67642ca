"""AllocateProducerIds, API key 67.

Behaviour
  A broker asks the controller for its next block of producer ids.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, int16, int32, int64


class AllocateProducerIdsRequest(Message):
    api_key = 67
    versions = (0, 0)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Message):
    api_key = 67
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
