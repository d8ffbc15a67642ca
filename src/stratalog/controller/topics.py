"""Topics and partitions: creating, growing, deleting.  Called by `controller.controller`; pure.

Each topic of a request succeeds or fails for itself.  What a request makes is one batch of the metadata log, so it is
there as a whole or not at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from stratalog.base.config import ConfigError
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.controller.controller import Result
from stratalog.metadata.effective import Source, normalized, synonyms, topic_defaults
from stratalog.metadata.image import MetadataImage, PartitionImage, ResourceType, TopicImage, partition_record
from stratalog.metadata.topic_config import TOPIC_KEYS, validate
from stratalog.protocol.disk.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from stratalog.protocol.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from stratalog.protocol.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from stratalog.protocol.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller

TOPIC_NAME_MAX: Final = 249
"""A directory is called `name-partition` or, on its way out, `name.uuid-delete`, and file systems take 255 bytes."""
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Kafka's bound on the records of one controller operation: they are one batch in the log."""
METADATA_TOPIC: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def why_bad_name(name: str) -> str | None:
    """What is wrong with a topic's name, None when nothing is."""
    if not name:
        return "a topic's name is empty"
    if name in (".", ".."):
        return f"a topic cannot be called '{name}'"
    if len(name) > TOPIC_NAME_MAX:
        return f"a topic's name has {len(name)} characters, at most {TOPIC_NAME_MAX} are allowed"
    if _NAME.fullmatch(name) is None:
        return "a topic's name consists of letters, digits, '.', '_' and '-' of ASCII"
    return None


# --- create -----------------------------------------------------------------------------------------------------------
def create_topics(
    controller: Controller, request: CreateTopicsRequest, *, internal: bool = False
) -> Result[CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    refused: set[str] = set()
    folded = {_folded(name): name for name in controller.image.topics_by_name}
    partitions_left = PARTITIONS_PER_REQUEST_MAX
    for topic in request.topics:
        if times[topic.name] > 1:
            if topic.name not in refused:  # one answer for all of them: clients look it up by name
                refused.add(topic.name)
                results.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, "the request names the topic twice"))
            continue
        try:
            made, result = _create_topic(controller, topic, folded, partitions_left, internal)
        except ApiError as error:
            results.append(_refused(topic.name, error.code, error.message))
            continue
        if not request.validate_only:
            records += made
            folded[_folded(topic.name)] = topic.name
        else:
            result.topic_id = ZERO_UUID
        partitions_left -= result.num_partitions
        results.append(result)
    return Result(records, CreateTopicsResponse(topics=results))


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])


def _folded(name: str) -> str:
    """Metric names turn '.' into '_', so two topics that differ in nothing else would be one there."""
    return name.replace(".", "_")


def _create_topic(
    controller: Controller, topic: CreatableTopic, folded: dict[str, str], partitions_left: int, internal: bool
) -> tuple[list[Message], CreatableTopicResult]:
    image = controller.image
    name = topic.name
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} belongs to the controller")
    reason = why_bad_name(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics_by_name or folded.get(_folded(name)) == name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists already")
    other = folded.get(_folded(name))
    if other is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{name}' differs from topic '{other}' only in '.' and '_'"
        )
    overrides = _overrides(controller, topic)
    if topic.assignments:
        assignment = _manual_assignment(controller, topic)
    else:
        assignment = _automatic_assignment(controller, topic, partitions_left)
    if len(assignment) > partitions_left:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"a request may make {PARTITIONS_PER_REQUEST_MAX} partitions, this one wants more",
        )
    topic_id = controller.random_uuid()
    records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in overrides.items()
    ]
    records += new_partitions(image, name, topic_id, 0, assignment)
    result = CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=described_configs(controller, overrides),
    )
    return records, result


def _overrides(controller: Controller, topic: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in topic.configs:
        if config.name in overrides:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request sets {config.name} twice")
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        overrides[config.name] = config.value
    try:
        validate(
            overrides,
            _defaults(controller)[0],
            remote_storage=bool(controller.settings["remote.log.storage.system.enable"]),
        )
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: normalized(TOPIC_KEYS[name], value) for name, value in overrides.items()}


