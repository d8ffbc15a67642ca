"""The configuration keys of a consumer group: facts are Kafka's, sentences ours.  Immutable; any thread."""

from __future__ import annotations

from typing import Final

from stratalog.base.config import ConfigKey, ConfigType, Table

_INT = ConfigType.INT


def _key(name: str, default: str, low: float, documentation: str, high: float | None = None) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=_INT,
        default=default,
        low=low,
        high=high,
        documentation=documentation,
        synonyms=(("group." + name, 1),),
    )


GROUP_KEYS: Final = Table(
    (
        _key("consumer.session.timeout.ms", "45000", 1, "Silence after which a member of the group is taken for gone."),
        _key("consumer.heartbeat.interval.ms", "5000", 1, "Time between two heartbeats of a member."),
        _key(
            "consumer.assignment.interval.ms",
            "1000",
            0,
            "The least time between two computations of the group's assignment.",
        ),
    )
)
