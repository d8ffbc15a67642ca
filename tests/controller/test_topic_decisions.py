"""Topics and partitions: which records a request makes, and which error it gets."""

from __future__ import annotations

import pytest
from controller_kit import World, uuid

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ZERO_UUID
from stratalog.controller.topics import internal_topic, why_bad_name
from stratalog.protocol.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from stratalog.protocol.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def topic(name, partitions=1, factor=1, configs=None, assignments=()):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments
        ],
    )


def create(world, *topics, **more):
    request = CreateTopicsRequest(topics=list(topics), **more)
    return world.submit(lambda c: c.create_topics(request, world.now)).topics


def code_of(world, *topics, **more):
    return [ErrorCode(result.error_code) for result in create(world, *topics, **more)]


def test_a_topic_is_made_with_its_partitions_and_overrides():
    world = World()
    (result,) = create(world, topic("orders", 3, configs={"cleanup.policy": "compact, delete"}))
    assert result.error_code == 0
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    image = world.image.topic("orders")
    assert image.id == result.topic_id != ZERO_UUID
    assert list(image.partitions) == [0, 1, 2]
    for partition in image.partitions.values():
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1,))
        assert partition.directories == (uuid(1),)
    assert world.image.topic_config("orders") == {"cleanup.policy": "compact,delete"}
    described = {config.name: (config.value, config.config_source) for config in result.configs}
    assert described["cleanup.policy"] == ("compact,delete", 1)
    assert described["retention.ms"] == ("604800000", 5)


def test_minus_one_takes_the_brokers_defaults():
    world = World(2, num_partitions="4", default_replication_factor="2")
    (result,) = create(world, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_replicas_go_round_over_the_brokers_that_are_alive():
    world = World(3)
    world.heartbeat(3, want_fence=True)
    create(world, topic("t", 4, 2))
    placed = [partition.replicas for partition in world.image.topic("t").partitions.values()]
    assert sorted(set(placed)) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("../../etc"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there.is"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("there_is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_is_refused(wanted, code):
    """security.md 7.3: names that leave the directory, and numbers that fill the memory, are among them."""
    world = World(2)
    create(world, topic("there.is"))
    before = world.log.end_offset
    assert code_of(world, wanted) == [code]
    assert world.log.end_offset == before


def test_the_longest_name_is_taken():
    assert why_bad_name("x" * 249) is None
    assert code_of(World(), topic("x" * 249)) == [ErrorCode.NONE]


def test_a_manual_assignment_is_followed():
    world = World(3)
    assert code_of(world, topic("t", -1, -1, assignments=[(1, [3, 1]), (0, [2, 3])])) == [ErrorCode.NONE]
    partitions = world.image.topic("t").partitions
    assert (partitions[0].replicas, partitions[0].leader) == ((2, 3), 2)
    assert (partitions[1].replicas, partitions[1].leader) == ((3, 1), 3)


def test_each_topic_of_a_request_stands_for_itself():
    world = World()
    codes = code_of(world, topic("good"), topic("bad/"), topic("twice"), topic("twice"), topic("g.x"), topic("g_x"))
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert sorted(world.image.topics_by_name) == ["g.x", "good"]


def test_the_topics_of_a_request_share_its_limit_of_partitions():
    world = World()
    assert code_of(world, topic("a", 6_000), topic("b", 6_000)) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


def test_validate_only_changes_nothing():
    world = World()
    before = world.log.end_offset
    (result,) = create(world, topic("t", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert world.log.end_offset == before


def test_a_request_is_one_batch_of_the_log():
    """A crash keeps all of a request's topics or none."""
    world = World()
    before = len(world.log.batches)
    create(world, topic("a", 3), topic("b", 3))
    assert len(world.log.batches) == before + 1


def test_the_topic_of_offsets_is_made_as_kafka_makes_it():
    world = World(offsets_topic_replication_factor="1")
    (result,) = create(world, internal_topic(world.controller, "__consumer_offsets"))
    assert result.num_partitions == 50
    assert world.image.topic_config("__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_a_new_partition_goes_to_the_directory_with_the_fewest():
    world = World(0)
    request = world.registration(1)
    request.log_dirs = [uuid(1), uuid(2)]
    world.epochs[1] = world.submit(lambda c: c.register_broker(request, world.now)).broker_epoch
    world.heartbeat(1)
    create(world, topic("t", 4))
    used = [p.directories[0] for p in world.image.topic("t").partitions.values()]
    assert sorted(used) == [uuid(1), uuid(1), uuid(2), uuid(2)]


# --- delete -----------------------------------------------------------------------------------------------------------
def delete(world, *states, names=()):
    request = DeleteTopicsRequest(topics=list(states), topic_names=list(names))
    return [ErrorCode(r.error_code) for r in world.submit(lambda c: c.delete_topics(request, world.now)).responses]


def test_topics_are_deleted_by_name_and_by_id():
    world = World()
    create(world, topic("a"), topic("b"), topic("c"))
    codes = delete(
        world,
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=world.image.topic("b").id),
        names=["c"],
    )
    assert codes == [ErrorCode.NONE] * 3
    assert world.image.topics_by_name == {}


def test_a_deletion_is_refused_for_each_topic_by_itself():
    world = World()
    create(world, topic("a"), topic("b"))
    b = world.image.topic("b").id
    codes = delete(
        world,
        DeleteTopicState(name="a"),
        DeleteTopicState(name="gone"),
        DeleteTopicState(topic_id=uuid(99)),
        DeleteTopicState(name="b", topic_id=b),
        DeleteTopicState(),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert list(world.image.topics_by_name) == ["b"]


def test_a_topic_named_twice_is_not_deleted():
    world = World()
    create(world, topic("a"))
    codes = delete(world, DeleteTopicState(name="a"), DeleteTopicState(topic_id=world.image.topic("a").id))
    assert codes == [ErrorCode.INVALID_REQUEST]
    assert world.image.topic("a") is not None


def test_deletion_can_be_forbidden():
    world = World(delete_topic_enable="false")
    create(world, topic("a"))
    assert delete(world, names=["a"]) == [ErrorCode.TOPIC_DELETION_DISABLED]


# --- more partitions --------------------------------------------------------------------------------------------------
def grow(world, name, count, assignments=None, **more):
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
            )
        ],
        **more,
    )
    (result,) = world.submit(lambda c: c.create_partitions(request, world.now)).results
    return ErrorCode(result.error_code)


def test_a_topic_grows():
    world = World(2)
    create(world, topic("a", 2, 2))
    assert grow(world, "a", 4) == ErrorCode.NONE
    assert list(world.image.topic("a").partitions) == [0, 1, 2, 3]
    assert all(len(p.replicas) == 2 for p in world.image.topic("a").partitions.values())
    assert grow(world, "a", 5, [[2, 1]]) == ErrorCode.NONE
    assert world.image.partition("a", 4).replicas == (2, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("gone", 4, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("a", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 20_000, None, ErrorCode.POLICY_VIOLATION),
        ("a", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_growth_is_refused(name, count, assignments, code):
    world = World(2)
    create(world, topic("a", 2))
    before = world.log.end_offset
    assert grow(world, name, count, assignments) == code
    assert world.log.end_offset == before


def test_validate_only_does_not_grow():
    world = World()
    create(world, topic("a", 2))
    assert grow(world, "a", 4, validate_only=True) == ErrorCode.NONE
    assert len(world.image.topic("a").partitions) == 2
