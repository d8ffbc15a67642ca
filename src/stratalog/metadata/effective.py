"""What a configuration key is worth and where that comes from: the layers of a broker's configuration, and a topic's
overrides on top of them.

    topic override > this broker's dynamic value > the dynamic default of all brokers > server.properties > the default

A dynamic default is its own layer: changing it never touches an override above it (R30).  Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stratalog.base.config import ConfigError, ConfigKey, ConfigType
from stratalog.metadata.broker_config import BROKER_KEYS
from stratalog.metadata.topic_config import TOPIC_KEYS


class Source:
    """Where a value comes from, as numbers of DescribeConfigs."""

    TOPIC: Final = 1
    DYNAMIC_BROKER: Final = 2
    DYNAMIC_DEFAULT_BROKER: Final = 3
    STATIC_BROKER: Final = 4
    DEFAULT: Final = 5
    GROUP: Final = 8


class Entry(NamedTuple):
    """One layer that sets a key."""

    name: str
    value: str
    source: int


@dataclass(frozen=True, slots=True)
class Layers:
    """A broker's configuration as text, by layer."""

    static: Mapping[str, str] = field(default_factory=dict)
    default: Mapping[str, str] = field(default_factory=dict)
    """The dynamic default of all brokers."""
    own: Mapping[str, str] = field(default_factory=dict)
    """This broker's dynamic values."""

    def entries(self, name: str) -> list[Entry]:
        """All layers that set a broker's key, the winning one first."""
        found = []
        for layer, source in (
            (self.own, Source.DYNAMIC_BROKER),
            (self.default, Source.DYNAMIC_DEFAULT_BROKER),
            (self.static, Source.STATIC_BROKER),
        ):
            value = layer.get(name)
            if value is not None:
                found.append(Entry(name, value, source))
        key = BROKER_KEYS.get(name)
        if key is not None and key.default is not None:
            found.append(Entry(name, key.default, Source.DEFAULT))
        return found

    def text(self, name: str) -> str | None:
        """The value of a broker's key as text, None where it has none."""
        for layer in (self.own, self.default, self.static):
            value = layer.get(name)
            if value is not None:
                return value
        return BROKER_KEYS[name].default

    def get(self, name: str) -> Any:
        """The value of a broker's key, None where it has none."""
        text = self.text(name)
        return None if text is None else BROKER_KEYS[name].parse(text)


CLEANER_MAP_BYTES_MIN: Final = 1 << 20
"""Of each cleaner, as Kafka asks for: some 40,000 keys a pass."""


def check_cleaners(layers: Layers, before: Layers | None = None) -> None:
    """What the cleaner's keys have to be together, `ConfigError` where they are not: each cleaner needs a map that
    holds something, and at run time (`before`) their number at most doubles or halves, as Kafka has it."""
    threads = layers.get("log.cleaner.threads")
    memory = layers.get("log.cleaner.dedupe.buffer.size")
    if memory < max(threads, 1) * CLEANER_MAP_BYTES_MIN:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            str(memory),
            f"is less than 1 MiB for each cleaner, of which log.cleaner.threads has {threads}",
        )
    now = None if before is None else before.get("log.cleaner.threads")
    if now is None or threads == now:
        return
    if threads < 1 or not now // 2 <= threads <= max(now, 1) * 2:
        raise ConfigError(
            "log.cleaner.threads",
            str(threads),
            f"cannot be reached in one step from {now}: it takes at least 1, half of that and twice of that at most",
        )


def synonyms(key: ConfigKey, layers: Layers) -> list[tuple[Entry, int]]:
    """What the broker's layers say about a topic's or group's key, the winning one first, each with its factor."""
    found: list[tuple[Entry, int]] = []
    for name, factor in key.synonyms:
        found += [(entry, factor) for entry in layers.entries(name)]
    # Explicit values first, in the order of the synonyms (log.retention.ms before log.retention.hours); the built-in
    # defaults of any of them only after all explicit ones.
    return sorted(found, key=lambda pair: pair[0].source == Source.DEFAULT)


def scaled(key: ConfigKey, value: str, factor: int) -> str:
    """A synonym's value in the unit of the key: hours to milliseconds.  Negative means unbounded in every unit."""
    if factor == 1:
        return value
    number = int(value)
    return str(number * factor) if number >= 0 else "-1"


def topic_defaults(layers: Layers) -> dict[str, str]:
    """The value of each topic key for a topic without overrides, as text."""
    defaults: dict[str, str] = {}
    for name, key in TOPIC_KEYS.items():
        found = synonyms(key, layers)
        if found:
            entry, factor = found[0]
            defaults[name] = scaled(key, entry.value, factor)
        elif key.default is not None:
            defaults[name] = key.default
    return defaults


def topic_overrides_of_broker(layers: Layers) -> dict[str, str]:
    """Only what differs from the built-in defaults: the base configuration of this broker's logs, as topic keys."""
    return {name: value for name, value in topic_defaults(layers).items() if value != TOPIC_KEYS[name].default}


def normalized(key: ConfigKey, text: str) -> str:
    """The text as DescribeConfigs shows it: lists without spaces, booleans in lower case."""
    if key.type == ConfigType.LIST:
        return ",".join(dict.fromkeys(key.parse(text)))
    if key.type == ConfigType.BOOLEAN:
        return text.strip().lower()
    return text.strip()
