"""Clients of other languages on our broker, each with the same small flow: create, produce, consume in a group, commit,
describe and delete.  What versions they send is in the reference of clients: franz-go the newest (it asks ApiVersions
in a version that we do not have first), kafka-go the oldest.

Their libraries come from the registries of Go and Node into `.cache/foreign` at the first run; without a compiler or a
network the tests say what is missing and are skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

SOURCES = Path(__file__).parent / "foreign"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "foreign"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def built(name: str, make: tuple[str, ...], source: str, result: str) -> Path:
    """The folder of one language with its libraries, made once for all workers and runs."""
    if shutil.which(make[0]) is None:
        pytest.skip(f"no {make[0]}: {name} cannot be built")
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE / name
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.copytree(SOURCES / source, place, dirs_exist_ok=True)
        if not (place / result).exists():
            try:
                done = subprocess.run(make, cwd=place, capture_output=True, text=True, timeout=540, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{name}: its libraries did not come in time")
            if done.returncode != 0:
                offline = any(
                    word in done.stderr for word in ("dial tcp", "lookup", "EAI_AGAIN", "ENOTFOUND", "network")
                )
                assert offline, done.stderr[-2000:]
                pytest.skip(f"{name}: no network for its libraries")
    return place


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = [
        f"log.dirs={tmp_path_factory.mktemp('data')}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms=0",
    ]
    with Broker(BrokerConfig.load("", options), fsync_metadata=False).start() as broker:
        yield broker


def run(broker: Broker, *command: str | os.PathLike[str], cwd: Path) -> str:
    done = subprocess.run(
        [*command, broker.bootstrap], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert done.stdout.rstrip().endswith("OK"), output[-3000:]
    return output


@pytest.mark.parametrize("client", ["franz", "sarama", "segmentio"])
def test_clients_in_go(broker, client):
    place = built("go", ("go", "build", "-o", "bin/", "./franz", "./sarama", "./segmentio"), ".", "bin/segmentio")
    run(broker, place / "bin" / client, cwd=place)


@pytest.mark.parametrize("client", ["kafkajs.js", "platformatic.mjs"])
def test_clients_in_javascript(broker, client):
    if shutil.which("node") is None:
        pytest.skip("no node")
    place = built("js", ("npm", "install", "--no-audit", "--no-fund", "--silent"), "js", "node_modules/kafkajs")
    run(broker, "node", client, cwd=place)
