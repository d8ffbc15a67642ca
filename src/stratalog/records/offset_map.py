"""The cleaner's offset map: key to the highest offset that it was seen at, in memory of a fixed size.

One thread at a time.  A slot has 24 bytes: 16 of a keyed hash (SipHash-2-4 with 128 bits), 8 of offset.  The key itself
is not kept, as in Kafka, so two keys with one hash would count as one, and the older record of the two would be lost.
That is where we differ (scenario C15): Kafka hashes with plain MD5, for which anybody can make two keys that collide;
here the hash has a secret of 16 random bytes for each map, so colliding keys cannot be prepared, and by chance n keys
collide with a probability of n squared / 2^129: for a billion keys less than one in 10^20.  `weak_bits` cuts the hash
for tests that want collisions.

    map = OffsetMap(128 << 20, secret=rng.token(16))
    code, row, _ = map.put_run(data, table, start_offset=first_dirty)      MAP_FULL: this pass ends here
    end = map.latest_offset + 1
    bitmap = map.survivors(first_dirty, end)                               the rewrite then needs no hashing
    rules = FilterRules(end - 1, now_ms, delete_retention_ms, bitmap, first_dirty, end)
    run, buffers = rewrite_run(data, table, rules, verdicts, map, output)  again from run.next_row on, to the last row
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.base.types import Buffer
from stratalog.records import batch, compression
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL,
    COUNT,
    DISCARD,
    LAST_OFFSET,
    MAGIC,
    OUT_ROW,
    OUTPUT_FULL,
    POSITION,
    ROW,
    SIZE,
    BatchTable,
    FilterRules,
    FilterRun,
    best,
)

BYTES_PER_SLOT: Final = 24
SLOTS_MAX: Final = 2**31 - 1
"""What the place of a slot is computed with; 48 GiB of memory."""
SURVIVOR_BITS_MAX: Final = 1 << 30
"""Offsets in one bitmap: 128 MiB.  Where a log has larger gaps than that, `survivors` says None and keys are looked up
one by one."""


class OffsetMap:
    """See the module.  `state` of the twin: entries, latest offset, records without a key."""

    __slots__ = ("_k0", "_k1", "_slots", "_twin", "entries_max", "slots")

    def __init__(
        self,
        memory_bytes: int,
        *,
        secret: bytes,
        load_factor: float = 0.9,
        weak_bits: int | None = None,
        twin: Any = None,
    ) -> None:
        """`memory_bytes` is all that the map will ever take.  `twin`: `best()` unless a test says otherwise."""
        if len(secret) != 16:
            raise ValueError(f"the secret has 16 bytes, not {len(secret)}")
        self.slots = min(memory_bytes // BYTES_PER_SLOT, SLOTS_MAX)
        self.entries_max = int(self.slots * load_factor)
        if not 0 < self.entries_max <= self.slots:
            raise ValueError(f"{memory_bytes} bytes at a load of {load_factor} hold no key")
        self._k0 = int.from_bytes(secret[:8], "little", signed=True)
        self._k1 = int.from_bytes(secret[8:], "little", signed=True)
        mask0, mask1 = -1, -1
        if weak_bits is not None:
            mask0, mask1 = (1 << weak_bits) - 1, 0
        self._twin = best() if twin is None else twin
        self._slots = self._twin.OffsetSlots(self.slots, self.entries_max, self._k0, self._k1, mask0, mask1)

    def __len__(self) -> int:
        """Keys in the map."""
        return int(self._slots.state[7])

    @property
    def latest_offset(self) -> int:
        """The end of what the map knows: the last offset of the last batch put, or of the last record put where the
        map was full in the middle of one; -1 for an empty map."""
        return int(self._slots.state[8])

    @property
    def keyless(self) -> int:
        """Records without a key that were passed over."""
        return int(self._slots.state[9])

    @property
    def utilization(self) -> float:
        return len(self) / self.slots

    def advance(self, offset: int) -> None:
        """The map knows everything up to `offset`: used over gaps at the end of a segment."""
        if offset > self.latest_offset:
            self._slots.state[8] = offset

    def clear(self) -> None:
        """Empty, for the next log.  The memory goes back to the system until it is used."""
        self._slots.clear()

    def close(self) -> None:
        """Give the memory back; the map is not used any more."""
        self._slots.close()

    def put(self, key: Buffer, offset: int) -> bool:
        """Whether there was room; like Kafka's, a map at its load refuses keys that it has, too."""
        return bool(self._slots.put_hash(*self._twin.hash_key(key, self._k0, self._k1), offset))

    def get(self, key: Buffer) -> int:
        """The key's highest offset, -1 where it is not in the map."""
        return int(self._slots.get_hash(*self._twin.hash_key(key, self._k0, self._k1)))

    def put_run(
        self,
        data: Buffer,
        table: BatchTable,
        *,
        first: int = 0,
        start_offset: int = 0,
        verdicts: Buffer | None = None,
        payloads: dict[int, Buffer] | None = None,
    ) -> tuple[int, int, int]:
        """Put the keys of the table's batches from row `first` on: (code, row where it stopped, position there).

        Skips control batches, batches with the verdict `DISCARD` (aborted), records below `start_offset` or without a
        key.  `OK` when all rows are in; `MAP_FULL` when the map is at its load, with everything before that record in;
        `NEEDS_PYTHON` for a compressed or old batch that has no entry in `payloads` (`arrow.payloads_of`), to be called
        again with it; else what is wrong with the record at that position.
        """
        code, row, position = self._slots.put_run(data, table, first, start_offset, verdicts, payloads or {})
        return int(code), int(row), int(position)

    def survivors(self, start: int, stop: int) -> bytearray | None:
        """A bit for each offset of [start, stop): whether it is the highest of its key.  None where that would take
        more memory than it is worth; `FilterRules` without a bitmap look keys up instead."""
        if stop - start > SURVIVOR_BITS_MAX or stop <= start:
            return None
        return bytearray(self._slots.survivors(start, stop))

    def items(self) -> tuple[Any, Any]:
        """(hashes as pairs of integers, offsets): what a shuffle over many maps needs."""
        return self._slots.items()  # type: ignore[no-any-return]

    def filter_run(
        self,
        data: Buffer,
        table: BatchTable,
        rules: FilterRules,
        verdicts: Buffer,
        output: bytearray | memoryview,
        *,
        first: int = 0,
        payloads: dict[int, Buffer] | None = None,
        compressed_too: bool = False,
    ) -> FilterRun:
        """Write what survives of the table's batches from row `first` on into `output`: see `plain.filter_run`."""
        run = self._twin.filter_run(
            data, table, first, verdicts, self._slots, rules, output, payloads or {}, compressed_too=compressed_too
        )
        assert isinstance(run, FilterRun)
        return run


