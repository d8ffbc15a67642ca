"""The options of `format("stratalog")`: Kafka's names and rules for Spark's source and sink, and a few of ours.

Parsed once in the driver's Python process, then sent with the tasks; plain values only.  A name that is none, a value
that cannot be and a combination that contradicts itself raise `OptionError`, which says what is allowed.  Names are
not case-sensitive, as everywhere in Spark.  Pure.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from stratalog.records.compression import LEVELS
from stratalog.records.compression import NAMES as CODECS
from stratalog.spark.errors import OptionError

TopicPartition = tuple[str, int]

EARLIEST: Final = -2
LATEST: Final = -1

_READ: Final = (
    "path",
    "paths",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "isolation",
    "columns",
    "pushdown",
    "splitBytes",
    "pathEnd",
    "badBatches",
    "findings",
)
_WRITE: Final = (
    "topic",
    "compression",
    "compressionLevel",
    "batchBytes",
    "guarantee",
    "writeId",
    "writeVersion",
    "partitions",
    "segmentBytes",
    "topicId",
    "timestamps",
)
_IGNORED: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "groupIdPrefix",
    "checkpointLocation",
    "queryName",
    "maxFilesPerTrigger",
)
"""Options of Spark and of its Kafka source that have nothing to steer here: taken, and without effect."""
_KNOWN: Final = {name.lower(): name for name in (*_READ, *_WRITE, *_IGNORED)}
_FORBIDDEN: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys come as binary, use DataFrame operations",
    "kafka.value.deserializer": "values come as binary, use DataFrame operations",
    "kafka.key.serializer": "keys go out as binary, use DataFrame operations",
    "kafka.value.serializer": "values go out as binary, use DataFrame operations",
    "kafka.enable.auto.commit": "nothing is committed to Kafka, the query's checkpoint has the offsets",
    "kafka.interceptor.classes": "there are no Java interceptors here",
}
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""In the order of Spark's Kafka source."""
FINDINGS: Final = os.path.join(tempfile.gettempdir(), f"stratalog-findings-{os.getuid()}")
"""Where `badBatches=report` notes damage when the option `findings` does not say."""
PARTITIONS_MAX: Final = 100_000
"""Directories that a bulk write makes for a topic, those of empty partitions included."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions: exactly one of the three ways."""

    kind: Literal["assign", "subscribe", "subscribePattern"]
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """A starting or ending place: a name for all partitions, or a number for each."""

    kind: Literal["earliest", "latest", "offsets", "time", "times"]
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int = 0
    option: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Everything that a reader wants to know."""

    path: tuple[str, ...]
    bootstrap: str
    selection: Selection
    start: Bound
    end: Bound
    latest_if_no_match: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    committed: bool
    pushdown: bool
    split_bytes: int
    end_at_checkpoint: bool
    findings: str
    """Where damaged batches are noted; empty when one fails the query."""
    fetch_bytes: int
    timeout_s: float
    patience_s: float
    """How long a broker that cannot be reached any more is waited for."""
    client_id: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Everything that a writer wants to know."""

    path: str
    bootstrap: str
    topic: str | None
    compression: str
    level: int | None
    batch_bytes: int
    exactly_once: bool
    write_id: str | None
    write_version: int
    keep_timestamps: bool
    partitions: int | None
    segment_bytes: int
    topic_id: str | None
    timeout_s: float
    patience_s: float
    client_id: str


