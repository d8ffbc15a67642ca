"""55 DescribeQuorum: the metadata quorum: one voter, which leads and is never behind.  The broker part of this node
reads the same log, so it shows as no observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID, Millis
from stratalog.node.request import Request
from stratalog.protocol.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from stratalog.protocol.k55_describe_quorum import (
    Node as QuorumNode,
)
from stratalog.raft.quorum import TOPIC

if TYPE_CHECKING:
    from stratalog.node.node import Node


def handle(node: Node, request: Request, now: Millis) -> DescribeQuorumResponse:
    body: DescribeQuorumRequest = request.body
    quorum = node.controller.quorum
    asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in body.topics]
    if asked != [(TOPIC, [0])]:
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics = [
            TopicDataResponse(
                topic_name=name,
                partitions=[
                    PartitionDataResponse(partition_index=index, error_code=code, error_message=None)
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ]
        return DescribeQuorumResponse(error_code=0, error_message=None, topics=topics)
    voter = ReplicaState(
        replica_id=node.node_id,
        replica_directory_id=quorum.directory_id if request.version >= 2 else ZERO_UUID,
        log_end_offset=quorum.end_offset,
        last_fetch_timestamp=now,
        last_caught_up_timestamp=now,
    )
    partition = PartitionDataResponse(
        partition_index=0,
        error_code=0,
        error_message=None,
        leader_id=node.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[voter],
        observers=[],
    )
    response = DescribeQuorumResponse(
        error_code=0,
        error_message=None,
        topics=[TopicDataResponse(topic_name=TOPIC, partitions=[partition])],
    )
    if request.version >= 2:
        controller = node.image.controllers.get(node.node_id)
        listeners = () if controller is None else controller.endpoints
        response.nodes = [
            QuorumNode(
                node_id=node.node_id, listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in listeners]
            )
        ]
    return response
