"""The configuration keys of a topic: types, defaults and ranges are Kafka's, the sentences are ours.

`synonyms` name the broker's keys that give a topic's key its default.  Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratalog.base.config import ConfigError, ConfigKey, ConfigType, Importance, Table
from stratalog.base.types import MAX_INT64

_LONG, _INT, _BOOLEAN, _LIST = ConfigType.LONG, ConfigType.INT, ConfigType.BOOLEAN, ConfigType.LIST
HOUR_MS: Final = 3_600_000


def _throttled(value: list[str]) -> str | None:
    """`partition:broker` pairs, or the one word `*`."""
    if value == ["*"]:
        return None
    for item in value:
        partition, colon, broker = item.partition(":")
        if not (colon and partition.isdigit() and broker.isdigit()):
            return "is not allowed; it takes * or a list of partition:broker"
    return None


def _key(
    name: str,
    type: ConfigType,
    default: str | None,
    documentation: str,
    *synonyms: str | tuple[str, int],
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=type,
        default=default,
        documentation=documentation,
        importance=Importance.MEDIUM,
        low=low,
        high=high,
        synonyms=tuple((s, 1) if isinstance(s, str) else s for s in synonyms),
        **more,
    )


TOPIC_KEYS: Final = Table(
    (
        _key(
            "cleanup.policy",
            _LIST,
            "delete",
            "How old data goes: `delete` drops whole segments by age and size, `compact` keeps the last record of "
            "each key, both together do both.",
            "log.cleanup.policy",
            choices=("compact", "delete"),
        ),
        _key(
            "compression.gzip.level",
            _INT,
            "-1",
            "Level of gzip when the broker compresses; -1 leaves it to the library.",
            "compression.gzip.level",
            low=1,
            high=9,
            also=(-1,),
        ),
        _key(
            "compression.lz4.level",
            _INT,
            "9",
            "Level of lz4 when the broker compresses.",
            "compression.lz4.level",
            low=1,
            high=17,
        ),
        _key(
            "compression.type",
            ConfigType.STRING,
            "producer",
            "The codec in which batches are kept; `producer` keeps what the producer sent.",
            "compression.type",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        _key(
            "compression.zstd.level",
            _INT,
            "3",
            "Level of zstd when the broker compresses.",
            "compression.zstd.level",
            low=-131072,
            high=22,
        ),
        _key(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "How long a deletion mark of a compacted topic stays readable after it was first cleaned.",
            "log.cleaner.delete.retention.ms",
            low=0,
        ),
        _key(
            "file.delete.delay.ms",
            _LONG,
            "60000",
            "Time between taking a segment out of the log and removing its files.",
            "log.segment.delete.delay.ms",
            low=0,
        ),
        _key(
            "flush.messages",
            _LONG,
            str(MAX_INT64),
            "Records after which the log is forced to the disk.",
            "log.flush.interval.messages",
            low=1,
        ),
        _key(
            "flush.ms",
            _LONG,
            str(MAX_INT64),
            "Time after which appended records are forced to the disk.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            low=0,
        ),
        _key(
            "follower.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas whose incoming replication is slowed down: partition:broker pairs, or * for all.",
            check=_throttled,
        ),
        _key(
            "index.interval.bytes",
            _INT,
            "4096",
            "Bytes of log between two entries of the offset index.",
            "log.index.interval.bytes",
            low=0,
        ),
        _key(
            "internal.segment.bytes",
            _INT,
            None,
            "A segment size below the least one that segment.bytes takes, for tests.",
            internal=True,
        ),
        _key(
            "leader.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas whose outgoing replication is slowed down: partition:broker pairs, or * for all.",
            check=_throttled,
        ),
        _key(
            "local.retention.bytes",
            _LONG,
            "-2",
            "Bytes that stay on the broker when older segments live in remote storage; -2 takes retention.bytes.",
            "log.local.retention.bytes",
            low=-2,
        ),
        _key(
            "local.retention.ms",
            _LONG,
            "-2",
            "Time that data stays on the broker when older segments live in remote storage; -2 takes retention.ms.",
            "log.local.retention.ms",
            low=-2,
        ),
        _key(
            "max.compaction.lag.ms",
            _LONG,
            str(MAX_INT64),
            "The longest time that a record may wait for compaction.",
            "log.cleaner.max.compaction.lag.ms",
            low=1,
        ),
        _key(
            "max.message.bytes",
            _INT,
            "1048588",
            "The largest batch that a producer may send, compressed.",
            "message.max.bytes",
            low=0,
        ),
        _key(
            "message.timestamp.after.max.ms",
            _LONG,
            str(HOUR_MS),
            "How far a record's timestamp may lie ahead of the broker's clock.",
            "log.message.timestamp.after.max.ms",
            low=0,
        ),
        _key(
            "message.timestamp.before.max.ms",
            _LONG,
            str(MAX_INT64),
            "How far a record's timestamp may lie behind the broker's clock.",
            "log.message.timestamp.before.max.ms",
            low=0,
        ),
        _key(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
            "log.message.timestamp.type",
            choices=("CreateTime", "LogAppendTime"),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            "0.5",
            "Share of not yet compacted bytes from which a log is worth cleaning.",
            "log.cleaner.min.cleanable.ratio",
            low=0,
            high=1,
        ),
        _key(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "The shortest time that a record stays as it was written before compaction may touch it.",
            "log.cleaner.min.compaction.lag.ms",
            low=0,
        ),
        _key(
            "min.insync.replicas",
            _INT,
            "1",
            "In-sync replicas that a write with acks=all needs.",
            "min.insync.replicas",
            low=1,
        ),
        _key("preallocate", _BOOLEAN, "false", "Reserve a segment's file at its full size.", "log.preallocate"),
        _key("remote.log.copy.disable", _BOOLEAN, "false", "Stop copying segments to remote storage, keep reading."),
        _key(
            "remote.log.delete.on.disable",
            _BOOLEAN,
            "false",
            "Delete the remote part of the log when remote storage is switched off for the topic.",
        ),
        _key("remote.storage.enable", _BOOLEAN, "false", "Keep older segments in remote storage."),
        _key(
            "retention.bytes",
            _LONG,
            "-1",
            "Bytes of one partition above which its oldest segments are deleted; -1 for no bound.",
            "log.retention.bytes",
        ),
        _key(
            "retention.ms",
            _LONG,
            "604800000",
            "Age after which segments are deleted; -1 for never.",
            "log.retention.ms",
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", HOUR_MS),
            low=-1,
        ),
        _key(
            "segment.bytes",
            _INT,
            "1073741824",
            "Size at which a new segment begins.",
            "log.segment.bytes",
            low=1 << 20,
        ),
        _key(
            "segment.index.bytes",
            _INT,
            "10485760",
            "Largest size of a segment's index; a full one begins a new segment.",
            "log.index.size.max.bytes",
            low=4,
        ),
        _key(
            "segment.jitter.ms",
            _LONG,
            "0",
            "Random time taken off segment.ms, so that not all partitions roll at once.",
            "log.roll.jitter.ms",
            ("log.roll.jitter.hours", HOUR_MS),
            low=0,
        ),
        _key(
            "segment.ms",
            _LONG,
            "604800000",
            "Age at which a new segment begins even though the old one is not full.",
            "log.roll.ms",
            ("log.roll.hours", HOUR_MS),
            low=1,
        ),
        _key(
            "unclean.leader.election.enable",
            _BOOLEAN,
            "false",
            "Let a replica that is not in sync lead when no other can; acknowledged records may be lost.",
            "unclean.leader.election.enable",
        ),
    )
)


def validate(values: Mapping[str, str], defaults: Mapping[str, str], *, remote_storage: bool = False) -> None:
    """All overrides of a topic together, over what the broker gives as defaults (both by topic key).

    `ConfigError` names the first key that is unknown, wrong by itself, or wrong beside the others.
    """
    for name, text in values.items():
        TOPIC_KEYS.parse(name, text)

    def of(name: str) -> Any:
        text = values.get(name, defaults.get(name, TOPIC_KEYS[name].default))
        return TOPIC_KEYS[name].parse(text)

    if of("min.compaction.lag.ms") > of("max.compaction.lag.ms"):
        raise ConfigError(
            "min.compaction.lag.ms",
            str(of("min.compaction.lag.ms")),
            f"is above max.compaction.lag.ms, which is {of('max.compaction.lag.ms')}",
        )
    if not of("remote.storage.enable"):
        return
    if not remote_storage:
        raise ConfigError("remote.storage.enable", "true", "needs a broker with remote.log.storage.system.enable=true")
    if "compact" in of("cleanup.policy"):
        raise ConfigError("remote.storage.enable", "true", "does not go with cleanup.policy=compact")
    for local, total in (("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes")):
        kept, all_of_it = of(local), of(total)
        if kept == -2 or all_of_it == -1:
            continue
        if kept == -1 or kept > all_of_it:
            raise ConfigError(local, str(kept), f"is above {total}, which is {all_of_it}")