class _Options:
    """The raw options, looked up without regard to case."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = {str(name).lower(): str(value) for name, value in raw.items()}
        for name in self._raw:
            if name in _KNOWN or name.startswith("kafka."):
                continue
            near = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"is {_KNOWN[near[0]]} meant?" if near else "the options are " + ", ".join((*_READ, *_WRITE))
            raise OptionError(f"there is no option {name}={self._raw[name]!r}: {hint}")
        for name, instead in _FORBIDDEN.items():
            if name in self._raw:
                raise OptionError.of(name, self._raw[name], f"cannot be set: {instead}")
        protocol = self._raw.get("kafka.security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise OptionError.of("kafka.security.protocol", protocol, "only PLAINTEXT so far")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._raw

    def text(self, name: str) -> str | None:
        value = self._raw.get(name.lower())
        return value if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError.of(name, value, "true or false")
        return value.lower() == "true"

    def number(self, name: str, *, low: int = 1, high: int = 2**63 - 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d{1,19}", value) or not low <= int(value) <= high:
            raise OptionError.of(name, value, f"a whole number of at least {low}" + _up_to(high))
        return int(value)

    def size(self, name: str, default: int, *, low: int, high: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"(\d{1,15})\s*([kKmMgG]?)(?:i?[bB])?", value)
        if found:
            number = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
            if low <= number <= high:
                return number
        raise OptionError.of(name, value, f"bytes between {low} and {high}, k, m and g stand for the powers of 1024")

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in allowed:
            raise OptionError.of(name, value, "one of " + ", ".join(allowed))
        return value.lower()

    def duration_s(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|min|h|d)?", value.lower())
        if not found:
            raise OptionError.of(name, value, "a duration such as 500ms, 30s, 15m, 1h")
        units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, None: 1e-3}
        return float(found[1]) * units[found[2]]


def _up_to(high: int) -> str:
    return "" if high >= 2**63 - 1 else f" and at most {high}"


def check_reading(raw: Mapping[str, str]) -> None:
    """What can be said at `load()`, before the query runs and before it is known whether it streams: the first thing
    that is wrong with the options either way."""
    found: list[str] = []
    for streaming in (False, True):
        try:
            read_options(raw, streaming=streaming)
        except OptionError as error:
            found.append(str(error))
    if len(found) == 2 and found[0] == found[1]:
        raise OptionError(found[0])


def columns_of(raw: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the table, from `columns` and `includeHeaders`."""
    options = _Options(raw)
    names = [name for name in COLUMNS if name != "headers" or options.flag("includeHeaders", False)]
    chosen = options.text("columns")
    if chosen is None:
        return tuple(names)
    wanted = [name.strip() for name in chosen.split(",") if name.strip()]
    by_name = {name.lower(): name for name in COLUMNS}
    for name in wanted:
        if name.lower() not in by_name:
            raise OptionError.of("columns", chosen, f"there is no column {name!r}, only " + ", ".join(COLUMNS))
    if not wanted or len({name.lower() for name in wanted}) != len(wanted):
        raise OptionError.of("columns", chosen, "some of " + ", ".join(COLUMNS) + ", each once")
    return tuple(by_name[name.lower()] for name in wanted)


