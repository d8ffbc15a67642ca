"""SaslHandshake, API key 17.

Behaviour
  The first step of SASL: the client names its mechanism; the reply lists those enabled, with
  UNSUPPORTED_SASL_MECHANISM when it is not among them.

Version notes
  0: raw SASL tokens follow on the connection, in frames without a Kafka header.
  1: tokens travel in SaslAuthenticate. Never flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message):
    api_key = 17
    versions = (0, 1)
    flexible = None

    mechanism: str = string()


class SaslHandshakeResponse(Message):
    api_key = 17
    versions = (0, 1)
    flexible = None

    error_code: int = int16()
    mechanisms: list[str] = array(string)
