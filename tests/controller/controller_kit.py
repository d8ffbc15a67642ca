"""A controller without a node: a fake log that commits when it is told to, settings from a dict, counted randomness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stratalog.base.types import Uuid
from stratalog.controller.controller import Controller, Result
from stratalog.controller.runtime import Runtime
from stratalog.metadata import serde
from stratalog.metadata.broker_config import BROKER_KEYS
from stratalog.metadata.effective import Layers
from stratalog.metadata.image import MetadataImage
from stratalog.protocol.disk.metadata import FeatureLevelRecord
from stratalog.protocol.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatRequest

NOW = 1_000_000
CLUSTER = "the-cluster"


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class Settings:
    def __init__(self, **static: str) -> None:
        self.layers = Layers(static={name.replace("_", "."): value for name, value in static.items()})

    def __getitem__(self, name: str) -> Any:
        assert name in BROKER_KEYS
        return self.layers.get(name)


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def integer(self, low: int, high: int) -> int:
        self.count += 1
        return low + self.count % (high - low)

    def token(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


class FakeLog:
    """Keeps the values; `hold` keeps commits back until `release`."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches: list[int] = []
        self.high_watermark = 0
        self.epoch = 1
        self.hold = False
        self.on_commit = lambda _: None

    @property
    def end_offset(self) -> int:
        return len(self.values)

    @property
    def commits_by_itself(self) -> bool:
        return self.hold

    def append(self, values: Sequence[bytes], now: int) -> int:
        self.values += values
        self.batches.append(len(self.values))
        return len(self.values) - 1

    def commit(self) -> None:
        self.high_watermark = len(self.values)
        self.on_commit(self.high_watermark)

    def commit_up_to(self, offset: int) -> None:
        self.high_watermark = offset
        self.on_commit(offset)


class World:
    """One controller with brokers that are alive."""

    def __init__(self, brokers: int = 1, **static: str) -> None:
        self.settings = Settings(**static)
        self.log = FakeLog()
        self.controller = Controller(node_id=1, cluster_id=CLUSTER, settings=self.settings, rng=CountingRng())
        self.runtime = Runtime(self.controller, self.log, MetadataImage())
        self.now = NOW
        self.submit(lambda c: Result([FeatureLevelRecord(name="metadata.version", feature_level=30)], None))
        self.epochs: dict[int, int] = {}
        for broker in range(1, brokers + 1):
            self.register(broker)
            self.heartbeat(broker)

    @property
    def image(self) -> MetadataImage:
        return self.runtime.image

    def submit(self, handle: Any) -> Any:
        """Run a handler and give back its answer, which has to come at once."""
        answers: list[Any] = []
        self.runtime.submit(handle, answers.append, self.now)
        assert len(answers) == 1
        return answers[0]

    def registration(self, broker: int, *, incarnation: int = 1, directory: int | None = None, previous: int = -1):
        return BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=CLUSTER,
            incarnation_id=uuid(1000 * broker + incarnation),
            listeners=[Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            rack=None,
            log_dirs=[uuid(broker if directory is None else directory)],
            previous_broker_epoch=previous,
        )

    def register(self, broker: int, **more: Any) -> int:
        request = self.registration(broker, **more)
        response = self.submit(lambda c: c.register_broker(request, self.now))
        self.epochs[broker] = response.broker_epoch
        return response.broker_epoch

    def heartbeat(self, broker: int, *, epoch: int | None = None, **more: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker] if epoch is None else epoch,
            current_metadata_offset=self.image.offset,
            **more,
        )
        return self.submit(lambda c: c.broker_heartbeat(request, self.now))

    def replayed(self) -> MetadataImage:
        """The state that a restart would find: the whole log replayed on nothing."""
        records = [serde.decode(value) for value in self.log.values]
        return MetadataImage().apply(records, offset=len(records) - 1, epoch=self.log.epoch).image
