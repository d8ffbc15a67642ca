"""Configurations, quotas and features: which records a change makes, and which error it gets."""

from __future__ import annotations

import dataclasses

import pytest
from controller_kit import World
from test_topic_decisions import create, topic

from stratalog.base.errors import ErrorCode
from stratalog.metadata.image import ResourceType
from stratalog.protocol import k33_alter_configs as k33
from stratalog.protocol import k44_incremental_alter_configs as k44
from stratalog.protocol.k49_alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from stratalog.protocol.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

SET, DELETE, APPEND, SUBTRACT = range(4)
T, B, G = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


def incremental(world, kind, name, *ops, **more):
    request = k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[k44.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in ops],
            )
        ],
        **more,
    )
    (response,) = world.submit(lambda c: c.incremental_alter_configs(request, world.now)).responses
    return ErrorCode(response.error_code)


def replace(world, kind, name, values, **more):
    request = k33.AlterConfigsRequest(
        resources=[
            k33.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[k33.AlterableConfig(name=k, value=v) for k, v in values.items()],
            )
        ],
        **more,
    )
    (response,) = world.submit(lambda c: c.alter_configs(request, world.now)).responses
    return ErrorCode(response.error_code)


@pytest.fixture
def world():
    world = World()
    create(world, topic("t", configs={"retention.ms": "1000", "cleanup.policy": "compact"}))
    return world


def test_keys_are_changed_one_by_one(world):
    assert incremental(world, T, "t", ("retention.ms", DELETE, None), ("segment.bytes", SET, "2000000")) == 0
    assert world.image.topic_config("t") == {"cleanup.policy": "compact", "segment.bytes": "2000000"}


def test_lists_are_appended_to_and_subtracted_from(world):
    assert incremental(world, T, "t", ("cleanup.policy", APPEND, "delete")) == 0
    assert world.image.topic_config("t")["cleanup.policy"] == "compact,delete"
    assert incremental(world, T, "t", ("cleanup.policy", APPEND, "delete")) == 0
    assert incremental(world, T, "t", ("cleanup.policy", SUBTRACT, "compact")) == 0
    assert world.image.topic_config("t")["cleanup.policy"] == "delete"


def test_appending_starts_from_the_brokers_default(world):
    create(world, topic("plain"))
    assert incremental(world, T, "plain", ("cleanup.policy", APPEND, "compact")) == 0
    assert world.image.topic_config("plain")["cleanup.policy"] == "delete,compact"


def test_the_whole_configuration_is_replaced(world):
    assert replace(world, T, "t", {"retention.ms": "7"}) == 0
    assert world.image.topic_config("t") == {"retention.ms": "7"}


def test_only_what_differs_is_written(world):
    before = world.log.end_offset
    assert incremental(world, T, "t", ("retention.ms", SET, " 1000 "), ("segment.ms", DELETE, None)) == 0
    assert replace(world, T, "t", {"retention.ms": "1000", "cleanup.policy": "compact"}) == 0
    assert world.log.end_offset == before


def test_validate_only_writes_nothing(world):
    before = world.log.end_offset
    assert incremental(world, T, "t", ("retention.ms", SET, "9"), validate_only=True) == 0
    assert replace(world, T, "t", {}, validate_only=True) == 0
    assert world.log.end_offset == before


