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
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.base.types import Buffer
from stratalog.records import batch, compression
from stratalog.records.kernels import (
    ATTRIBUTES,
    BATCH_OVERHEAD,
    CODEC_MASK,
    COUNT,
    MAGIC,
    NEEDS_PYTHON,
    OUTPUT_FULL,
    POSITION,
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


def rewrite_batch(
    data: Buffer,
    table: BatchTable,
    index: int,
    rules: FilterRules,
    verdict: int,
    offset_map: OffsetMap,
    *,
    payload: Buffer | None = None,
    level: int | None = None,
) -> tuple[FilterRun, Buffer]:
    """One batch of v2, compressed or not: (what happened, the batch to write, empty where nothing survives).

    What survives of a compressed batch is compressed again with its codec.  Message sets of the old formats are for
    `records.convert` first.  `payload`: its decompressed records, where the caller has them already.
    """
    row = table.row(index)
    if row[MAGIC] != 2:
        raise ValueError("a message set is converted first, then the batches that it became are rewritten")
    codec = row[ATTRIBUTES] & CODEC_MASK
    if payload is None and codec:
        payload = compression.decompress(codec, batch.payload(data, batch.read_header(data, row[POSITION])))
    one = BatchTable(1)
    one.rows[:] = row
    one.count = 1
    size = row[SIZE] if payload is None else BATCH_OVERHEAD + len(payload)
    output = bytearray(max(row[SIZE], size + 10 * row[COUNT]))
    payloads = {} if payload is None else {0: payload}
    run = offset_map.filter_run(data, one, rules, bytes((verdict,)), output, payloads=payloads, compressed_too=True)
    assert run.code not in (NEEDS_PYTHON, OUTPUT_FULL), "the records are at hand, and so is the room"
    result: Buffer = memoryview(output)[: run.output_size]
    written = run.written
    if codec and written and written[5] and written[7]:
        packed = compression.compress(codec, result[BATCH_OVERHEAD:], level)
        result = bytearray(result[:BATCH_OVERHEAD])
        result += packed
        batch.INT32.pack_into(result, batch.LENGTH_AT, len(result) - batch.LOG_OVERHEAD)
        batch.UINT32.pack_into(result, batch.CRC_AT, batch.crc32c(memoryview(result)[batch.ATTRIBUTES_AT :]))
        written[1] = len(result)
        run = run._replace(output_size=len(result), bytes_kept=len(result))
    return run, result
