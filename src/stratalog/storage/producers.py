"""The producers of one partition: sequences, epochs, open transactions; and their snapshots on disk.

Owned by the log's writer.  What it decides:

- a batch with the sequences of one of the producer's last five is a duplicate: the caller answers with its offsets;
- an older producer epoch is fenced; a new one begins at sequence 0; otherwise sequences go on without a gap, from
  2^31-1 to 0; a producer nobody remembers may begin anywhere (its records were deleted by retention);
- inside a transaction only transactional batches; a marker ends it, with an epoch that for transactions v2 must be
  newer than the producer's;
- the first unstable offset is that of the oldest transaction that is open, or decided above the high watermark.

Changes are made when a batch is staged and can be undone (`undo`) until its bytes are written, so that batches staged
behind it are checked against it.

Snapshot file (version 1):  int16 version | uint32 CRC-32C of what follows | int32 count | entries of 46 bytes:
producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
coordinator epoch int32, first offset of its open transaction int64 (-1: none).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

import crc32c as _crc32c

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed
from stratalog.base.limits import PRODUCER_BATCHES_KEPT
from stratalog.base.ports import Disk
from stratalog.base.types import MAX_INT32
from stratalog.storage.values import OffsetMetadata, Origin

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
ENTRY_SIZE = 46
assert _ENTRY.size == ENTRY_SIZE
SNAPSHOT_VERSION = 1
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000

Batch = tuple[int, int, int, int]
"""last sequence, last offset, offset delta, timestamp"""


class ProducerEntry:
    """What is known of one producer."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        txn_first_offset: int = -1,
        batches: list[Batch] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches: list[Batch] = [] if batches is None else batches

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.txn_first_offset,
            list(self.batches),
        )

    def add(self, epoch: int, batch: Batch) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        elif len(self.batches) == PRODUCER_BATCHES_KEPT:
            del self.batches[0]
        self.batches.append(batch)
        self.last_timestamp = batch[3]

    def row(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The entry as a snapshot holds it."""
        last = self.batches[-1] if self.batches else (-1, -1, 0, -1)
        return (
            self.producer_id,
            self.epoch,
            last[0],
            last[1],
            last[2],
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )

    def __repr__(self) -> str:
        return f"ProducerEntry{self.row()}"


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Verification:
    """The guard of a transaction's first append to this partition: the one object that the append must bring."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def seen(self, sequence: int, epoch: int) -> None:
        if epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence
        elif epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence


_Undo = tuple[ProducerEntry, Batch | None, int] | Callable[[], None]


class ProducerState:
    """The table of producers, the open transactions, the guards."""

    __slots__ = (
        "_undo",
        "entries",
        "expiration_ms",
        "map_end_offset",
        "ongoing",
        "unreplicated",
        "verifications",
    )

    def __init__(self, expiration_ms: int) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, tuple[int, OffsetMetadata]] = {}
        """Open transactions: first offset -> (producer, where); in the order of first offsets."""
        self.unreplicated: dict[int, tuple[OffsetMetadata, int]] = {}
        """Decided ones whose marker is at or above the high watermark: first offset -> (where, marker's offset)."""
        self.verifications: dict[int, Verification] = {}
        self.expiration_ms = expiration_ms
        self.map_end_offset = 0
        self._undo: list[_Undo] = []

    # --- appends ---------------------------------------------------------------------------------------------------
    def append_client(
        self, producer_id: int, epoch: int, first_sequence: int, last_offset: int, delta: int, timestamp: int
    ) -> Batch | None:
        """The common case: an idempotent batch of a client, outside of transactions.  The batch that it repeats, or
        None and it is noted.  Raises `ApiError`."""
        entry = self.entries.get(producer_id)
        last_sequence = first_sequence + delta
        if last_sequence > MAX_INT32:
            last_sequence -= MAX_INT32 + 1
        if entry is None:
            if producer_id in self.verifications:
                self._check_verification(producer_id, first_sequence, known=False)
            entry = ProducerEntry(producer_id, epoch)
            self.entries[producer_id] = entry
            entry.batches.append((last_sequence, last_offset, delta, timestamp))
            entry.last_timestamp = timestamp
            self._undo.append(lambda: self._forget(producer_id))
            return None
        batches = entry.batches
        if epoch == entry.epoch and batches:
            last = batches[-1]
            previous = last[0]
            if (first_sequence == previous + 1 or (first_sequence == 0 and previous == MAX_INT32)) and (
                entry.txn_first_offset < 0 and not self.verifications
            ):
                evicted = batches.pop(0) if len(batches) >= PRODUCER_BATCHES_KEPT else None
                self._undo.append((entry, evicted, entry.last_timestamp))
                batches.append((last_sequence, last_offset, delta, timestamp))
                entry.last_timestamp = timestamp
                return None
            duplicate = self.find_duplicate(producer_id, epoch, first_sequence, last_sequence)
            if duplicate is not None:
                return duplicate
        self.append_data(
            producer_id,
            epoch,
            first_sequence,
            last_offset,
            delta,
            timestamp,
            transactional=False,
            origin=Origin.CLIENT,
            where=OffsetMetadata(last_offset - delta),
        )
        return None

    def find_duplicate(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> Batch | None:
        """The batch among the last five with exactly these sequences."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        for batch in entry.batches:
            if batch[0] == last_sequence and (batch[0] - batch[2]) & MAX_INT32 == first_sequence:
                return batch
        return None

    def append_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset: int,
        delta: int,
        timestamp: int,
        *,
        transactional: bool,
        origin: Origin,
        where: OffsetMetadata,
    ) -> None:
        """Check a data batch and note it.  Raises `ApiError`; then nothing has changed."""
        current = self.entries.get(producer_id)
        offset = last_offset - delta
        if current is not None and epoch < current.epoch and origin is not Origin.REPLICATION:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} writes at offset {offset} with epoch {epoch}; epoch {current.epoch} has "
                "written here already",
            )
        if origin is Origin.CLIENT:
            self._check_sequence(producer_id, current, epoch, first_sequence, offset)
        if current is not None and current.txn_first_offset >= 0 and not transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction here; its batch at offset {offset} is none of it",
            )
        entry = ProducerEntry(producer_id) if current is None else current.copy()
        last_sequence = (first_sequence + delta) & MAX_INT32 if first_sequence >= 0 else -1
        entry.add(epoch, (last_sequence, last_offset, delta, timestamp))
        started = transactional and entry.txn_first_offset < 0
        if started:
            entry.txn_first_offset = offset
            self.ongoing[offset] = (producer_id, where)
        guard = self.verifications.pop(producer_id, None) if transactional else None
        self._replace(producer_id, current, entry)

        def undo() -> None:
            if started:
                del self.ongoing[offset]
            if guard is not None:
                self.verifications[producer_id] = guard

        if started or guard is not None:
            self._undo.append(undo)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        offset: int,
        timestamp: int,
        *,
        aborted: bool,
        coordinator_epoch: int,
        origin: Origin,
        transaction_version: int,
    ) -> tuple[CompletedTxn, int] | None:
        """A transaction's end: what it ended and the last stable offset that comes of it, None when there was none."""
        current = self.entries.get(producer_id)
        entry = ProducerEntry(producer_id) if current is None else current.copy()
        if origin is not Origin.REPLICATION:
            stale = epoch <= entry.epoch if transaction_version >= 2 else epoch < entry.epoch
            repeated = (
                transaction_version >= 2 and epoch == entry.epoch and (entry.txn_first_offset < 0 or epoch == 32767)
            )
            if stale and not repeated:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"the marker at offset {offset} has epoch {epoch} of producer {producer_id}; after epoch "
                    f"{entry.epoch} it must be {'newer' if transaction_version >= 2 else 'that one or newer'}",
                )
            if entry.coordinator_epoch > coordinator_epoch:
                raise ApiError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"the marker at offset {offset} for producer {producer_id} comes from coordinator epoch "
                    f"{coordinator_epoch}; epoch {entry.coordinator_epoch} has taken over",
                )
        first = entry.txn_first_offset
        if epoch != entry.epoch:
            entry.batches.clear()
            entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.txn_first_offset = -1
        entry.last_timestamp = timestamp
        guard = self.verifications.pop(producer_id, None)
        self._replace(producer_id, current, entry)
        if guard is not None:
            self._undo.append(lambda: self.verifications.__setitem__(producer_id, guard))
        if first < 0:
            return None
        completed = CompletedTxn(producer_id, first, offset, aborted)
        stable = offset + 1
        for start, (other, _) in self.ongoing.items():
            if other != producer_id:
                stable = start
                break
        assert first in self.ongoing, f"a transaction of producer {producer_id} ends that did not begin at {first}"
        before = dict(self.ongoing)
        _, where = self.ongoing.pop(first)
        self.unreplicated[first] = (where, offset)

        def undo() -> None:
            self.ongoing = before
            self.unreplicated.pop(first, None)

        self._undo.append(undo)
        return completed, stable

    def _replace(self, producer_id: int, current: ProducerEntry | None, entry: ProducerEntry) -> None:
        self.entries[producer_id] = entry

        def undo() -> None:
            if current is None:
                self.entries.pop(producer_id, None)
            else:
                self.entries[producer_id] = current

        self._undo.append(undo)

    def _check_sequence(
        self, producer_id: int, entry: ProducerEntry | None, epoch: int, first_sequence: int, offset: int
    ) -> None:
        if producer_id in self.verifications:
            self._check_verification(producer_id, first_sequence, known=entry is not None and bool(entry.batches))
        if entry is None:
            return
        if epoch != entry.epoch:
            if first_sequence != 0 and entry.epoch != -1:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence} at offset {offset}; "
                    f"an epoch begins with 0 (the last epoch here is {entry.epoch})",
                )
            return
        last = entry.last_sequence
        if first_sequence != last + 1 and not (first_sequence == 0 and last == MAX_INT32):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sends sequence {first_sequence} at offset {offset} after {last}: what lies "
                "between has not come",
            )

    def _check_verification(self, producer_id: int, first_sequence: int, *, known: bool) -> None:
        guard = self.verifications[producer_id]
        if guard.supports_epoch_bump and first_sequence != 0 and not known:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} is not known here and begins with sequence {first_sequence}, not with 0",
            )
        if first_sequence > guard.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sends sequence {first_sequence}, and {guard.lowest_sequence} came before it "
                "and was refused",
            )

    def _forget(self, producer_id: int) -> None:
        self.entries.pop(producer_id, None)

    # --- staging ---------------------------------------------------------------------------------------------------
    @property
    def mark(self) -> int:
        """Where we are: what comes after it can be undone."""
        return len(self._undo)

    def undo(self, mark: int = 0) -> None:
        """Take back what was noted since `mark`, last first."""
        undo = self._undo
        while len(undo) > mark:
            step = undo.pop()
            if isinstance(step, tuple):
                entry, evicted, timestamp = step
                entry.batches.pop()
                if evicted is not None:
                    entry.batches.insert(0, evicted)
                entry.last_timestamp = timestamp
            else:
                step()

    def keep(self) -> None:
        """What was noted is written: it stays."""
        self._undo.clear()
        if len(self.entries) > limits.PRODUCERS_MAX:
            self._forget_idlest()

    def _forget_idlest(self) -> None:
        """Too many: an eighth of them goes (more when that is not enough), as if it had expired, those first that wrote
        longest ago; none with an open transaction.  Whoever writes again is a producer that nobody remembers."""
        idle = [entry for entry in self.entries.values() if entry.txn_first_offset < 0]
        idle.sort(key=lambda entry: entry.last_timestamp)
        for entry in idle[: max(len(self.entries) // 8, len(self.entries) - limits.PRODUCERS_MAX)]:
            del self.entries[entry.producer_id]

    # --- transactions ----------------------------------------------------------------------------------------------
    def first_unstable(self) -> OffsetMetadata | None:
        """Where the oldest transaction begins that is open, or decided at or above the high watermark."""
        first: OffsetMetadata | None = None
        for _, where in self.ongoing.values():
            first = where
            break
        for where, _ in self.unreplicated.values():
            if first is None or where.offset < first.offset:
                first = where
        return first

    def on_high_watermark(self, high_watermark: int) -> bool:
        """Forget decided transactions whose marker is below it; True when that changed something."""
        done = [first for first, (_, last) in self.unreplicated.items() if last < high_watermark]
        for first in done:
            del self.unreplicated[first]
        return bool(done)

    def has_ongoing(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.txn_first_offset >= 0

    def oldest_open_timestamp(self) -> int:
        """When the producer of the oldest open transaction was last heard of, -1 when none is open."""
        for producer_id, _ in self.ongoing.values():
            entry = self.entries.get(producer_id)
            return entry.last_timestamp if entry is not None else -1
        return -1

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> Verification:
        guard = self.verifications.get(producer_id)
        if guard is None:
            guard = Verification(now_ms, sequence, epoch, supports_epoch_bump)
            self.verifications[producer_id] = guard
        else:
            guard.seen(sequence, epoch)
        return guard

    # --- life ------------------------------------------------------------------------------------------------------
    def expire(self, now_ms: int) -> None:
        """Forget producers without an open transaction that were silent for too long, and old guards."""
        old = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in old:
            del self.entries[producer_id]
        stale = [pid for pid, guard in self.verifications.items() if now_ms - guard.created_ms >= self.expiration_ms]
        for producer_id in stale:
            del self.verifications[producer_id]

    def clear(self, map_end_offset: int) -> None:
        self.entries.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self._undo.clear()
        self.map_end_offset = map_end_offset

    def load(self, rows: Iterable[ProducerEntry], now_ms: int, map_end_offset: int) -> None:
        """Take over a snapshot; producers that are expired by `now_ms` stay out."""
        self.clear(map_end_offset)
        for entry in rows:
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms:
                continue
            self.entries[entry.producer_id] = entry
        open_ones = sorted(entry.txn_first_offset for entry in self.entries.values() if entry.txn_first_offset >= 0)
        by_first = {entry.txn_first_offset: entry.producer_id for entry in self.entries.values()}
        for first in open_ones:
            self.ongoing[first] = (by_first[first], OffsetMetadata(first))


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
    rows = [_ENTRY.pack(*entry.row()) for entry in entries]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", SNAPSHOT_VERSION, _crc32c.crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot; `Malformed` when it is cut off, of another version, or its CRC is wrong."""
    if len(data) < _HEAD.size:
        raise Malformed("a snapshot is cut off", position=len(data))
    version, crc, count = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise Malformed(f"a snapshot of unknown version {version}", position=0)
    if count < 0 or len(data) != _HEAD.size + count * ENTRY_SIZE:
        raise Malformed(f"a snapshot of {len(data)} bytes claims {count} producers", position=6)
    if _crc32c.crc32c(memoryview(data)[6:]) != crc:
        raise Malformed("a snapshot has a wrong CRC", position=2)
    entries = []
    for pid, epoch, sequence, offset, delta, timestamp, coordinator, first in _ENTRY.iter_unpack(data[_HEAD.size :]):
        batches = [(sequence, offset, delta, timestamp)] if offset >= 0 else []
        entries.append(ProducerEntry(pid, epoch, coordinator, timestamp, first if first >= 0 else -1, batches))
    return entries


def read_snapshot(disk: Disk, path: str) -> list[ProducerEntry]:
    return decode_snapshot(disk.read(path, limit=1 << 30))
