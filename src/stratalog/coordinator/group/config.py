"""What an operator may set for groups; a value object, replaced as a whole when a dynamic key changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stratalog.base.types import MAX_INT32

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long a member that has never been in a generation may wait for its first one before it counts as gone; not a
configuration key of Kafka's either."""
PENDING_MEMBERS_MAX: Final = 10_000
"""Member ids handed out and not yet used, for one group.  A client takes milliseconds to come back with its id; more
than this is a loop gone wild, and each costs memory for a session timeout."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's keys, in the comments, and its defaults."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = MAX_INT32  # group.max.size
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    offset_metadata_bytes_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms
    partitions: int = 50  # offsets.topic.num.partitions

    @classmethod
    def of(cls, get: Callable[[str], Any] | Mapping[str, Any]) -> GroupConfig:
        """From a lookup by Kafka's key, a function or a mapping; a key that is None or missing keeps its default."""
        lookup = get.get if isinstance(get, Mapping) else get
        values: dict[str, int] = {}
        for name, (key, factor) in _KEYS.items():
            value = lookup(key)
            if value is not None:
                values[name] = int(value) * factor
        return cls(**values)


_KEYS: Final = {
    "min_session_timeout_ms": ("group.min.session.timeout.ms", 1),
    "max_session_timeout_ms": ("group.max.session.timeout.ms", 1),
    "max_size": ("group.max.size", 1),
    "initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", 1),
    "offset_metadata_bytes_max": ("offset.metadata.max.bytes", 1),
    "offsets_retention_ms": ("offsets.retention.minutes", 60_000),
    "retention_check_interval_ms": ("offsets.retention.check.interval.ms", 1),
    "commit_timeout_ms": ("offsets.commit.timeout.ms", 1),
    "partitions": ("offsets.topic.num.partitions", 1),
}
