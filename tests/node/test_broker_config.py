"""A broker's configuration: files, arguments, warnings and errors, dynamic values."""

from __future__ import annotations

import pytest

from stratalog.base.config import ConfigError
from stratalog.metadata.image import MetadataImage, ResourceType
from stratalog.node.config import BrokerConfig, parse_properties
from stratalog.protocol.disk.metadata import ConfigRecord


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# x\n! y\n\n  a=1\n", {"a": "1"}),
        ("a=1 \\\n    2\n", {"a": "1 2"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b=c\\n\\u0041", {"a=b": "c\nA"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=x=y", {"a": "x=y"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, values):
    assert parse_properties(text) == values


def test_without_any_option_it_is_a_working_broker():
    """Issue 5: 127.0.0.1:9092, data in ./stratalog-data."""
    config = BrokerConfig()
    (listener,) = config.listeners
    assert (listener.name, listener.host, listener.port, listener.protocol) == (
        "PLAINTEXT",
        "127.0.0.1",
        9092,
        "PLAINTEXT",
    )
    assert config.log_dirs == ["./stratalog-data"]
    assert config.node_id == 1
    assert config.warnings == []


def test_kafkas_own_server_properties_is_taken():
    """The file that comes with Kafka's distribution, a node that is broker and controller."""
    config = BrokerConfig.load(
        """
        process.roles=broker,controller
        node.id=7
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
        num.network.threads=3
        log.dirs=/var/one,/var/two
        num.partitions=2
        log.retention.hours=168
        #log.retention.bytes=1073741824
        """
    )
    assert config.warnings == []
    assert config.node_id == 7
    assert [(e.name, e.port) for e in config.listeners] == [("PLAINTEXT", 9092)]
    assert [(e.name, e.port) for e in config.controller_listeners] == [("CONTROLLER", 9093)]
    assert [(e.name, e.host) for e in config.advertised_listeners] == [("PLAINTEXT", "localhost")]
    assert config.log_dirs == ["/var/one", "/var/two"]
    assert config["num.partitions"] == 2


def test_an_argument_goes_over_the_file():
    config = BrokerConfig.load("num.partitions=2\n", ["num.partitions=5"])
    assert config["num.partitions"] == 5
    with pytest.raises(ConfigError, match="key=value"):
        BrokerConfig.load("", ["num.partitions"])


def test_an_unknown_key_is_a_warning_with_the_nearest_name():
    config = BrokerConfig({"num.partition": "3", "ssl.keystore.location": "/x", "zzz": "1"})
    assert config.warnings == [
        "num.partition: no known key; did you mean num.partitions?",
        "ssl.keystore.location: a key of Kafka that this broker does not use",
        "zzz: no known key",
    ]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"num.partitions": "0"}, ["num.partitions", "'0'", "at least 1"]),
        ({"log.cleanup.policy": "burn"}, ["log.cleanup.policy", "'burn'", "compact, delete"]),
        ({"listeners": "9092"}, ["listeners", "9092", "NAME://host:port"]),
        ({"listeners": "PLAINTEXT://h:99999"}, ["listeners", "99999"]),
        ({"listeners": "STRANGE://h:1"}, ["listeners", "STRANGE", "listener.security.protocol.map"]),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, ["listeners", "second"]),
        ({"advertised.listeners": "SSL://h:1"}, ["advertised.listeners", "SSL"]),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, ["advertised.listeners", "0.0.0.0"]),
        ({"log.cleaner.dedupe.buffer.size": "100"}, ["log.cleaner.dedupe.buffer.size", "'100'", "1 MiB"]),
        ({"log.cleaner.threads": "129"}, ["log.cleaner.dedupe.buffer.size", "1 MiB", "129"]),
    ],
)
def test_a_bad_value_is_an_error_that_says_what_would_do(values, parts):
    with pytest.raises(ConfigError) as error:
        BrokerConfig(values)
    for part in parts:
        assert part in str(error.value)


def test_old_names_are_understood():
    config = BrokerConfig({"broker.id": "4", "log.dir": "/x"})
    assert config.node_id == 4
    assert config.log_dirs == ["/x"]


def image_with(resource: str, **values: str) -> MetadataImage:
    records = [
        ConfigRecord(
            resource_type=ResourceType.BROKER, resource_name=resource, name=name.replace("_", "."), value=value
        )
        for name, value in values.items()
    ]
    return MetadataImage().apply(records).image


def test_dynamic_values_take_effect_and_are_told():
    config = BrokerConfig({"message.max.bytes": "1000"})
    told = []
    config.listeners_changed.append(told.append)
    assert config.apply(image_with("", message_max_bytes="2000")) == {"message.max.bytes"}
    assert config["message.max.bytes"] == 2000
    assert config.apply(image_with("1", message_max_bytes="3000")) == {"message.max.bytes"}
    assert config["message.max.bytes"] == 3000
    assert config.apply(image_with("2", message_max_bytes="9")) == {"message.max.bytes"}
    assert config["message.max.bytes"] == 1000
    assert config.apply(MetadataImage()) == set()
    assert told == [{"message.max.bytes"}] * 3


def test_a_dynamic_value_that_makes_no_sense_is_left_out():
    """The record may be a newer broker's; this one goes on with what it has."""
    config = BrokerConfig()
    config.apply(image_with("", message_max_bytes="many", log_retention_ms="5"))
    assert config["message.max.bytes"] == 1_048_588
    assert config["log.retention.ms"] == 5


def test_a_log_is_configured_by_its_topic_over_its_broker():
    """R30: the broker's dynamic default reaches the topics without an override, and only those."""
    config = BrokerConfig({"log.retention.hours": "1", "log.segment.bytes": "2000000"})
    override = {"retention.ms": "77", "cleanup.policy": "compact"}
    assert config.log_config({}).retention_ms == 3_600_000
    assert config.log_config(override).retention_ms == 77
    config.apply(image_with("", log_retention_ms="5", log_cleanup_policy="delete"))
    assert config.log_config({}).retention_ms == 5
    assert config.log_config(override).retention_ms == 77
    assert config.log_config(override).cleanup_policy == ("compact",)
    assert config.log_config(override).segment_bytes == 2_000_000
    assert config.log_config(override).overridden == frozenset(override)
