"""Elections and reassignments that an operator asks for."""

from __future__ import annotations

import pytest
from controller_kit import World
from test_topic_decisions import create, topic

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.protocol.disk.metadata import PartitionChangeRecord
from stratalog.protocol.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from stratalog.protocol.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


def elect(world, kind=0, **wanted):
    rows = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows if wanted else None)
    response = world.submit(lambda c: c.elect_leaders(request, world.now))
    assert response.error_code == 0
    return {
        (result.topic, row.partition_id): ErrorCode(row.error_code)
        for result in response.replica_election_results
        for row in result.partition_result
    }


def led_by_the_second() -> World:
    """`t` is on brokers 1 and 2, `u` on 1 alone; 1 was away, so 2 leads `t`, and 1 is back in sync."""
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [1, 2])]), topic("u", -1, -1, assignments=[(0, [1])]))
    world.heartbeat(1, want_fence=True)
    return world


def back_in_sync(world: World) -> None:
    world.heartbeat(1)
    record = PartitionChangeRecord(partition_id=0, topic_id=world.image.topic("t").id, isr=[1, 2])
    world.submit(lambda c: Result([record], None))


def test_the_preferred_replica_leads_when_it_is_asked_for():
    world = led_by_the_second()
    back_in_sync(world)
    before = world.image.partition("t", 0)
    assert before.leader == 2
    assert elect(world, t=[0], u=[0]) == {("t", 0): ErrorCode.NONE, ("u", 0): ErrorCode.ELECTION_NOT_NEEDED}
    after = world.image.partition("t", 0)
    assert (after.leader, after.leader_epoch) == (1, before.leader_epoch + 1)


def test_of_all_partitions_only_those_with_something_to_do_are_told():
    world = led_by_the_second()
    back_in_sync(world)
    assert elect(world) == {("t", 0): ErrorCode.NONE}
    assert elect(world) == {}


def test_a_preferred_replica_out_of_sync_does_not_lead():
    """Whatever an operator asks for, only a replica that has everything leads."""
    world = led_by_the_second()
    world.heartbeat(1)  # alive, and not in sync
    assert elect(world, t=[0]) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert world.image.partition("t", 0).leader == 2


def test_nobody_alive_means_no_leader():
    world = led_by_the_second()
    assert elect(world, 1, u=[0]) == {("u", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert elect(world, 1, t=[0]) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_what_is_unknown_has_no_election():
    world = World()
    create(world, topic("t"))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(world, t=[9], nowhere=[0]) == {("t", 9): unknown, ("nowhere", 0): unknown}
    with pytest.raises(ApiError) as error:
        elect(world, 7, t=[0])
    assert error.value.code == ErrorCode.INVALID_REQUEST


def reassign(world, replicas, *, name="t", index=0, may_resize=True):
    row = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize, topics=[ReassignableTopic(name=name, partitions=[row])]
    )
    before = world.log.end_offset
    response = world.submit(lambda c: c.alter_partition_reassignments(request, world.now))
    assert (response.error_code, world.log.end_offset) == (0, before)
    return ErrorCode(response.responses[0].partitions[0].error_code)


def test_replicas_stay_where_they_are():
    world = World(2)
    create(world, topic("t", -1, -1, assignments=[(0, [1])]))
    assert reassign(world, [1]) == ErrorCode.NONE
    assert reassign(world, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(world, [2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, [99]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, [1, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, [1, 2], may_resize=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(world, [1], name="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(world, [1], index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