def _defaults(controller: Controller) -> tuple[dict[str, str], dict[str, int]]:
    """Value and source of each topic key without an override; kept until the layers are others, because a request may
    make thousands of topics."""
    layers = controller.settings.layers
    kept = controller.topic_defaults
    if kept is None or kept[0] is not layers:
        sources = {}
        for name, key in TOPIC_KEYS.items():
            found = synonyms(key, layers)
            sources[name] = found[0][0].source if found else Source.DEFAULT
        kept = controller.topic_defaults = (layers, topic_defaults(layers), sources)
    return kept[1], kept[2]


def described_configs(controller: Controller, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    """The configuration of a topic as CreateTopics answers it."""
    defaults, sources = _defaults(controller)
    return [
        CreatableTopicConfigs(
            name=name,
            value=overrides[name] if name in overrides else defaults.get(name),
            read_only=False,
            config_source=Source.TOPIC if name in overrides else sources[name],
            is_sensitive=key.sensitive,
        )
        for name, key in TOPIC_KEYS.items()
        if not key.internal
    ]


def _manual_assignment(controller: Controller, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor != -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "with an assignment of replicas, the replication factor has to be -1")
    if topic.num_partitions != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "with an assignment of replicas, the number of partitions has to be -1"
        )
    found: dict[int, list[int]] = {}
    for row in topic.assignments:
        if row.partition_index in found:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {row.partition_index} is assigned twice")
        found[row.partition_index] = list(row.broker_ids)
    if sorted(found) != list(range(len(found))):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions have to be numbered from 0 without a gap")
    assignment = [found[number] for number in range(len(found))]
    check_assignment(controller.image, assignment, len(assignment[0]))
    return assignment


def check_assignment(image: MetadataImage, assignment: Sequence[Sequence[int]], replicas: int) -> None:
    """Replicas that somebody chose by hand."""
    for number, brokers in enumerate(assignment):
        where = f"the assignment of partition {number}"
        if not brokers:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} is empty")
        if len(set(brokers)) != len(brokers):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} names a broker twice")
        for broker in brokers:
            if broker not in image.brokers:
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} names broker {broker}, unknown here")
        if len(brokers) != replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{where} has {len(brokers)} replicas, other partitions have {replicas}",
            )
        if all(image.brokers[broker].fenced for broker in brokers):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} has no broker that is alive")


def _automatic_assignment(controller: Controller, topic: CreatableTopic, partitions_left: int) -> list[list[int]]:
    settings = controller.settings
    partitions = settings["num.partitions"] if topic.num_partitions == -1 else topic.num_partitions
    if partitions < 1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has at least one partition, {topic.num_partitions} were asked for"
        )
    if partitions > partitions_left:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"a request may make {PARTITIONS_PER_REQUEST_MAX} partitions, this one wants more",
        )
    factor = settings["default.replication.factor"] if topic.replication_factor == -1 else topic.replication_factor
    if factor < 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a partition has at least one replica, {topic.replication_factor} were asked for",
        )
    return place(controller, partitions, factor)


def place(controller: Controller, partitions: int, replicas: int) -> list[list[int]]:
    """Replicas in turn over the brokers that are alive, from a random one on."""
    alive = [broker.id for broker in controller.image.live_brokers()]
    if replicas > len(alive):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replicas} replicas need as many brokers, {len(alive)} {'is' if len(alive) == 1 else 'are'} alive",
        )
    start = controller.rng.integer(0, len(alive)) if len(alive) > 1 else 0
    return [
        [alive[(start + number + replica) % len(alive)] for replica in range(replicas)] for number in range(partitions)
    ]


