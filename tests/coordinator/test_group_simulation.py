"""Many consumers, one coordinator, virtual time: whatever happens, what clients were promised holds, and when it stops
happening the group comes to rest.

Clients behave as Kafka's do: join, sync, heartbeat every three seconds, join again when told to, forget their id when
it is not known.  Trouble: processes die, leave, hang between join and sync, come back under their instance id; the
log is slow to commit; the coordinator fails over.  Replays from a Hypothesis example.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.types import ZERO_UUID
from stratalog.coordinator.group import events as ev
from stratalog.coordinator.group.shard import GroupShard
from stratalog.rsm.runtime import State
from stratalog.rsm.shard import Result

STEP_MS = 500
HEARTBEAT_MS = 3_000
PARTITIONS = 6
RETRY = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}


class Client:
    """One consumer process."""

    def __init__(self, world, instance_id: str | None, *, old: bool, metadata: bytes) -> None:
        self.world = world
        self.instance_id = instance_id
        self.old = old
        self.metadata = metadata
        self.member_id = ""
        self.generation = -1
        self.state = "join"
        self.box: list = []
        self.assignment: bytes | None = None
        self.heard_ms = 0
        self.is_alive = True
        self.hangs = False
        self.positions: dict[int, int] = {}
        self.acknowledgements: list[tuple[dict[tuple[str, int], int], list]] = []
        """Commits, each with the box of its reply."""
        self.promises: list[tuple[int, str, str, bytes]] = []
        """(generation, member, instance, assignment) of every sync that was answered."""
        self.joined: list[tuple[int, int, str, tuple[str, ...]]] = []
        """(coordinator's epoch, generation, leader, members shown to the leader) of every join that was answered."""

    def step(self) -> None:
        if not self.is_alive:
            return
        getattr(self, "_" + self.state)()

    def _join(self) -> None:
        self.box = self.world.join(
            self.member_id,
            instance_id=self.instance_id,
            requires_member_id=not self.old,
            can_skip_assignment=not self.old,
            protocols=[("range", self.metadata)],
            rebalance_timeout_ms=20_000,
        )
        self.epoch_asked = self.world.epoch
        self.state = "joining"
        self._joining()

    def _joining(self) -> None:
        if not self.box:
            return
        reply = self.box[0]
        name = reply.error.name
        if name == "NONE":
            self.member_id = reply.member_id
            self.generation = reply.generation
            shown = tuple(m.member_id for m in reply.members)
            self.joined.append((self.epoch_asked, reply.generation, reply.leader, shown))
            plan = []
            if reply.leader == reply.member_id and not reply.skip_assignment:
                names = sorted(m.member_id for m in reply.members)
                shares: dict[str, list[int]] = {name: [] for name in names}
                for partition in range(PARTITIONS):
                    shares[names[partition % len(names)]].append(partition)
                plan = [
                    (n, f"{self.generation}:{self.member_id}:{','.join(map(str, p))}".encode())
                    for n, p in shares.items()
                ]
            self.plan = plan
            self.state = "sync"
            self._sync()
        elif name == "MEMBER_ID_REQUIRED":
            self.member_id = reply.member_id
            self.state = "join"
            self._join()
        else:
            self._failed(name)

    def _sync(self) -> None:
        if self.hangs:
            if self.world.ms - self.heard_ms >= HEARTBEAT_MS:
                self.heard_ms = self.world.ms
                name = self.world.heartbeat(self.member_id, self.generation, self.instance_id)
                if name not in ("NONE", "REBALANCE_IN_PROGRESS", *RETRY):
                    self._failed(name)
            return
        self.box = self.world.sync(
            self.member_id, self.generation, self.plan, instance_id=self.instance_id, protocol="range"
        )
        self.state = "syncing"
        self._syncing()

    def _syncing(self) -> None:
        if not self.box:
            return
        reply = self.box[0]
        if reply.error.name == "NONE":
            self.assignment = reply.assignment
            self.promises.append((self.generation, self.member_id, self.instance_id or "", reply.assignment))
            self.box = self._fetch_offsets()
            self.state = "fetching"
            self._fetching()
        else:
            self._failed(reply.error.name)

    def _fetch_offsets(self) -> list:
        wanted = [("t", ZERO_UUID, list(range(PARTITIONS)))]
        return self.world.send(ev.FetchOffsets, "g", wanted, require_stable=True)

    def _fetching(self) -> None:
        if not self.box:
            return
        reply = self.box[0]
        if reply.error.name == "NONE":
            self.positions = {found.partition: found.offset for found in reply.topics[0][2]}
            self.state = "run"
            self.heard_ms = self.world.ms
        else:
            self.box = self._fetch_offsets()

    def partitions(self) -> list[int]:
        assert self.assignment is not None
        return [int(number) for number in self.assignment.decode().split(":")[2].split(",") if number]

    def _run(self) -> None:
        if self.world.ms - self.heard_ms < HEARTBEAT_MS:
            return
        self.heard_ms = self.world.ms
        self._commit()
        name = self.world.heartbeat(self.member_id, self.generation, self.instance_id)
        if name == "REBALANCE_IN_PROGRESS":
            self.state = "join"
            self._join()
        elif name not in ("NONE", *RETRY):
            self._failed(name)

    def _commit(self) -> None:
        """Read one record of each partition it owns, and say so."""
        for partition in self.partitions():
            self.positions[partition] += 1
        offsets = {("t", partition): self.positions[partition] for partition in self.partitions()}
        if offsets:
            box = self.world.commit(
                offsets, member_id=self.member_id, generation=self.generation, instance_id=self.instance_id
            )
            self.acknowledgements.append((offsets, box))

    def _failed(self, name: str) -> None:
        self.assignment = None
        if name == "FENCED_INSTANCE_ID":
            self.is_alive = False
        elif name in RETRY or name in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"):
            self.state = "join"
        else:
            assert name == "UNKNOWN_MEMBER_ID", name
            self.member_id = ""
            self.state = "join"


class Simulation:
    def __init__(self, world) -> None:
        self.world = world
        self.clients: list[Client] = []
        self.instances: dict[str, Client] = {}
        self.committed: dict[tuple[str, int], int] = {}
        """The highest offset that a client was told is committed."""

    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive]

    def act(self, kind: str, choice: int) -> None:
        alive = self.alive()
        if kind in ("dynamic", "old"):
            if len(alive) < 6:
                self.clients.append(Client(self.world, None, old=kind == "old", metadata=b"m"))
        elif kind == "static":
            name = f"i{choice % 3}"
            if name in self.instances:
                self.instances[name].is_alive = False  # the process restarts without saying goodbye
            client = Client(self.world, name, old=bool(choice % 2), metadata=b"m%d" % (choice % 2))
            self.clients.append(client)
            self.instances[name] = client
        elif kind == "failover":
            self.world.runtime.resign(self.world.now)
            self.world.log.high_watermark = self.world.log.log_end_offset
            self.world.start()
        elif kind == "lossy failover":
            # Another broker leads, and what was not committed is not there.
            self.world.runtime.resign(self.world.now)
            self.world.log.truncate_to(self.world.log.high_watermark)
            self.world.start()
        elif kind == "slow log":
            self.world.log.commits = False
        elif kind == "quick log":
            self.world.log.commits = True
            self.world.commit_log()
        elif alive:
            client = alive[choice % len(alive)]
            if kind == "die":
                client.is_alive = False
            elif kind == "hang":
                client.hangs = True
            elif kind == "wake":
                for other in alive:
                    other.hangs = False
            elif kind == "leave" and client.member_id:
                self.world.send(ev.Leave, "g", [ev.Leaver(client.member_id, client.instance_id)])
                client.is_alive = False
            elif kind == "resubscribe":
                client.metadata = b"n%d" % choice
                if client.state == "run":
                    client.state = "join"

    def run(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.world.advance(STEP_MS)
            for client in self.clients:
                client.step()
            self.check()

    def check(self) -> None:
        """What must hold at every moment."""
        leaders: dict[tuple[int, int], str] = {}
        assigned_by: dict[int, str] = {}
        for client in self.clients:
            for epoch, generation, leader, shown in client.joined:
                # A generation without assignments is not in the log: after a failover its number may come again.
                known = leaders.setdefault((epoch, generation), leader)
                # A static leader's new id, and the old one that it is hidden behind (version < 9), are one leader.
                if known != leader:
                    assert known.split("-")[0] == leader.split("-")[0] and known.startswith("i"), (known, leader)
                if shown:
                    assert client.member_id in shown or leader in shown
            for generation, _member, _instance, assignment in client.promises:
                if assignment:
                    made_in, leader, _ = assignment.decode().split(":")
                    assert int(made_in) == generation, "an assignment of another generation"
                    assert assigned_by.setdefault(generation, leader) == leader, "two leaders assigned"
        for client in self.clients:
            for offsets, box in client.acknowledgements:
                if box and box[0].partitions and all(code.name == "NONE" for code in box[0].partitions[0]):
                    for key, offset in offsets.items():
                        self.committed[key] = max(offset, self.committed.get(key, -1))
            client.acknowledgements = [(offsets, box) for offsets, box in client.acknowledgements if not box]
        if self.world.runtime.state is State.ACTIVE and self.world.log.commits:
            now = self.world.offsets()
            for key, offset in self.committed.items():
                assert now[key] >= offset, f"{key} went back from {offset} to {now[key]} (GR-1)"
        group = self.world.shard.groups.get("g")
        if group is not None:
            assert (group.leader is None) == (not group.members)
            assert group.leader is None or group.leader in group.members
            assert group.joining == sum(m.join_ticket is not None for m in group.members.values())
            assert set(group.static.values()) == {m.member_id for m in group.members.values() if m.instance_id}
            assert set(group.unsynced) <= set(group.members)

    def settle(self) -> None:
        """Trouble is over: the group must come to rest by itself, with everyone who lives in it."""
        self.world.log.commits = True
        self.world.commit_log()
        for client in self.clients:
            client.hangs = False
        self.run(120_000)
        assert self.world.runtime.state is State.ACTIVE
        alive = self.alive()
        state = self.world.state()
        assert state == ("Stable" if alive else "Empty") or (state == "Dead" and not alive), (state, len(alive))
        assert {client.state for client in alive} <= {"run"}, [client.state for client in alive]
        assert len({client.generation for client in alive}) <= 1
        owned = [partition for client in alive for partition in client.partitions()]
        assert sorted(owned) == (list(range(PARTITIONS)) if alive else []), "each partition has one owner (G05)"
        if alive:
            assert set(self.world.shard.groups["g"].members) == {client.member_id for client in alive}


_KINDS = ["dynamic", "dynamic", "old", "static", "static", "die", "leave", "hang", "wake", "resubscribe"]
_KINDS += ["failover", "lossy failover", "slow log", "quick log"]
_actions = st.tuples(
    st.sampled_from(_KINDS),
    st.integers(0, 5),
    st.sampled_from([0, 500, 2_000, 4_000, 12_000, 25_000]),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(_actions, min_size=1, max_size=25))
def test_whatever_happens_the_group_comes_to_rest(make_world_class, actions):
    """G03, G05, G06, GR-1."""
    simulation = Simulation(make_world_class())
    for kind, choice, pause in actions:
        simulation.act(kind, choice)
        simulation.run(pause)
    simulation.settle()


def test_the_simulation_notices_an_offset_that_goes_back(make_world):
    """The other canary: a log that lost what it had said was committed."""
    world = make_world()
    simulation = Simulation(world)
    simulation.act("dynamic", 0)
    simulation.run(20_000)
    kept = world.log.log_end_offset
    simulation.run(10_000)
    assert simulation.committed
    world.runtime.resign(world.now)
    world.log.truncate_to(kept)
    world.start()
    with pytest.raises(AssertionError, match="went back"):
        simulation.check()


def progress_beside_a_hanging_leader(world) -> int:
    """How many assignments the follower gets while the leader heartbeats and never brings any."""
    simulation = Simulation(world)
    for _ in range(2):
        simulation.act("dynamic", 0)
    leader, follower = simulation.clients
    leader.hangs = True
    simulation.run(120_000)
    return len(follower.promises)


def test_the_simulation_notices_a_group_that_hangs(make_world, monkeypatch):
    """The canary: with the timer of G03 a follower gets on, without it the same run shows that it does not."""
    assert progress_beside_a_hanging_leader(make_world()) > 0
    monkeypatch.setattr(GroupShard, "_sync_time_is_up", lambda self, group_id, _, now: Result())
    assert progress_beside_a_hanging_leader(make_world()) == 0
