"""Registration, sessions, fencing and leadership."""

from __future__ import annotations

import pytest
from controller_kit import NOW, World
from test_topic_decisions import create, topic

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.protocol.disk.metadata import PartitionChangeRecord
from stratalog.protocol.k64_unregister_broker import UnregisterBrokerRequest
from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsRequest


def test_a_brokers_epoch_is_the_offset_of_its_registration():
    world = World(0)
    expected = world.log.end_offset
    assert world.register(1) == expected
    assert world.image.brokers[1].fenced
    assert not world.heartbeat(1).is_fenced
    assert not world.image.brokers[1].fenced


def test_the_same_incarnation_registers_once():
    world = World()
    before = world.log.end_offset
    assert world.register(1) == world.image.brokers[1].epoch
    assert world.log.end_offset == before


def test_a_restart_does_not_wait_for_its_own_old_session():
    """Issue 5: after kill -9 the same directories take the place of the old incarnation at once."""
    world = World()
    old = world.epochs[1]
    new = world.register(1, incarnation=2)
    assert new > old
    assert world.image.brokers[1].fenced
    assert not world.heartbeat(1).is_fenced
    with pytest.raises(ApiError) as error:
        world.heartbeat(1, epoch=old)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_another_process_with_the_same_id_is_refused_while_the_first_is_alive():
    """Seed 004: two servers configured with the same broker id."""
    world = World()
    with pytest.raises(ApiError) as error:
        world.register(1, incarnation=2, directory=77)
    assert error.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.now += 9_000
    world.submit(lambda c: c.fence_silent_brokers(world.now))
    assert world.register(1, incarnation=2, directory=77) > 0


def test_directories_belong_to_one_broker():
    world = World(2)
    with pytest.raises(ApiError) as error:
        world.register(2, incarnation=2, directory=1)
    assert error.value.code == ErrorCode.INVALID_REGISTRATION


def test_another_cluster_is_refused():
    world = World(0)
    request = world.registration(1)
    request.cluster_id = "elsewhere"
    with pytest.raises(ApiError) as error:
        world.submit(lambda c: c.register_broker(request, NOW))
    assert error.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_an_unclean_restart_raises_the_leader_epoch_of_what_it_led():
    """What was acknowledged and not flushed may be gone: the old epoch's offsets must not be given twice."""
    world = World()
    create(world, topic("t", 2))
    world.register(1, incarnation=2)
    assert world.image.partition("t", 0).leader == -1
    world.heartbeat(1)
    for partition in world.image.topic("t").partitions.values():
        assert (partition.leader, partition.isr) == (1, (1,))
        assert partition.leader_epoch > 0


def test_a_clean_restart_keeps_the_leader_epoch():
    """A thousand partitions come back without a record or a file for each."""
    world = World()
    create(world, topic("t", 2))
    world.register(1, incarnation=2, previous=world.epochs[1])
    world.heartbeat(1)
    for partition in world.image.topic("t").partitions.values():
        assert (partition.leader, partition.leader_epoch) == (1, 0)


def test_a_silent_broker_is_fenced_and_others_lead():
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [1, 2])]), topic("u", -1, -1, assignments=[(0, [1])]))
    world.now += 8_999
    world.heartbeat(2)
    assert world.submit(lambda c: c.fence_silent_brokers(world.now)) is None
    assert not world.image.brokers[1].fenced
    assert world.controller.session_deadline() == NOW + 9_000
    world.now += 1
    world.submit(lambda c: c.fence_silent_brokers(world.now))
    assert world.image.brokers[1].fenced
    shared, alone = world.image.partition("t", 0), world.image.partition("u", 0)
    assert (shared.leader, shared.isr, shared.leader_epoch) == (2, (2,), 1)
    assert (alone.leader, alone.isr) == (-1, (1,))
    world.heartbeat(1)
    assert world.image.partition("u", 0).leader == 1
    assert world.image.partition("t", 0).leader == 2


def test_the_last_replica_in_sync_stays_in_sync():
    """RP-2: only it has everything, so nobody else may lead."""
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [1, 2])]))
    world.heartbeat(2, want_fence=True)
    world.heartbeat(1, want_fence=True)
    assert world.image.partition("t", 0).isr == (1,)
    world.heartbeat(2)
    assert world.image.partition("t", 0).leader == -1
    world.heartbeat(1)
    assert world.image.partition("t", 0).leader == 1


def test_what_kafka_left_with_an_eligible_replica_gets_its_leader():
    """A clean stop of Kafka 4.3 with eligible leader replicas leaves an empty ISR behind."""
    world = World()
    create(world, topic("t"))
    id = world.image.topic("t").id
    world.heartbeat(1, want_fence=True)
    change = PartitionChangeRecord(
        partition_id=0, topic_id=id, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
    )
    world.submit(lambda _: Result([change], None))
    world.heartbeat(1)
    partition = world.image.partition("t", 0)
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())


def test_a_broker_that_has_not_read_its_registration_stays_fenced():
    world = World(0)
    world.register(1)
    request_offset = world.image.offset
    world.runtime.image = world.runtime.image.apply([], offset=request_offset - 1).image
    assert world.heartbeat(1).is_fenced
    assert world.image.brokers[1].fenced


def test_a_broker_that_wants_to_stop_hands_over_and_may():
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [1, 2])]), topic("u", -1, -1, assignments=[(0, [1])]))
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.image.partition("t", 0).leader == 2
    assert world.image.partition("u", 0).leader == 1
    assert world.image.brokers[1].in_controlled_shutdown


def test_a_broker_is_unregistered():
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [2, 1])]))
    request = UnregisterBrokerRequest(broker_id=2)
    world.submit(lambda c: c.unregister_broker(request, world.now))
    assert list(world.image.brokers) == [1]
    assert world.image.partition("t", 0).leader == 1
    with pytest.raises(ApiError) as error:
        world.submit(lambda c: c.unregister_broker(request, world.now))
    assert error.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_are_given_once():
    world = World(2)
    seen: set[int] = set()
    for broker in (1, 2, 1, 2):
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=world.epochs[broker])
        response = world.submit(lambda c, request=request: c.allocate_producer_ids(request, world.now))
        block = set(range(response.producer_id_start, response.producer_id_start + response.producer_id_len))
        assert len(block) == 1000
        assert not block & seen
        seen |= block
    assert world.replayed().next_producer_id == 4000
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(ApiError) as error:
        world.submit(lambda c: c.allocate_producer_ids(stale, world.now))
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH
