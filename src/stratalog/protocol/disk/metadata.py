"""The records of `__cluster_metadata`, in the log and in its snapshots.

Each value is an envelope of three unsigned varints, the frame version 1, the record's id (`api_key` here) and its
version, and then the record; records have no key.  `metadata.version` decides which version a controller writes.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    tag,
    uint16,
    uuid,
)


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message):
    api_key = 0
    versions = (0, 4)
    flexible = 0

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=0)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[Uuid] = tag(0, array(uuid), since=3)
    cordoned_log_dirs: list[Uuid] | None = tag(1, array(uuid, nullable=4, default=None), since=4)


class UnregisterBrokerRecord(Message):
    api_key = 1
    versions = (0, 0)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message):
    api_key = 2
    versions = (0, 0)
    flexible = 0

    name: str = string()
    topic_id: Uuid = uuid()


class PartitionRecord(Message):
    api_key = 3
    versions = (0, 2)
    flexible = 0

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = tag(0, int8(), since=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array(uuid, since=1)
    eligible_leader_replicas: list[int] | None = tag(1, array(int32, nullable=2, default=None), since=2)
    last_known_elr: list[int] | None = tag(2, array(int32, nullable=2, default=None), since=2)


class ConfigRecord(Message):
    api_key = 4
    versions = (0, 0)
    flexible = 0

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=0)


class PartitionChangeRecord(Message):
    api_key = 5
    versions = (0, 2)
    flexible = 0

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: list[int] | None = tag(0, array(int32, nullable=0, default=None), since=0)
    leader: int = tag(1, int32(default=-2), since=0)
    replicas: list[int] | None = tag(2, array(int32, nullable=0, default=None), since=0)
    removing_replicas: list[int] | None = tag(3, array(int32, nullable=0, default=None), since=0)
    adding_replicas: list[int] | None = tag(4, array(int32, nullable=0, default=None), since=0)
    leader_recovery_state: int = tag(5, int8(default=-1), since=0)
    directories: list[Uuid] | None = tag(8, array(uuid, nullable=1, default=None), since=1)
    eligible_leader_replicas: list[int] | None = tag(6, array(int32, nullable=2, default=None), since=2)
    last_known_elr: list[int] | None = tag(7, array(int32, nullable=2, default=None), since=2)


class FenceBrokerRecord(Message):
    api_key = 7
    versions = (0, 0)
    flexible = 0

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message):
    api_key = 8
    versions = (0, 0)
    flexible = 0

    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message):
    api_key = 9
    versions = (0, 0)
    flexible = 0

    topic_id: Uuid = uuid()


class DelegationTokenRecord(Message):
    api_key = 10
    versions = (0, 0)
    flexible = 0

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message):
    api_key = 11
    versions = (0, 0)
    flexible = 0

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


class FeatureLevelRecord(Message):
    api_key = 12
    versions = (0, 0)
    flexible = 0

    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class ClientQuotaRecord(Message):
    api_key = 14
    versions = (0, 0)
    flexible = 0

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message):
    api_key = 15
    versions = (0, 0)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message):
    api_key = 17
    versions = (0, 3)
    flexible = 0

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = tag(0, int8(), since=0)
    in_controlled_shutdown: int = tag(1, int8(), since=1)
    log_dirs: list[Uuid] = tag(2, array(uuid), since=2)
    cordoned_log_dirs: list[Uuid] | None = tag(3, array(uuid, nullable=3, default=None), since=3)


class AccessControlEntryRecord(Message):
    api_key = 18
    versions = (0, 0)
    flexible = 0

    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message):
    api_key = 19
    versions = (0, 0)
    flexible = 0

    id: Uuid = uuid()


class NoOpRecord(Message):
    api_key = 20
    versions = (0, 0)
    flexible = 0


class ZkMigrationStateRecord(Message):
    api_key = 21
    versions = (0, 0)
    flexible = 0

    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message):
    api_key = 22
    versions = (0, 0)
    flexible = 0

    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message):
    api_key = 23
    versions = (0, 0)
    flexible = 0

    name: str | None = tag(0, string(nullable=0, default=None), since=0)


class EndTransactionRecord(Message):
    api_key = 24
    versions = (0, 0)
    flexible = 0


class AbortTransactionRecord(Message):
    api_key = 25
    versions = (0, 0)
    flexible = 0

    reason: str | None = tag(0, string(nullable=0, default=None), since=0)


class RemoveDelegationTokenRecord(Message):
    api_key = 26
    versions = (0, 0)
    flexible = 0

    token_id: str = string()


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message):
    api_key = 27
    versions = (0, 0)
    flexible = 0

    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message):
    api_key = 28
    versions = (0, 0)
    flexible = 0

    topic_name: str = string()


RECORDS: dict[int, type[Message]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""Record id to its class."""
