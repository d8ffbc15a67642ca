"""The table of error codes: its own rules, and Kafka's table beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kafka_peer
from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError, Malformed


def test_codes_are_dense_and_unique() -> None:
    codes = [int(code) for code in ErrorCode]
    assert codes == list(range(-1, 137))


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_each_code_has_a_sentence_for_people(code: ErrorCode) -> None:
    """What happened and what to do, in sentences."""
    assert code.text.endswith(".")
    assert code.text[0].isupper()
    assert "  " not in code.text
    assert len(code.text.split()) >= 3


def test_no_two_codes_say_the_same() -> None:
    texts = [code.text for code in ErrorCode]
    assert len(set(texts)) == len(texts)


def test_an_api_error_carries_its_code_and_a_text() -> None:
    error = ApiError(ErrorCode.NOT_CONTROLLER)
    assert error.message == ErrorCode.NOT_CONTROLLER.text
    assert ApiError(ErrorCode.INVALID_CONFIG, "no such key").message == "no such key"
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert not ErrorCode.INVALID_CONFIG.retriable


def test_malformed_says_where() -> None:
    assert str(Malformed("too short", position=7)) == "too short (at byte 7)"
    assert str(Malformed("too short")) == "too short"


@pytest.mark.java
def test_the_table_is_the_java_clients() -> None:
    """Issue 3: the table of all Kafka error codes; code, name and retriable are facts of Kafka 4.4."""
    jar, home, java = kafka_peer.clients_jar(), kafka_peer.kafka_home(), kafka_peer.java()
    if jar is None or home is None or java is None:
        pytest.skip(kafka_peer.why_no_clients() or kafka_peer.why_missing())
    source = Path(__file__).with_name("java") / "ErrorTable.java"
    command = [java, "-Xmx128M", "-cp", f"{jar}:{home}/libs/*", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    theirs = [tuple(line.split()) for line in done.stdout.splitlines()]
    ours = [(str(int(code)), code.name, str(code.retriable).lower()) for code in ErrorCode]
    assert theirs == ours
