"""What the metadata says of topics, done to this broker's partitions and logs.

`Topics.apply(delta)` follows each committed change of the metadata: logs are made for new partitions of ours, closed
and deleted for topics that are gone, configured anew, and leadership is handed to the coordinators.  Loop only; an
image is applied before the answer of the request that changed it is sent, so a client that made a topic can write to
it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.failures import ApiError
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.controller.controller import Result
from stratalog.coordinator.group.coordinator import TOPIC as OFFSETS_TOPIC
from stratalog.metadata.image import Delta, MetadataImage, PartitionImage, ResourceType
from stratalog.node import groups
from stratalog.protocol.disk.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from stratalog.replication.partition import Partition
from stratalog.storage.log import Log

if TYPE_CHECKING:
    from stratalog.node.node import Node

log = logging.getLogger("stratalog.node")

_FULL_RETRY_MS: Final = 5_000
"""How soon a log, or a record of the metadata, that a full disk had no room for is tried again."""


class Topics:
    """The bridge from the metadata to the partitions of one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def apply(self, delta: Delta) -> None:
        """One committed change."""
        node = self._node
        node.image = delta.image
        now = node.now.wall_ms
        for topic_id, topic in delta.deleted_topics.items():
            self._remove(topic.name, topic_id, topic.partitions)
        for resource in delta.configs:
            if resource.type == ResourceType.TOPIC:
                node.logs.configure(resource.name)
            elif resource.type == ResourceType.BROKER:
                node.logs.configure(None)
        for image in delta.partitions.values():
            self._apply(image, now)
        if node.groups is not None:
            groups.apply(node, delta)

    def start(self, image: MetadataImage) -> None:
        """The image with which the process starts: every partition of ours."""
        node = self._node
        delta = MetadataImage().apply(list(image.records()), offset=image.offset, epoch=image.epoch)
        delta.image = image
        self.apply(delta)
        for key, _ in list(node.logs.items()):
            if key not in node.partitions:
                node.logs.set_aside(*key)

    def _apply(self, image: PartitionImage, now: Millis) -> None:
        node = self._node
        if node.node_id not in image.replicas:
            return
        key = (image.topic, image.partition)
        partition = node.partitions.get(key)
        if partition is None or partition.topic_id != image.topic_id:
            failure: OSError | None = None
            try:
                opened = node.logs.create(
                    image.topic, image.partition, image.topic_id, now, directory_id=image.directory_of(node.node_id)
                )
            except OSError as error:
                failure = error
                opened = self._unopened(image, error)
            partition = Partition(
                image.topic, image.partition, image.topic_id, log=opened, node_id=node.node_id, dirty=node.dirty
            )
            node.partitions[key] = partition
            node.by_name.setdefault(image.topic.encode(), {})[image.partition] = partition
            node.by_id.setdefault(bytes(image.topic_id), {})[image.partition] = partition
        else:
            failure = partition.failure
        led = partition.is_leader
        partition.apply(
            leader_id=image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
        )
        if failure is not None:
            partition.fail(failure)
        if led and not partition.is_leader:
            for waiter in list(partition.waiters):
                waiter.recheck(now)

    def _unopened(self, image: PartitionImage, error: OSError) -> Log:
        """The partition's log cannot be had.  A full disk is asked again; a directory that is offline is not (D13)."""
        node = self._node
        log.error("%s-%d is offline: %s", image.topic, image.partition, error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            node.after(_FULL_RETRY_MS, lambda now: self._try_again((image.topic, image.partition), now))
        made: Log = node.logs.placeholder(image.topic, image.partition, image.topic_id)
        return made

    def _try_again(self, key: tuple[str, int], now: Millis) -> None:
        node = self._node
        partition = node.partitions.get(key)
        image = None if partition is None else node.image.topics.get(partition.topic_id)
        if partition is None or image is None or key[1] not in image.partitions or node.logs.get(*key) is not None:
            return
        del node.partitions[key]
        self._apply(image.partitions[key[1]], now)
        if key[0] == OFFSETS_TOPIC and node.groups is not None:
            groups.apply_partition(node, image.partitions[key[1]])

    def directory_assigned(self, key: tuple[str, int]) -> Uuid:
        """The log directory that the metadata has for a partition of ours."""
        topic = self._node.image.topics_by_name.get(key[0])
        image = None if topic is None else topic.partitions.get(key[1])
        return ZERO_UUID if image is None else image.directory_of(self._node.node_id)

    def topic_id_of(self, key: tuple[str, int]) -> Uuid | None:
        """The id that the metadata has for a partition's topic, None where it has no such topic."""
        topic = self._node.image.topics_by_name.get(key[0])
        return None if topic is None else topic.id

    def directory_failed(self, directory: object, keys: list[tuple[str, int]], error: OSError) -> None:
        """A log directory is offline: so are the partitions in it, and whoever waits for them is told."""
        node = self._node
        for key in keys:
            partition = node.partitions.get(key)
            if partition is None or partition.failure is not None:
                continue
            partition.fail(error)
            groups.failed(node, partition, error)
            for waiter in list(partition.waiters):
                waiter.recheck(node.now.wall_ms)
        node.after(0, self._tell_directories)

    def _tell_directories(self, now: Millis) -> None:
        """The controller places new partitions: none in a directory that is offline.  The next registration, at the
        next start, names it again."""
        node = self._node
        broker = node.image.brokers.get(node.node_id)
        if broker is None or node.controller is None:
            return
        online = {directory.id for directory in node.logs.online}
        left = [one for one in broker.directories if one in online]
        if left and len(left) < len(broker.directories):
            record = BrokerRegistrationChangeRecord(broker_id=node.node_id, broker_epoch=broker.epoch, log_dirs=left)
            try:
                node.controller.submit(lambda _: Result([record], None), None, now)
            except ApiError:  # the metadata's own directory is full
                node.after(_FULL_RETRY_MS, self._tell_directories)

    def moved(self, key: tuple[str, int], current: Log, directory: Any) -> None:
        """A replica lives in another directory of ours now: its partition works on the new log, and the metadata is
        told, so that the next start looks for it there."""
        node = self._node
        partition = node.partitions.get(key)
        if partition is None:
            return
        partition.log = current
        self._tell_moved(partition, current, directory, node.now.wall_ms)

    def _tell_moved(self, partition: Partition, current: Log, directory: Any, now: Millis) -> None:
        """A move makes room on a full disk, and the metadata may be on that one: it is told when it takes records
        again."""
        node = self._node
        topic = node.image.topics.get(partition.topic_id)
        image = None if topic is None else topic.partitions.get(partition.index)
        if image is None or node.controller is None or partition.log is not current:
            return
        directories = [
            directory.id if replica == node.node_id else image.directory_of(replica) for replica in image.replicas
        ]
        record = PartitionChangeRecord(
            partition_id=partition.index, topic_id=partition.topic_id, directories=directories
        )
        try:
            node.controller.submit(lambda _: Result([record], None), None, now)
        except ApiError:
            node.after(_FULL_RETRY_MS, lambda now: self._tell_moved(partition, current, directory, now))

    def _remove(self, name: str, topic_id: Uuid, partitions: Mapping[int, PartitionImage]) -> None:
        node = self._node
        node.by_id.pop(bytes(topic_id), None)
        known = node.by_name.pop(name.encode(), {})
        for index in partitions:
            partition = node.partitions.pop((name, index), None)
            if partition is None:
                continue
            known.pop(index, None)
            if partition in node.dirty:
                # Staged in this turn, and gone before its write: the producers are told so.
                node.dirty.remove(partition)
                partition.discard()
            waiters = list(partition.waiters)
            partition.is_leader = False
            node.logs.delete(name, index)
            for waiter in waiters:
                waiter.recheck(node.now.wall_ms)
