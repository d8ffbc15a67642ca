"""Committed offsets: who may commit, what a fetch sees, what goes away and when."""

from __future__ import annotations

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import ZERO_UUID, Uuid
from stratalog.coordinator.group import events as ev

DAY = 24 * 3_600_000
ID = Uuid(b"0123456789abcdef")
OTHER_ID = Uuid(b"fedcba9876543210")
NONE = ErrorCode.NONE


# --- committing ---------------------------------------------------------------------------------------------------
def test_a_program_without_a_group_commits(world):
    assert world.commit({("t", 0): 10, ("t", 1): 11, ("u", 0): 5})[0].partitions == [[NONE, NONE], [NONE]]
    assert world.offsets() == {("t", 0): 10, ("t", 1): 11, ("u", 0): 5}
    assert world.state() == "Empty"


def test_a_commit_is_visible_only_after_the_log_has_it(world):
    world.commit({("t", 0): 1})
    world.log.commits = False
    commit = world.commit({("t", 0): 2})
    fetch = world.send(ev.FetchOffsets, "g", None)
    assert commit == fetch == []
    world.commit_log()
    assert commit[0].error is NONE
    assert fetch[0].topics[0][2][0].offset == 2


def test_a_deletion_is_visible_only_after_the_log_has_it(world):
    world.commit({("t", 0): 1})
    world.log.commits = False
    deleted = world.send(ev.DeleteGroup, "g")
    fetch = world.send(ev.FetchOffsets, "g", None)
    assert deleted == fetch == []
    world.commit_log()
    assert deleted[0].error is NONE and fetch[0].topics == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE"),
    ],
)
def test_a_commit_that_cannot_be_written_says_what_a_client_can_use(world, error, told):
    world.log.error = ApiError(ErrorCode[error])
    assert world.commit({("t", 0): 1})[0].partitions == [[ErrorCode[told]]]
    world.log.error = None
    assert world.offsets() == {}


def test_a_commit_that_takes_too_long_is_given_up(world):
    world.log.commits = False
    box = world.commit({("t", 0): 1})
    world.advance(5_000)
    assert box[0].partitions == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]


def test_commits_survive_the_coordinator(world):
    """GR-1."""
    world.commit({("t", 0): 10}, metadata="m")
    world.commit({("t", 0): 12}, metadata="n")
    world.start()
    found = world.send(ev.FetchOffsets, "g", [("t", ZERO_UUID, [0, 1])])[0].topics[0][2]
    assert found == [ev.FetchedOffset(0, 12, -1, "n"), ev.FetchedOffset(1)]


def test_metadata_has_a_limit(make_world):
    world = make_world(offset_metadata_bytes_max=3)
    assert world.commit({("t", 0): 1}, metadata="four")[0].partitions == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert world.commit({("t", 0): 1}, metadata="abc")[0].partitions == [[NONE]]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "UNKNOWN_MEMBER_ID"),  # from outside, while the group has members
        ({"member_id": "nobody", "generation": 1}, "UNKNOWN_MEMBER_ID"),
        ({"generation": 0}, "UNKNOWN_MEMBER_ID"),
        ({"member": True, "generation": 0}, "ILLEGAL_GENERATION"),
        ({"member": True, "generation": 2}, "ILLEGAL_GENERATION"),
        ({"member": True, "generation": -1}, "ILLEGAL_GENERATION"),
        ({"member": True, "generation": 1, "instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
        ({"member": True, "generation": 1}, "NONE"),
    ],
)
def test_a_group_with_members_takes_commits_of_its_generation(world, fields, error):
    _, (a,) = world.stable()
    if fields.pop("member", False):
        fields["member_id"] = a
    assert world.commit({("t", 0): 1}, **fields)[0].partitions == [[ErrorCode[error]]]


def test_a_generation_of_a_group_that_is_not_there(world):
    reply = world.commit({("t", 0): 1}, member_id="m", generation=3)[0]
    assert reply.partitions == [[ErrorCode.GROUP_ID_NOT_FOUND]]
    reply = world.commit({("t", 0): 1}, member_id="m", generation=3, names_missing_groups=False)[0]
    assert reply.partitions == [[ErrorCode.ILLEGAL_GENERATION]]


