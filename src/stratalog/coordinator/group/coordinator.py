"""The group coordinator of one broker: which partition of `__consumer_offsets` a group lives on, one runtime for each
partition that this broker leads.

Owned by the loop's thread.  `GroupCoordinator` holds no group itself; it routes events to the runtimes, asks all of
them where a question spans groups, and drives their timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stratalog.base.errors import ErrorCode
from stratalog.base.ports import Clock, Rng
from stratalog.base.types import Millis, Uuid
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.config import GroupConfig
from stratalog.coordinator.group.shard import GroupShard
from stratalog.coordinator.group.states import GroupState
from stratalog.rsm.runtime import Runtime, State
from stratalog.rsm.shard import LogPort, Now

TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, wrapped to 32 bits with a sign."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(raw), 2):
            value = (31 * value + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that a group lives on.  Java's `abs` of the lowest integer is 0 here."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


class GroupCoordinator:
    """Every group of this broker."""

    def __init__(self, config: GroupConfig, clock: Clock, rng: Rng) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.runtimes: dict[int, Runtime] = {}
        self._deadlines: dict[int, Millis] = {}
        """When the runtime of each partition wants its `tick`, as of its last event."""
        self._touched: dict[int, None] = {}
        """Partitions whose runtime had an event since `deadline` was asked: there are fifty of them, and the loop asks
        in each turn."""
        self._deadline: Millis | None = None

    # --- partitions come and go -----------------------------------------------------------------------------------

    def elect(self, partition: int, log: LogPort, epoch: int = 0) -> None:
        """This broker leads the partition now; its log is loaded, at once or in steps by `tick`."""
        self.resign(partition)
        runtime = Runtime(
            log, lambda: GroupShard(lambda: self.config, self.rng), write_timeout_ms=self.config.commit_timeout_ms
        )
        runtime.epoch = epoch
        self.runtimes[partition] = runtime
        self._touched[partition] = None
        runtime.elect(self._now())

    def resign(self, partition: int) -> None:
        """This broker does not lead the partition any more, or it goes offline."""
        runtime = self.runtimes.pop(partition, None)
        self._touched[partition] = None
        if runtime is not None:
            runtime.resign(self._now())

    def fail(self, partition: int, error: BaseException) -> None:
        """Something staged did not reach the log: everyone who waits is told, and the next `elect` loads again from
        what is there."""
        runtime = self.runtimes.get(partition)
        if runtime is not None and runtime.state in (State.ACTIVE, State.LOADING):
            self._touched[partition] = None
            runtime.fail(error, self._now())

    def high_watermark_moved(self, partition: int) -> None:
        runtime = self.runtimes.get(partition)
        if runtime is not None:
            self._touched[partition] = None
            runtime.high_watermark_moved(self._now())

    def configure(self, config: GroupConfig) -> None:
        """A dynamic change; the number of partitions is the topic's own from its creation on."""
        self.config = config
        for runtime in self.runtimes.values():
            runtime.write_timeout_ms = config.commit_timeout_ms

    def close(self) -> None:
        """The broker stops: everyone who waits is told to look for another coordinator."""
        for partition in list(self.runtimes):
            self.resign(partition)

    # --- events ---------------------------------------------------------------------------------------------------

    def submit(self, event: ev.Event, group_id: str) -> None:
        """Hand an event to the group's shard; the reply goes to `event.ticket`, now or later."""
        partition = self.partition_of(group_id)
        runtime = self.runtimes.get(partition)
        if runtime is None:
            event.ticket(ev.refusal(event, ErrorCode.NOT_COORDINATOR))
        else:
            self._touched[partition] = None
            runtime.submit(event.ticket, event, self._now())

    def forget_topics(self, topics: list[tuple[str, Uuid]]) -> None:
        """Topics were deleted: their committed offsets get tombstones on every partition led here."""
        self._touched.update(dict.fromkeys(self.runtimes))
        for runtime in self._active():
            runtime.submit(_nobody, ev.ForgetTopics(_nobody, topics), self._now())

    def list_groups(self) -> tuple[ErrorCode, list[ev.ListedGroup]]:
        """The groups led here; COORDINATOR_LOAD_IN_PROGRESS while one of the partitions loads."""
        groups: list[ev.ListedGroup] = []
        error = ErrorCode.NONE
        for runtime in self.runtimes.values():
            if runtime.state is State.LOADING:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif runtime.state is State.ACTIVE:
                groups += _shard(runtime).list_groups()
        return error, groups

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.config.partitions)

    def deadline(self) -> Millis | None:
        """When `tick` wants to be called, in monotonic time; 0 for at once."""
        if self._touched:
            for partition in self._touched:
                runtime = self.runtimes.get(partition)
                at = None if runtime is None else runtime.deadline()
                if at is None:
                    self._deadlines.pop(partition, None)
                else:
                    self._deadlines[partition] = at
            self._touched.clear()
            self._deadline = min(self._deadlines.values(), default=None)
        return self._deadline

    def tick(self, now: Now) -> None:
        """Sessions and rebalances that are over, a step of loading.  Loads one partition at a time, so that each call
        is short."""
        has_loaded = False
        for partition, runtime in list(self.runtimes.items()):
            if runtime.state is State.LOADING:
                if has_loaded:
                    continue
                has_loaded = True
            at = runtime.deadline()
            if at is not None and at <= now.monotonic_ms:
                self._touched[partition] = None
                runtime.tick(now)

    # --- what metrics and tools ask; from any thread --------------------------------------------------------------

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, offset) of every committed offset led here."""
        for runtime in self._active():
            for group_id, topic, partition, commit in _shard(runtime).offsets.all():
                yield group_id, topic, partition, commit.offset

    def lag(self, end_offset: Callable[[str, int], int | None]) -> dict[str, int]:
        """Records between each group's committed offsets and the log's ends, summed over its partitions; a partition
        whose end is unknown (None) is left out."""
        lags: dict[str, int] = {}
        for group_id, topic, partition, offset in self.committed():
            end = end_offset(topic, partition)
            if end is not None:
                lags[group_id] = lags.get(group_id, 0) + max(end - offset, 0)
        return lags

    def counts(self) -> dict[str, int]:
        """Gauges: groups by state, offsets, rebalances, and records of the log that were left alone."""
        counts = {state.value: 0 for state in GroupState}
        counts |= {"offsets": 0, "rebalances": 0, "records_ignored": 0, "records_malformed": 0, "loading": 0}
        for runtime in list(self.runtimes.values()):
            if runtime.state is State.LOADING:
                counts["loading"] += 1
            if runtime.state is not State.ACTIVE:
                continue
            shard = _shard(runtime)
            for group in list(shard.groups.values()):
                counts[group.state.value] += 1
            counts["offsets"] += shard.offsets.count
            counts["rebalances"] += shard.rebalances
            counts["records_ignored"] += shard.records_ignored
            counts["records_malformed"] += shard.records_malformed
        return counts

    def _now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic_ms())

    def _active(self) -> Iterable[Runtime]:
        return [runtime for runtime in list(self.runtimes.values()) if runtime.state is State.ACTIVE]


def _shard(runtime: Runtime) -> GroupShard:
    shard = runtime.shard
    assert isinstance(shard, GroupShard)
    return shard


def _nobody(_: object) -> None:
    """The ticket of an event that nobody waits for."""