@pytest.mark.parametrize(
    ("kind", "name", "op", "code"),
    [
        (T, "gone", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (T, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (T, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (T, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (T, "t", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (T, "t", ("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (B, "1", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        (B, "", ("listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        (B, "", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (B, "", ("log.retention.hour", SET, "1"), ErrorCode.INVALID_REQUEST),
        (B, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (B, "7", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (G, "", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (G, "g", ("consumer.session.timeout.ms", SET, "0"), ErrorCode.INVALID_CONFIG),
        (ResourceType.CLIENT_METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        (99, "x", ("k", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_is_refused(world, kind, name, op, code):
    before = world.log.end_offset
    assert incremental(world, kind, name, op) == code
    assert world.log.end_offset == before


@pytest.mark.parametrize("name", ["", "1"])
def test_cleaners_change_by_steps_and_keep_a_map_each(name):
    """Seed 001: at most twice and at least half as many in one step; a mebibyte of the map for each (Kafka's rules).
    What is neither touched nor refused is never in the way of another key."""
    world = World(**{"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": str(8 << 20)})
    threads, memory, rate = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size", "log.cleaner.backoff.ms"
    bad = ErrorCode.INVALID_REQUEST
    for change, answer in (
        ((threads, SET, "9"), bad),
        ((threads, SET, "1"), bad),
        ((threads, SET, "0"), bad),
        ((threads, SET, "8"), 0),
        ((memory, SET, str((8 << 20) - 1)), bad),
        ((rate, SET, "100"), 0),
        ((threads, DELETE, None), 0),
        ((memory, SET, str(4 << 20)), 0),
        ((threads, SET, "5"), bad),
        ((threads, SET, "2"), 0),
    ):
        assert incremental(world, B, name, change) == answer, change
        layer = dict(world.image.config(B, name))
        world.settings.layers = dataclasses.replace(world.settings.layers, **{"own" if name else "default": layer})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.io.max.bytes.per.second", "0"),
        ("log.cleaner.io.max.bytes.per.second", "-1"),
        ("log.cleaner.io.buffer.load.factor", "0"),
        ("log.cleaner.io.buffer.load.factor", "1.1"),
    ],
)
def test_what_no_cleaner_could_work_with_is_refused(world, key, value):
    """A rate or a load of nothing would stop the broker at its next cleaning."""
    assert incremental(world, B, "", (key, SET, value)) == ErrorCode.INVALID_REQUEST


def test_a_resource_changes_as_a_whole_or_not_at_all(world):
    code = incremental(world, T, "t", ("segment.bytes", SET, "2000000"), ("retention.ms", SET, "soon"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "segment.bytes" not in world.image.topic_config("t")


def test_a_key_twice_in_one_resource_is_refused(world):
    code = incremental(world, T, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert code == ErrorCode.INVALID_REQUEST


def test_brokers_and_groups_have_configurations(world):
    assert incremental(world, B, "", ("log.retention.ms", SET, "5")) == 0
    assert incremental(world, B, "1", ("log.retention.ms", SET, "6")) == 0
    assert incremental(world, G, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    assert world.image.config(B, "") == {"log.retention.ms": "5"}
    assert world.image.config(B, "1") == {"log.retention.ms": "6"}
    assert world.image.config(G, "g") == {"consumer.session.timeout.ms": "50000"}


def test_a_dynamic_default_never_resets_a_topics_override(world):
    """R30 (KAFKA-9254)."""
    assert incremental(world, B, "", ("log.cleanup.policy", SET, "delete")) == 0
    assert world.image.topic_config("t")["cleanup.policy"] == "compact"
    assert incremental(world, B, "", ("log.cleanup.policy", DELETE, None)) == 0
    assert world.image.topic_config("t")["cleanup.policy"] == "compact"


# --- quotas -----------------------------------------------------------------------------------------------------------
def quota(world, entity, *ops, **more):
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=k, value=0.0 if v is None else v, remove=v is None) for k, v in ops],
            )
        ],
        **more,
    )
    (entry,) = world.submit(lambda c: c.alter_client_quotas(request, world.now)).entries
    return ErrorCode(entry.error_code)


def test_quotas_are_set_and_removed(world):
    entity = [("user", None), ("client-id", "c")]
    assert quota(world, entity, ("producer_byte_rate", 100.0), ("request_percentage", 12.5)) == 0
    stored = (("client-id", "c"), ("user", None))
    assert world.image.quotas == {stored: {"producer_byte_rate": 100.0, "request_percentage": 12.5}}
    assert quota(world, entity, ("producer_byte_rate", None), ("request_percentage", None)) == 0
    assert world.image.quotas == {}


@pytest.mark.parametrize(
    ("entity", "op"),
    [
        ([], ("producer_byte_rate", 1.0)),
        ([("user", "a"), ("user", "b")], ("producer_byte_rate", 1.0)),
        ([("planet", "a")], ("producer_byte_rate", 1.0)),
        ([("user", "")], ("producer_byte_rate", 1.0)),
        ([("ip", "1.1.1.1"), ("user", "a")], ("connection_creation_rate", 1.0)),
        ([("ip", "1.1.1.1")], ("producer_byte_rate", 1.0)),
        ([("user", "a")], ("connection_creation_rate", 1.0)),
        ([("user", "a")], ("producer_byte_rate", 0.0)),
        ([("user", "a")], ("producer_byte_rate", 1.5)),
        ([("user", "a")], ("producer_byte_rate", float("nan"))),
        ([("user", "a")], ("producer_byte_rate", float("inf"))),
    ],
)
def test_a_quota_is_refused(world, entity, op):
    assert quota(world, entity, op) == ErrorCode.INVALID_REQUEST
    assert world.image.quotas == {}


# --- features ---------------------------------------------------------------------------------------------------------
def update(world, *updates, **more):
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        **more,
    )
    return world.submit(lambda c: c.update_features(request, world.now))


def test_a_feature_is_raised():
    world = World()
    world.controller.supported_features = {"metadata.version": (7, 30), "transaction.version": (0, 2)}
    assert update(world, ("transaction.version", 2, 1), validate_only=True).error_code == 0
    assert "transaction.version" not in world.image.features
    assert update(world, ("transaction.version", 2, 1)).error_code == 0
    assert world.image.features["transaction.version"] == 2
    assert update(world, ("transaction.version", 1, 2)).error_code == 0
    assert world.image.features["transaction.version"] == 1


@pytest.mark.parametrize(
    "wanted",
    [
        ("metadata.version", 31, 1),
        ("metadata.version", 6, 3),
        ("metadata.version", 20, 3),
        ("metadata.version", 29, 1),
        ("no.such.feature", 1, 1),
        ("metadata.version", -1, 1),
        ("metadata.version", 30, 9),
    ],
)
def test_a_feature_update_is_refused_as_a_whole(wanted):
    world = World()
    world.controller.supported_features = {"metadata.version": (7, 30), "transaction.version": (0, 2)}
    response = update(world, ("transaction.version", 2, 1), wanted)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.results == []
    assert wanted[0] in response.error_message
    assert world.image.features == {"metadata.version": 30}
