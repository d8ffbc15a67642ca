"""The commands that talk to a cluster, against the embedded broker: what people see and what programs read."""

from __future__ import annotations

import argparse
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stratalog.testing
from stratalog import cli


@pytest.fixture(scope="module")
def cluster() -> Iterator[stratalog.testing.TestBroker]:
    with stratalog.testing.broker() as b:
        yield b


class Shell:
    """Runs a command as the terminal does."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self.capsys = capsys

    def __call__(self, *words: str, code: int = 0, stdin: str | None = None) -> str:
        self.capsys.readouterr()
        before = sys.stdin
        if stdin is not None:
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        try:
            assert cli.main([*words, "--bootstrap", self.bootstrap]) == code
        finally:
            sys.stdin = before
        captured = self.capsys.readouterr()
        return captured.out if code == 0 else captured.err

    def json(self, *words: str) -> object:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def run(cluster: stratalog.testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(cluster.bootstrap, capsys)


def test_a_topic_lives_from_create_to_delete(run: Shell) -> None:
    assert run("topic", "create", "life", "-p", "3", "-c", "retention.ms=1000").strip() == "life: 3 partitions"
    assert "TOPIC_ALREADY_EXISTS" in run("topic", "create", "life", code=1)
    run("topic", "create", "life", "--if-not-exists")
    described = run.json("topic", "describe", "life")
    assert described[0]["configs"] == {"retention.ms": "1000"}  # type: ignore[index]
    assert [p["partition"] for p in described[0]["partitions"]] == [0, 1, 2]  # type: ignore[index]
    run("topic", "grow", "life", "5")
    assert "INVALID_PARTITIONS" in run("topic", "grow", "life", "2", code=1)
    listed = run.json("topic", "list")
    assert ("life", 5) in [(row["topic"], row["partitions"]) for row in listed]  # type: ignore[attr-defined]
    assert run("topic", "delete", "life").strip() == "life: deleted"
    assert "there is no such topic" in run("topic", "describe", "life", code=1)


def test_what_is_produced_is_consumed(run: Shell) -> None:
    run("topic", "create", "lines")
    run("produce", "lines", "-K", ":", "-H", "source=test", "-z", "zstd", "-q", stdin="a:1\nb:2\nc:3\n")
    assert run("consume", "lines", "-k") == "a\t1\nb\t2\nc\t3\n"
    assert run("consume", "lines", "--from", "1", "--limit", "1") == "2\n"
    assert run("consume", "lines", "--from", "-1") == "3\n"
    assert run("consume", "lines", "--headers") == "source=test\t1\nsource=test\t2\nsource=test\t3\n"
    assert run("consume", "lines", "--since", "1h") == "1\n2\n3\n"
    assert run("consume", "lines", "--until", "1h") == ""
    rows = [json.loads(line) for line in run("consume", "lines", "--json").splitlines()]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert rows[0]["headers"] == [{"key": "source", "value": "test"}]


def test_json_lines_go_out_and_come_back_with_every_byte(run: Shell, cluster: stratalog.testing.TestBroker) -> None:
    cluster.create_topic("bytes")
    cluster.create_topic("copy")
    cluster.produce("bytes", [(b"\xff\x00", b"\xfe"), (None, b"text"), (b"k", None)], partition=0)
    run("produce", "copy", "--json-lines", "-q", stdin=run("consume", "bytes", "--json"))
    assert [(r.key, r.value, r.timestamp) for r in cluster.records("copy")] == [
        (r.key, r.value, r.timestamp) for r in cluster.records("bytes")
    ]


def test_files_may_stand_behind_options(run: Shell, tmp_path: Path, cluster: stratalog.testing.TestBroker) -> None:
    cluster.create_topic("behind-options")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1\n")
    two.write_text("2\n")
    run("produce", "behind-options", "-q", str(one), "-H", "a=b", str(two))
    assert run("consume", "behind-options").split() == ["1", "2"]


def test_trim_deletes_the_oldest(run: Shell, cluster: stratalog.testing.TestBroker) -> None:
    cluster.create_topic("old")
    cluster.produce("old", [b"%d" % i for i in range(10)])
    run("topic", "trim", "old", "--before", "4")
    assert run("consume", "old").splitlines() == [str(i) for i in range(4, 10)]


def test_configuration_is_set_shown_and_unset(run: Shell, cluster: stratalog.testing.TestBroker) -> None:
    cluster.create_topic("conf")
    run("config", "set", "topic", "conf", "segment.bytes=1048576")
    shown = run.json("config", "get", "topic", "conf")
    assert {"key": "segment.bytes", "value": "1048576", "source": "topic"} in shown  # type: ignore[operator]
    run("config", "unset", "topic", "conf", "segment.bytes")
    assert all(row["source"] != "topic" for row in run.json("config", "get", "topic", "conf"))  # type: ignore[attr-defined]
    everything = run.json("config", "get", "topic", "conf", "--all", "--docs")
    assert all(row["documentation"] for row in everything)  # type: ignore[attr-defined]
    error = run("config", "set", "topic", "conf", "retention.ms=soon", code=1)
    assert "retention.ms" in error and "INVALID_CONFIG" in error


def test_a_group_is_described_reset_and_deleted(run: Shell, cluster: stratalog.testing.TestBroker) -> None:
    from kafka import KafkaConsumer

    cluster.create_topic("work", 2)
    cluster.produce("work", [(b"%d" % i, b"v") for i in range(20)])
    consumer = KafkaConsumer(
        "work", bootstrap_servers=cluster.bootstrap, group_id="team", auto_offset_reset="earliest",
        enable_auto_commit=False, consumer_timeout_ms=5000,
    )  # fmt: skip
    for seen, _ in enumerate(consumer, 1):
        if seen == 20:
            break
    consumer.commit()
    running = run.json("group", "describe", "team")
    assert running[0]["state"] == "Stable" and len(running[0]["members"]) == 1  # type: ignore[index]
    assert sum(row["lag"] for row in running[0]["offsets"]) == 0  # type: ignore[index]
    assert all(row["member"] for row in running[0]["offsets"])  # type: ignore[index]
    assert "stop them first" in run("group", "reset", "team", "work", "--to", "start", code=2)
    consumer.close()
    assert ("team", "Empty") in [(g["group"], g["state"]) for g in run.json("group", "list")]  # type: ignore[attr-defined]
    run("group", "reset", "team", "work", "--to", "start")
    assert sum(row["lag"] for row in run.json("group", "describe", "team")[0]["offsets"]) == 20  # type: ignore[index]
    assert run("group", "delete", "team").strip() == "team: deleted"
    assert "team" not in [g["group"] for g in run.json("group", "list")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["brokers", "quorum", "dirs", "features", "apis"])
def test_the_cluster_shows_itself(run: Shell, what: str) -> None:
    assert len(run("cluster", what).splitlines()) > 1
    rows = run.json("cluster", what)
    assert rows and all(name.isidentifier() for row in rows for name in row)  # type: ignore[attr-defined]


def test_errors_are_one_line_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, text in (
        (["topic", "list", "-b", "127.0.0.1:1"], 1, "Is the broker running?"),
        (["topic", "list", "-b", "nonsense"], 1, "bootstrap server 'nonsense' is not HOST:PORT"),
        (["tpoic"], 2, "did you mean topic?"),
        (["produce", "t", "-z", "rar"], 2, "allowed are none, gzip"),
    ):
        assert cli.main(words) == code
        captured = capsys.readouterr()
        assert text in captured.err and len(captured.err.strip().splitlines()) == 1


def test_wrong_arguments_are_one_line_with_what_would_do(
    run: Shell, cluster: stratalog.testing.TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, text in (
        (["topic"], "list|create|describe"),
        (["topic", "lsit"], "'lsit'"),
        (["topic", "create"], "name"),
        (["topic", "create", "x", "-p", "0"], "at least 1"),
        (["consume", "t", "-n", "-1"], "at least 0"),
        (["config", "get", "user", "x"], "'user'"),
        (["group", "reset", "g", "t"], "--to"),
        (["cluster", "brokers", "--nonsense"], "--nonsense"),
        (["produce", "t", "--nonsense", "file"], "arguments: --nonsense"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        captured = capsys.readouterr()
        assert ended.value.code == 2 and captured.out == ""
        assert text in captured.err and "--help" in captured.err and len(captured.err.splitlines()) == 1, captured.err
    cluster.create_topic("wrong")
    assert "--from and --since" in run("consume", "wrong", "--from", "1", "--since", "1h", code=2)
    assert "did you mean retention.ms?" in run("config", "unset", "topic", "wrong", "retentoin.ms", code=2)
    for line, text in (
        ('{"value": 5}', "value is 5, expected text"),
        ('["x"]', "expected an object"),
        ('{"value": "x", "partition": "0"}', "partition is"),
        ('{"headers": [{"value": "x"}]}', "'key'"),
        ('{"value": ', "not a record in JSON"),
    ):
        error = run("produce", "wrong", "--json-lines", code=2, stdin=line)
        assert text in error and "line 1" in error, error
    assert run("topic", "delete", "nowhere", code=1).count("nowhere") == 1
    assert "GROUP_ID_NOT_FOUND" in run("group", "delete", "nobody", code=1)
    for command in (["consume"], ["topic", "describe"], ["topic", "delete"]):
        assert run(*command, "nowhere", code=1).endswith("stratalog topic list shows what there is\n")
    for command in (["group", "describe"], ["group", "delete"]):
        assert run(*command, "nobody", code=1).endswith("stratalog group list shows what there is\n")


def test_a_group_that_is_not_there_yet_begins_where_it_is_told(
    run: Shell, cluster: stratalog.testing.TestBroker
) -> None:
    cluster.create_topic("begin")
    cluster.produce("begin", [b"%d" % i for i in range(5)])
    run("group", "reset", "newcomer", "begin", "--to", "3")
    assert run.json("group", "describe", "newcomer")[0]["offsets"][0]["lag"] == 2  # type: ignore[index]


def test_help_of_every_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    listing = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert name in listing
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        assert "usage: stratalog " + name in capsys.readouterr().out


def test_a_follower_prints_what_comes_until_ctrl_c_or_until_nobody_reads(
    cluster: stratalog.testing.TestBroker,
) -> None:
    """Exit codes as a shell expects them, and never a trace: 130 after SIGINT, 0 when `head` has had enough."""
    cluster.create_topic("follow")
    cluster.produce("follow", [b"old"])
    command = [sys.executable, "-m", "stratalog.cli", "consume", "follow", "-f", "-b", cluster.bootstrap]
    one = subprocess.Popen([*command, "--from", "end"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    two = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert one.stdout is not None and two.stdout is not None and two.stderr is not None
    assert two.stdout.readline() == b"old\n"
    two.stdout.close()
    deadline = time.monotonic() + 30
    # The next record finds the second one's pipe closed; the first one says nothing until it has found the end.
    while (two.poll() is None or not select.select([one.stdout], [], [], 0)[0]) and time.monotonic() < deadline:
        cluster.produce("follow", [b"new"])
        time.sleep(0.1)
    assert two.wait(10) == 0 and b"Traceback" not in two.stderr.read()
    assert one.stdout.readline() == b"new\n"
    one.send_signal(signal.SIGINT)
    _, err = one.communicate(timeout=20)
    assert one.returncode == 130 and b"Traceback" not in err


@pytest.mark.parametrize("words", [["--help"], ["consume", "--help"], ["protocol", "list"]], ids=" ".join)
def test_output_that_nobody_takes_is_no_trace(words: list[str]) -> None:
    """Small outputs too, which are written at the very end: for a reader that has gone it is enough, on a full disk
    one line says so."""
    command = [sys.executable, "-m", "stratalog.cli", *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone, open("/dev/full", "wb") as full:
        one = subprocess.Popen(command, stdout=gone, stderr=subprocess.PIPE, env=environment)
        two = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, env=environment)
        assert one.communicate(timeout=20)[1] == b"" and one.returncode == 0
        assert two.communicate(timeout=20)[1] == b"stratalog: standard output: No space left on device\n"
        assert two.returncode == 1


def test_a_follower_waits_for_a_broker_that_is_away() -> None:
    with stratalog.testing.broker(topics=["away"]) as b:
        b.produce("away", [b"old"])
        command = [sys.executable, "-m", "stratalog.cli", "consume", "away", "-f", "-b", b.bootstrap]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert follower.stdout is not None and follower.stderr is not None
        try:
            assert follower.stdout.readline() == b"old\n"
            b.stop()
            assert b"Waiting for it" in follower.stderr.readline()
            b.start()
            b.produce("away", [b"new"])
            assert follower.stdout.readline() == b"new\n"
        finally:
            follower.send_signal(signal.SIGINT)
            _, err = follower.communicate(timeout=20)
        assert follower.returncode == 130 and err.strip() == b"stratalog: it is back"


def test_a_follower_goes_on_where_the_log_begins(
    cluster: stratalog.testing.TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention was faster than the reader: what is left is read, and the gap is told."""
    from stratalog.cli import consume
    from stratalog.client import Client, admin

    cluster.create_topic("behind")
    cluster.produce("behind", [b"%d" % i for i in range(5)])
    with Client(cluster.bootstrap) as client:
        admin.delete_records(client, "behind", {0: 3})
        records = consume._records(client, argparse.Namespace(topic="behind"), {0: 1}, None, True)
        assert [next(records)[1].offset for _ in range(2)] == [3, 4]
    assert "behind-0: 1 is gone, goes on at 3" in capsys.readouterr().err


def test_a_limit_of_nothing_prints_nothing(run: Shell, cluster: stratalog.testing.TestBroker) -> None:
    cluster.create_topic("none")
    cluster.produce("none", [b"x"])
    assert run("consume", "none", "-n", "0") == ""
    assert "--to" in run("consume", "none", "-f", "--to", "1", code=2)


def test_bash_completes_subcommands_and_options() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "stratalog.cli", "completions", "bash"], capture_output=True, text=True, check=True
    ).stdout
    ask = "COMP_WORDS=({}); COMP_CWORD={}; _stratalog; echo ${{COMPREPLY[@]}}"
    for words, at, wanted in (
        ("stratalog con", 1, "consume config"),
        ("stratalog topic desc", 2, "describe"),
        ("stratalog consume t --fol", 3, "--follow"),
    ):
        done = subprocess.run(
            ["bash", "-c", script + "\n" + ask.format(words, at)], capture_output=True, text=True, check=True
        )
        assert set(done.stdout.split()) == set(wanted.split()), done


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completions", shell]) == 0
    script = capsys.readouterr().out
    assert "consume" in script and "follow" in script
