"""The metadata image: the state of the cluster at one offset of the metadata log, and the delta between two of them.

An image never changes.  `image.apply(records)` gives a `Delta` that holds the next image and says what differs;
untouched parts are shared between the two.  The state is the replay of the log's prefix and nothing else (KR-2):
`replay` is a table from record class to function, and no other code changes metadata.  Records that this broker does
not use yet (ACLs, SCRAM credentials, delegation tokens) are kept whole, so that a snapshot loses nothing.

Called from the loop only; images may be read from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.protocol.disk import metadata as records
from stratalog.protocol.schema import Message

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
LEADER_RECOVERED: Final = 0
LEADER_RECOVERING: Final = 1

METADATA_VERSION: Final = "metadata.version"
LATEST_METADATA_VERSION: Final = 30
"""4.3-IV0."""
MINIMUM_METADATA_VERSION: Final = 7
"""3.3-IV3, the oldest that a KRaft cluster of Kafka 4 can have."""


class ResourceType:
    """The kinds of things that have configurations, as numbers on the wire and in the log."""

    TOPIC: Final = 2
    BROKER: Final = 4
    BROKER_LOGGER: Final = 8
    CLIENT_METRICS: Final = 16
    GROUP: Final = 32


class ConfigResource(NamedTuple):
    """What a configuration belongs to.  The name of the default of all brokers is the empty string."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition as the controller decided it."""

    topic: str
    topic_id: Uuid
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    leader_recovery_state: int = LEADER_RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker: int) -> Uuid:
        """The log directory that holds this partition on a broker; the zero uuid where unassigned."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker:
                return directory
        return ZERO_UUID


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.  `partitions` is read only and keyed by the partition's number."""

    name: str
    id: Uuid
    partitions: Mapping[int, PartitionImage]


class Endpoint(NamedTuple):
    """A listener as others reach it.  `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker.  The epoch is the offset of its registration in the metadata log."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One registered controller."""

    id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    zk_migration_ready: bool = False


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted pairs of entity type (`user`, `client-id`, `ip`) and name; None is the default entity."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole.  All mappings are read only."""

    offset: int = -1
    """The last record that is in the image."""
    epoch: int = -1
    """The leader epoch of that record."""
    topics: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    """Only what was set: overrides of topics, brokers, the default of all brokers, groups."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_ids_record: Message | None = None
    others: Mapping[tuple[Any, ...], Message] = field(default_factory=dict)
    """Records kept for somebody else, by what identifies them."""

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_of(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics.get(topic_id)

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def config(self, type: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource."""
        return self.configs.get(ConfigResource(type, name), _EMPTY)

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.configs.get(ConfigResource(ResourceType.TOPIC, name), _EMPTY)

    def live_brokers(self) -> list[BrokerImage]:
        """The unfenced brokers in the order of their ids."""
        return [self.brokers[id] for id in sorted(self.brokers) if not self.brokers[id].fenced]

    def apply(self, records: Iterable[Message], *, offset: int | None = None, epoch: int | None = None) -> Delta:
        """The next image and what changed.  `offset` and `epoch` are those of the last record."""
        delta = Delta(self)
        for record in records:
            delta.replay(record)
        delta.finish(self.offset if offset is None else offset, self.epoch if epoch is None else epoch)
        return delta

    def records(self) -> Iterator[Message]:
        """The records of a snapshot: replayed on an empty image they give this one."""
        return _snapshot_records(self)


_EMPTY: Final[Mapping[str, str]] = {}


