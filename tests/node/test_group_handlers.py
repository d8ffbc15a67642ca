"""The handlers of groups and offsets: every version of every request, on the wire's own bytes, against the real
coordinator over logs in memory."""

from __future__ import annotations

import random

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.types import ConnectionId, Millis, Uuid
from stratalog.coordinator.group import GroupConfig, GroupCoordinator
from stratalog.coordinator.group.coordinator import TOPIC
from stratalog.metadata.image import MetadataImage
from stratalog.node import handlers
from stratalog.node.request import Parked, Peer, Request
from stratalog.protocol.apis import APIS
from stratalog.protocol.disk import metadata as records
from stratalog.records import batch as v2
from stratalog.rsm.shard import Now

T_ID = Uuid(b"topic t sixteen.")
OFFSETS_ID = Uuid(b"offsets sixteen.")
GONE_ID = Uuid(b"a topic not here")


class MemoryLog:
    log_start_offset = 0

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.batches: list[bytes] = []

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def append(self, batch, now):
        base = self.log_end_offset
        v2.patch(batch, 0, base_offset=base)
        self.log_end_offset = v2.read_header(batch).next_offset
        self.batches.append(bytes(batch))
        return base

    def read(self, offset, max_bytes):
        return b"".join(self.batches)


class Clock:
    ms = 0

    def now_ms(self) -> Millis:
        return Millis(1_700_000_000_000 + self.ms)

    def monotonic_ms(self) -> Millis:
        return Millis(self.ms)


class Rng:
    def __init__(self) -> None:
        self.random = random.Random(1)

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)


class Controller:
    def __init__(self, node) -> None:
        self.node = node
        self.asked: list[str] = []

    def ensure_internal_topic(self, name: str, now: Millis) -> None:
        self.asked.append(name)


def image_with(topics: dict[str, tuple[Uuid, int]]) -> MetadataImage:
    made: list = [
        records.RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=1,
            incarnation_id=Uuid(bytes(16)),
            end_points=[records.BrokerEndpoint(name="PLAINTEXT", host="here", port=9092, security_protocol=0)],
            features=[],
            rack=None,
            fenced=False,
            log_dirs=[],
        )
    ]
    for name, (topic_id, count) in topics.items():
        made.append(records.TopicRecord(name=name, topic_id=topic_id))
        made += [
            records.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            )
            for index in range(count)
        ]
    return MetadataImage().apply(made).image


