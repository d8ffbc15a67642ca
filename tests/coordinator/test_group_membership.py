"""The classic protocol, transition by transition."""

from __future__ import annotations

import pytest

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.coordinator.group import disk
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.states import TRANSITIONS, GroupState


def stored_group(world):
    """The newest group record in the log."""
    values = [value for key, value in world.log.records() if disk.key_type(key) == disk.GROUP_METADATA]
    return None if values[-1] is None else disk.read_group_value(values[-1])


# --- joining ------------------------------------------------------------------------------------------------------
def test_a_new_dynamic_member_gets_an_id_and_comes_again(world):
    first = world.join()[0]
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("c-") and len(first.member_id) == 2 + 36
    assert world.state() == "Empty"
    assert world.join(first.member_id) == []
    assert world.state() == "PreparingRebalance"


def test_before_version_4_a_new_member_joins_at_once(world):
    box = world.join(requires_member_id=False)
    world.advance(3_000)
    assert box[0].error is ErrorCode.NONE and box[0].generation == 1


def test_a_new_group_is_in_the_log_before_anyone_is_in_it(world):
    world.join()
    assert stored_group(world) == disk.GroupValue("", 0, None, None, world.now.wall_ms)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"session_timeout_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": []}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_join_that_cannot_be_is_refused(world, fields, error):
    assert world.join(**fields)[0].error.name == error
    assert not world.shard.groups


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": [("sticky", b"")]}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "nobody", "instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_join_that_does_not_fit_the_group_is_refused(world, fields, error):
    world.stable()
    assert world.join(**fields)[0].error.name == error
    assert world.state() == "Stable"


def test_the_first_generation_waits_for_the_initial_delay(world):
    _, a = world.new_member()
    world.advance(2_999)
    assert a == []
    world.advance(1)
    assert a[0].generation == 1


def test_who_comes_during_the_initial_delay_extends_it(world):
    _, a = world.new_member()
    world.advance(2_000)
    _, b = world.new_member()
    world.advance(1_000)
    assert a == b == []
    world.advance(3_000)
    assert a[0].generation == b[0].generation == 1


def test_the_initial_delay_is_extended_no_longer_than_a_rebalance_may_take(world):
    _, first = world.new_member(rebalance_timeout_ms=10_000)
    waited = 0
    while not first:
        world.new_member(rebalance_timeout_ms=10_000)
        world.advance(500)
        waited += 500
        assert waited <= 13_000
    assert waited >= 9_000


def test_without_an_initial_delay_the_first_member_goes_at_once(make_world):
    world = make_world(initial_rebalance_delay_ms=0)
    assert world.new_member()[1][0].generation == 1


def test_a_pending_member_holds_the_rebalance_until_its_session_ends(world):
    generation, (a,) = world.stable()
    pending = world.join()[0].member_id
    assert world.heartbeat(a, generation) == "NONE"
    _, b = world.new_member()
    joined = world.join(a)
    assert joined == b == []
    world.advance(10_000)
    assert joined[0].generation == b[0].generation == generation + 1
    assert world.join(pending)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_sees_the_members(world, subscribe):
    a, box_a = world.new_member()
    _, box_b = world.new_member()
    world.advance(6_000)
    assert box_a[0].leader == box_b[0].leader == a
    assert [m.member_id for m in box_a[0].members] == [a, box_b[0].member_id]
    assert box_a[0].members[0].metadata == subscribe("t")
    assert box_b[0].members == []
    assert (box_a[0].protocol_type, box_a[0].protocol) == ("consumer", "range")


def test_the_protocol_is_elected_among_those_that_all_know(world):
    both = [("sticky", b"s"), ("range", b"r"), ("mine", b"")]
    other = [("range", b"r"), ("sticky", b"s")]
    boxes = [world.new_member(protocols=both), world.new_member(protocols=other), world.new_member(protocols=other)]
    world.advance(6_000)
    assert {box[0].protocol for _, box in boxes} == {"range"}


def test_a_group_that_is_full_sends_newcomers_away(make_world):
    world = make_world(max_size=2)
    world.stable(2)
    first = world.join()[0]
    assert first.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_that_got_smaller_than_its_members_rebalances_after_a_load(make_world):
    world = make_world()
    generation, names = world.stable(3)
    world.config = type(world.config)(max_size=2)
    world.start()
    assert world.state() == "PreparingRebalance"
    boxes = [world.join(name) for name in names]
    assert boxes[2][0].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [box[0].generation for box in boxes[:2]] == [generation + 1] * 2


