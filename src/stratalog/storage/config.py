"""A topic's configuration as its log needs it: every topic-level key of Kafka, with Kafka's default.

`LogConfig` is a value: a change of configuration makes a new one, and the log takes it with `Log.configure`.
`KEYS` is the table of keys; `parse` turns the strings of config records into a `LogConfig`.  Any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from stratalog.base.types import MAX_INT32, MAX_INT64

PRODUCER = "producer"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


class Key(NamedTuple):
    """A row of the table: Kafka's name, our attribute, the type, the least and the greatest value, the choices."""

    name: str
    attribute: str
    type: str
    low: float = -MAX_INT64 - 1
    high: float = MAX_INT64
    choices: tuple[str, ...] = ()


KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (
        Key("segment.bytes", "segment_bytes", "int", 1 << 20, MAX_INT32),
        Key("internal.segment.bytes", "segment_bytes", "int", 14, MAX_INT32),
        Key("segment.ms", "segment_ms", "long", 1),
        Key("segment.jitter.ms", "segment_jitter_ms", "long", 0),
        Key("segment.index.bytes", "segment_index_bytes", "int", 4, MAX_INT32),
        Key("index.interval.bytes", "index_interval_bytes", "int", 0, MAX_INT32),
        Key("flush.messages", "flush_messages", "long", 1),
        Key("flush.ms", "flush_ms", "long", 0),
        Key("preallocate", "preallocate", "boolean"),
        Key("retention.bytes", "retention_bytes", "long"),
        Key("retention.ms", "retention_ms", "long", -1),
        Key("local.retention.bytes", "local_retention_bytes", "long", -2),
        Key("local.retention.ms", "local_retention_ms", "long", -2),
        Key("remote.storage.enable", "remote_storage_enable", "boolean"),
        Key("remote.log.copy.disable", "remote_log_copy_disable", "boolean"),
        Key("remote.log.delete.on.disable", "remote_log_delete_on_disable", "boolean"),
        Key("file.delete.delay.ms", "file_delete_delay_ms", "long", 0),
        Key("cleanup.policy", "cleanup_policy", "list", choices=("compact", "delete")),
        Key("delete.retention.ms", "delete_retention_ms", "long", 0),
        Key("min.compaction.lag.ms", "min_compaction_lag_ms", "long", 0),
        Key("max.compaction.lag.ms", "max_compaction_lag_ms", "long", 1),
        Key("min.cleanable.dirty.ratio", "min_cleanable_dirty_ratio", "double", 0, 1),
        Key("max.message.bytes", "max_message_bytes", "int", 0, MAX_INT32),
        Key("message.timestamp.type", "message_timestamp_type", "string", choices=(CREATE_TIME, LOG_APPEND_TIME)),
        Key("message.timestamp.before.max.ms", "message_timestamp_before_max_ms", "long", 0),
        Key("message.timestamp.after.max.ms", "message_timestamp_after_max_ms", "long", 0),
        Key(
            "compression.type",
            "compression_type",
            "string",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER),
        ),
        Key("compression.gzip.level", "compression_gzip_level", "int", -1, 9),
        Key("compression.lz4.level", "compression_lz4_level", "int", 1, 17),
        Key("compression.zstd.level", "compression_zstd_level", "int", -131072, 22),
        Key("unclean.leader.election.enable", "unclean_leader_election_enable", "boolean"),
        Key("min.insync.replicas", "min_insync_replicas", "int", 1, MAX_INT32),
        Key("leader.replication.throttled.replicas", "leader_throttled_replicas", "list"),
        Key("follower.replication.throttled.replicas", "follower_throttled_replicas", "list"),
    )
}


@dataclass(slots=True, frozen=True, kw_only=True)
class LogConfig:
    """The values; `overridden` names the keys that the topic itself sets.  The last block is the broker's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    file_delete_delay_ms: int = 60_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    leader_throttled_replicas: tuple[str, ...] = ()
    follower_throttled_replicas: tuple[str, ...] = ()
    overridden: frozenset[str] = field(default=frozenset(), compare=False)

    producer_id_expiration_ms: int = 86_400_000
    transaction_partition_verification_enable: bool = True
    transaction_max_timeout_ms: int = 900_000

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """How long a segment takes records.  The active one is never cleaned: where compaction may not wait longer
        than `max.compaction.lag.ms`, a segment may not stay active longer either."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms


DEFAULT: Final = LogConfig()


def parse_value(key: Key, text: str) -> int | float | bool | str | tuple[str, ...]:
    """One value from its text; `ValueError` says what is wrong with it."""
    text = text.strip()
    value: int | float | bool | str | tuple[str, ...]
    if key.type in ("int", "long"):
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{key.name}={text}: not a whole number") from None
    elif key.type == "double":
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{key.name}={text}: not a number") from None
    elif key.type == "boolean":
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(f"{key.name}={text}: allowed are true and false")
        return lowered == "true"
    elif key.type == "list":
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        for item in items:
            if key.choices and item not in key.choices:
                raise ValueError(f"{key.name}={item}: allowed are {', '.join(key.choices)}")
        return items
    else:
        if key.choices and text not in key.choices:
            raise ValueError(f"{key.name}={text}: allowed are {', '.join(key.choices)}")
        return text
    if value < key.low:
        raise ValueError(f"{key.name}={text}: at least {key.low} is allowed")
    if value > key.high:
        raise ValueError(f"{key.name}={text}: at most {key.high} is allowed")
    return value


def parse(values: Mapping[str, str], base: LogConfig = DEFAULT) -> LogConfig:
    """The topic's own values over `base`, the broker's defaults.  Unknown keys and bad values are `ValueError`."""
    changes: dict[str, object] = {}
    for name, text in values.items():
        key = KEYS.get(name)
        if key is None:
            raise ValueError(f"{name} is no configuration key of a topic")
        changes[key.attribute] = parse_value(key, text)
    return replace(base, overridden=frozenset(values), **changes)  # type: ignore[arg-type]
