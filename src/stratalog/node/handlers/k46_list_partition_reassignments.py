"""46 ListPartitionReassignments: the moves that go on, read from the image: partitions with replicas being added or
removed (a directory that a Kafka left in the middle of one may have them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.types import Millis
from stratalog.node.admin import by_topic
from stratalog.node.request import Request
from stratalog.protocol.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> ListPartitionReassignmentsResponse:
    body: ListPartitionReassignmentsRequest = request.body
    wanted = None if body.topics is None else by_topic((t.name, t.partition_indexes) for t in body.topics)
    topics = []
    for topic in node.image.topics.values():
        if wanted is not None and topic.name not in wanted:
            continue
        moving = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for number, partition in topic.partitions.items()
            if (partition.adding_replicas or partition.removing_replicas)
            and (wanted is None or number in wanted[topic.name])
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=topics)
