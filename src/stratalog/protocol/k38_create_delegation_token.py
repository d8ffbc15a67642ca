"""CreateDelegationToken, API key 38.

Behaviour
  Makes a delegation token for the caller, or for another owner.

Version notes
  0 and 1 look the same.
  2: flexible.
  3: an owner other than the requester.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message):
    api_key = 38
    versions = (0, 3)
    flexible = 2

    owner_principal_type: str | None = string(since=3, nullable=3)
    owner_principal_name: str | None = string(since=3, nullable=3)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message):
    api_key = 38
    versions = (0, 3)
    flexible = 2

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()
