"""The way to Apache Kafka beside us."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafka_peer


def program(**environment: str) -> subprocess.CompletedProcess[str]:
    """`tools/kafka_peer.py` as a program of its own, so that nothing is remembered from other tests."""
    env = {**os.environ, **environment}
    command = [sys.executable, kafka_peer.__file__]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_home_without_kafka_is_refused_in_one_line(tmp_path: Path):
    """issue 3, section 1: it says in one line what is missing."""
    done = program(STRATALOG_KAFKA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    assert "Java" in done.stdout or str(tmp_path) in done.stdout


def test_a_machine_without_java_is_told_to_install_it(tmp_path: Path):
    """issue 3, section 1: without Java the rest runs and one line says why."""
    done = program(PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no Java" in done.stdout


def test_free_ports_lie_in_a_row_below_those_that_clients_get():
    """peers/kafka/README: ports below 32768."""
    first = kafka_peer.free_port(3)
    assert first + 2 < 32_768
    for port in range(first, first + 3):
        with socket.create_server(("127.0.0.1", port)):
            pass


@pytest.mark.java
def test_a_broker_starts_answers_and_stops(tmp_path: Path):
    """Interop tests stand on this one."""
    if kafka_peer.kafka_home() is None:
        pytest.skip(kafka_peer.why_missing())
    with kafka_peer.kafka_broker(tmp_path / "kafka") as broker:
        done = kafka_peer.tool("kafka-topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", "seen")
        assert "Created topic seen" in done.stdout, done.stderr
        # Created is what the controller says; the broker follows the metadata log a moment later.
        deadline = time.monotonic() + 30
        while not (broker.log_dir / "seen-0").is_dir():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pid = broker.pid
    assert not kafka_peer._runs(pid)
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
