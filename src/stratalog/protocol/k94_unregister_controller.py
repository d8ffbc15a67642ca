"""UnregisterController, API key 94.

Behaviour
  Removes a controller's registration for good.

Version notes
  One version, new in 4.4.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, int16, int32, string


class UnregisterControllerRequest(Message):
    api_key = 94
    versions = (0, 0)
    flexible = 0

    controller_id: int = int32()


class UnregisterControllerResponse(Message):
    api_key = 94
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
