"""The one declared failure of this package: bytes that are not the batch they claim to be."""

from __future__ import annotations

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed


class CorruptBatch(Malformed):
    """A batch, message set or compressed payload that does not follow its format, or whose CRC is wrong.

    `position` is a byte of the buffer that was handed in; inside a decompressed payload it counts from there.
    """


class TooLarge(CorruptBatch):
    """A payload that would unfold past a limit: refused before the memory is taken."""


class RecordError:
    """One refused record of a produced batch, as `ProduceResponse.record_errors` wants it."""

    __slots__ = ("batch_index", "message")

    def __init__(self, batch_index: int, message: str) -> None:
        self.batch_index = batch_index
        self.message = message

    def __repr__(self) -> str:
        return f"RecordError({self.batch_index}, {self.message!r})"


class InvalidBatch(ApiError):
    """Well-formed bytes that a producer may not send: the error code, the text, the refused records if known."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