class Node:
    """What the handlers reach of `node.Node`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.groups = GroupCoordinator(GroupConfig(partitions=3), self.clock, Rng())
        self.logs = [MemoryLog() for _ in range(3)]
        for index, log in enumerate(self.logs):
            self.groups.elect(index, log)
        self.controller = Controller(self)
        self.image = image_with({"t": (T_ID, 2), TOPIC: (OFFSETS_ID, 3)})
        self.peer = Peer(ConnectionId(1), host="10.0.0.1", port=1, listener="PLAINTEXT")
        self.names = handlers.names()

    def park(self, request: Request) -> Parked:
        return Parked(self, request)

    def complete(self, request: Request, message) -> None:
        request.output = b"".join(bytes(part) for part in message.encode(request.version))

    def send(self, key: int, version: int, /, **fields):
        """Encode, decode, handle; the answer, decoded from its bytes, or the request that waits."""
        api = APIS[key]
        raw = b"".join(bytes(part) for part in api.request(**fields).encode(version))
        request = Request(self.peer, key, version, 1, memoryview(raw), self.clock.now_ms())
        request.client_id = "me"
        request.body = api.request.decode(memoryview(raw), version)
        answer = handlers.load(self.names[key]).handle(self, request, self.clock.now_ms())
        if not isinstance(answer, Parked):
            self.complete(request, answer)
        return self.answer(request) if request.output is not None else request

    def answer(self, request: Request):
        return APIS[request.key].response.decode(memoryview(request.output), request.version)

    def advance(self, ms: int) -> None:
        end = self.clock.ms + ms
        while (deadline := self.groups.deadline()) is not None and deadline <= end:
            self.clock.ms = max(deadline, self.clock.ms)
            self.groups.tick(Now(self.clock.now_ms(), self.clock.monotonic_ms()))
        self.clock.ms = end


@pytest.fixture
def node() -> Node:
    return Node()


def struct(key: int, class_name: str, /, **fields):
    """A part of a message: `struct(8, "OffsetCommitRequestTopic", ...)`."""
    import importlib

    module = importlib.import_module(APIS[key].request.__module__)
    return getattr(module, class_name)(**fields)


def join(node: Node, version: int, group: str = "g", member: str = "", **fields):
    protocols = [struct(11, "JoinGroupRequestProtocol", name="range", metadata=b"meta")]
    return node.send(
        11,
        version,
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000 if version else -1,
        member_id=member,
        protocol_type="consumer",
        protocols=protocols,
        **fields,
    )


def commit(node: Node, version: int, group: str = "g", offset: int = 42, partitions=(0,), **fields):
    parts = [
        struct(8, "OffsetCommitRequestPartition", partition_index=p, committed_offset=offset, committed_metadata="m")
        for p in partitions
    ]
    topic = struct(8, "OffsetCommitRequestTopic", name="t", topic_id=T_ID, partitions=parts)
    return node.send(8, version, group_id=group, topics=fields.pop("topics", [topic]), **fields)


# --- the whole way, in every version ------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_heartbeats_and_leaves_in_every_version(node, version):
    """Old clients send old versions of all of them (`clients.md`)."""
    first = join(node, version)
    if version >= 4:
        assert ErrorCode(first.error_code) is ErrorCode.MEMBER_ID_REQUIRED
        waiting = join(node, version, member=first.member_id)
    else:
        waiting = first
    node.advance(3_000)
    joined = node.answer(waiting)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == b"meta"
    assert joined.member_id.startswith("me-")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    identity = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    given = [struct(14, "SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b"mine")]
    synced = node.send(14, min(version, 5), assignments=given, **identity, **protocol)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert node.send(12, min(version, 4), **identity).error_code == 0
    described = node.send(15, min(version, 6), groups=["g"]).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].client_host == "/10.0.0.1"
    assert (described.members[0].member_metadata, described.members[0].member_assignment) == (b"meta", b"mine")
    committed = commit(
        node, min(version, 9), member_id=joined.member_id, generation_id_or_member_epoch=1 if version else -1
    )
    code = ErrorCode(committed.topics[0].partitions[0].error_code)
    assert code is (ErrorCode.NONE if version else ErrorCode.UNKNOWN_MEMBER_ID)
    if version <= 2:
        left = node.send(13, version, group_id="g", member_id=joined.member_id)
    else:
        members = [struct(13, "MemberIdentity", member_id=joined.member_id)]
        left = node.send(13, min(version, 5), group_id="g", members=members)
        assert left.members[0].error_code == 0
    assert left.error_code == 0
    assert node.send(16, min(version, 5)).groups[0].group_id == "g"
    assert node.send(42, min(version, 2), groups_names=["g", "none"]).results[0].error_code == 0
    assert not node.send(16, min(version, 5)).groups


def test_without_a_rebalance_timeout_the_session_timeout_is_it(node):
    join(node, 0)
    (group,) = [group for runtime in node.groups.runtimes.values() for group in runtime.shard.groups.values()]
    assert group.rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_leave_has_its_error_on_top(node, version):
    left = node.send(13, version, group_id="g", member_id="nobody")
    assert ErrorCode(left.error_code) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(7))
def test_a_refused_join_has_an_encoding_in_every_version(node, version):
    """The protocol's name is null, which versions before 7 cannot say."""
    refused = join(node, version, member="nobody")
    assert ErrorCode(refused.error_code) is ErrorCode.UNKNOWN_MEMBER_ID