def rewrite_run(
    data: Buffer,
    table: BatchTable,
    rules: FilterRules,
    verdicts: Buffer,
    offset_map: OffsetMap,
    output: bytearray | memoryview,
    *,
    first: int = 0,
    level: int | None = None,
) -> tuple[FilterRun, list[Buffer]]:
    """What survives of the batches from row `first` on, compressed or not: (what happened, buffers to write).

    Goes on as far as `output` has room for the records, compressed ones counted as they unfold; at least one batch is
    done, in memory of its own if it must be (C08).  `next_row` says where to go on, and `code` is `OK` also then.  The
    buffers may be views of `output`: write them before the next call.  What survives of a compressed batch is
    compressed again with its codec at `level`; one that loses nothing, and one that loses everything, is never
    compressed, the latter not even opened where the bitmap shows it.  Message sets of the old formats are for
    `records.convert`: `NEEDS_PYTHON`.
    """
    payloads: dict[int, Buffer] = {}
    stop, output = _room(data, table, rules, verdicts, output, first, payloads)
    whole = table.count
    table.count = stop
    try:
        run = offset_map.filter_run(
            data, table, rules, verdicts, output, first=first, payloads=payloads, compressed_too=True
        )
    finally:
        table.count = whole
    assert run.code != OUTPUT_FULL, "the room was counted before"
    if not payloads:
        return run, [memoryview(output)[: run.output_size]] if run.output_size else []
    return _packed(run, table, output, level)


