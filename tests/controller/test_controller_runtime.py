"""The controller on its log: order of images and answers, and that the state is the log's replay (KR-2)."""

from __future__ import annotations

import pytest
from controller_kit import World
from hypothesis import given, settings
from hypothesis import strategies as st
from test_config_decisions import incremental, quota
from test_topic_decisions import create, delete, grow, topic

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.metadata import serde
from stratalog.metadata.image import MetadataImage, ResourceType
from stratalog.protocol.disk.metadata import ConfigRecord, RemoveTopicRecord
from stratalog.protocol.k19_create_topics import CreateTopicsRequest
from stratalog.protocol.k20_delete_topics import DeleteTopicState


def config(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=value)


def test_an_answer_waits_for_the_commit_and_the_image_comes_first():
    world = World()
    world.log.hold = True
    seen = []
    world.runtime.on_image = lambda delta: seen.append(("image", delta.image.offset))
    start = world.log.end_offset
    world.runtime.submit(lambda _: Result([config("1")], "one"), lambda r: seen.append((r, world.image.offset)), 0)
    world.runtime.submit(lambda _: Result([config("2"), config("3")], "two"), seen.append, 0)
    world.runtime.submit(lambda _: Result([], "nothing"), seen.append, 0)
    assert seen == []
    assert world.controller.image.config(4, "")["log.retention.ms"] == "3"
    assert world.image.config(4, "") == {}
    world.log.commit_up_to(start + 2)  # the first batch, and half of the second: a batch is committed whole
    assert seen == [("image", start), ("one", start)]
    world.log.commit_up_to(start + 3)
    assert seen[2:] == [("image", start + 2), "two", "nothing"]


def test_what_changes_nothing_is_answered_at_once_when_nothing_is_pending():
    world = World()
    world.log.hold = True
    seen = []
    world.runtime.submit(lambda _: Result([], "now"), seen.append, 0)
    assert seen == ["now"]


def test_a_reply_may_submit_again():
    world = World()
    seen = []

    def first(_):
        world.runtime.submit(lambda _: Result([config("2")], None), lambda _: seen.append("second"), 0)
        seen.append("first")

    world.runtime.submit(lambda _: Result([config("1")], None), first, 0)
    assert sorted(seen) == ["first", "second"]
    assert world.image.config(4, "")["log.retention.ms"] == "2"


def test_a_handler_that_fails_leaves_nothing_behind():
    world = World()
    before = world.log.end_offset
    with pytest.raises(AssertionError):
        world.runtime.submit(lambda c: Result([RemoveTopicRecord(topic_id=c.random_uuid())], None), None, 0)
    assert world.log.end_offset == before
    assert world.controller.image is world.image


def test_a_full_disk_refuses_the_change_and_changes_nothing():
    """DESIGN, failures: a full disk refuses writes and keeps serving reads."""
    world = World()
    append = world.log.append

    def full(values, now):
        raise OSError(28, "No space left on device", "x")

    world.log.append = full
    with pytest.raises(ApiError) as error:
        world.runtime.submit(lambda _: Result([config("1")], None), None, 0)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.controller.image is world.image
    world.log.append = append
    world.submit(lambda _: Result([config("2")], None))
    assert world.image == world.replayed()


NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c"])
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(-1, 4), st.integers(-1, 3)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("grow"), NAMES, st.integers(0, 6)),
    st.tuples(st.just("config"), NAMES, st.integers(0, 3), st.sampled_from(["1", "2", "x", None])),
    st.tuples(st.just("policy"), NAMES, st.integers(0, 3), st.sampled_from(["compact", "delete", "x"])),
    st.tuples(st.just("default"), st.sampled_from(["10", "20", None])),
    st.tuples(st.just("quota"), NAMES, st.sampled_from([1.0, 2.0, None])),
    st.tuples(st.just("fence"), st.integers(1, 3)),
    st.tuples(st.just("beat"), st.integers(1, 3)),
    st.tuples(st.just("restart"), st.integers(1, 3), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
def test_any_sequence_of_operations_leaves_the_replay_of_the_log(operations):
    """KR-2: at each committed offset the image equals the replay of the log up to there; leaders are alive and in the
    ISR, the ISR is a part of the replicas (RP-3), epochs only rise (RP-4)."""
    world = World(3)
    images: list[MetadataImage] = []
    world.runtime.on_image = lambda delta: images.append(delta.image)
    incarnation = 1
    for operation in operations:
        match operation:
            case "create", name, partitions, factor:
                create(world, topic(name, partitions, factor))
            case "delete", name:
                delete(world, DeleteTopicState(name=name))
            case "grow", name, count:
                grow(world, name, count)
            case "config", name, kind, value:
                incremental(world, ResourceType.TOPIC, name, ("retention.ms", kind, value))
            case "policy", name, kind, value:
                incremental(world, ResourceType.TOPIC, name, ("cleanup.policy", kind, value))
            case "default", value:
                op = ("log.retention.ms", 1 if value is None else 0, value)
                incremental(world, ResourceType.BROKER, "", op)
            case "quota", name, value:
                quota(world, [("user", name)], ("producer_byte_rate", value))
            case "fence", broker:
                world.heartbeat(broker, want_fence=True)
            case "beat", broker:
                world.heartbeat(broker)
            case "restart", broker, clean:
                incarnation += 1
                world.register(broker, incarnation=incarnation, previous=world.epochs[broker] if clean else -1)
    assert world.image == world.controller.image
    records = [serde.decode(value) for value in world.log.values]
    for image in images:
        prefix = MetadataImage().apply(records[: image.offset + 1], offset=image.offset, epoch=1).image
        assert prefix == image
    epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
    for image in images:
        for known in image.topics.values():
            for partition in known.partitions.values():
                assert set(partition.isr) <= set(partition.replicas)
                assert partition.isr
                if partition.leader >= 0:
                    assert partition.leader in partition.isr
                key = (known.id, partition.partition)
                now = (partition.leader_epoch, partition.partition_epoch)
                before = epochs.get(key, now)
                assert now[0] >= before[0]
                assert now[1] >= before[1]
                epochs[key] = now


def test_a_request_of_ten_thousand_partitions_is_one_commit():
    world = World()
    request = CreateTopicsRequest(topics=[topic("big", 10_000)])
    answers = []
    world.runtime.submit(lambda c: c.create_topics(request, 0), answers.append, 0)
    assert answers[0].topics[0].error_code == 0
    assert len(world.image.topic("big").partitions) == 10_000
