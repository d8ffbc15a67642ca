"""3 Metadata: brokers, and topics with their partitions.  The second thing that a client asks.

An unknown topic may be created on the way (`auto.create.topics.enable`, and the client has to allow it).  The answer
is then UNKNOWN_TOPIC_OR_PARTITION all the same, and the client asks again: clients are made for that, and some of them
ask for a topic that they have just deleted, to see that it is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import ZERO_UUID, Millis, Uuid
from stratalog.controller.controller import Controller, Result
from stratalog.controller.topics import INTERNAL_TOPICS, internal_topic, why_bad_name
from stratalog.metadata.image import MetadataImage, TopicImage
from stratalog.node.admin import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, body_of, offline_replicas
from stratalog.node.request import Request
from stratalog.protocol.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from stratalog.node.node import Node
    from stratalog.protocol.k19_create_topics import CreateTopicsResponse


def handle(node: Node, request: Request, now: Millis) -> MetadataResponse:
    body: MetadataRequest = request.body
    if request.version in (10, 11) and any(t.name is None or t.topic_id != ZERO_UUID for t in body.topics or ()):
        return _by_id_too_early(body)
    if body.allow_auto_topic_creation and body.topics and node.config["auto.create.topics.enable"]:
        known = node.image.topics_by_name
        missing = [
            topic.name
            for topic in body.topics
            if topic.name is not None
            and topic.topic_id == ZERO_UUID
            and topic.name not in known
            and why_bad_name(topic.name) is None
        ]
        if missing:
            return _create(node, request, list(dict.fromkeys(missing)), now)
    return respond(node, request, node.image, {})


def _by_id_too_early(body: MetadataRequest) -> MetadataResponse:
    """Versions 10 and 11 have room for a topic's id in the question, and no way to answer by it."""
    code = ErrorCode.INVALID_REQUEST
    topics = [
        MetadataResponseTopic(error_code=int(code), name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in body.topics or ()
    ]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _create(node: Node, request: Request, names: list[str], now: Millis) -> MetadataResponse:
    """Have the topics made; the answer is of the time before, but for those that cannot be made: why not."""
    from stratalog.protocol.k19_create_topics import CreatableTopic, CreateTopicsRequest

    image: MetadataImage = node.image
    refused: dict[str, int] = {}

    def create(controller: Controller) -> Result[CreateTopicsResponse]:
        topics = [
            internal_topic(controller, name)
            if name in INTERNAL_TOPICS
            else CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
            for name in names
        ]
        result = controller.create_topics(CreateTopicsRequest(topics=topics), now)
        for topic in result.response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                refused[topic.name] = topic.error_code
        return result

    try:
        node.controller.submit(create, None, now)
    except ApiError as error:  # the metadata log takes no records
        refused = dict.fromkeys(names, int(error.code))
    return respond(node, request, image, refused)


def refuse(node: Node, request: Request, code: ErrorCode) -> MetadataResponse:
    """The brokers, and every topic that was asked for with one error."""
    body_of(request, MetadataRequest)
    response = respond(node, request, node.image, {})
    for topic in response.topics:
        topic.error_code = int(code)
        topic.partitions = []
    return response


def respond(node: Node, request: Request, image: MetadataImage, refused: dict[str, int]) -> MetadataResponse:
    """The answer from an image; `refused`: topics that were to be created, and why they were not."""
    body: MetadataRequest = request.body
    listener = request.listener
    brokers = []
    reachable = set()
    for broker in image.live_brokers():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            reachable.add(broker.id)
            brokers.append(
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    operations = TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED
    topics: list[MetadataResponseTopic] = []
    if body.topics is None or (request.version == 0 and not body.topics):
        topics = [_described(image, topic, reachable, operations) for topic in image.topics.values()]
    else:
        seen: set[tuple[str | None, Uuid]] = set()
        by_id = any(asked.topic_id != ZERO_UUID for asked in body.topics)
        for asked in body.topics:
            if by_id and asked.topic_id == ZERO_UUID:
                continue  # one id, and only ids are looked at
            # An id decides, whatever name stands beside it; a topic that is asked for twice is told once.
            name = asked.name if asked.topic_id == ZERO_UUID else None
            if (name, asked.topic_id) in seen:
                continue
            seen.add((name, asked.topic_id))
            topic = image.topic(name) if name is not None else image.topic_of(asked.topic_id)
            if topic is not None:
                topics.append(_described(image, topic, reachable, operations))
            elif name is None:
                code = ErrorCode.INVALID_REQUEST if asked.topic_id == ZERO_UUID else ErrorCode.UNKNOWN_TOPIC_ID
                topics.append(_unknown(None if request.version >= 12 else "", asked.topic_id, code))
            elif why_bad_name(name) is not None:
                topics.append(_unknown(name, ZERO_UUID, ErrorCode.INVALID_TOPIC_EXCEPTION, operations))
            else:
                code = ErrorCode(refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                topics.append(_unknown(name, ZERO_UUID, code, operations))
    cluster = CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=brokers,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=cluster,
    )


def _unknown(name: str | None, topic_id: Uuid, code: ErrorCode, operations: int = NOT_ASKED) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=int(code),
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _described(image: MetadataImage, topic: TopicImage, reachable: set[int], operations: int) -> MetadataResponseTopic:
    partitions = []
    for number, partition in topic.partitions.items():
        code = ErrorCode.NONE
        leader = partition.leader
        if leader not in reachable:
            code = ErrorCode.LISTENER_NOT_FOUND if leader in image.brokers else ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        partitions.append(
            MetadataResponsePartition(
                error_code=int(code),
                partition_index=number,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline_replicas(image, partition),
            )
        )
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
