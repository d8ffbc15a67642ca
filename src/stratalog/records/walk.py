"""Walking the records of one batch: its structure checked, what the broker wants to know summed up.

Stateless; any thread.  The work is done by the compiled kernel where it is loaded, else by its plain twin.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from stratalog.base.types import Buffer
from stratalog.records.compression import decompress
from stratalog.records.errors import CorruptBatch, TooLarge
from stratalog.records.kernels import OK, RECORD_TOO_LARGE, TEXTS, best, kernels_ready, note_plain


class WalkSummary(NamedTuple):
    """What the records of a batch add up to; all numbers are -1 or 0 where there are none."""

    records: int
    min_timestamp: int
    max_timestamp: int
    max_timestamp_delta: int
    """Offset delta of the first record that has the highest timestamp."""
    first_timestamp: int
    last_offset_delta: int
    dense: bool
    """The offset deltas are 0, 1, 2 ... without a gap."""
    keyless: int
    first_keyless: int
    """Index of the first record without a key, -1 where all have one."""
    tombstones: int
    """Records without a value."""
    headers: int


def validate_records(
    data: Buffer,
    count: int,
    *,
    base_timestamp: int,
    require_keys: bool = False,
    require_dense: bool = False,
) -> WalkSummary:
    """Check `data`, the uncompressed records section of a v2 batch whose header promises `count` records.

    `TooLarge` for a record above its limit.  `CorruptBatch` where a record runs past the end, a varint does not end,
    the fields do not fill a record's length, a header is impossible, or bytes are left over; also where a key is
    missing or an offset delta is not the next one and the caller requires it.  Its position counts from the start of
    `data`.
    """
    if count < 0:
        raise CorruptBatch(f"a batch has {count} records")
    if not kernels_ready():
        note_plain(count)
    answer = best().walk(data, count, base_timestamp)
    if answer[0] != OK:
        fail(answer[0], answer[1], f"record {answer[2]}")
    (_, _, _, low, high, high_delta, first, last, dense, keyless, first_keyless, tombstones, headers) = answer
    if require_keys and first_keyless >= 0:
        raise CorruptBatch(f"record {first_keyless} has no key, and the topic is compacted")
    if require_dense and not dense:
        raise CorruptBatch("the offset deltas of a batch are not 0, 1, 2 ...")
    return WalkSummary(
        count, low, high, high_delta, first, last, bool(dense), keyless, first_keyless, tombstones, headers
    )


def usual_times(codec: int, data: Buffer, count: int, base_timestamp: int) -> tuple[int, int]:
    """The lowest and the highest time of a compressed batch's records; (-1, -1) where anything is wrong with them or
    they are not numbered 0, 1, 2 ...: `validate` then says what."""
    try:
        plain = decompress(codec, data)
    except CorruptBatch:
        return -1, -1
    if not kernels_ready():
        note_plain(count)
    code, _, _, low, high, _, _, _, dense, _, _, _, _ = best().walk(plain, count, base_timestamp)
    return (low, high) if code == OK and dense else (-1, -1)


def fail(code: int, position: int, where: str = "") -> NoReturn:
    """Turn a twin's error code into the declared error."""
    text = TEXTS[code]
    kind = TooLarge if code == RECORD_TOO_LARGE else CorruptBatch
    raise kind(f"{text} ({where})" if where else text, position=position)
