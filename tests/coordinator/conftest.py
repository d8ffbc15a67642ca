"""A group coordinator partition under a virtual clock: its runtime, a log in memory, clients as values."""

from __future__ import annotations

import random

import pytest

from stratalog.base.failures import ApiError
from stratalog.base.types import ZERO_UUID
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.config import GroupConfig
from stratalog.coordinator.group.shard import GroupShard
from stratalog.records import batch as v2
from stratalog.rsm.runtime import Runtime, State
from stratalog.rsm.shard import Now

START_MS = 1_700_000_000_000


class Rng:
    """`base.ports.Rng`, seeded."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randrange(low, high)

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)


class MemoryLog:
    """`rsm.shard.LogPort`; `commits` False leaves the high watermark to the test."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.commits = True
        self.error: ApiError | OSError | None = None

    def append(self, batch: bytearray, now: Now) -> int:
        if self.error is not None:
            raise self.error
        base = self.log_end_offset
        v2.patch(batch, 0, base_offset=base, leader_epoch=1)
        self.add(bytes(batch))
        return base

    def add(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.log_end_offset = v2.read_header(batch).next_offset
        if self.commits:
            self.high_watermark = self.log_end_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        return b"".join(batch for batch in self.batches if v2.read_header(batch).last_offset >= offset)

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if v2.read_header(batch).next_offset <= offset]
        self.log_end_offset = self.high_watermark = offset

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [
            (record.key, record.value)
            for batch in self.batches
            for header in v2.batches(batch)
            for record in v2.records_of(batch, header)
        ]


class World:
    """One coordinator partition.  Calls return the list into which the reply comes."""

    def __init__(self, **config: int) -> None:
        self.config = GroupConfig(**config)
        self.log = MemoryLog()
        self.rng = Rng()
        self.ms = 0
        self.epoch = 0
        self.wall_offset = START_MS
        self.start()

    def start(self) -> None:
        """A new process (or another broker) on the same log."""
        self.epoch += 1
        self.runtime = Runtime(self.log, lambda: GroupShard(lambda: self.config, self.rng), write_timeout_ms=5_000)
        self.runtime.elect(self.now)
        assert self.runtime.state is State.ACTIVE, self.runtime.error

    @property
    def now(self) -> Now:
        return Now(self.wall_offset + self.ms, self.ms)

    @property
    def shard(self) -> GroupShard:
        return self.runtime.shard

    def advance(self, ms: int) -> None:
        """Let time pass, with every timer at its moment."""
        end = self.ms + ms
        while True:
            deadline = self.runtime.deadline()
            if deadline is None or deadline > end:
                break
            self.ms = max(self.ms, deadline)
            self.runtime.tick(self.now)
        self.ms = end

    def commit_log(self, offset: int | None = None) -> None:
        self.log.high_watermark = self.log.log_end_offset if offset is None else offset
        self.runtime.high_watermark_moved(self.now)

    def send(self, event_class, *arguments, **fields) -> list:
        replies: list = []
        self.runtime.submit(replies.append, event_class(replies.append, *arguments, **fields), self.now)
        return replies

    # --- clients --------------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", group: str = "g", **fields) -> list:
        fields.setdefault("protocols", [("range", subscription("t"))])
        fields.setdefault("session_timeout_ms", 10_000)
        fields.setdefault("rebalance_timeout_ms", 30_000)
        fields.setdefault("client_id", "c")
        fields.setdefault("client_host", "/127.0.0.1")
        return self.send(ev.Join, group, member_id, fields.pop("protocol_type", "consumer"), **fields)

    def new_member(self, group: str = "g", **fields) -> tuple[str, list]:
        """Both steps of a dynamic member's first join; the second one's reply box."""
        first = self.join(group=group, **fields)
        assert first[0].error.name == "MEMBER_ID_REQUIRED"
        return first[0].member_id, self.join(first[0].member_id, group, **fields)

    def sync(self, member_id: str, generation: int, assignments=(), group: str = "g", **fields) -> list:
        return self.send(ev.Sync, group, member_id, generation, assignments=list(assignments), **fields)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None, group: str = "g") -> str:
        return self.send(ev.Heartbeat, group, member_id, generation, instance_id)[0].error.name

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> list[str]:
        reply = self.send(ev.Leave, group, [ev.Leaver(*member) for member in members])[0]
        return [error.name for _, error in reply.members]

    def commit(self, offsets: dict[tuple[str, int], int], group: str = "g", metadata: str = "", **fields) -> list:
        topics: dict[str, list] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(ev.OffsetToCommit(partition, offset, -1, metadata))
        zero = ZERO_UUID
        ids = fields.pop("ids", {})
        asked = [ev.CommitTopic(name, ids.get(name, zero), partitions) for name, partitions in topics.items()]
        return self.send(ev.CommitOffsets, group, asked, **fields)

    def offsets(self, group: str = "g", **fields) -> dict[tuple[str, int], int]:
        reply = self.send(ev.FetchOffsets, group, None, **fields)[0]
        return {(name, p.partition): p.offset for name, _, found in reply.topics for p in found}

    def state(self, group: str = "g") -> str:
        return self.send(ev.DescribeGroup, group)[0].state

    def stable(self, count: int = 1, group: str = "g", **fields) -> tuple[int, list[str]]:
        """A stable group of dynamic members: its generation, its members, the leader first."""
        boxes = [self.new_member(group, **fields) for _ in range(count)]
        self.advance(self.config.initial_rebalance_delay_ms * 2)
        return self.finish(boxes, group)

    def finish(self, boxes: list[tuple[str, list]], group: str = "g") -> tuple[int, list[str]]:
        """Sync members whose joins are answered."""
        replies = [box[0] for _, box in boxes]
        assert all(reply.error.name == "NONE" for reply in replies), replies
        leader = replies[0].leader
        generation = replies[0].generation
        names = [reply.member_id for reply in replies]
        syncs = [self.sync(name, generation, group=group) for name in names if name != leader]
        plan = [(name, name.encode()) for name in names]
        syncs.append(self.sync(leader, generation, plan, group=group))
        for name, box in zip([n for n in names if n != leader] + [leader], syncs, strict=True):
            assert box[0].assignment == name.encode()
        return generation, sorted(names, key=lambda name: name != leader)


def subscription(*topics: str, version: int = 0) -> bytes:
    from stratalog.protocol.disk.consumer_protocol import ConsumerProtocolSubscription

    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + b"".join(bytes(part) for part in message.encode(version))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def subscribe():
    return subscription


@pytest.fixture(scope="session")
def make_world_class() -> type[World]:
    return World
