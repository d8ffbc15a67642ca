"""What the metadata says of topics, done to this broker's partitions and logs.

`Topics.apply(delta)` follows each committed change of the metadata: logs are made for new partitions of ours, closed
and deleted for topics that are gone, configured anew, and leadership is handed to the coordinators.  Loop only; an
image is applied before the answer of the request that changed it is sent, so a client that made a topic can write to
it. """

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stratalog.base.types import Millis, Uuid
from stratalog.metadata.image import Delta, MetadataImage, PartitionImage, ResourceType
from stratalog.node import groups
from stratalog.replication.partition import Partition

if TYPE_CHECKING:
    from stratalog.node.node import Node

log = logging.getLogger("stratalog.node")


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
                log.warning("%s-%d is in no topic of the metadata: its directory is removed", *key)
                node.logs.delete(*key)

    def _apply(self, image: PartitionImage, now: Millis) -> None:
        node = self._node
        if node.node_id not in image.replicas:
            return
        key = (image.topic, image.partition)
        partition = node.partitions.get(key)
        if partition is None or partition.topic_id != image.topic_id:
            opened = node.logs.create(
                image.topic, image.partition, image.topic_id, now, directory_id=image.directory_of(node.node_id)
            )
            partition = Partition(
                image.topic, image.partition, image.topic_id, log=opened, node_id=node.node_id, dirty=node.dirty
            )
            node.partitions[key] = partition
            node.by_name.setdefault(image.topic.encode(), {})[image.partition] = partition
            node.by_id.setdefault(bytes(image.topic_id), {})[image.partition] = partition
        led = partition.is_leader
        partition.apply(
            leader_id=image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
        )
        if led and not partition.is_leader:
            for waiter in list(partition.waiters):
                waiter.recheck(now)

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