def test_the_same_join_again_in_a_stable_group_gets_the_same_answer(world):
    generation, (leader, follower) = world.stable(2)
    again = world.join(follower)[0]
    assert (again.generation, again.leader, again.members) == (generation, leader, [])
    assert world.state() == "Stable"


@pytest.mark.parametrize("who", ["leader", "follower with other metadata"])
def test_a_member_of_a_stable_group_can_ask_for_a_rebalance(world, who, subscribe):
    generation, (leader, follower) = world.stable(2)
    if who == "leader":
        box = world.join(leader)
    else:
        box = world.join(follower, protocols=[("range", subscribe("t", "u"))])
    assert box == [] and world.state() == "PreparingRebalance"
    assert world.heartbeat(leader, generation) == "REBALANCE_IN_PROGRESS"
    other = world.join(follower if who == "leader" else leader)
    assert box[0].generation == other[0].generation == generation + 1


def test_a_lost_join_answer_is_repeated_while_the_group_completes(world):
    (a, box), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    again = world.join(a)[0]
    assert again == box[0]
    assert world.join(b)[0].members == []


def test_the_same_member_on_a_second_connection_frees_the_first(world):
    _generation, (a, _) = world.stable(2)
    first = world.join(a)
    second = world.join(a)
    assert first[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second == []


def test_who_does_not_join_in_time_is_out(world):
    generation, (a, b) = world.stable(2, session_timeout_ms=60_000)
    box = world.join(a, session_timeout_ms=60_000)
    world.advance(30_000)
    assert box[0].generation == generation + 1
    assert [m.member_id for m in box[0].members] == [a]
    assert world.heartbeat(b, generation) == "UNKNOWN_MEMBER_ID"


def test_a_leader_that_does_not_join_in_time_is_replaced(world):
    _generation, (leader, b) = world.stable(2, session_timeout_ms=60_000)
    box = world.new_member(session_timeout_ms=60_000)[1]
    joined = world.join(b, session_timeout_ms=60_000)
    world.advance(30_000)
    assert joined[0].leader == b == box[0].leader
    assert world.join(leader)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


# --- syncing ------------------------------------------------------------------------------------------------------
def test_nobody_gets_an_assignment_before_it_is_in_the_log(world):
    (a, _box), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    world.log.commits = False
    one = world.sync(b, 1)
    two = world.sync(a, 1, [(a, b"A"), (b, b"B")])
    assert one == two == [] and world.state() == "CompletingRebalance"
    world.commit_log()
    assert (one[0].assignment, two[0].assignment) == (b"B", b"A")
    assert (one[0].protocol_type, one[0].protocol) == ("consumer", "range")
    assert world.state() == "Stable"


def test_the_log_has_the_generation_with_its_assignments(world, subscribe):
    _generation, (a, b) = world.stable(2)
    value = stored_group(world)
    assert (value.generation, value.leader, value.protocol, value.protocol_type) == (1, a, "range", "consumer")
    assert [(m.member_id, m.assignment, m.subscription) for m in value.members] == [
        (a, a.encode(), subscribe("t")),
        (b, b.encode(), subscribe("t")),
    ]
    assert (value.members[0].client_id, value.members[0].client_host) == ("c", "/127.0.0.1")
    assert (value.members[0].session_timeout_ms, value.members[0].rebalance_timeout_ms) == (10_000, 30_000)


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(world):
    (a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    box = world.sync(b, 1)
    world.sync(a, 1, [(a, b"A"), ("stranger", b"S")])
    assert box[0].assignment == b"" and box[0].error is ErrorCode.NONE


def test_an_assignment_that_cannot_be_stored_is_an_error_and_a_new_rebalance(world):
    (a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    world.log.error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    boxes = [world.sync(b, 1), world.sync(a, 1)]
    assert {box[0].error for box in boxes} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.state() == "PreparingRebalance"


def test_a_late_sync_in_a_stable_group_gets_its_assignment(world):
    (a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    world.sync(a, 1, [(b, b"B")])
    assert world.state() == "Stable"
    assert world.sync(b, 1)[0].assignment == b"B"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"group": "other"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"generation": 0}, "ILLEGAL_GENERATION"),
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol": "sticky"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(world, fields, error):
    generation, (a,) = world.stable()
    fields = {"member_id": a, "generation": generation, **fields}
    assert world.sync(**fields)[0].error.name == error


def test_a_sync_during_the_next_rebalance_says_so(world):
    generation, (a, b) = world.stable(2)
    world.join(a)
    assert world.sync(b, generation)[0].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_waiting_for_assignments_ends_when_a_member_comes(world):
    (_a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    box = world.sync(b, 1)
    world.new_member()
    assert box[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.state() == "PreparingRebalance"


def test_a_member_that_never_syncs_does_not_hold_the_group(world):
    """G03, KAFKA-12890: the leader heartbeats and never brings the assignments."""
    (a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    box = world.sync(b, 1)
    for _ in range(6):
        world.advance(5_000)
        assert world.heartbeat(a, 1) in ("NONE", "UNKNOWN_MEMBER_ID")
    assert box[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(b)
    assert again[0].leader == b and again[0].generation == 2
    assert world.heartbeat(a, 1) == "UNKNOWN_MEMBER_ID"
    assert world.sync(b, 2, [(b, b"all")])[0].assignment == b"all"
    assert world.state() == "Stable"


def test_a_follower_that_never_syncs_loses_its_place_though_it_heartbeats(world):
    """G03 in a group that is stable already: its partitions would be read by nobody."""
    (a, _), (b, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    world.sync(a, 1)
    for _ in range(5):
        world.advance(5_000)
        assert (world.heartbeat(a, 1), world.heartbeat(b, 1)) == ("NONE", "NONE")
    world.advance(5_000)
    assert world.heartbeat(b, 1) == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat(a, 1) == "REBALANCE_IN_PROGRESS"


# --- heartbeats, sessions, leaving --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "NONE"),
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"group": "other"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"generation": 7}, "ILLEGAL_GENERATION"),
        ({"instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_heartbeats(world, fields, error):
    generation, (a,) = world.stable()
    assert world.heartbeat(**{"member_id": a, "generation": generation, **fields}) == error


def test_a_session_without_heartbeats_ends(world):
    generation, (a, b) = world.stable(2)
    world.advance(9_000)
    assert world.heartbeat(a, generation) == "NONE"
    world.advance(1_000)
    assert world.heartbeat(a, generation) == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(b, generation) == "UNKNOWN_MEMBER_ID"
    box = world.join(a)
    assert [m.member_id for m in box[0].members] == [a]


def test_who_waits_for_a_rebalance_needs_no_heartbeat(world):
    generation, (a, b) = world.stable(2, rebalance_timeout_ms=60_000)
    box = world.join(a, rebalance_timeout_ms=60_000)
    for _ in range(9):
        world.advance(5_000)
        assert world.heartbeat(b, generation) == "REBALANCE_IN_PROGRESS"
    assert box == []
    world.join(b, rebalance_timeout_ms=60_000)
    assert box[0].error is ErrorCode.NONE


def test_the_last_member_leaves_an_empty_group_behind(world):
    generation, (a,) = world.stable()
    assert world.leave((a, None)) == ["NONE"]
    assert world.state() == "Empty"
    value = stored_group(world)
    assert (value.generation, value.members, value.protocol, value.protocol_type) == (
        generation + 1,
        [],
        None,
        "consumer",
    )


def test_leaving_members_are_answered_each_by_itself(world):
    _, (a, b) = world.stable(2)
    pending = world.join()[0].member_id
    errors = world.leave((a, None), ("nobody", None), (pending, None), ("", "i"), ("", None))
    assert errors == ["NONE", "UNKNOWN_MEMBER_ID", "NONE", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert world.leave((b, None), group="other") == ["UNKNOWN_MEMBER_ID"]
    assert world.send(ev.Leave, "", [])[0].error is ErrorCode.INVALID_GROUP_ID


def test_the_last_one_missing_leaves_and_the_others_go_on(world):
    generation, (a, b) = world.stable(2)
    box = world.join(a)
    world.leave((b, None))
    assert box[0].generation == generation + 1


# --- static members -----------------------------------------------------------------------------------------------
@pytest.fixture
def pair(world):
    """A stable group of a static leader and a static follower."""
    boxes = [world.join(instance_id=name) for name in ("i1", "i2")]
    world.advance(6_000)
    return world.finish([(box[0].member_id, box) for box in boxes])


def test_a_static_member_joins_in_one_step(world):
    box = world.join(instance_id="i1")
    world.advance(3_000)
    assert box[0].member_id.startswith("i1-")
    assert box[0].members[0].instance_id == "i1"


def test_a_static_follower_that_comes_back_causes_no_rebalance(world, pair):
    generation, (leader, follower) = pair
    reply = world.join(instance_id="i2")[0]
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, generation, leader)
    assert reply.member_id != follower and not reply.skip_assignment and reply.members == []
    assert world.state() == "Stable"
    assert world.sync(reply.member_id, generation, instance_id="i2")[0].assignment == follower.encode()
    for call in (world.heartbeat(follower, generation, "i2"), world.leave((follower, "i2"))[0]):
        assert call == "FENCED_INSTANCE_ID"
    assert world.heartbeat(reply.member_id, generation, "i2") == "NONE"


def test_a_static_leader_that_comes_back_skips_the_assignment(world, pair):
    """Version 9."""
    generation, (leader, follower) = pair
    reply = world.join(instance_id="i1")[0]
    assert reply.skip_assignment and reply.leader == reply.member_id != leader
    assert {m.member_id for m in reply.members} == {reply.member_id, follower}
    assert world.sync(reply.member_id, generation)[0].assignment == leader.encode()


def test_an_old_static_leader_that_comes_back_is_told_that_another_leads(world, pair):
    """Before version 9 it cannot be told to skip: it must not take itself for the leader."""
    _generation, (leader, _) = pair
    reply = world.join(instance_id="i1", can_skip_assignment=False)[0]
    assert reply.leader == leader != reply.member_id
    assert not reply.skip_assignment and reply.members == []


def test_a_static_member_that_came_back_is_known_after_a_failover(world, pair):
    """G02, KAFKA-10284: the new member id is in the log before the client has it."""
    generation, _ = pair
    world.log.commits = False
    box = world.join(instance_id="i2")
    assert box == []
    world.commit_log()
    world.log.commits = True
    new_id = box[0].member_id
    world.start()
    assert world.heartbeat(new_id, generation, "i2") == "NONE"
    assert world.sync(new_id, generation, instance_id="i2")[0].error is ErrorCode.NONE
    assert world.commit({("t", 0): 1}, member_id=new_id, generation=generation, instance_id="i2")[0].partitions == [
        [ErrorCode.NONE]
    ]


def test_a_static_member_whose_new_id_cannot_be_stored_keeps_the_old_one(world, pair):
    generation, (_, follower) = pair
    world.log.error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    reply = world.join(instance_id="i2")[0]
    assert reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(follower, generation, "i2") == "NONE"


def test_a_static_member_with_another_subscription_keeps_the_group_stable(world, pair, subscribe):
    """Kafka's rule: only a change of the elected protocol rebalances; the leader finds out about topics later."""
    world.join(instance_id="i2", protocols=[("range", subscribe("t", "u"))])
    assert world.state() == "Stable"


def test_a_static_member_that_changes_the_elected_protocol_causes_a_rebalance(make_world):
    world = make_world()
    both = [("range", b""), ("sticky", b"")]
    boxes = [world.join(instance_id=name, protocols=both) for name in ("i1", "i2")]
    world.advance(6_000)
    generation, (leader, _) = world.finish([(box[0].member_id, box) for box in boxes])
    box = world.join(instance_id="i2", protocols=[("sticky", b"")])
    assert box == [] and world.state() == "PreparingRebalance"
    world.join(leader, instance_id="i1", protocols=both)
    assert (box[0].generation, box[0].protocol) == (generation + 1, "sticky")


def test_two_processes_with_one_instance_id_fence_each_other(world):
    first = world.join(instance_id="i1")
    second = world.join(instance_id="i1")
    assert first[0].error is ErrorCode.FENCED_INSTANCE_ID
    world.advance(6_000)
    assert second[0].error is ErrorCode.NONE
    assert world.join(first[0].member_id, instance_id="i1")[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_replaced_while_it_waits_for_its_assignment_is_fenced(world):
    boxes = [world.join(instance_id=name) for name in ("i1", "i2")]
    world.advance(6_000)
    waiting = world.sync(boxes[1][0].member_id, 1, instance_id="i2")
    new = world.join(instance_id="i2")
    assert waiting[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert new == [] and world.state() == "PreparingRebalance"
    world.join(boxes[0][0].member_id, instance_id="i1")
    assert new[0].generation == 2


def test_an_absent_static_member_keeps_its_place_through_a_rebalance(world, pair):
    generation, (leader, follower) = pair
    box = world.join(leader, instance_id="i1", session_timeout_ms=60_000)
    for _ in range(3):
        world.advance(9_000)
        assert world.heartbeat(follower, generation, "i2") == "REBALANCE_IN_PROGRESS"
    world.advance(3_000)
    assert {m.instance_id for m in box[0].members} == {"i1", "i2"}


def test_a_static_member_is_removed_by_its_instance_id(world, pair):
    generation, (leader, _follower) = pair
    assert world.leave(("", "i2"), ("", "i9")) == ["NONE", "UNKNOWN_MEMBER_ID"]
    assert world.heartbeat(leader, generation, "i1") == "REBALANCE_IN_PROGRESS"


def test_static_and_dynamic_members_get_along(world, pair):
    """G06, KAFKA-14422: a group of both kinds, some of which come back and some not, becomes stable again."""
    generation, (_leader, follower) = pair
    dynamic, joining = world.new_member()
    back = world.join(instance_id="i1")  # the leader restarts in the middle of the rebalance
    assert joining == back == []
    also_back = world.join(follower, instance_id="i2")
    replies = [joining[0], back[0], also_back[0]]
    assert {reply.generation for reply in replies} == {generation + 1}
    leaders = {reply.leader for reply in replies}
    assert leaders == {back[0].member_id}
    names = [dynamic, follower]
    syncs = [world.sync(name, generation + 1) for name in names]
    world.sync(back[0].member_id, generation + 1, [(name, b"x") for name in names])
    assert [box[0].assignment for box in syncs] == [b"x", b"x"]
    assert world.state() == "Stable"


# --- life of a group ----------------------------------------------------------------------------------------------
def test_a_stable_group_goes_on_after_a_failover(world):
    """GR-1: membership survives the coordinator."""
    generation, (a, b) = world.stable(2)
    world.start()
    assert world.state() == "Stable"
    assert world.heartbeat(a, generation) == world.heartbeat(b, generation) == "NONE"
    assert world.sync(b, generation)[0].assignment == b.encode()
    world.advance(10_000)
    assert world.heartbeat(a, generation) == "UNKNOWN_MEMBER_ID"
    assert world.state() == "Empty"


def test_a_coordinator_that_goes_away_answers_everyone(world):
    generation, (a, b) = world.stable(2)
    joining = world.join(a)
    world.runtime.resign(world.now)
    assert joining[0].error is ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(b, generation) == "NOT_COORDINATOR"


def test_describe_shows_metadata_of_a_stable_group_only(world, subscribe):
    (a, _) = world.new_member()
    reply = world.send(ev.DescribeGroup, "g")[0]
    assert (reply.state, reply.protocol_type, reply.protocol) == ("PreparingRebalance", "consumer", "")
    assert reply.members == [ev.DescribedMember(a, None, "c", "/127.0.0.1", b"", b"")]
    world.advance(3_000)
    world.sync(a, 1, [(a, b"A")])
    reply = world.send(ev.DescribeGroup, "g")[0]
    assert (reply.state, reply.protocol) == ("Stable", "range")
    assert reply.members == [ev.DescribedMember(a, None, "c", "/127.0.0.1", subscribe("t"), b"A")]
    assert world.send(ev.DescribeGroup, "none")[0].error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_only_without_members(world):
    _, (a,) = world.stable()
    world.commit({("t", 0): 5}, member_id=a, generation=1)
    assert world.send(ev.DeleteGroup, "g")[0].error is ErrorCode.NON_EMPTY_GROUP
    world.leave((a, None))
    assert world.send(ev.DeleteGroup, "g")[0].error is ErrorCode.NONE
    assert world.send(ev.DeleteGroup, "g")[0].error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.offsets() == {}
    world.start()
    assert not world.shard.groups and world.offsets() == {}


def test_the_table_of_states_is_complete():
    assert set(TRANSITIONS) == set(GroupState)
    assert all(GroupState.DEAD in targets for state, targets in TRANSITIONS.items() if state is not GroupState.DEAD)
