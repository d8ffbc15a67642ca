"""DescribeUserScramCredentials, API key 50.

Behaviour
  Which SCRAM mechanisms users have, with their iterations; never salts or keys. Null or empty means all users.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message):
    api_key = 50
    versions = (0, 0)
    flexible = 0

    users: list[UserName] | None = array(UserName, nullable=0)


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message):
    api_key = 50
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
