"""The same requests to two brokers, and where their answers differ.

A `Prober` stands before one broker: it sends requests over a raw connection with our own message classes and keeps
each answer as plain lists and dicts, in which everything that must differ (ids, ports, times, directories, texts) is
replaced by a name for it.  `differences` compares what two probers kept.  An answer may also be "closed" (the broker
ended the connection) or "no answer".

    ours, theirs = Prober("127.0.0.1", 9092), Prober("127.0.0.1", 9192)
    agree(ours, theirs)
    for prober in (ours, theirs):
        prober.ask("a topic that is not there", MetadataRequest(...))  # in every version that both speak
    for difference in differences(ours, theirs):
        print(difference)
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stratalog.base.failures import Malformed
from stratalog.base.types import ZERO_UUID
from stratalog.client.connection import Connection
from stratalog.client.failures import ConnectionLost
from stratalog.protocol.apis import APIS
from stratalog.protocol.schema import Message, Struct, Unencodable

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Difference:
    """Where two answers part."""

    label: str
    api: str
    version: int
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.api} v{self.version} [{self.label}] {self.path}: ours {self.ours!r}, Kafka's {self.theirs!r}"


class Prober:
    """One broker under questions.  `answers[(label, api key, version)]` is what it said."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 20.0) -> None:
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self.answers: dict[tuple[str, int, int], Any] = {}
        self.topic_ids: dict[str, Any] = {}
        """The topics' ids here; the questions use them, the kept answers name them."""
        self.members: dict[str, str] = {}
        """The member ids that this broker gave out, by the group that they are in."""
        self._connections: dict[str, Connection] = {}
        self._names: dict[Any, str] = {}
        self._counts: dict[str, int] = {}
        self.spoken: dict[int, tuple[int, int]] = dict(self.connection().versions)
        """The versions to ask in, by API key: what the broker offers, less after `agree`."""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def connection(self, name: str = "main") -> Connection:
        """A connection of this name, opened at its first use and again after it was closed."""
        if name not in self._connections:
            self._connections[name] = Connection(self.host, self.port, client_id="prober", timeout_s=self.timeout_s)
        return self._connections[name]

    def call(self, request: Message, version: int | None = None, *, on: str = "main") -> Any:
        """A request whose answer is not compared: the message, None where the connection was closed."""
        try:
            return self.connection(on).call(request, version=version)
        except ConnectionLost:
            self._connections.pop(on).close()
            return None

    def ask(self, label: str, request: Message, versions: Iterable[int] | None = None) -> Any:
        """Ask in each version that both brokers speak (or those of `versions` among them), and keep the answers; the
        last one.  What a version has no field for is left out of the request, and a version that cannot say it at all
        is not asked in."""
        low, high = self.spoken.get(request.api_key, (0, -1))
        last = None
        for version in range(low, high + 1) if versions is None else versions:
            if not low <= version <= high:
                continue
            fitted = copy.deepcopy(request)
            fit(fitted, version)
            try:
                fitted.encode(version)
            except Unencodable:
                continue
            key = (label, request.api_key, version)
            assert key not in self.answers, f"two questions are called {label!r}"
            try:
                last = self.connection().call(fitted, version=version)
                self.answers[key] = self.plain(last)
            except ConnectionLost as error:
                self._connections.pop("main").close()
                self.answers[key] = "no answer" if "in time" in str(error) else "closed"
            except Malformed as error:
                self._connections.pop("main").close()
                self.answers[key] = f"malformed: {error}"
        return last

    def keep(self, label: str, api: int, version: int, answer: Any) -> None:
        """An answer that was come by in another way."""
        self.answers[label, api, version] = self.plain(answer)

    # --- what must differ -----------------------------------------------------------------------------------------
    def alias(self, kind: str, value: Any) -> str:
        """`MEMBER1` for the first member id seen, and the same for it ever after."""
        name = self._names.get((kind, value))
        if name is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = self._names[kind, value] = f"<{kind} {self._counts[kind]}>"
        return name

    def call_it(self, kind: str, value: Any, name: str) -> None:
        """Give a value its name before an answer shows it, where brokers may show several in another order."""
        self._names[kind, value] = f"<{name}>"

    def plain(self, value: Any, field: str = "") -> Any:
        """A message as dicts and lists, with names for what differs from broker to broker."""
        if isinstance(value, Struct):
            row = {f.name: self.plain(getattr(value, f.name), f.name) for f in type(value).__fields__}
            for text in ("error_message", "batch_index_error_message"):
                row.pop(text, None)  # words for people: there or not, ours are our own
            return row
        if isinstance(value, list):
            return [self.plain(item, field) for item in value]
        named = _NAMED.get(field)
        return value if named is None else named(self, value)


