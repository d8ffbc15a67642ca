"""The metadata of one node: its quorum and its controller joined, its own registration, its session.

`format_directories` writes what a new node needs.  `Metadata.open` replays snapshot and log, leads in a new epoch,
registers this broker and publishes the first image before it returns; `serve` unfences the broker once its logs are
open.  The broker is a broker like any other: it registers, it heartbeats, its session can end; only that its
heartbeat goes before the look at the sessions, so that a loop that stood still fences nobody who is alive.  Loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from stratalog.base.failures import ApiError, Malformed
from stratalog.base.ports import Clock, Disk, Pool, Rng
from stratalog.base.types import Millis, Uuid
from stratalog.controller.controller import Controller, Result
from stratalog.controller.runtime import Runtime
from stratalog.metadata import serde
from stratalog.metadata.features import BOOTSTRAP, SUPPORTED
from stratalog.metadata.image import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    ControllerImage,
    Delta,
    Endpoint,
    MetadataImage,
    controller_record,
)
from stratalog.metadata.loader import load
from stratalog.node.config import BrokerConfig
from stratalog.protocol.disk.metadata import BrokerRegistrationChangeRecord, FeatureLevelRecord
from stratalog.protocol.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatRequest
from stratalog.protocol.schema import Message
from stratalog.raft.quorum import Quorum, bootstrap_values, format_metadata
from stratalog.raft.snapshot import SnapshotId, Voter
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig

T = TypeVar("T")
REPLAY_BYTES_MAX: Final = 1 << 20
"""A stop takes a snapshot when the next start would replay more than this: a second of Python at most."""


# --- formatting ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Formatted:
    """What the data directories say about this node."""

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, Uuid]


def format_directories(
    disk: Disk,
    directories: Sequence[str],
    *,
    node_id: int,
    rng: Rng,
    now: Millis,
    cluster_id: str | None = None,
    metadata_directory: str | None = None,
    voter_endpoint: Endpoint | None = None,
    features: Mapping[str, int] = BOOTSTRAP,
) -> Formatted:
    """Give each directory that has none its `meta.properties`, and a new metadata directory its first records.

    What is there already is kept, and checked: all directories belong to one cluster and one node, or it is
    `Malformed`.  `voter_endpoint`: make the quorum a dynamic one with this node as its voter (as `kafka-storage format
    --standalone` does); without it, Kafka wants `controller.quorum.voters` to open the directory.
    """
    found: dict[str, dict[str, str]] = {}
    for directory in directories:
        disk.mkdir(directory)
        properties = checkpoints.read_meta_properties(disk, directory)
        if properties is not None:
            found[directory] = properties
    for directory, properties in found.items():
        path = f"{directory}/{layout.META_PROPERTIES}"
        given = properties.get("node.id", properties.get("broker.id", ""))
        if given != str(node_id):
            raise Malformed(f"{path}: the directory belongs to node {given}, this is node {node_id}")
        owner = properties.get("cluster.id", "")
        if cluster_id is None:
            cluster_id = owner
        elif owner != cluster_id:
            raise Malformed(f"{path}: the directory belongs to cluster {owner}, not to {cluster_id}")
    if cluster_id is None:
        cluster_id = str(_random_uuid(rng))
    ids: dict[str, Uuid] = {}
    for directory in directories:
        text = found.get(directory, {}).get("directory.id")
        if text is not None:
            try:
                ids[directory] = Uuid.parse(text)
            except ValueError as error:
                raise Malformed(f"{directory}/{layout.META_PROPERTIES}: directory.id: {error}") from error
            continue
        ids[directory] = _random_uuid(rng)
        checkpoints.write_meta_properties(
            disk, directory, cluster_id=cluster_id, node_id=node_id, directory_id=ids[directory]
        )
    if len(set(ids.values())) != len(ids):
        raise Malformed(f"two of the directories {', '.join(directories)} have the same directory.id")
    home = metadata_directory or directories[0]
    if home not in ids:
        raise Malformed(f"{home}: the metadata directory is not one of the log directories")
    if home not in found:
        voters = None
        if voter_endpoint is not None:
            address = (voter_endpoint.name, voter_endpoint.host, voter_endpoint.port)
            voters = [Voter(node_id, ids[home], (address,))]
        records = bootstrap_records(features)
        values = [serde.encode(record, LATEST_METADATA_VERSION) for record in records]
        format_metadata(disk, home, values, now=now, voters=voters)
    return Formatted(cluster_id, node_id, ids)


def bootstrap_records(features: Mapping[str, int] = BOOTSTRAP) -> list[Message]:
    """The first records of a new cluster: the metadata version before all else."""
    names = sorted(features, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=features[name]) for name in names]


def _voter_endpoint(config: BrokerConfig) -> Endpoint | None:
    """Where a Kafka with this configuration would look for the voter: `controller.quorum.bootstrap.servers` says that
    the quorum is a dynamic one, whose voters are in its log with the address of the controller's listener."""
    if not config["controller.quorum.bootstrap.servers"] or config["controller.quorum.voters"]:
        return None
    for listener in config.controller_listeners:
        return listener.endpoint(host=listener.host or "127.0.0.1")
    return None


