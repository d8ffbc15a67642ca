"""The three kinds of failure, never mixed (STYLE.md, rule 10).

A bug is an `AssertionError` and stops the process or the partition.  A disk's fault is an `OSError` and takes its
directory offline.  A peer's or a request's fault is one of the two below.
"""

from __future__ import annotations

from stratalog.base.errors import ErrorCode


class Malformed(ValueError):
    """Bytes from a network or a file that do not follow their format: the one declared decoding error.

    `position` is the byte where it went wrong, counted from the start of what was decoded, -1 where unknown.
    """

    def __init__(self, reason: str, *, position: int = -1) -> None:
        super().__init__(reason if position < 0 else f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class ApiError(Exception):
    """A request's fault or a state that the peer must know of: a code from the one table, and a text for people."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code
        self.message = message or code.text
