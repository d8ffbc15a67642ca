"""What `why` and `compact` share: the metadata of a data directory without a broker, and a topic's configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from stratalog.base.config import ConfigError
from stratalog.base.failures import Malformed
from stratalog.cli import UsageError
from stratalog.cli.output import printable
from stratalog.logs.status import read_status
from stratalog.metadata import serde
from stratalog.metadata.broker_config import BROKER_KEYS
from stratalog.metadata.image import MetadataImage, ResourceType
from stratalog.metadata.loader import Loader
from stratalog.metadata.topic_config import TOPIC_KEYS
from stratalog.node.config import BrokerConfig
from stratalog.raft import snapshot
from stratalog.records.batch import batches, records_of
from stratalog.server.disk import RealDisk
from stratalog.storage import layout
from stratalog.storage.config import LogConfig

METADATA: str = "__cluster_metadata-0"


def metadata_of(disk: RealDisk, data: str) -> MetadataImage | None:
    """The metadata as far as the log of this data directory has it, None where it has none or cannot be read."""
    home = f"{data}/{METADATA}"
    if not disk.is_dir(home):
        return None
    loader = Loader()
    try:
        for offset, epoch, values in _batches(disk, home):
            loader.feed(map(serde.decode, values), offset=offset, epoch=epoch)
    except (Malformed, AssertionError):
        return loader.image if loader.image.offset >= 0 else None
    return loader.image


def _batches(disk: RealDisk, home: str) -> Iterator[tuple[int, int, Sequence[bytes]]]:
    position = 0
    found = snapshot.find(disk, home)
    if found:
        contents = snapshot.read(disk, f"{home}/{found[-1].file_name}")
        position = found[-1].end_offset
        yield position - 1, found[-1].epoch, contents.values
    for name in disk.listdir(home):
        parsed = layout.parse(name)
        if parsed is None or parsed.state or parsed.kind != layout.LOG:
            continue
        raw = disk.read(f"{home}/{name}", limit=2 << 30)
        for header in batches(raw):
            if header.next_offset <= position or header.is_control:
                continue
            values = [bytes(record.value) for record in records_of(raw, header) if record.value is not None]
            yield header.last_offset, header.leader_epoch, values


class Configurations:
    """The configuration of each topic in a data directory: `options` over what the metadata says over the broker's own
    settings over the defaults.  The broker's settings are those of its `file`, else those it last ran with."""

    def __init__(self, disk: RealDisk, data: str, *, file: str | None, options: Sequence[str]) -> None:
        self._options = _overrides(options)
        try:
            if file:
                with open(file, encoding="utf-8") as handle:
                    self.broker = BrokerConfig.load(handle.read(1 << 20))
            else:
                self.broker = BrokerConfig(_settings(disk, data))
        except (ConfigError, ValueError) as error:
            raise UsageError(str(error)) from error
        # Only one of several directories has the metadata.
        homes = [data, *(self.broker.log_dirs if "log.dirs" in self.broker.static else ())]
        self._image = next((image for image in (metadata_of(disk, home) for home in homes) if image is not None), None)
        if self._image is not None:
            self.broker.apply(self._image)

    def of(self, topic: str) -> LogConfig:
        overrides = {} if self._image is None else dict(self._image.config(ResourceType.TOPIC, topic))
        try:
            return self.broker.log_config({**overrides, **self._options})
        except (ConfigError, ValueError) as error:
            raise UsageError(str(error)) from error


def _overrides(options: Sequence[str]) -> dict[str, str]:
    found = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"-o {option}: not of the form KEY=VALUE")
        try:
            TOPIC_KEYS.parse(name.strip(), value)
        except ConfigError as error:
            raise UsageError(f"-o {option}: {error}") from error
        found[name.strip()] = value
    return found


def _settings(disk: RealDisk, data: str) -> dict[str, str]:
    """What the broker that last ran on this directory was set to."""
    found = read_status(disk, data).get("settings")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if name in BROKER_KEYS and isinstance(value, str)}


def print_findings(findings: Sequence[Mapping[str, str]]) -> None:
    """What a load found in a partition's directory and did about it."""
    if findings:
        print("  what the last start found:")
    for finding in findings:
        print(f"    {finding['kind']}: {printable(finding['path'])}: {printable(finding['text'])}")


def parse_name(text: str) -> tuple[str, int | None]:
    """`orders` or `orders-3`."""
    found = layout.parse_directory(text)
    return (text, None) if found is None else found


def partitions_in(disk: RealDisk, data: str) -> list[tuple[str, int]]:
    if not os.path.isdir(data):
        raise UsageError(f"{data}: no such directory; --data says where the broker's data is")
    found = [layout.parse_directory(name) for name in disk.listdir(data) if name != METADATA]
    return sorted(key for key in found if key is not None and disk.is_dir(f"{data}/{key[0]}-{key[1]}"))
