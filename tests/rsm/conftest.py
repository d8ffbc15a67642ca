"""A log in memory under a runtime, and a shard that counts."""

from __future__ import annotations

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.records import batch as v2
from stratalog.rsm.shard import Logged, Now, Record, Result


class MemoryLog:
    """`rsm.shard.LogPort`: batches in a list.  `commits` False leaves the high watermark to the test."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.commits = True
        self.error: ApiError | OSError | None = None
        self.reads = 0

    def append(self, batch: bytearray, now: Now) -> int:
        if self.error is not None:
            raise self.error
        base = self.log_end_offset
        v2.patch(batch, 0, base_offset=base, leader_epoch=1)
        self.batches.append(bytes(batch))
        self.log_end_offset = v2.read_header(batch).next_offset
        if self.commits:
            self.high_watermark = self.log_end_offset
        return base

    def read(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        out = b""
        for batch in self.batches:
            if v2.read_header(batch).last_offset < offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if v2.read_header(batch).next_offset <= offset]
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)


class Counter:
    """A shard over one number: an event ('add', n) makes a record, ('get',) reads, ('alarm', at) sets a timer."""

    def __init__(self) -> None:
        self.value = 0
        self.offset = -1
        self.alarm = None
        self.is_loaded = False
        self.ended: list[tuple[int, bool]] = []

    def handle(self, event, now):
        ticket, kind, *arguments = event
        if kind == "add":
            records = [Record(b"n", b"%d" % n) for n in arguments]
            return Result(records=records, after=(ticket, self.value + sum(arguments)))
        if kind == "get":
            return Result(replies=[(ticket, self.value)], depends_on=self.offset)
        assert kind == "alarm"
        self.alarm = arguments[0]
        return Result()

    def resume(self, after, error, now):
        ticket, reply = after
        return Result(replies=[(ticket, reply if error is None else error)])

    def replay(self, record: Logged) -> None:
        self.value += int(record.value)
        self.offset = record.offset

    def replay_many(self, records) -> None:
        for record in records:
            self.replay(record)

    def replay_end_of_transaction(self, producer_id, committed) -> None:
        self.ended.append((producer_id, committed))

    def loaded(self, now):
        self.is_loaded = True
        return Result()

    def closed(self, error):
        return Result()

    def refuse(self, event, error: ErrorCode):
        return error

    def deadline(self):
        return self.alarm

    def tick(self, now):
        if self.alarm is not None and self.alarm <= now.monotonic_ms:
            self.alarm = None
            yield Result(records=[Record(b"n", b"1000")])


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def counter() -> type[Counter]:
    return Counter