def _room(
    data: Buffer,
    table: BatchTable,
    rules: FilterRules,
    verdicts: Buffer,
    output: bytearray | memoryview,
    first: int,
    payloads: dict[int, Buffer],
) -> tuple[int, bytearray | memoryview]:
    """(the row before which the room of `output` ends, the output): opens the compressed batches on the way."""
    rows = table.rows
    used = 0
    view = memoryview(data)
    for index in range(first, table.count):
        at = index * ROW
        need = rows[at + SIZE]
        if rows[at + MAGIC] != 2:
            return max(index, first + 1), output
        codec = rows[at + ATTRIBUTES] & CODEC_MASK
        payload: Buffer | None = None
        if codec and not verdicts[index] & DISCARD and not _is_dead(rows, at, rules):
            position = rows[at + POSITION]
            payload = compression.decompress(codec, view[position + BATCH_OVERHEAD : position + need])
            need = max(need, BATCH_OVERHEAD + len(payload))
        need += 10 * rows[at + COUNT]
        if used + need > len(output):
            if index > first:
                return index, output
            output = bytearray(need)
        used += need
        if payload is not None:
            payloads[index] = payload
    return table.count, output


def _is_dead(rows: Any, at: int, rules: FilterRules) -> bool:
    """Whether the bitmap has nothing at all in the bytes around a batch's offsets."""
    low, high = rows[at + BASE_OFFSET] - rules.bitmap_start, rows[at + LAST_OFFSET] - rules.bitmap_start
    if rules.bitmap is None or low < 0 or rows[at + ATTRIBUTES] & CONTROL:
        return False
    if rows[at + LAST_OFFSET] > rules.latest_offset or rows[at + LAST_OFFSET] >= rules.bitmap_stop:
        return False
    return not any(rules.bitmap[low >> 3 : (high >> 3) + 1])


def _packed(
    run: FilterRun, table: BatchTable, output: bytearray | memoryview, level: int | None
) -> tuple[FilterRun, list[Buffer]]:
    """Compress again what was opened and changed; the other batches between stay where they are."""
    view = memoryview(output)
    written = run.written
    buffers: list[Buffer] = []
    begin = shift = 0  # where the pending view begins; how much shorter the log is than the output so far
    for line in range(0, len(written), OUT_ROW):
        place, size = written[line], written[line + 1]
        codec = table.rows[written[line + 6] * ROW + ATTRIBUTES] & CODEC_MASK
        written[line] = place - shift
        if not codec or not written[line + 5] or not written[line + 7]:
            continue
        if place > begin:
            buffers.append(view[begin:place])
        begin = place + size
        records = compression.compress(codec, view[place + BATCH_OVERHEAD : begin], level)
        packed = bytearray(view[place : place + BATCH_OVERHEAD])
        packed += records
        batch.INT32.pack_into(packed, batch.LENGTH_AT, len(packed) - batch.LOG_OVERHEAD)
        batch.UINT32.pack_into(packed, batch.CRC_AT, batch.crc32c(memoryview(packed)[batch.ATTRIBUTES_AT :]))
        buffers.append(packed)
        written[line + 1] = len(packed)
        shift += size - len(packed)
    if run.output_size > begin:
        buffers.append(view[begin : run.output_size])
    size = run.output_size - shift
    return run._replace(output_size=size, bytes_kept=size), buffers


def rewrite_batch(
    data: Buffer,
    table: BatchTable,
    index: int,
    rules: FilterRules,
    verdict: int,
    offset_map: OffsetMap,
    *,
    level: int | None = None,
) -> tuple[FilterRun, Buffer]:
    """One batch of v2, compressed or not: (what happened, the batch to write, empty where nothing survives)."""
    one = BatchTable(1)
    one.rows[:] = table.row(index)
    one.count = 1
    run, buffers = rewrite_run(data, one, rules, bytes((verdict,)), offset_map, bytearray(), level=level)
    return run, b"".join(buffers)
