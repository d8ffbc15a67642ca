"""Envelope, API key 58.

Behaviour
  A client's request that a broker forwards to the controller, whole, with who sent it and from where. The inner reply
  comes back whole. The principal is `DefaultPrincipalData`, with its version in front.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, boolean, bytes_, int16, string


class EnvelopeRequest(Message):
    api_key = 58
    versions = (0, 0)
    flexible = 0

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable=0)
    client_host_address: bytes = bytes_()


class EnvelopeResponse(Message):
    api_key = 58
    versions = (0, 0)
    flexible = 0

    response_data: bytes | None = bytes_(nullable=0, default=None)
    error_code: int = int16()


class DefaultPrincipalData(Message):
    versions = (0, 0)
    flexible = 0

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
