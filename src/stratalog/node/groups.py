"""Where the group coordinator meets this broker: its logs are partitions, its elections come with the metadata.

Loop thread only.  The process builds `node.groups = GroupCoordinator(...)` and calls, in this order,

    apply(node, delta)          for each metadata delta, after the partitions have taken it over
    failed(node, partition, e)  when a partition's write failed (`node.on_disk_failure`)

and the node itself calls `groups.deadline()` and `groups.tick(now)`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.coordinator.group.coordinator import TOPIC, GroupCoordinator
from stratalog.coordinator.group.states import GroupState
from stratalog.node.metrics import Sample, escape
from stratalog.replication.partition import Partition
from stratalog.rsm.shard import LogPort, Now
from stratalog.storage.values import Isolation, Origin

if TYPE_CHECKING:
    from stratalog.metadata.image import Delta, PartitionImage
    from stratalog.node.node import Node

ACKS_ALL = -1


class PartitionLog:
    """`rsm.shard.LogPort` over a partition that this broker leads."""

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    @property
    def log_start_offset(self) -> int:
        return self.partition.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark

    def append(self, batch: bytearray, now: Now) -> int:
        info = self.partition.stage_append(batch, ACKS_ALL, now.wall_ms, Origin.COORDINATOR)
        return info.first_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        data = self.partition.log.read(offset, max_bytes, Isolation.LOG_END)
        return b"" if data.region is None else data.region.read()


def apply(node: Node, delta: Delta) -> None:
    """Take over what a metadata delta says of `__consumer_offsets`, and forget offsets of topics that are gone."""
    groups: GroupCoordinator = node.groups
    topic = delta.image.topic(TOPIC)
    if topic is None:
        if groups.runtimes:
            groups.close()
        return
    count = len(topic.partitions)
    if groups.config.partitions != count:
        groups.configure(replace(groups.config, partitions=count))
    for (topic_id, _), image in delta.partitions.items():
        if topic_id == topic.id:
            apply_partition(node, image)
    if delta.deleted_topics:
        groups.forget_topics([(gone.name, gone.id) for gone in delta.deleted_topics.values()])


def apply_partition(node: Node, image: PartitionImage) -> None:
    """Coordinate the groups of a partition of `__consumer_offsets`, or stop to, as the metadata and its log have it."""
    groups: GroupCoordinator = node.groups
    index = image.partition
    partition = node.partitions.get((TOPIC, index))
    if image.leader != node.node_id or partition is None or not partition.is_leader:
        groups.resign(index)
        return
    runtime = groups.runtimes.get(index)
    if runtime is not None and runtime.epoch == image.leader_epoch and _is_on(runtime.log, partition):
        return  # the change was about something else
    _listen(groups, partition)
    groups.elect(index, PartitionLog(partition), image.leader_epoch)


def _is_on(log: LogPort, partition: Partition) -> bool:
    return isinstance(log, PartitionLog) and log.partition is partition


def _listen(groups: GroupCoordinator, partition: Partition) -> None:
    """Hear of the partition's commits, once however often it is elected."""
    if any(isinstance(listener, _Committed) for listener in partition.listeners):
        return
    partition.listeners.append(_Committed(groups))


class _Committed:
    __slots__ = ("groups",)

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups

    def __call__(self, partition: Partition, now: Millis) -> None:
        self.groups.high_watermark_moved(partition.index)


def reload(node: Node, partition: Partition) -> None:
    """Load the partition's groups anew from its log, if it is still ours."""
    if partition.is_leader and node.partitions.get((TOPIC, partition.index)) is partition:
        node.groups.elect(partition.index, PartitionLog(partition), partition.leader_epoch)


def failed(node: Node, partition: Partition, error: OSError) -> None:
    """What was staged for the partition is not in its log."""
    if partition.topic == TOPIC and node.groups is not None:
        node.groups.fail(partition.index, error)


def gauges(node: Node) -> list[Sample]:
    """Lag by group, groups by state, offsets, rebalances; from any thread."""
    groups: GroupCoordinator = node.groups
    rows: list[Sample] = [
        ("stratalog_group_lag", f'{{group="{escape(group)}"}}', records) for group, records in lag(node).items()
    ]
    counts = groups.counts()
    rows += [("stratalog_groups", f'{{state="{state.value}"}}', counts[state.value]) for state in GroupState]
    rows += [
        ("stratalog_group_offsets", "", counts["offsets"]),
        ("stratalog_group_rebalances_total", "", counts["rebalances"]),
        ("stratalog_group_partitions_loading", "", counts["loading"]),
        ("stratalog_group_records_ignored", "", counts["records_ignored"]),
        ("stratalog_group_records_malformed", "", counts["records_malformed"]),
    ]
    return rows


def lag(node: Node) -> dict[str, int]:
    """Records that each group has not consumed yet, of the partitions on this broker."""

    def end_offset(topic: str, index: int) -> int | None:
        partition = node.partitions.get((topic, index))
        return None if partition is None else int(partition.log.high_watermark)

    groups: GroupCoordinator = node.groups
    return groups.lag(end_offset)
