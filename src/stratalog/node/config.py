"""A broker's configuration: `server.properties`, `-o key=value`, and the dynamic values of the metadata on top.

Unknown keys are warnings with the nearest known name, bad values are errors that name key, value and range.
`config["num.partitions"]` is the value that counts now; `apply(image)` takes over dynamic changes, and whoever wants to
know is in `listeners`.  Made on any thread, then owned by the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from stratalog.base.config import ConfigError
from stratalog.metadata.broker_config import BROKER_KEYS, is_foreign
from stratalog.metadata.effective import Layers, check_cleaners, topic_defaults
from stratalog.metadata.image import Endpoint, MetadataImage, ResourceType
from stratalog.storage import config as log_config
from stratalog.storage.config import LogConfig

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
PROPERTIES_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One entry of `listeners`.  An empty host listens on all addresses, port 0 takes a free one."""

    name: str
    host: str
    port: int
    protocol: str

    def endpoint(self, *, host: str | None = None, port: int | None = None) -> Endpoint:
        return Endpoint(
            self.name,
            self.host if host is None else host,
            self.port if port is None else port,
            SECURITY_PROTOCOLS[self.protocol],
        )


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties, as far as configuration files use them: comments, `=`, `:` or a space between key and value,
    a backslash that joins lines or takes away a character's meaning."""
    values: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or line[0] in "#!":
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
            continue
        key, value = _split_property(line)
        values[key] = value
    if pending:
        key, value = _split_property(pending)
        values[key] = value
    return values


def _split_property(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:position]), _unescape(rest)


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u" and len(text) - position >= 4:
            try:
                parts.append(chr(int(text[position : position + 4], 16)))
                position += 4
                continue
            except ValueError:
                pass
        parts.append(_ESCAPES.get(character, character))
    return "".join(parts)


