"""Any bytes as a log of batches: walk, check, records, markers, patch, the validator.

Only the declared errors may come out (issue 3, bad input).  `tests/fuzz/run.py` drives it; `one` is the target.
"""

from __future__ import annotations

import struct

from stratalog.base.failures import ApiError, Malformed
from stratalog.records import batch, control
from stratalog.records.validate import validate_and_assign

BATCHES_MAX = 8
"""Batches of one input that are opened: depth matters more than length."""
_OFFSETS = (0, 1 << 40)


def one(data: bytes) -> None:
    seen = 0
    try:
        for header in batch.batches(data):
            seen += 1
            if seen > BATCHES_MAX:
                break
            assert header.end <= len(data)
            batch.crc_is_valid(data, header)
            try:
                records = list(batch.records_of(data, header))
            except Malformed:
                pass
            else:
                if header.magic == 2:
                    assert len(records) == header.count
                if header.is_control:
                    try:
                        control.marker_of(data, header)
                    except Malformed:
                        pass
            if header.magic == 2:
                _validate(bytearray(data[header.position : header.end]))
    except Malformed:
        pass


def _validate(produced: bytearray) -> None:
    """As a client's payload, with base offset and CRC made right so that the damage gets past them."""
    struct.pack_into(">q", produced, 0, 0)
    struct.pack_into(">I", produced, batch.CRC_AT, batch.crc32c(memoryview(produced)[batch.ATTRIBUTES_AT :]))
    base = _OFFSETS[produced[-1] & 1]
    try:
        done = validate_and_assign(
            produced,
            base_offset=base,
            now_ms=1_700_000_000_000,
            leader_epoch=3,
            inspect=bool(produced[-1] & 2),
            codec=None if produced[-1] & 4 else 0,
            timestamp_type=produced[-1] >> 3 & 1,
        )
    except (Malformed, ApiError):
        return
    (header,) = done.headers
    batch.check(done.buffers[0], header)
    assert header.base_offset == base
    assert header.last_offset == done.last_offset == base + done.records - 1
    if done.converted:
        assert len(list(batch.records_of(done.buffers[0], header))) == done.records