def _text(prober: Prober, value: Any) -> Any:
    return value if value is None or value == "" else "<text>"


def _time(prober: Prober, value: Any) -> Any:
    return "<now>" if isinstance(value, int) and abs(value - time.time() * 1000) < DAY_MS else value


def _topic_id(prober: Prober, value: Any) -> Any:
    for name, known in prober.topic_ids.items():
        if known == value:
            return f"<id of {name}>"
    return "<zero>" if value == ZERO_UUID else prober.alias("id", value)


def _positive(what: str) -> Callable[[Prober, Any], Any]:
    return lambda prober, value: f"<{what}>" if value > 0 else value


def _aliased(kind: str) -> Callable[[Prober, Any], Any]:
    return lambda prober, value: value if value in ("", None, -1) else prober.alias(kind, value)


def _port(prober: Prober, value: Any) -> Any:
    return "<port>" if value in (prober.port, prober.port + 1) else value


def _records(prober: Prober, value: Any) -> Any:
    return None if value is None else bytes(value)


_NAMED: dict[str, Callable[[Prober, Any], Any]] = {
    "documentation": _text,
    "topic_id": _topic_id,
    "replica_directory_id": _aliased("directory id"),
    "cluster_id": _aliased("cluster"),
    "member_id": _aliased("member"),
    "leader": _aliased("member"),
    "producer_id": _aliased("producer"),
    "session_id": _positive("session"),
    "port": _port,
    "log_dir": _text,
    "timestamp": _time,
    "last_timestamp": _time,
    "log_append_time_ms": _time,
    "last_fetch_timestamp": _time,
    "last_caught_up_timestamp": _time,
    "total_bytes": _positive("bytes"),
    "usable_bytes": _positive("bytes"),
    "partition_size": lambda prober, value: "<bytes>",
    "finalized_features_epoch": _positive("epoch"),
    "records": _records,
}


def fit(value: Any, version: int) -> None:
    """Set what a version has no field for back to its default, so that one request serves all versions."""
    for field in type(value).__fields__:
        held = getattr(value, field.name)
        if not field.exists_in(version):
            setattr(value, field.name, field.fresh_default())
        elif isinstance(held, Struct):
            fit(held, version)
        elif isinstance(held, list):
            for item in held:
                if isinstance(item, Struct):
                    fit(item, version)


def agree(*probers: Prober) -> None:
    """Ask only in versions that all of them speak."""
    common = {}
    for key in set.intersection(*(set(prober.spoken) for prober in probers)):
        low = max(prober.spoken[key][0] for prober in probers)
        high = min(prober.spoken[key][1] for prober in probers)
        if low <= high:
            common[key] = (low, high)
    for prober in probers:
        prober.spoken = common


def differences(ours: Prober, theirs: Prober) -> Iterator[Difference]:
    """Field by field, in the order of the probes."""
    assert ours.answers.keys() == theirs.answers.keys()
    for (label, api, version), answer in ours.answers.items():
        for path, one, other in _unequal(answer, theirs.answers[label, api, version], ""):
            yield Difference(label, APIS[api].name, version, path, one, other)


def _unequal(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            yield from _unequal(ours[name], theirs[name], f"{path}.{name}" if path else name)
    elif isinstance(ours, list) and isinstance(theirs, list):
        # The order is free: clients go by name.
        mine, his = _by_name(ours), _by_name(theirs)
        for name in dict.fromkeys((*mine, *his)):
            yield from _unequal(mine.get(name, "absent"), his.get(name, "absent"), f"{path}[{name}]")
    else:
        yield path, ours, theirs


_NAMES = (
    "name", "topic", "topic_name", "topic_id", "group_id", "partition", "partition_index", "index", "feature",
    "node_id", "replica_id", "api_key", "resource_name", "group_instance_id", "member_id", "entity_type", "key",
)  # fmt: skip
"""The fields by one of which the rows of a list are told apart, the best first."""


def _by_name(rows: list[Any]) -> dict[str, Any]:
    """The rows of a list by what they are called, the same name twice told apart by a count."""
    named: dict[str, Any] = {}
    for row in sorted(rows, key=repr):
        name = repr(row)
        if isinstance(row, dict):
            name = next((f"{row[field]}" for field in _NAMES if row.get(field) not in (None, "", "<zero>")), "")
        count = 2
        unique = name
        while unique in named:
            unique = f"{name}#{count}"
            count += 1
        named[unique] = row
    return named