class BrokerConfig:
    """The values of one broker.  Reading one is a dict lookup."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """`static` is what was set: a file's values with `-o` over them.  `ConfigError` for the first bad one."""
        self.warnings: list[str] = []
        self.listeners_changed: list[Callable[[set[str]], None]] = []
        self.static: dict[str, str] = {}
        for name, value in (static or {}).items():
            if name in BROKER_KEYS:
                key = BROKER_KEYS[name]
                if not value.strip() and key.default is None:
                    continue  # an empty line of a properties file: not set
                key.parse(value)
                self.static[name] = value.strip()
            else:
                self.warnings.append(_unknown(name))
                if is_foreign(name):
                    self.static[name] = value
        if "node.id" not in self.static and "broker.id" in self.static:
            self.static["node.id"] = self.static["broker.id"]
        if "log.dirs" not in self.static and "log.dir" in self.static:
            self.static["log.dirs"] = self.static["log.dir"]
        self.layers = Layers(static=self.static)
        self._values: dict[str, Any] = {}
        self._log_defaults: LogConfig | None = None
        self._rebuild()
        check_cleaners(self.layers)
        _ = self.advertised_listeners  # a bad one is found here, not when a socket is wanted

    @classmethod
    def load(cls, text: str = "", overrides: Iterable[str] = ()) -> BrokerConfig:
        """A properties file's text, and `key=value` arguments over it."""
        values = parse_properties(text)
        for override in overrides:
            name, equals, value = override.partition("=")
            if not equals or not name.strip():
                raise ConfigError(override, None, "is not of the form key=value")
            values[name.strip()] = value
        return cls(values)

    def __getitem__(self, name: str) -> Any:
        """The value that counts now; None where a key without a default is not set.  `KeyError` for no key of ours."""
        return self._values[name]

    def get(self, name: str) -> Any:
        """The same, and None for a key that is none of ours."""
        return self._values.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def _rebuild(self) -> set[str]:
        """Take over the layers; returns the keys whose value changed."""
        old = self._values
        self._values = {name: self.layers.get(name) for name in BROKER_KEYS}
        self._log_defaults = None
        return {name for name, value in self._values.items() if old and old[name] != value}

    # --- dynamic ------------------------------------------------------------------------------------------------------
    def apply(self, image: MetadataImage) -> set[str]:
        """Take over the dynamic values of an image; returns the keys whose value changed and tells the listeners.

        What this broker would not take is left out: the records may be another broker's."""
        default = image.config(ResourceType.BROKER, "")
        own = image.config(ResourceType.BROKER, str(self["node.id"]))
        if default == self.layers.default and own == self.layers.own:
            return set()
        self.layers = Layers(static=self.static, default=_usable(default), own=_usable(own))
        changed = self._rebuild()
        if changed:
            for listener in self.listeners_changed:
                listener(changed)
        return changed

    def topic_defaults(self) -> dict[str, str]:
        """The value of each topic key for a topic without overrides, as text."""
        return topic_defaults(self.layers)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic's logs: its overrides over this broker's defaults."""
        base = self._log_defaults
        if base is None:
            defaults = {name: text for name, text in self.topic_defaults().items() if name in log_config.KEYS}
            base = self._log_defaults = replace(
                log_config.parse(defaults),
                producer_id_expiration_ms=self["producer.id.expiration.ms"],
                transaction_partition_verification_enable=self["transaction.partition.verification.enable"],
                transaction_max_timeout_ms=self["transaction.max.timeout.ms"],
            )
        return log_config.parse({name: text for name, text in overrides.items() if name in log_config.KEYS}, base)

    # --- where --------------------------------------------------------------------------------------------------------
    @property
    def node_id(self) -> int:
        return int(self["node.id"])

    @property
    def log_dirs(self) -> list[str]:
        """The log directories, without the slash that some write behind them."""
        return [path.rstrip("/") or "/" for path in self["log.dirs"]]

    directories = log_dirs

    @property
    def metrics_port(self) -> int | None:
        value = self["stratalog.metrics.port"]
        return None if value is None else int(value)

    @property
    def protocols(self) -> dict[str, str]:
        """Listener name to security protocol."""
        found: dict[str, str] = {name: name for name in SECURITY_PROTOCOLS}
        found.update((name, "PLAINTEXT") for name in self["controller.listener.names"] or ())
        for item in str(self["listener.security.protocol.map"]).split(","):
            name, colon, protocol = item.strip().partition(":")
            if not name and not colon:
                continue
            if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
                raise ConfigError(
                    "listener.security.protocol.map",
                    item,
                    f"is not NAME:protocol, one of {', '.join(SECURITY_PROTOCOLS)}",
                )
            found[name.strip().upper()] = protocol.strip().upper()
        return found

    @property
    def listeners(self) -> list[ListenerConfig]:
        """Where the broker listens, the controller's listeners left out."""
        controllers = set(self["controller.listener.names"] or ())
        return [entry for entry in self._parse_listeners("listeners") if entry.name not in controllers]

    @property
    def controller_listeners(self) -> list[ListenerConfig]:
        controllers = set(self["controller.listener.names"] or ())
        return [entry for entry in self._parse_listeners("listeners") if entry.name in controllers]

    @property
    def advertised_listeners(self) -> list[ListenerConfig]:
        """How clients reach the listeners, where that is said; port and host of `listeners` otherwise."""
        if self["advertised.listeners"] is None:
            return self.listeners
        controllers = set(self["controller.listener.names"] or ())
        found = [e for e in self._parse_listeners("advertised.listeners") if e.name not in controllers]
        names = {entry.name for entry in self.listeners}
        for entry in found:
            if entry.name not in names:
                raise ConfigError("advertised.listeners", entry.name, "is not one of the listeners")
            if entry.host in ("", "0.0.0.0", "::"):
                raise ConfigError("advertised.listeners", entry.host, "is no address that a client can reach")
        return found

    def _parse_listeners(self, key: str) -> list[ListenerConfig]:
        protocols = self.protocols
        found: list[ListenerConfig] = []
        for item in self[key] or ():
            name, separator, address = item.partition("://")
            host, colon, port = address.rpartition(":")
            name = name.upper()
            if not separator or not colon or not port.isdigit() or int(port) > 65535:
                raise ConfigError(key, item, "is not NAME://host:port with a port up to 65535")
            if name not in protocols:
                raise ConfigError(key, item, "has a name that listener.security.protocol.map does not have")
            if any(other.name == name for other in found):
                raise ConfigError(key, item, f"is the second listener called {name}")
            found.append(ListenerConfig(name, host.strip("[]"), int(port), protocols[name]))
        return found


def _usable(values: Mapping[str, str]) -> dict[str, str]:
    """The dynamic values that this broker's table takes."""
    usable: dict[str, str] = {}
    for name, value in values.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            usable[name] = value
            continue
        try:
            key.parse(value)
        except ConfigError:
            continue
        usable[name] = value
    return usable


def _unknown(name: str) -> str:
    if is_foreign(name):
        return f"{name}: a key of Kafka that this broker does not use"
    near = BROKER_KEYS.nearest(name)
    return f"{name}: no known key" + (f"; did you mean {near}?" if near else "")