# --- offsets ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(11))
def test_commits_of_every_version_are_fetched_by_every_version(node, version):
    committed = commit(node, version, partitions=(0, 1, 7))
    codes = [ErrorCode(p.error_code).name for p in committed.topics[0].partitions]
    assert codes == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    for fetch in range(11):
        if fetch < 8:
            topics = [struct(9, "OffsetFetchRequestTopic", name="t", partition_indexes=[0, 5])]
            answer = node.send(9, fetch, group_id="g", topics=topics)
            assert answer.error_code == 0
            topic = answer.topics[0]
        else:
            asked = struct(9, "OffsetFetchRequestTopics", name="t", topic_id=T_ID, partition_indexes=[0, 5])
            group = struct(9, "OffsetFetchRequestGroup", group_id="g", topics=[asked])
            answer = node.send(9, fetch, groups=[group])
            assert answer.groups[0].error_code == 0
            topic = answer.groups[0].topics[0]
            assert topic.topic_id == T_ID or fetch < 10
        found = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions]
        assert found == [(0, 42, "m", 0), (5, -1, "", 0)]


@pytest.mark.parametrize("version", [2, 5, 7])
def test_null_topics_mean_everything(node, version):
    commit(node, 6, partitions=(0, 1))
    answer = node.send(9, version, group_id="g", topics=None)
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics] == [("t", [0, 1])]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_are_fetched_at_once(node, version):
    for group, offset in (("a", 1), ("b", 2), ("c", 3)):
        commit(node, 9, group=group, offset=offset)
    groups = [struct(9, "OffsetFetchRequestGroup", group_id=name, topics=None) for name in ("a", "b", "c", "none")]
    answer = node.send(9, version, groups=groups)
    found = {g.group_id: [p.committed_offset for t in g.topics for p in t.partitions] for g in answer.groups}
    assert found == {"a": [1], "b": [2], "c": [3], "none": []}


def test_everything_leaves_out_topics_that_have_no_id_any_more(node):
    commit(node, 9)
    node.image = image_with({TOPIC: (OFFSETS_ID, 3)})
    group = struct(9, "OffsetFetchRequestGroup", group_id="g", topics=None)
    assert node.send(9, 10, groups=[group]).groups[0].topics == []
    assert node.send(9, 9, groups=[group]).groups[0].topics[0].name == "t"


def test_unknown_topics_are_refused_one_by_one(node):
    part = struct(8, "OffsetCommitRequestPartition", partition_index=0, committed_offset=1, committed_metadata=None)
    by_name = [struct(8, "OffsetCommitRequestTopic", name=name, partitions=[part]) for name in ("t", "none")]
    codes = [ErrorCode(t.partitions[0].error_code).name for t in commit(node, 9, topics=by_name).topics]
    assert codes == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    by_id = [struct(8, "OffsetCommitRequestTopic", topic_id=id, partitions=[part]) for id in (GONE_ID, T_ID)]
    topics = commit(node, 10, topics=by_id).topics
    assert [(t.topic_id, ErrorCode(t.partitions[0].error_code).name) for t in topics] == [
        (GONE_ID, "UNKNOWN_TOPIC_ID"),
        (T_ID, "NONE"),
    ]
    # A topic is told once, however often it is named: clients look it up by its name.
    (topic,) = commit(node, 9, topics=[by_name[0], by_name[0]]).topics
    assert [ErrorCode(p.error_code).name for p in topic.partitions] == ["NONE", "NONE"]
    asked = struct(9, "OffsetFetchRequestTopics", topic_id=GONE_ID, partition_indexes=[3])
    group = struct(9, "OffsetFetchRequestGroup", group_id="g", topics=[asked])
    topic = node.send(9, 10, groups=[group]).groups[0].topics[0]
    assert ErrorCode(topic.partitions[0].error_code) is ErrorCode.UNKNOWN_TOPIC_ID


def test_offset_delete_answers_for_each_partition(node):
    commit(node, 9, partitions=(0, 1))
    parts = [struct(47, "OffsetDeleteRequestPartition", partition_index=index) for index in (0, 9)]
    topics = [
        struct(47, "OffsetDeleteRequestTopic", name="t", partitions=parts),
        struct(47, "OffsetDeleteRequestTopic", name="none", partitions=parts[:1]),
    ]
    answer = node.send(47, 0, group_id="g", topics=topics)
    codes = {(t.name, p.partition_index): ErrorCode(p.error_code).name for t in answer.topics for p in t.partitions}
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert codes == {("t", 0): "NONE", ("t", 9): unknown, ("none", 0): unknown}
    assert ErrorCode(node.send(47, 0, group_id="none", topics=topics).error_code) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(11))