def test_members_commit_while_a_rebalance_begins_but_not_while_it_ends(world):
    generation, (a, b) = world.stable(2)
    world.join(a)
    assert world.commit({("t", 0): 1}, member_id=b, generation=generation)[0].partitions == [[NONE]]
    world.join(b)
    reply = world.commit({("t", 0): 2}, member_id=b, generation=generation + 1)[0]
    assert reply.partitions == [[ErrorCode.REBALANCE_IN_PROGRESS]]


def test_a_commit_keeps_the_session_alive(world):
    generation, (a,) = world.stable()
    for offset in range(4):
        world.advance(9_000)
        world.commit({("t", 0): offset}, member_id=a, generation=generation)
    assert world.heartbeat(a, generation) == "NONE"


def test_an_empty_group_takes_commits_from_outside(world):
    """`kafka-consumer-groups --reset-offsets`."""
    _, (a,) = world.stable()
    world.commit({("t", 0): 9}, member_id=a, generation=1)
    world.leave((a, None))
    assert world.commit({("t", 0): 3})[0].partitions == [[NONE]]
    assert world.offsets() == {("t", 0): 3}


# --- fetching -----------------------------------------------------------------------------------------------------
def test_a_fetch_by_id_ignores_an_offset_of_another_topic_of_that_name(world):
    world.commit({("t", 0): 1, ("u", 0): 2}, ids={"t": ID})
    asked = [("t", OTHER_ID, [0]), ("t", ID, [0]), ("u", ID, [0])]
    reply = world.send(ev.FetchOffsets, "g", asked)[0]
    assert [found[0].offset for _, _, found in reply.topics] == [-1, 1, 2]


def test_a_group_that_is_not_there_has_no_offsets_and_no_error(world):
    reply = world.send(ev.FetchOffsets, "g", [("t", ZERO_UUID, [0])])[0]
    assert (reply.error, reply.topics) == (NONE, [("t", ZERO_UUID, [ev.FetchedOffset(0)])])


