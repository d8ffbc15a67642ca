"""`stratalog serve` as a process: what it says when it cannot start, and how it ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stratalog.testing
from stratalog import cli
from stratalog.cli.produce import _lines_of
from stratalog.cli.serve import _why_not

COMMAND = (sys.executable, "-m", "stratalog.cli", "serve")


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """One line on standard error, nothing else."""
    try:
        ended: object = cli.main(["serve", *words])
    except SystemExit as exit_:
        ended = exit_.code
    captured = capsys.readouterr()
    assert ended == code and captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("stratalog")]
    assert len(lines) == 1 and "Traceback" not in captured.err, captured.err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["-o", "num.partitions=none"], 2, ["num.partitions", "'none'", "at least 1"]),
        (["-o", "nonsense"], 2, ["-o 'nonsense'", "KEY=VALUE"]),
        (["-o", "=1"], 2, ["KEY=VALUE"]),
        (["--port", "99999"], 2, ["listeners", "99999", "65535"]),
        (["--port", "abc"], 2, ["--port", "'abc'", "--help"]),
        (["--config", "missing.properties"], 1, ["missing.properties", "No such file"]),
        (["--config", "binary"], 2, ["binary", "properties"]),
        (["--nonsense"], 2, ["--nonsense"]),
        (["-o", "listeners=SSL://127.0.0.1:0"], 2, ["listeners", "SSL", "PLAINTEXT"]),
        (
            ["-o", "listeners=IN://127.0.0.1:0", "-o", "listener.security.protocol.map=IN:SASL_SSL"],
            2,
            ["IN://127.0.0.1:0", "SASL_SSL"],
        ),
        (["--port", "0", "-o", "process.roles=controller"], 2, ["process.roles", "'controller'"]),
        (["-o", "listeners=PLAINTEXT://192.0.2.1:9999"], 1, ["192.0.2.1:9999", "listeners", "this machine"]),
        (["-o", "listeners=PLAINTEXT://nowhere.invalid:9999"], 1, ["nowhere.invalid:9999", "listeners"]),
        (["--port", "0", "--data", "binary"], 1, ["binary", "exists", "--data"]),
        (["--port", "0", "--data", "binary/below"], 1, ["binary/below", "Not a directory", "--data"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_stops_a_start_is_one_line(words, code, parts, tmp_path, monkeypatch, capsys) -> None:
    """A listener that asks for TLS among them: it was to be secure, so it is not served in the clear."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\x8e\0\xff" * 100)
    line = refused(capsys, *words, code=code)
    assert all(part in line for part in parts), line
    assert not (tmp_path / "stratalog-data").exists(), "nothing is made before the command line is understood"


def test_a_port_of_the_system_is_told_from_a_directory_that_may_not_be_written() -> None:
    denied = OSError(errno.EACCES, "Permission denied", "127.0.0.1:80")
    assert _why_not(denied, ["data"]).startswith("127.0.0.1:80: Permission denied: ports below 1024")
    denied.filename = "/elsewhere/metadata:1/.lock"
    assert _why_not(denied, ["data"]) == "/elsewhere/metadata:1/.lock: Permission denied"
    denied.filename = "data/.lock"
    assert _why_not(denied, ["data"]).endswith("choose another directory with --data")


def test_a_taken_port_and_a_taken_directory_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stratalog.testing.broker() as b:
        line = refused(capsys, "--port", str(b.port), "--data", str(tmp_path), code=1)
        assert f"127.0.0.1:{b.port}" in line and "--port" in line
        option = f"stratalog.metrics.port={b.port}"
        line = refused(capsys, "--port", "0", "--data", str(tmp_path / "m"), "-o", option, code=1)
        assert f"127.0.0.1:{b.port}" in line and "-o stratalog.metrics.port" in line and "--port" not in line
        line = refused(capsys, "--port", "0", "--data", str(b.directory / "data"), code=1)
        assert str(b.directory) in line and "--data" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_file_of_java_and_a_misspelt_key_still_serve(number: signal.Signals, tmp_path: Path) -> None:
    """Without an option but --data a broker is there; SIGTERM, or the end of its terminal, ends it cleanly."""
    file = tmp_path / "server.properties"
    file.write_bytes("# caf\u00e9\nnum.partitoins=3\nlisteners = PLAINTEXT://127.0.0.1:0\n".encode("latin-1"))
    process = subprocess.Popen(
        [*COMMAND, "-q", "--config", str(file), "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    assert "serves on 127.0.0.1:" in process.stdout.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "stopped cleanly" in out
    assert "num.partitoins" in err and "did you mean num.partitions?" in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_signal_before_it_is_ready_ends_it_without_a_trace(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    time.sleep(0.25)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert b"stratalog/server" not in out, out


def test_lines_of_a_pipe_are_written_while_the_next_one_is_awaited() -> None:
    """`tail -f log | stratalog produce t`: `pause` is the producer's flush."""
    reading, writing = os.pipe()
    pauses: list[int] = []
    seen: list[bytes] = []

    def pause() -> None:
        pauses.append(len(seen))
        if len(pauses) == 1:
            os.write(writing, b"one\ntwo\nth")
        elif len(pauses) == 2:
            os.write(writing, b"ree\r\nlast")
        else:
            os.close(writing)

    with os.fdopen(reading, "rb") as stream:
        for _, line in _lines_of(stream, "pipe", pause):
            seen.append(line)
    assert seen == [b"one", b"two", b"three", b"last"] and pauses == [0, 2, 3]


def test_the_package_itself_is_a_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "stratalog", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("stratalog ")