def test_a_coordinator_that_is_not_here_says_so_in_every_version(node, version):
    node.groups.close()
    if version < 8:
        topics = [struct(9, "OffsetFetchRequestTopic", name="t", partition_indexes=[0])]
        answer = node.send(9, version, group_id="g", topics=topics)
        code = answer.error_code if version >= 2 else answer.topics[0].partitions[0].error_code
    else:
        group = struct(9, "OffsetFetchRequestGroup", group_id="g", topics=None)
        code = node.send(9, version, groups=[group]).groups[0].error_code
    assert ErrorCode(code) is ErrorCode.NOT_COORDINATOR
    code = commit(node, version).topics[0].partitions[0].error_code
    assert ErrorCode(code) is ErrorCode.NOT_COORDINATOR


# --- finding and listing ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(7))
def test_a_group_finds_its_coordinator(node, version):
    if version < 4:
        found = node.send(10, version, key="g")
    else:
        found, second = node.send(10, version, coordinator_keys=["g", "h"]).coordinators
        assert (found.key, second.key) == ("g", "h")
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "here", 9092)


@pytest.mark.parametrize("version", range(7))
def test_the_first_question_has_the_offsets_topic_made(node, version):
    node.image = image_with({})
    fields = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
    answer = node.send(10, version, **fields)
    found = answer if version < 4 else answer.coordinators[0]
    assert ErrorCode(found.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (found.node_id, found.port) == (-1, -1)
    assert node.controller.asked == [TOPIC]


@pytest.mark.parametrize(("version", "key_type"), [(1, 1), (4, 1), (6, 2)])
def test_other_coordinators_are_not_served(node, version, key_type):
    fields = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
    answer = node.send(10, version, key_type=key_type, **fields)
    found = answer if version < 4 else answer.coordinators[0]
    assert ErrorCode(found.error_code) is ErrorCode.INVALID_REQUEST


def test_groups_are_filtered_by_state_and_type_whatever_the_case(node):
    commit(node, 9, group="simple")
    join(node, 3, group="joining")

    def names(**filters):
        return sorted(group.group_id for group in node.send(16, 5, **filters).groups)

    assert names() == ["joining", "simple"]
    assert names(states_filter=["EMPTY"]) == ["simple"]
    assert names(states_filter=["empty", "preparingRebalance"]) == ["joining", "simple"]
    assert names(types_filter=["classic"]) == ["joining", "simple"]
    assert names(types_filter=["Consumer"]) == []
    listed = {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in node.send(16, 5).groups}
    assert listed == {
        "simple": ("", "Empty", "classic"),
        "joining": ("consumer", "PreparingRebalance", "classic"),
    }


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(node, version):
    group = node.send(15, version, groups=["none"]).groups[0]
    assert group.group_state == "Dead"
    assert ErrorCode(group.error_code) is (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


def test_operations_are_told_when_asked_for(node):
    commit(node, 9)
    groups = [node.send(15, 5, groups=["g"], include_authorized_operations=asked).groups[0] for asked in (False, True)]
    assert [g.authorized_operations for g in groups] == [-(2**31), 0b110101001000]
    # Of a group that is not there the old versions tell it too; from 6 on the error is all there is.
    told = [node.send(15, v, groups=["no"], include_authorized_operations=True).groups[0] for v in (5, 6)]
    assert [g.authorized_operations for g in told] == [0b110101001000, -(2**31)]


def test_lag_counts_what_is_not_consumed(node):
    commit(node, 9, offset=40, partitions=(0, 1))
    ends = {("t", 0): 100, ("t", 1): 30}
    assert node.groups.lag(lambda topic, index: ends.get((topic, index))) == {"g": 60}
    assert node.groups.counts()["offsets"] == 2