def read_options(raw: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse and check everything that reading needs."""
    options = _Options(raw)
    path = _places(options)
    bootstrap = _servers(options)
    if not path and not bootstrap:
        raise OptionError("option path or kafka.bootstrap.servers is missing: a data directory, a broker, or both")
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name in options:
                raise OptionError.of(name, options.text(name), "a streaming query has no end; use read, not readStream")
    minimum = options.number("minOffsetsPerTrigger")
    maximum = options.number("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError.of("minOffsetsPerTrigger", minimum, f"at most maxOffsetsPerTrigger, which is {maximum}")
    start = _start(options, streaming=streaming)
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    isolation = options.text("isolation")
    if isolation is None:
        isolation = {"read_uncommitted": "uncommitted"}.get(
            options.choice("kafka.isolation.level", "read_committed", ("read_committed", "read_uncommitted")),
            "committed",
        )
    elif isolation.lower() not in ("committed", "uncommitted"):
        raise OptionError.of("isolation", isolation, "committed or uncommitted")
    columns_of(raw)
    return ReadOptions(
        path=path,
        bootstrap=bootstrap,
        selection=_selection(options),
        start=start,
        end=Bound("latest") if streaming else _end(options),
        latest_if_no_match=strategy == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        min_partitions=options.number("minPartitions"),
        max_records_per_partition=options.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_s=options.duration_s("maxTriggerDelay", 15 * 60.0),
        committed=isolation.lower() == "committed",
        pushdown=options.flag("pushdown", False),
        split_bytes=options.size("splitBytes", 128 << 20, low=1, high=1 << 40),
        end_at_checkpoint=options.choice("pathEnd", "log", ("log", "checkpoint")) == "checkpoint",
        findings=_findings(options),
        fetch_bytes=_fetch_bytes(options),
        timeout_s=(options.number("kafka.request.timeout.ms") or 30_000) / 1000,
        patience_s=_patience_s(options),
        client_id=options.text("kafka.client.id") or "stratalog-spark",
    )


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse and check everything that writing needs."""
    options = _Options(raw)
    path = _local("path", options.text("path") or "") if options.text("path") else ""
    bootstrap = _servers(options)
    if bool(path) == bool(bootstrap):
        raise OptionError(
            "a write goes either to kafka.bootstrap.servers (a broker) or to path (new partition directories): "
            + ("both are given" if path else "neither is given")
        )
    partitioner = options.text("kafka.partitioner.class")
    if partitioner:
        raise OptionError.of(
            "kafka.partitioner.class", partitioner, "a Java class cannot run here; set the column partition instead"
        )
    for name, wanted in (("kafka.acks", ("all", "-1")), ("kafka.enable.idempotence", ("true",))):
        value = options.text(name)
        if value is not None and value.lower() not in wanted:
            raise OptionError.of(name, value, f"the sink always waits for all replicas: {' or '.join(wanted)}")
    codec = options.choice("compression", options.choice("kafka.compression.type", "none", CODECS), CODECS)
    return WriteOptions(
        path=path,
        bootstrap=bootstrap,
        topic=options.text("topic") or None,
        compression=codec,
        level=_level(options, codec),
        batch_bytes=options.size("batchBytes", 256 << 10, low=1024, high=1 << 20),
        exactly_once=options.choice("guarantee", "exactly-once", ("exactly-once", "at-least-once")) == "exactly-once",
        write_id=options.text("writeId") or None,
        write_version=options.number("writeVersion", low=0) or 0,
        keep_timestamps=options.choice("timestamps", "now", ("now", "column")) == "column",
        partitions=options.number("partitions", high=PARTITIONS_MAX),
        segment_bytes=options.size("segmentBytes", 1 << 30, low=1 << 20, high=2**31 - 1),
        topic_id=options.text("topicId") or None,
        timeout_s=(options.number("kafka.request.timeout.ms") or 30_000) / 1000,
        patience_s=_patience_s(options),
        client_id=options.text("kafka.client.id") or "stratalog-spark",
    )


def _level(options: _Options, codec: str) -> int | None:
    name = "compressionLevel"
    if name not in options:
        return None
    levels = {CODECS[number]: bounds for number, bounds in LEVELS.items()}
    if codec not in levels:
        raise OptionError.of(name, options.text(name), f"it goes with {', '.join(levels)}; compression is {codec}")
    low, high = levels[codec]
    return options.number(name, low=low, high=high)


def _patience_s(options: _Options) -> float:
    value = options.number("kafka.default.api.timeout.ms", low=0)
    return 60.0 if value is None else value / 1000


def _fetch_bytes(options: _Options) -> int:
    """What Kafka takes is taken; an answer is held in memory, so no more is asked for than is of use."""
    given = options.size("kafka.max.partition.fetch.bytes", 8 << 20, low=0, high=2**31 - 1)
    return min(max(given, 1 << 10), 64 << 20)


def _servers(options: _Options) -> str:
    """The brokers to begin with, '' for none; the client takes it as it is."""
    name = "kafka.bootstrap.servers"
    value = options.text(name) or ""
    for server in (part.strip() for part in value.split(",")) if value else ():
        found = re.fullmatch(r"(?:\[[^\[\]\s]+\]|[^\s:/\[\]]+):(\d{1,5})", server)
        if server and not (found and 0 < int(found[1]) < 65_536):
            raise OptionError.of(name, value, f"HOST:PORT, or several with commas; {server!r} is not")
    if value and not value.strip(", "):
        raise OptionError.of(name, value, "HOST:PORT, or several with commas")
    return value


def _places(options: _Options) -> tuple[str, ...]:
    """The directories: `path` with commas, or Spark's own `paths` where `load` was given a list."""
    listed = options.text("paths")
    if listed is not None:
        allowed = 'a JSON list of directories, such as ["/data/a", "/data/b"]'
        try:
            given = json.loads(listed)
        except ValueError:
            given = None
        if not isinstance(given, list) or not given or not all(isinstance(part, str) and part for part in given):
            raise OptionError.of("paths", listed, allowed)
        return tuple(_local("paths", part) for part in given)
    return tuple(_local("path", part.strip()) for part in (options.text("path") or "").split(",") if part.strip())


def _local(option: str, place: str) -> str:
    """A place on a mounted file system, as an absolute path: tasks may have another working directory."""
    if place.lower().startswith("file:"):
        parts = urlsplit(place)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise OptionError.of(option, place, "a directory, or file:///DIRECTORY")
        place = unquote(parts.path)
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place):
        raise OptionError.of(option, place, "a directory on this machine or on a mounted file system")
    return os.path.abspath(place)