# --- deleting -----------------------------------------------------------------------------------------------------
def test_offsets_of_topics_nobody_subscribes_to_can_be_deleted(world):
    generation, (a,) = world.stable()
    world.commit({("t", 0): 1, ("old", 0): 2, ("old", 1): 3}, member_id=a, generation=generation)
    reply = world.send(ev.DeleteOffsets, "g", [("t", [0]), ("old", [0, 7])])[0]
    assert reply.topics == [("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]), ("old", [(0, NONE), (7, NONE)])]
    assert world.offsets() == {("t", 0): 1, ("old", 1): 3}
    world.start()
    assert world.offsets() == {("t", 0): 1, ("old", 1): 3}


def test_offsets_of_a_group_of_another_kind_are_not_deleted_under_it(world):
    world.stable(protocol_type="connect", protocols=[("p", b"")])
    assert world.send(ev.DeleteOffsets, "g", [("t", [0])])[0].error is ErrorCode.NON_EMPTY_GROUP
    assert world.send(ev.DeleteOffsets, "none", [("t", [0])])[0].error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_more_offsets_than_a_batch_may_hold_is_deleted(world):
    for n in range(40):
        world.commit({("t" * 200, n * 100 + p): 1 for p in range(100)})
    batches = len(world.log.batches)
    assert world.send(ev.DeleteGroup, "g")[0].error is NONE
    sizes = [len(batch) for batch in world.log.batches[batches:]]
    assert len(sizes) > 1 and max(sizes) < 300 << 10
    world.start()
    assert not world.shard.groups and world.shard.offsets.count == 0


def test_a_deleted_topic_takes_its_offsets_along(world):
    world.commit({("t", 0): 1, ("u", 0): 2, ("v", 0): 3}, ids={"u": ID})
    world.send(ev.ForgetTopics, [("t", ID), ("u", OTHER_ID)])
    assert world.offsets() == {("u", 0): 2, ("v", 0): 3}


# --- expiry -------------------------------------------------------------------------------------------------------
def pass_days(world, days: float) -> None:
    """Days on both clocks, with the cleanups that come with them."""
    for _ in range(int(days * 24)):
        world.advance(3_600_000)


def test_offsets_of_a_name_without_members_expire_after_the_commit(world):
    world.commit({("t", 0): 1})
    pass_days(world, 3)
    world.commit({("t", 1): 2})
    pass_days(world, 3.9)
    assert world.offsets() == {("t", 0): 1, ("t", 1): 2}
    pass_days(world, 0.2)
    assert world.offsets() == {("t", 1): 2}
    pass_days(world, 3)
    assert world.offsets() == {} and "g" not in world.shard.groups
    world.start()
    assert world.offsets() == {} and not world.shard.groups


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(world):
    """GR-2."""
    generation, (a,) = world.stable(session_timeout_ms=1_800_000)
    world.commit({("t", 0): 1}, member_id=a, generation=generation)
    for _ in range(20 * 48):
        world.advance(1_700_000)
        assert world.heartbeat(a, generation) == "NONE"
    assert world.offsets() == {("t", 0): 1}
    world.leave((a, None))
    world.start()  # when it became empty is in the log
    pass_days(world, 6.9)
    assert world.offsets() == {("t", 0): 1}
    pass_days(world, 0.2)
    assert world.offsets() == {} and not world.shard.groups


def test_offsets_do_not_expire_while_a_group_rebalances(world):
    """G01, KAFKA-13636, GR-2: the group has been rebalancing when its last commit is a retention old."""
    generation, (a, b) = world.stable(2, session_timeout_ms=1_800_000)
    world.commit({("t", 0): 1, ("gone", 0): 1}, member_id=a, generation=generation)
    for _ in range(8 * 48):
        world.advance(1_700_000)
        world.heartbeat(a, generation), world.heartbeat(b, generation)
    world.commit({("late", 0): 1}, member_id=a, generation=generation)
    world.join(a, rebalance_timeout_ms=2**31 - 1, session_timeout_ms=1_800_000)
    assert world.state() == "PreparingRebalance"
    before = world.offsets()
    assert ("t", 0) in before
    assert world.shard.expire_offsets(world.now).records == []
    world.wall_offset += 30 * DAY
    assert world.shard.expire_offsets(world.now).records == []
    world.join(b, session_timeout_ms=1_800_000)
    assert world.state() == "CompletingRebalance"
    assert world.shard.expire_offsets(world.now).records == []
    assert world.offsets() == before


def test_a_stable_group_loses_offsets_of_topics_it_does_not_read_any_more(world, subscribe):
    generation, (a,) = world.stable(session_timeout_ms=1_800_000)
    world.commit({("t", 0): 1, ("old", 0): 1}, member_id=a, generation=generation)
    for _ in range(8 * 52):
        world.advance(1_700_000)
        world.heartbeat(a, generation)
    assert world.offsets() == {("t", 0): 1}


def test_offsets_of_a_live_group_of_another_kind_never_expire(world):
    generation, (a,) = world.stable(session_timeout_ms=1_800_000, protocol_type="connect", protocols=[("p", b"")])
    world.commit({("t", 0): 1}, member_id=a, generation=generation)
    for _ in range(8 * 52):
        world.advance(1_700_000)
        world.heartbeat(a, generation)
    assert world.offsets() == {("t", 0): 1}


def test_a_client_may_name_its_own_retention(world):
    """Versions 2 to 4 of OffsetCommit."""
    world.commit({("t", 0): 1}, retention_ms=DAY)
    world.start()
    pass_days(world, 0.9)
    assert world.offsets() == {("t", 0): 1}
    pass_days(world, 0.2)
    assert world.offsets() == {}


def test_many_expired_offsets_go_in_several_batches(world):
    for n in range(30):
        world.commit({("t" * 100, p): 1 for p in range(100)}, group=f"g{n}")
    batches = len(world.log.batches)
    pass_days(world, 7.1)
    assert not world.shard.groups and world.shard.offsets.count == 0
    assert 2 <= len(world.log.batches) - batches <= 4
