"""Our tables of configuration keys against Kafka's own: names, types, importance, defaults, ranges, synonyms."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

import kafka_peer
from stratalog.base.config import ConfigKey, ConfigType, Scope
from stratalog.metadata.broker_config import BROKER_KEYS, is_foreign
from stratalog.metadata.group_config import GROUP_KEYS
from stratalog.metadata.topic_config import TOPIC_KEYS

SOURCE = Path(__file__).parent / "java" / "ConfigFacts.java"
OURS = {
    "log.dirs": "a directory beside the one where it was started, not /tmp",
    "log.dir": "log.dirs has the default",
    "listeners": "this machine only, until somebody says otherwise",
    "node.id": "Kafka has no default",
    "process.roles": "Kafka has no default",
    "controller.listener.names": "Kafka has no default",
    "offsets.topic.replication.factor": "a node alone",
    "transaction.state.log.replication.factor": "a node alone",
    "transaction.state.log.min.isr": "a node alone",
}
"""Defaults that differ on purpose."""

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]


@pytest.fixture(scope="module")
def facts():
    home, java = kafka_peer.kafka_home(), kafka_peer.java()
    assert home is not None
    assert java is not None
    done = subprocess.run(
        [java, "-cp", f"{home}/libs/*", str(SOURCE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    tables = defaultdict(dict)
    for line in done.stdout.splitlines():
        table, name, *rest = line.split("\t")
        tables[table][name] = rest
    return tables


def check(key: ConfigKey, row: list[str], *, default: bool = True) -> None:
    type, importance, value, rule, mode = row
    assert key.type.name == type, key.name
    assert key.importance.name == importance, key.name
    if default:
        theirs = None if value == "~" else value
        if key.type == ConfigType.DOUBLE and theirs is not None:
            assert float(key.default) == float(theirs), key.name
        else:
            assert key.default == theirs, key.name
    match = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?", rule)
    if match is not None:
        low, high, also = match.groups()
        assert key.low == float(low), key.name
        assert key.high == (None if high is None else float(high)), key.name
        assert key.also == (() if also is None else (int(also),)), key.name
    elif rule.startswith("[") and not rule.startswith("[partition"):
        assert sorted(key.choices) == sorted(rule[1:-1].split(", ")), key.name
    scope = {"cluster-wide": Scope.CLUSTER_WIDE, "per-broker": Scope.PER_BROKER, "read-only": Scope.READ_ONLY}[mode]
    assert key.scope == scope, key.name


def test_topic_keys_are_kafkas(facts):
    assert set(TOPIC_KEYS) == set(facts["topic"])
    for name, row in facts["topic"].items():
        check(TOPIC_KEYS[name], row)


def test_broker_keys_are_kafkas(facts):
    ours = {name for name in BROKER_KEYS if not name.startswith("stratalog.")}
    assert ours <= set(facts["broker"])
    for name in ours:
        check(BROKER_KEYS[name], facts["broker"][name], default=name not in OURS)


def test_each_key_of_kafka_is_ours_or_known_as_foreign(facts):
    strange = [name for name in facts["broker"] if name not in BROKER_KEYS and not is_foreign(name)]
    assert strange == []


def test_group_keys_are_kafkas(facts):
    for name, key in GROUP_KEYS.items():
        check(key, facts["group"][name])


def test_synonyms_are_kafkas(facts):
    theirs = {
        name: [(pair.split("=")[0], int(pair.split("=")[1])) for pair in pairs]
        for name, pairs in facts["synonyms"].items()
    }
    assert {name: list(key.synonyms) for name, key in TOPIC_KEYS.items() if key.synonyms} == theirs