def new_partitions(
    image: MetadataImage, name: str, topic_id: Uuid, first: int, assignment: Sequence[Sequence[int]]
) -> list[Message]:
    """Records for partitions `first`, `first + 1` ...: in sync are the replicas whose brokers are alive, the first
    of them leads, each replica goes to the directory of its broker that has the fewest partitions."""
    load: Counter[Uuid] = Counter()
    if any(len(broker.directories) > 1 for broker in image.brokers.values()):
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                load.update(partition.directories)
    records = []
    for number, replicas in enumerate(assignment, first):
        alive = tuple(broker for broker in replicas if not image.brokers[broker].fenced)
        assert alive, "an assignment has a broker that is alive"
        directories = []
        for broker in replicas:
            cordoned = image.brokers[broker].cordoned_directories or ()
            candidates = [d for d in image.brokers[broker].directories if d not in cordoned]
            chosen = min(candidates, key=lambda d: (load[d], d), default=ZERO_UUID)
            load[chosen] += 1
            directories.append(chosen)
        records.append(
            partition_record(
                PartitionImage(
                    topic=name,
                    topic_id=topic_id,
                    partition=number,
                    replicas=tuple(replicas),
                    isr=alive,
                    leader=alive[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(directories),
                )
            )
        )
    return records


def internal_topic(controller: Controller, name: str) -> CreatableTopic:
    """`__consumer_offsets` and `__transaction_state` as Kafka makes them; any other topic with the defaults."""
    settings = controller.settings
    configs: dict[str, str]
    if name == CONSUMER_OFFSETS:
        prefix = "offsets.topic"
        configs = {"cleanup.policy": "compact", "compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix = "transaction.state.log"
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(settings["transaction.state.log.min.isr"]),
        }
    else:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    configs["segment.bytes"] = str(settings[f"{prefix}.segment.bytes"])
    from stratalog.protocol.k19_create_topics import CreatableTopicConfig

    return CreatableTopic(
        name=name,
        num_partitions=settings[f"{prefix}.num.partitions"],
        replication_factor=settings[f"{prefix}.replication.factor"],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())],
    )


# --- delete -----------------------------------------------------------------------------------------------------------
def delete_topics(controller: Controller, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
    image = controller.image
    wanted: list[tuple[str | None, Uuid]] = [(state.name, state.topic_id) for state in request.topics]
    wanted += [(name, ZERO_UUID) for name in request.topic_names]
    resolved: list[tuple[str | None, Uuid, TopicImage | None]] = []
    times: Counter[Uuid] = Counter()
    for name, topic_id in wanted:
        topic = image.topic(name) if name is not None else image.topic_of(topic_id)
        resolved.append((name, topic_id, topic))
        if topic is not None:
            times[topic.id] += 1
    records: list[Message] = []
    results: list[DeletableTopicResult] = []
    refused: set[Uuid] = set()
    for name, topic_id, topic in resolved:
        code, message = ErrorCode.NONE, None
        if name is not None and topic_id != ZERO_UUID:
            code, message = ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both"
        elif name is None and topic_id == ZERO_UUID:
            code, message = ErrorCode.INVALID_REQUEST, "neither a name nor an id"
        elif not controller.settings["delete.topic.enable"]:
            code, message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
        elif topic is None and name is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}"
        elif topic is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"
        elif times[topic.id] > 1:
            if topic.id in refused:  # one answer for all of them
                continue
            refused.add(topic.id)
            code, message = ErrorCode.INVALID_REQUEST, "the request names the topic twice"
        else:
            records.append(RemoveTopicRecord(topic_id=topic.id))
            name, topic_id = topic.name, topic.id
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message))
    return Result(records, DeleteTopicsResponse(responses=results))


# --- more partitions  ------------------------------------------------------------------------------------------------
def create_partitions(controller: Controller, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    refused: set[str] = set()
    left = PARTITIONS_PER_REQUEST_MAX
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                if topic.name in refused:
                    continue
                refused.add(topic.name)
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            made = _more_partitions(controller, topic, left)
        except ApiError as error:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
            continue
        left -= len(made)
        if not request.validate_only:
            records += made
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE))
    return Result(records, CreatePartitionsResponse(results=results))


def _more_partitions(controller: Controller, wanted: CreatePartitionsTopic, left: int) -> list[Message]:
    image = controller.image
    topic = image.topic(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{wanted.name}'")
    has = len(topic.partitions)
    if wanted.count == has:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"topic '{wanted.name}' has {has} partitions already")
    if wanted.count < has:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic '{wanted.name}' has {has} partitions, which cannot become {wanted.count}: only more",
        )
    more = wanted.count - has
    if more > left:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"a request may make {PARTITIONS_PER_REQUEST_MAX} partitions, this one wants more",
        )
    replicas = len(topic.partitions[0].replicas) if 0 in topic.partitions else 1
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{more} new partitions need as many assignments, there are {len(wanted.assignments)}",
            )
        assignment = [list(row.broker_ids) for row in wanted.assignments]
        check_assignment(image, assignment, replicas)
    else:
        assignment = place(controller, more, replicas)
    return new_partitions(image, topic.name, topic.id, has, assignment)


__all__ = [
    "CreatableReplicaAssignment",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "internal_topic",
    "why_bad_name",
]
