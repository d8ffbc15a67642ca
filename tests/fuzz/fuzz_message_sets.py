"""Any bytes as message sets v0 and v1: walk, records, conversion down and, as produced data, up.

Only the declared errors may come out (issue 3, bad input).  `tests/fuzz/run.py` drives it; `one` is the target.
"""

from __future__ import annotations

import struct
import zlib

from stratalog.base.failures import ApiError, Malformed
from stratalog.records import batch, convert, legacy
from stratalog.records.validate import analyze, validate_and_assign


def one(data: bytes) -> None:
    entries = bytearray(data)
    try:
        headers = list(batch.batches(entries))
    except Malformed:
        return
    whole = True
    for header in headers:
        if header.magic > 1:
            whole = False
            continue
        try:
            first = legacy.first_offset(entries, header)
            offsets = [record.offset for record in batch.records_of(entries, header)]
            assert offsets[0] == first
        except Malformed:
            pass
        struct.pack_into(">I", entries, header.position + 12, zlib.crc32(entries[header.position + 16 : header.end]))
    try:
        batch.complete_bytes(convert.down_convert(entries, 0))
    except (Malformed, ApiError):
        pass
    if not whole:
        return
    try:
        done = validate_and_assign(
            entries,
            base_offset=500,
            now_ms=1_700_000_000_000,
            leader_epoch=3,
            headers=analyze(entries, produce_version=2),
        )
    except (Malformed, ApiError):
        return
    (header,) = done.headers
    batch.check(done.buffers[0], header)
    assert [record.offset for record in batch.records_of(done.buffers[0], header)] == list(
        range(500, 500 + done.records)
    )
