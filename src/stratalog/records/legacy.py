"""Message sets v0 and v1: entries with a CRC32 each, compression as a wrapper around a nested set."""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.base.types import Buffer
from stratalog.records.batch import BatchHeader, Record


def legacy_records_of(buffer: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records of one entry: itself, or the nested set of a compressed wrapper."""
    raise NotImplementedError


def first_offset(buffer: Buffer, header: BatchHeader) -> int:
    """The offset of an entry's first record; decompresses a wrapper."""
    raise NotImplementedError
