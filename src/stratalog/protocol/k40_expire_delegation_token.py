"""ExpireDelegationToken, API key 40.

Behaviour
  Lets a delegation token expire earlier, or at once.

Version notes
  0 and 1 look the same.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Message):
    api_key = 40
    versions = (0, 2)
    flexible = 2

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message):
    api_key = 40
    versions = (0, 2)
    flexible = 2

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