def _random_uuid(rng: Rng) -> Uuid:
    while True:
        raw = bytearray(rng.token(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not str(Uuid(raw)).startswith("-"):
            return Uuid(raw)


# --- running -------------------------------------------------------------------------------------------------------
class Metadata:
    """`node.controller` is one of these."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        quorum: Quorum,
        controller: Controller,
        runtime: Runtime,
        clock: Clock,
        rng: Rng,
        formatted: Formatted,
    ) -> None:
        self._clock = clock
        self.config = config
        self.quorum = quorum
        self.cluster_id = formatted.cluster_id
        self.directory_ids = formatted.directory_ids
        """Log directory (its path) to its id."""
        self.broker_epoch = -1
        self.incarnation_id = _random_uuid(rng)
        self.on_image: Callable[[Delta], None] = lambda _: None
        """Set it before the first change; called on the loop for each committed change, in the log's order."""
        self._controller = controller
        self._runtime = runtime
        self._serving = False
        self._next_heartbeat = Millis(0)
        self._last_snapshot_ms = Millis(0)
        self._pending_topics: set[str] = set()
        runtime.on_image = self._publish

    @property
    def image(self) -> MetadataImage:
        """The committed state, the one that brokers read."""
        return self._runtime.image

    @property
    def node_id(self) -> int:
        return self._controller.node_id

    @classmethod
    def open(
        cls,
        *,
        config: BrokerConfig,
        disk: Disk,
        pool: Pool,
        clock: Clock,
        rng: Rng,
        directories: Sequence[str],
        endpoints: Sequence[Endpoint],
        clean_shutdown_epoch: int | None,
        now: Millis,
        fsync: bool = True,
        controller_endpoints: Sequence[Endpoint] = (),
    ) -> Metadata:
        """`endpoints`: the listeners as they are advertised, ports bound already.  `clean_shutdown_epoch`: what
        `storage.checkpoints.take_clean_shutdown` gave (None: the last stop was not clean).  The broker is fenced
        until `serve` is called."""
        node_id = int(config["node.id"])
        home = config["metadata.log.dir"] or directories[0]
        formatted = format_directories(
            disk,
            directories if home in directories else [*directories, home],
            node_id=node_id,
            rng=rng,
            now=now,
            metadata_directory=home,
            voter_endpoint=_voter_endpoint(config),
        )
        quorum = Quorum.open(
            disk,
            pool,
            home,
            node_id=node_id,
            directory_id=formatted.directory_ids[home],
            now=now,
            config=LogConfig(
                segment_bytes=config["metadata.log.segment.bytes"],
                segment_ms=config["metadata.log.segment.ms"],
                retention_ms=-1,
            ),
            had_clean_shutdown=clean_shutdown_epoch is not None,
            fsync=fsync,
            retention_bytes=config["metadata.max.retention.bytes"],
            retention_ms=config["metadata.max.retention.ms"],
        )
        was_empty = quorum.is_new
        loader = load(quorum.recovered())
        quorum.lead(now)
        controller = Controller(
            node_id=node_id, cluster_id=formatted.cluster_id, settings=config, rng=rng, image=loader.image
        )
        runtime = Runtime(controller, quorum, loader.image)
        self = cls(
            config=config,
            quorum=quorum,
            controller=controller,
            runtime=runtime,
            clock=clock,
            rng=rng,
            formatted=formatted,
        )
        self._start(disk, home, was_empty, endpoints, controller_endpoints, clean_shutdown_epoch, now)
        return self

    def _start(
        self,
        disk: Disk,
        home: str,
        was_empty: bool,
        endpoints: Sequence[Endpoint],
        controller_endpoints: Sequence[Endpoint],
        clean_shutdown_epoch: int | None,
        now: Millis,
    ) -> None:
        """The records of a start, one batch for each of: bootstrap, controller, broker.  One flush for all."""
        runtime = self._runtime
        if was_empty or METADATA_VERSION not in self._controller.image.features:
            values = bootstrap_values(disk, home)
            records = bootstrap_records() if values is None else [serde.decode(value) for value in values]
            runtime.submit(lambda _: Result(records, None), None, now)
        supported = {**SUPPORTED, "kraft.version": (0, 1)}
        registration = ControllerImage(
            id=self.node_id,
            incarnation_id=self.incarnation_id,
            endpoints=tuple(controller_endpoints),
            features=supported,
        )
        runtime.submit(lambda _: Result([controller_record(registration)], None), None, now)
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported.items()
            ],
            rack=self.config["broker.rack"],
            log_dirs=[self.directory_ids[directory] for directory in sorted(self.directory_ids)],
            previous_broker_epoch=-1 if clean_shutdown_epoch is None else clean_shutdown_epoch,
        )

        def registered(response: Any) -> None:
            self.broker_epoch = response.broker_epoch

        runtime.submit(lambda controller: controller.register_broker(request, now), registered, now)
        self.quorum.flush()
        assert self.broker_epoch >= 0, "the registration is committed"
        self._last_snapshot_ms = now
        self.config.apply(self.image)

    def serve(self, now: Millis) -> None:
        """Unfence this broker: its logs are open, clients may come.  Committed when it returns."""
        self._serving = True
        self._heartbeat(now)
        self.quorum.flush()

    # --- the write path ---------------------------------------------------------------------------------------------
    def submit(self, handle: Callable[[Controller], Result[T]], reply: Callable[[T], None] | None, now: Millis) -> None:
        """Run one of the controller's handlers; `reply(response)` comes once its records are committed, after
        `on_image` has seen them.  An `ApiError` of the handler passes through.

            node.controller.submit(lambda c: c.create_topics(request.body, now), parked.reply, now)
        """
        self._runtime.submit(handle, reply, now)

    def ensure_internal_topic(self, name: str, now: Millis) -> None:
        """Have `__consumer_offsets` (or another internal topic) created with its partitions and configuration; a
        no-op when it is there or on its way.  `ApiError` when the log takes no records: ask again."""
        if name in self._pending_topics or name in self.image.topics_by_name:
            return
        from stratalog.controller.topics import internal_topic
        from stratalog.protocol.k19_create_topics import CreateTopicsRequest

        self._pending_topics.add(name)
        request = CreateTopicsRequest(topics=[internal_topic(self._controller, name)])
        try:
            self.submit(
                lambda controller: controller.create_topics(request, now, internal=True),
                lambda _: self._pending_topics.discard(name),
                now,
            )
        except ApiError:  # not on its way: the next question tries again
            self._pending_topics.discard(name)
            raise

    def _publish(self, delta: Delta) -> None:
        self.config.apply(delta.image)
        self.on_image(delta)

    # --- time ---------------------------------------------------------------------------------------------------------
    def deadline(self) -> Millis | None:
        """When `tick` has something to do (heartbeat, sessions)."""
        session = self._controller.session_deadline()
        if not self._serving:
            return session
        return self._next_heartbeat if session is None else min(self._next_heartbeat, session)

    def tick(self, now: Millis) -> None:
        if self._serving and now >= self._next_heartbeat:
            self._heartbeat(now)
        deadline = self._controller.session_deadline()
        if deadline is not None and now >= deadline:
            if self._serving:
                self._heartbeat(now)
            self._runtime.submit(lambda controller: controller.fence_silent_brokers(now), None, now)
        self._maybe_snapshot(now)

    def _heartbeat(self, now: Millis) -> None:
        self._next_heartbeat = Millis(now + self.config["broker.heartbeat.interval.ms"])
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
        self._runtime.submit(lambda controller: controller.broker_heartbeat(request, now), None, now)

    # --- snapshots ----------------------------------------------------------------------------------------------------
    def _maybe_snapshot(self, now: Millis) -> None:
        grown = self.quorum.bytes_since_snapshot
        interval = self.config["metadata.log.max.snapshot.interval.ms"]
        due = grown >= self.config["metadata.log.max.record.bytes.between.snapshots"]
        if grown and interval and now >= self._last_snapshot_ms + interval:
            due = True
        if due:
            self.take_snapshot(now)

    def take_snapshot(self, now: Millis, *, wait: bool = False) -> None:
        """Write the committed image beside the log."""
        self._last_snapshot_ms = now
        image = self.image
        version = image.metadata_version

        def values() -> Iterable[bytes]:
            return (serde.encode(record, version) for record in image.records())

        self.quorum.take_snapshot(SnapshotId(image.offset + 1, image.epoch), values, now, wait=wait)

    def close(self, *, clean: bool = True) -> None:
        """Fence this broker, so that the next start (a Kafka's too) need not wait for its session; flush and close.
        The clean-shutdown marker is the caller's, with `broker_epoch`.  `clean=False` only lets go of the files.
        `OSError`: the disk took none of that; the files are closed all the same."""
        try:
            if clean and self._serving:
                self._serving = False
                self._take_leave(self._clock.now_ms())
        except BaseException:
            self.quorum.close(clean=False)
            raise
        self.quorum.close(clean=clean)

    def _take_leave(self, now: Millis) -> None:
        broker = self._controller.image.brokers.get(self.node_id)
        if broker is not None and broker.epoch == self.broker_epoch and not broker.fenced:
            record = BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, fenced=1, in_controlled_shutdown=1
            )
            self._runtime.on_image = lambda _: None  # the node is on its way out; it needs no news of itself
            try:
                self._runtime.submit(lambda _: Result([record], None), None, now)
            except ApiError as error:
                if isinstance(error.__cause__, OSError):
                    raise error.__cause__ from None
                raise
        self.quorum.flush()
        if self.quorum.bytes_since_snapshot > REPLAY_BYTES_MAX:
            self.take_snapshot(now, wait=True)
