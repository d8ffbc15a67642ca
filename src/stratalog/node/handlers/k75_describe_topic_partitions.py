"""75 DescribeTopicPartitions: partitions of topics in pages, sorted by name; a cursor says where the next one begins.

A page holds at most `response.partition.limit` partitions, and never more than `max.request.partition.size.limit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Millis
from stratalog.controller.topics import INTERNAL_TOPICS, why_bad_name
from stratalog.metadata.image import MetadataImage, PartitionImage
from stratalog.node.admin import TOPIC_OPERATIONS, body_of, offline_replicas
from stratalog.node.request import Request
from stratalog.protocol.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> DescribeTopicPartitionsResponse:
    body: DescribeTopicPartitionsRequest = request.body
    image: MetadataImage = node.image
    names = sorted({topic.name for topic in body.topics}) if body.topics else sorted(image.topics_by_name)
    first = 0
    if body.cursor is not None:
        if body.cursor.partition_index < 0 or (body.topics and body.cursor.topic_name not in names):
            return refuse_body(body, ErrorCode.INVALID_REQUEST)
        names = [name for name in names if name >= body.cursor.topic_name]
        if names and names[0] == body.cursor.topic_name:
            first = body.cursor.partition_index
    left = max(1, min(body.response_partition_limit, int(node.config["max.request.partition.size.limit"])))
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        topic = image.topic(name)
        if topic is None:
            if body.topics:
                bad = why_bad_name(name) is not None
                code = ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=int(code),
                        name=name,
                        topic_id=ZERO_UUID,
                        is_internal=False,
                        partitions=[],
                        topic_authorized_operations=TOPIC_OPERATIONS,
                    )
                )
            first = 0
            continue
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        first = 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[0] if numbers else 0)
            break
        page = numbers[:left]
        left -= len(page)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=0,
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=[_described(image, topic.partitions[number]) for number in page],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        if len(page) < len(numbers):
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[len(page)])
            break
    return response


def refuse_body(body: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """Each topic that was asked for with one error: the answer has no place for one of its own."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=int(code), name=topic.name, topic_id=ZERO_UUID, is_internal=False, partitions=[]
            )
            for topic in body.topics
        ]
    )


def refuse(node: Node, request: Request, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """`Node.refusals`."""
    return refuse_body(body_of(request, DescribeTopicPartitionsRequest), code)


def _described(image: MetadataImage, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    code = ErrorCode.NONE
    leader = partition.leader
    if leader not in image.brokers or image.brokers[leader].fenced:
        code, leader = ErrorCode.LEADER_NOT_AVAILABLE, -1
    return DescribeTopicPartitionsResponsePartition(
        error_code=int(code),
        partition_index=partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition),
    )