def _findings(options: _Options) -> str:
    """The directory of the table of findings."""
    place = options.text("findings")
    if options.choice("badBatches", "fail", ("fail", "report")) == "fail":
        if place is not None:
            raise OptionError.of("findings", place, "it goes with badBatches=report")
        return ""
    if place == "":
        raise OptionError.of("findings", place, "a directory that the tasks can write to")
    return os.path.abspath(place) if place else FINDINGS


# --- which partitions -------------------------------------------------------------------------------------------------
def _selection(options: _Options) -> Selection:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(given) != 1:
        raise OptionError(
            "exactly one of the options assign, subscribe and subscribePattern says which topics: "
            + (", ".join(given) + " are given" if given else "none is given")
        )
    value = options.text(given[0]) or ""
    if given[0] == "assign":
        assigned: list[TopicPartition] = []
        allowed = 'JSON such as {"orders": [0, 1]}'
        data = _json(given[0], value, allowed)
        for topic, partitions in data.items():
            if not isinstance(partitions, list) or not all(type(p) is int and p >= 0 for p in partitions):
                raise OptionError.of(given[0], value, allowed)
            assigned.extend((topic, partition) for partition in sorted(set(partitions)))
        if not assigned:
            raise OptionError.of(given[0], value, allowed)
        return Selection("assign", assigned=tuple(sorted(assigned)))
    if given[0] == "subscribe":
        topics = tuple(sorted({part.strip() for part in value.split(",") if part.strip()}))
        if not topics:
            raise OptionError.of(given[0], value, "topics, separated by commas")
        return Selection("subscribe", topics=topics)
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError.of(given[0], value, f"a regular expression ({error})") from None
    if not value:
        raise OptionError.of(given[0], value, "a regular expression")
    return Selection("subscribePattern", pattern=value)


# --- where to begin and to end ----------------------------------------------------------------------------------------
def _start(options: _Options, *, streaming: bool) -> Bound:
    bound = _timed(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if bound is not None:
        return bound
    name = "startingOffsets"
    value = options.text(name)
    if value is None:
        return Bound("latest" if streaming else "earliest", option=name)
    if value.lower() == "earliest":
        return Bound("earliest", option=name)
    if value.lower() == "latest":
        if not streaming:
            raise OptionError.of(name, value, "a batch query begins at earliest or at the offsets of a JSON object")
        return Bound("latest", option=name)
    offsets = _offsets(name, value)
    if not streaming and LATEST in offsets.values():
        raise OptionError.of(name, value, "-1 (latest) is where a batch query ends, not where it begins")
    return Bound("offsets", offsets, option=name)


def _end(options: _Options) -> Bound:
    bound = _timed(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if bound is not None:
        return bound
    name = "endingOffsets"
    value = options.text(name)
    if value is None or value.lower() == "latest":
        return Bound("latest", option=name)
    if value.lower() == "earliest":
        raise OptionError.of(name, value, "a query ends at latest or at the offsets of a JSON object")
    offsets = _offsets(name, value)
    if EARLIEST in offsets.values():
        raise OptionError.of(name, value, "-2 (earliest) is where a query begins, not where it ends")
    return Bound("offsets", offsets, option=name)


def _timed(options: _Options, for_all: str, for_each: str) -> Bound | None:
    time = options.number(for_all, low=0)
    if time is not None:
        return Bound("time", time=time, option=for_all)
    value = options.text(for_each)
    if value is None:
        return None
    return Bound("times", _numbers(for_each, value, 0, "milliseconds"), option=for_each)


def _offsets(name: str, value: str) -> dict[TopicPartition, int]:
    return _numbers(name, value, EARLIEST, "an offset (-2: earliest, -1: latest)")


def _numbers(name: str, value: str, low: int, what: str) -> dict[TopicPartition, int]:
    allowed = 'JSON such as {"orders": {"0": 23, "1": 7}}, for each partition ' + what
    if "offset" in what:
        allowed = "earliest, latest or " + allowed
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json(name, value, allowed).items():
        if not isinstance(partitions, dict):
            raise OptionError.of(name, value, allowed)
        for partition, number in partitions.items():
            if not partition.isdigit() or type(number) is not int or not low <= number < 2**63:
                raise OptionError.of(name, value, allowed)
            found[topic, int(partition)] = number
    return found


def _json(name: str, value: str, allowed: str) -> dict[str, object]:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        raise OptionError.of(name, value, allowed) from None
    if not isinstance(data, dict):
        raise OptionError.of(name, value, allowed)
    return data
