"""What can go wrong for a client, each with one line that says what, where and what to do."""

from __future__ import annotations

from stratalog.base.errors import ErrorCode


class ClientError(Exception):
    """Any failure of this client."""


class Unreachable(ClientError):
    """No broker of the bootstrap list answered."""


class ConnectionLost(ClientError):
    """The connection ended or timed out while an answer was due: what the request did is not known."""


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        try:
            known = ErrorCode(code)
            name, text, self.retriable = known.name, known.text, known.retriable
        except ValueError:
            name, text, self.retriable = f"error {code}", "", False
        self.code = code
        self.name = name
        super().__init__(f"{what}: {message or text} ({name})" if message or text else f"{what}: {name}")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise `Refused` unless the code is 0."""
    if code:
        raise Refused(code, what, message)