class Delta:
    """What one or more records changed.  `image` is the state after, `previous` the one before.

    Ordered dicts, not sets, so that the order in which listeners act is the log's order.
    """

    def __init__(self, previous: MetadataImage) -> None:
        self.previous = previous
        self.image = previous
        self.partitions: dict[tuple[Uuid, int], PartitionImage] = {}
        """Partitions made or changed, as they are now; those of deleted topics are not in it."""
        self.created_topics: dict[Uuid, TopicImage] = {}
        self.deleted_topics: dict[Uuid, TopicImage] = {}
        """Topics as they were in `previous`."""
        self.configs: dict[ConfigResource, None] = {}
        self.brokers: dict[int, None] = {}
        self.features: dict[str, None] = {}
        self.quotas: dict[QuotaEntity, None] = {}
        self.producer_ids = False
        self._next: dict[str, Any] = {}
        self._copied_topics: dict[Uuid, dict[int, PartitionImage]] = {}
        self._copied_configs: dict[ConfigResource, dict[str, str]] = {}
        self._copied_quotas: dict[QuotaEntity, dict[str, float]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._next

    def replay(self, record: Message) -> None:
        """Apply one record.  A record that refers to something unknown is a bug or a damaged log: it raises
        `AssertionError`."""
        function = _REPLAY.get(type(record))
        assert function is not None, f"no replay for {type(record).__name__}"
        function(self, record)

    def finish(self, offset: int, epoch: int) -> None:
        """Close the delta: `image` becomes the next state."""
        self.image = replace(self.previous, offset=offset, epoch=epoch, **self._next)
        by_id = self.image.topics
        for topic_id in list(self.created_topics):
            self.created_topics[topic_id] = by_id[topic_id]

    def _copy(self, name: str) -> Any:
        """The part of the state that is going to change, copied the first time."""
        part = self._next.get(name)
        if part is None:
            part = self._next[name] = dict(getattr(self.previous, name))
        return part

    def _part(self, name: str) -> Any:
        part = self._next.get(name)
        return getattr(self.previous, name) if part is None else part

    def _partitions_of(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        """The partitions of a topic, ready to be changed."""
        partitions = self._copied_topics.get(topic_id)
        if partitions is None:
            topic = self._part("topics").get(topic_id)
            assert topic is not None, f"no topic with the id {topic_id}"
            partitions = self._copied_topics[topic_id] = dict(topic.partitions)
            changed = TopicImage(topic.name, topic_id, partitions)
            self._copy("topics")[topic_id] = changed
            self._copy("topics_by_name")[topic.name] = changed
        return partitions


def _topic(delta: Delta, record: records.TopicRecord) -> None:
    by_name = delta._copy("topics_by_name")
    assert record.name not in by_name, f"topic {record.name} is there already"
    partitions: dict[int, PartitionImage] = {}
    topic = TopicImage(record.name, record.topic_id, partitions)
    delta._copied_topics[record.topic_id] = partitions
    delta._copy("topics")[record.topic_id] = topic
    by_name[record.name] = topic
    delta.created_topics[record.topic_id] = topic


def _partition(delta: Delta, record: records.PartitionRecord) -> None:
    partitions = delta._partitions_of(record.topic_id)
    number = record.partition_id
    image = PartitionImage(
        topic=delta._part("topics")[record.topic_id].name,
        topic_id=record.topic_id,
        partition=number,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=tuple(record.directories) or (ZERO_UUID,) * len(record.replicas),
        leader_recovery_state=record.leader_recovery_state,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )
    partitions[number] = image
    delta.partitions[record.topic_id, number] = image


def _partition_change(delta: Delta, record: records.PartitionChangeRecord) -> None:
    partitions = delta._partitions_of(record.topic_id)
    old = partitions.get(record.partition_id)
    assert old is not None, f"no partition {record.partition_id} of topic id {record.topic_id}"
    changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
    if record.replicas is not None:
        changes["replicas"] = tuple(record.replicas)
        if record.directories is None:
            changes["directories"] = tuple(old.directory_of(replica) for replica in record.replicas)
    if record.directories is not None:
        changes["directories"] = tuple(record.directories)
    if record.isr is not None:
        changes["isr"] = tuple(record.isr)
    if record.leader != NO_LEADER_CHANGE:
        changes["leader"] = record.leader
        changes["leader_epoch"] = old.leader_epoch + 1
    if record.leader_recovery_state != -1:
        changes["leader_recovery_state"] = record.leader_recovery_state
    for name in ("removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"):
        value = getattr(record, name)
        if value is not None:
            changes[name] = tuple(value)
    image = replace(old, **changes)
    partitions[record.partition_id] = image
    delta.partitions[record.topic_id, record.partition_id] = image


def _remove_topic(delta: Delta, record: records.RemoveTopicRecord) -> None:
    topics = delta._copy("topics")
    topic = topics.pop(record.topic_id, None)
    assert topic is not None, f"no topic with the id {record.topic_id}"
    del delta._copy("topics_by_name")[topic.name]
    delta._copied_topics.pop(record.topic_id, None)
    for key in [key for key in delta.partitions if key[0] == record.topic_id]:
        del delta.partitions[key]
    if delta.created_topics.pop(record.topic_id, None) is None:
        delta.deleted_topics[record.topic_id] = delta.previous.topics[record.topic_id]
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    if resource in delta._part("configs"):
        del delta._copy("configs")[resource]
        delta._copied_configs.pop(resource, None)
        delta.configs[resource] = None


def _config(delta: Delta, record: records.ConfigRecord) -> None:
    resource = ConfigResource(record.resource_type, record.resource_name)
    values = delta._copied_configs.get(resource)
    if values is None:
        values = delta._copied_configs[resource] = dict(delta._part("configs").get(resource, _EMPTY))
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
    configs = delta._copy("configs")
    if values:
        configs[resource] = values
    else:
        configs.pop(resource, None)
    delta.configs[resource] = None


def _register_broker(delta: Delta, record: records.RegisterBrokerRecord) -> None:
    delta._copy("brokers")[record.broker_id] = BrokerImage(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
    )
    delta.brokers[record.broker_id] = None


def _unregister_broker(delta: Delta, record: records.UnregisterBrokerRecord) -> None:
    removed = delta._copy("brokers").pop(record.broker_id, None)
    assert removed is not None, f"no broker {record.broker_id}"
    delta.brokers[record.broker_id] = None


def _change_broker(delta: Delta, broker_id: int, epoch: int, **changes: Any) -> None:
    brokers = delta._copy("brokers")
    old = brokers.get(broker_id)
    assert old is not None, f"no broker {broker_id}"
    assert old.epoch == epoch, f"broker {broker_id} has epoch {old.epoch}, not {epoch}"
    brokers[broker_id] = replace(old, **changes)
    delta.brokers[broker_id] = None


def _broker_change(delta: Delta, record: records.BrokerRegistrationChangeRecord) -> None:
    changes: dict[str, Any] = {}
    if record.fenced:
        changes["fenced"] = record.fenced > 0
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
    if record.log_dirs:
        changes["directories"] = tuple(record.log_dirs)
    if record.cordoned_log_dirs is not None:
        changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
    _change_broker(delta, record.broker_id, record.broker_epoch, **changes)


def _fence_broker(delta: Delta, record: records.FenceBrokerRecord) -> None:
    _change_broker(delta, record.id, record.epoch, fenced=True)


def _unfence_broker(delta: Delta, record: records.UnfenceBrokerRecord) -> None:
    _change_broker(delta, record.id, record.epoch, fenced=False)


def _register_controller(delta: Delta, record: records.RegisterControllerRecord) -> None:
    delta._copy("controllers")[record.controller_id] = ControllerImage(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        zk_migration_ready=record.zk_migration_ready,
    )


def _feature_level(delta: Delta, record: records.FeatureLevelRecord) -> None:
    features = delta._copy("features")
    if record.feature_level == 0:
        features.pop(record.name, None)
    else:
        features[record.name] = record.feature_level
    delta.features[record.name] = None


def _client_quota(delta: Delta, record: records.ClientQuotaRecord) -> None:
    entity: QuotaEntity = tuple(sorted((e.entity_type, e.entity_name) for e in record.entity))
    values = delta._copied_quotas.get(entity)
    if values is None:
        values = delta._copied_quotas[entity] = dict(delta._part("quotas").get(entity, {}))
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    quotas = delta._copy("quotas")
    if values:
        quotas[entity] = values
    else:
        quotas.pop(entity, None)
    delta.quotas[entity] = None


def _producer_ids(delta: Delta, record: records.ProducerIdsRecord) -> None:
    delta._next["next_producer_id"] = record.next_producer_id
    delta._next["producer_ids_record"] = record
    delta.producer_ids = True


def _clear_elr(delta: Delta, record: records.ClearElrRecord) -> None:
    """Forget the eligible replicas of one topic, or of all with an empty name."""
    names = [record.topic_name] if record.topic_name else list(delta._part("topics_by_name"))
    for name in names:
        topic = delta._part("topics_by_name").get(name)
        assert topic is not None, f"no topic {name}"
        for number, old in list(topic.partitions.items()):
            if old.eligible_leader_replicas or old.last_known_elr:
                image = replace(old, eligible_leader_replicas=(), last_known_elr=())
                delta._partitions_of(topic.id)[number] = image
                delta.partitions[topic.id, number] = image


def _nothing(delta: Delta, record: Message) -> None:
    """Records without state: a no-op, the marks of a transaction (`metadata.loader` deals with those)."""


def _kept(*fields: str) -> Callable[[Delta, Any], None]:
    """Keep the record under the class name and these fields."""

    def keep(delta: Delta, record: Any) -> None:
        key = (type(record).__name__, *(getattr(record, name) for name in fields))
        delta._copy("others")[key] = record

    return keep


def _dropped(kept: str, *fields: str) -> Callable[[Delta, Any], None]:
    def drop(delta: Delta, record: Any) -> None:
        delta._copy("others").pop((kept, *(getattr(record, name) for name in fields)), None)

    return drop


_REPLAY: Final[dict[type, Callable[[Delta, Any], None]]] = {
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.TopicRecord: _topic,
    records.PartitionRecord: _partition,
    records.ConfigRecord: _config,
    records.PartitionChangeRecord: _partition_change,
    records.FenceBrokerRecord: _fence_broker,
    records.UnfenceBrokerRecord: _unfence_broker,
    records.RemoveTopicRecord: _remove_topic,
    records.DelegationTokenRecord: _kept("token_id"),
    records.UserScramCredentialRecord: _kept("name", "mechanism"),
    records.FeatureLevelRecord: _feature_level,
    records.ClientQuotaRecord: _client_quota,
    records.ProducerIdsRecord: _producer_ids,
    records.BrokerRegistrationChangeRecord: _broker_change,
    records.AccessControlEntryRecord: _kept("id"),
    records.RemoveAccessControlEntryRecord: _dropped("AccessControlEntryRecord", "id"),
    records.NoOpRecord: _nothing,
    records.ZkMigrationStateRecord: _nothing,
    records.RemoveUserScramCredentialRecord: _dropped("UserScramCredentialRecord", "name", "mechanism"),
    records.BeginTransactionRecord: _nothing,
    records.EndTransactionRecord: _nothing,
    records.AbortTransactionRecord: _nothing,
    records.RemoveDelegationTokenRecord: _dropped("DelegationTokenRecord", "token_id"),
    records.RegisterControllerRecord: _register_controller,
    records.ClearElrRecord: _clear_elr,
}


def _snapshot_records(image: MetadataImage) -> Iterator[Message]:
    """The metadata version first: a reader must know it before anything else."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield records.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for controller in image.controllers.values():
        yield controller_record(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics.values():
        yield records.TopicRecord(name=topic.name, topic_id=topic.id)
        for partition in topic.partitions.values():
            yield partition_record(partition)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield records.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    for entity, quotas in image.quotas.items():
        for key, number in quotas.items():
            yield quota_record(entity, key, number)
    if image.producer_ids_record is not None:
        yield image.producer_ids_record
    yield from image.others.values()


def partition_record(image: PartitionImage) -> Message:
    return records.PartitionRecord(
        partition_id=image.partition,
        topic_id=image.topic_id,
        replicas=list(image.replicas),
        isr=list(image.isr),
        removing_replicas=list(image.removing_replicas),
        adding_replicas=list(image.adding_replicas),
        leader=image.leader,
        leader_recovery_state=image.leader_recovery_state,
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
        directories=list(image.directories),
        eligible_leader_replicas=list(image.eligible_leader_replicas) or None,
        last_known_elr=list(image.last_known_elr) or None,
    )


def broker_record(image: BrokerImage) -> Message:
    return records.RegisterBrokerRecord(
        broker_id=image.id,
        incarnation_id=image.incarnation_id,
        broker_epoch=image.epoch,
        end_points=[
            records.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in image.endpoints
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in image.features.items()
        ],
        rack=image.rack,
        fenced=image.fenced,
        in_controlled_shutdown=image.in_controlled_shutdown,
        log_dirs=list(image.directories),
        cordoned_log_dirs=None if image.cordoned_directories is None else list(image.cordoned_directories),
    )


def controller_record(image: ControllerImage) -> Message:
    return records.RegisterControllerRecord(
        controller_id=image.id,
        incarnation_id=image.incarnation_id,
        zk_migration_ready=image.zk_migration_ready,
        end_points=[
            records.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in image.endpoints
        ],
        features=[
            records.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in image.features.items()
        ],
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> Message:
    """Set one quota of an entity, or remove it with None."""
    return records.ClientQuotaRecord(
        entity=[records.EntityData(entity_type=type, entity_name=name) for type, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )
