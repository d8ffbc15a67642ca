"""Brokers: registration, sessions, fencing, and what that does to the partitions that they lead; producer ids.

A registration is a record, its offset is the broker's epoch, and a heartbeat with another epoch is stale.  Sessions
are soft state.  A new incarnation takes the place of an old one at once when its directories say that it is the same
broker: a restart after kill -9 does not wait for its own old session.  Called by `controller.controller`; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import MAX_INT64, Millis
from stratalog.controller.controller import Result
from stratalog.metadata.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    broker_record,
)
from stratalog.protocol.disk.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    UnregisterBrokerRecord,
)
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller
    from stratalog.protocol.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from stratalog.protocol.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

PRODUCER_ID_BLOCK: Final = 1_000
FENCE: Final = 1
UNFENCE: Final = -1


# --- registration -----------------------------------------------------------------------------------------------------
def register_broker(
    controller: Controller, request: BrokerRegistrationRequest, now: Millis
) -> Result[BrokerRegistrationResponse]:
    from stratalog.protocol.k62_broker_registration import BrokerRegistrationResponse

    image = controller.image
    if request.cluster_id != controller.cluster_id:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {controller.cluster_id}")
    old = image.brokers.get(request.broker_id)
    directories = tuple(request.log_dirs)
    if len(set(directories)) != len(directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a directory id is there twice")
    for other in image.brokers.values():
        if other.id != request.broker_id and set(other.directories) & set(directories):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"broker {other.id} has one of these directories")
    if old is not None and old.incarnation_id == request.incarnation_id:
        return Result((), BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=old.epoch))
    same = old is not None and bool(set(old.directories) & set(directories))
    if old is not None and not old.fenced and not same and request.broker_id in controller.contacts:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"another process with the id {request.broker_id} is alive"
        )
    levels = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    for name, level in image.features.items():
        if name in controller.supported_features and name in levels and not levels[name][0] <= level <= levels[name][1]:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the cluster has {name} at level {level}")
    epoch = controller.next_offset
    registration = BrokerImage(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features=levels,
        rack=request.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=directories,
    )
    records: list[Message] = [broker_record(registration)]
    clean = old is not None and request.previous_broker_epoch == old.epoch
    if old is not None and not clean:
        # What it had acknowledged beyond its last flush may be gone: others go on from the old epoch, it must not.
        records += _led_away(image, lambda p: request.broker_id in p.isr, request.broker_id)
    controller.contacts.pop(request.broker_id, None)
    return Result(records, BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=epoch))


def unregister_broker(controller: Controller, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
    from stratalog.protocol.k64_unregister_broker import UnregisterBrokerResponse

    broker = controller.image.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    records = _led_away(controller.image, lambda p: broker.id in p.isr, broker.id)
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    controller.contacts.pop(broker.id, None)
    return Result(records, UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None))


# --- sessions ---------------------------------------------------------------------------------------------------------
def broker_heartbeat(
    controller: Controller, request: BrokerHeartbeatRequest, now: Millis
) -> Result[BrokerHeartbeatResponse]:
    from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatResponse

    broker = controller.image.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    if broker.epoch != request.broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker.id} has epoch {broker.epoch}")
    caught_up = request.current_metadata_offset >= broker.epoch
    fenced = broker.fenced
    stops = False
    records: list[Message] = []
    if request.want_shut_down:
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1)
            )
            records += _led_away(controller.image, lambda p: p.leader == broker.id and len(p.isr) > 1, broker.id)
        stops = True
    elif request.want_fence and not fenced:
        records += _fence(controller, broker)
        fenced = True
    elif fenced and not request.want_fence and caught_up:
        records += _unfence(controller.image, broker)
        fenced = False
    if fenced:
        controller.contacts.pop(broker.id, None)
    else:
        controller.contacts[broker.id] = now
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE, is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stops
    )
    return Result(records, response)


def fence_silent_brokers(controller: Controller, now: Millis) -> Result[None]:
    timeout = int(controller.settings["broker.session.timeout.ms"])
    records: list[Message] = []
    for broker_id, contact in sorted(controller.contacts.items()):
        broker = controller.image.brokers.get(broker_id)
        if now >= contact + timeout:
            del controller.contacts[broker_id]
            if broker is not None and not broker.fenced:
                records += _fence(controller, broker)
    return Result(records, None)


def _fence(controller: Controller, broker: BrokerImage) -> list[Message]:
    records: list[Message] = [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    ]
    return records + _led_away(controller.image, lambda p: broker.id in p.isr, broker.id)


def _unfence(image: MetadataImage, broker: BrokerImage) -> list[Message]:
    """The broker is alive: partitions that wait for it get it as their leader."""
    records: list[Message] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=UNFENCE,
            in_controlled_shutdown=-1 if broker.in_controlled_shutdown else 0,
        )
    ]
    for partition in _partitions(image):
        if partition.leader != NO_LEADER or broker.id not in partition.replicas:
            continue
        if broker.id in partition.isr:
            records.append(leader_change(partition, leader=broker.id))
        elif not partition.isr and broker.id in partition.eligible_leader_replicas:
            # What a Kafka with eligible leader replicas left behind: it may lead without losing anything.
            records.append(leader_change(partition, leader=broker.id, isr=[broker.id], forget_eligible=True))
    return records


# --- leadership -------------------------------------------------------------------------------------------------------
def _partitions(image: MetadataImage) -> Iterator[PartitionImage]:
    for topic in image.topics.values():
        yield from topic.partitions.values()


def _led_away(image: MetadataImage, concerns: Callable[[PartitionImage], bool], broker_id: int) -> list[Message]:
    """The broker can lead no more: another replica in sync does, or nobody.  The last one in sync stays in sync,
    because only it has everything."""
    records: list[Message] = []
    for partition in _partitions(image):
        if not concerns(partition):
            continue
        isr = [replica for replica in partition.isr if replica != broker_id]
        if partition.leader != broker_id:
            if isr:
                records.append(leader_change(partition, isr=isr))
            continue
        alive = [
            replica
            for replica in partition.replicas
            if replica in isr and replica in image.brokers and not image.brokers[replica].fenced
        ]
        records.append(leader_change(partition, leader=alive[0] if alive else NO_LEADER, isr=isr or None))
    return records


def leader_change(
    partition: PartitionImage,
    *,
    leader: int = NO_LEADER_CHANGE,
    isr: list[int] | None = None,
    forget_eligible: bool = False,
) -> Message:
    return PartitionChangeRecord(
        partition_id=partition.partition,
        topic_id=partition.topic_id,
        leader=leader,
        isr=isr,
        eligible_leader_replicas=[] if forget_eligible else None,
        last_known_elr=[] if forget_eligible else None,
    )


# --- producer ids -----------------------------------------------------------------------------------------------------
def allocate_producer_ids(
    controller: Controller, request: AllocateProducerIdsRequest
) -> Result[AllocateProducerIdsResponse]:
    from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsResponse

    image = controller.image
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    if broker.epoch != request.broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker.id} has epoch {broker.epoch}")
    first = image.next_producer_id
    if first > MAX_INT64 - PRODUCER_ID_BLOCK:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    record = ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + PRODUCER_ID_BLOCK
    )
    response = AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
    )
    return Result([record], response)
