"""The tables of configuration keys: parsing, ranges, synonyms, and that two tables of one fact agree."""

from __future__ import annotations

import pytest

from stratalog.base.config import ConfigError, ConfigKey, ConfigType, Table
from stratalog.metadata.broker_config import BROKER_KEYS, is_foreign
from stratalog.metadata.effective import Layers, Source, synonyms, topic_defaults
from stratalog.metadata.group_config import GROUP_KEYS
from stratalog.metadata.topic_config import TOPIC_KEYS, validate
from stratalog.storage import config as log_config


def key(type: ConfigType, **more) -> ConfigKey:
    return ConfigKey(name="some.key", type=type, default=None, documentation="A key.", **more)


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (key(ConfigType.INT), " 42 ", 42),
        (key(ConfigType.INT, low=0, also=(-1,)), "-1", -1),
        (key(ConfigType.LONG), str(2**63 - 1), 2**63 - 1),
        (key(ConfigType.DOUBLE, low=0, high=1), "0.25", 0.25),
        (key(ConfigType.BOOLEAN), "TRUE", True),
        (key(ConfigType.LIST), "a, b,,c", ["a", "b", "c"]),
        (key(ConfigType.LIST), "", []),
        (key(ConfigType.STRING, choices=("x", "y")), "y", "y"),
    ],
)
def test_a_good_value_is_parsed(row, text, value):
    assert row.parse(text) == value


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (key(ConfigType.INT), "abc"),
        (key(ConfigType.INT), "1.5"),
        (key(ConfigType.INT), ""),
        (key(ConfigType.INT), "٣"),
        (key(ConfigType.INT), str(2**31)),
        (key(ConfigType.LONG), str(2**63)),
        (key(ConfigType.INT, low=1), "0"),
        (key(ConfigType.INT, high=9), "10"),
        (key(ConfigType.DOUBLE), "nan"),
        (key(ConfigType.DOUBLE, high=1), "2"),
        (key(ConfigType.BOOLEAN), "yes"),
        (key(ConfigType.LIST, choices=("a",)), "a,b"),
        (key(ConfigType.STRING, choices=("x",)), "z"),
        (key(ConfigType.STRING), None),
    ],
)
def test_a_bad_value_names_key_value_and_range(row, text):
    """Issue 5: an error names key, value and range."""
    with pytest.raises(ConfigError) as error:
        row.parse(text)
    assert "some.key" in str(error.value)
    assert ("null" if text is None else text) in str(error.value)
    assert row.range_text() in str(error.value)


def test_an_unknown_name_comes_with_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"did you mean log\.retention\.hours"):
        BROKER_KEYS.parse("log.retention.hour", "1")
    assert BROKER_KEYS.nearest("completely different") is None
    assert is_foreign("ssl.keystore.location")
    assert not is_foreign("log.retention.hour")


def test_a_default_of_a_table_is_a_good_value():
    with pytest.raises(ConfigError):
        Table([ConfigKey(name="k", type=ConfigType.INT, default="x", documentation="d")])


@pytest.mark.parametrize("table", [TOPIC_KEYS, BROKER_KEYS, GROUP_KEYS], ids=["topic", "broker", "group"])
def test_each_key_has_a_sentence_of_help(table):
    for row in table.values():
        assert row.documentation.endswith("."), row.name
        assert len(row.documentation) > 15, row.name


def test_the_log_and_the_table_agree_on_every_topic_key():
    """`storage.config` parses what logs need, `TOPIC_KEYS` what requests set: same keys, types, ranges, defaults."""
    assert set(log_config.KEYS) == set(TOPIC_KEYS)
    for name, row in TOPIC_KEYS.items():
        other = log_config.KEYS[name]
        assert row.type.name.lower() == other.type, name
        assert set(row.choices) == set(other.choices), name
        if row.low is not None and not row.also:
            assert row.low == other.low, name
        if row.high is not None:
            assert row.high == other.high, name
        if not row.internal:
            default = row.default_value()
            default = tuple(default) if isinstance(default, list) else default
            assert getattr(log_config.DEFAULT, other.attribute) == default, name


def test_each_synonym_is_a_key_of_the_broker_with_the_same_default():
    for row in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        for name, _ in row.synonyms:
            assert name in BROKER_KEYS, (row.name, name)
    assert topic_defaults(Layers()) == {n: k.default for n, k in TOPIC_KEYS.items() if k.default is not None}


def test_retention_comes_from_ms_before_minutes_before_hours():
    row = TOPIC_KEYS["retention.ms"]
    hours = Layers(static={"log.retention.hours": "2"})
    assert topic_defaults(hours)["retention.ms"] == str(2 * 3_600_000)
    minutes = Layers(static={"log.retention.hours": "2", "log.retention.minutes": "3"})
    assert topic_defaults(minutes)["retention.ms"] == "180000"
    millis = Layers(static={"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"})
    assert topic_defaults(millis)["retention.ms"] == "4"
    assert [(entry.name, entry.source) for entry, _ in synonyms(row, millis)] == [
        ("log.retention.ms", Source.STATIC_BROKER),
        ("log.retention.minutes", Source.STATIC_BROKER),
        ("log.retention.hours", Source.STATIC_BROKER),
        ("log.retention.hours", Source.DEFAULT),
    ]
    assert topic_defaults(Layers(static={"log.retention.hours": "-1"}))["retention.ms"] == "-1"


def test_a_brokers_own_value_goes_over_the_default_of_all_over_the_file():
    layers = Layers(
        static={"message.max.bytes": "1000"}, default={"message.max.bytes": "2000"}, own={"message.max.bytes": "3000"}
    )
    assert layers.get("message.max.bytes") == 3000
    assert [entry.source for entry in layers.entries("message.max.bytes")] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
        Source.DEFAULT,
    ]


@pytest.mark.parametrize(
    ("values", "remote", "key"),
    [
        ({"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "10"}, False, "min.compaction.lag.ms"),
        ({"remote.storage.enable": "true"}, False, "remote.storage.enable"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, True, "remote.storage.enable"),
        (
            {"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "20"},
            True,
            "local.retention.ms",
        ),
        ({"no.such.key": "1"}, False, "no.such.key"),
        ({"leader.replication.throttled.replicas": "0-1"}, False, "leader.replication.throttled.replicas"),
    ],
)
def test_keys_are_checked_beside_each_other(values, remote, key):
    with pytest.raises(ConfigError) as error:
        validate(values, {}, remote_storage=remote)
    assert error.value.key == key


def test_a_topic_may_keep_less_locally_than_in_all():
    validate(
        {"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "5"}, {}, remote_storage=True
    )
