"""SaslAuthenticate, API key 36.

Behaviour
  One token of the SASL exchange, each way, after SaslHandshake version 1.

Version notes
  1: how long the session lasts before the client must authenticate again.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, bytes_, int16, int64, string


class SaslAuthenticateRequest(Message):
    api_key = 36
    versions = (0, 2)
    flexible = 2

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message):
    api_key = 36
    versions = (0, 2)
    flexible = 2

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
