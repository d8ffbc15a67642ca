"""`stratalog demo`: the tour works from one command, checks itself, and leaves nothing behind that it should not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from stratalog.cli import demo, main
from stratalog.cli._shop import Shop

COMMAND = [sys.executable, "-m", "stratalog.cli", "demo"]


def in_session(session):
    """Processes of a session that are alive, by id."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(int(name))
    return found


def tour(tmp_path, *arguments, timeout=280):
    """Runs the command in a session of its own; (exit code, output, errors); no process of it may be left."""
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    deadline = time.monotonic() + 20
    while left := in_session(process.pid):
        assert time.monotonic() < deadline, f"processes are left: {left}"
        time.sleep(0.05)
    return process.returncode, out, err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_whole_tour(tmp_path):
    """Broker, stream, restart from the checkpoint, profile, export, compact, verify; what it names is there."""
    pytest.importorskip("pyspark")
    place = tmp_path / "tour"
    code, out, err = tour(tmp_path, "--data", str(place), "--orders", "2000")
    assert code == 0, err
    assert out.count("   checked: ") == 6
    assert "Traceback" not in out + err and "Exception" not in out + err
    assert "it read 500 records: the new ones only" in out
    assert "run again, it found 0 new ones" in out
    looks = [line.split("look: ")[1] for line in out.splitlines() if "look: " in line]
    assert len(looks) == 6
    for look in looks:
        for word in look.replace(",", " ").split():
            assert not word.startswith(str(place)) or os.path.exists(word), look
    assert sorted(os.listdir(place)) == ["checkpoint", "clicks.html", "data", "orders", "spark.log"]
    assert [name for name in os.listdir(tmp_path / "tmp") if name.startswith("stratalog-")] == []
    assert main(["verify", "-q", str(place / "data")]) == 0


def test_the_tour_without_spark(tmp_path):
    """In a temporary directory, which goes."""
    code, out, err = tour(tmp_path, "--no-spark", "--orders", "1000")
    assert code == 0, err
    assert out.count("   checked: ") == 3
    assert "Spark" not in out
    assert os.listdir(tmp_path / "tmp") == []


def test_what_is_kept_opens_again(tmp_path, capsys):
    assert main(["demo", "--no-spark", "--orders", "1000", "--data", str(tmp_path / "tour")]) == 0
    assert f"stratalog serve --data {tmp_path}/tour/data" in capsys.readouterr().out
    import stratalog

    log = stratalog.open(tmp_path / "tour" / "data", topic="customers")
    assert len(log) == 1500


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_tour_cleans_up(tmp_path, number):
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [*COMMAND, "--no-spark", "--orders", "5000000"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        for line in process.stdout:
            if "A shop opens" in line:
                break
        assert os.listdir(tmp_path / "tmp")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    # Python ends itself by SIGINT when the interrupt came within an `exec`, which is 130 for a shell, too.
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in err
    assert os.listdir(tmp_path / "tmp") == []


def test_without_pyspark_it_says_what_to_install_before_anything_starts(tmp_path, monkeypatch, capsys):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else find(name, *rest)
    )
    assert main(["demo", "--data", str(tmp_path / "tour")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "no pyspark" in err and "pip install 'stratalog[spark]'" in err and "--no-spark" in err
    assert not (tmp_path / "tour").exists()


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--orders", "5"], "--orders 5: allowed is 1000 to"), (["--data", "."], "empty directory")]
)
def test_a_wrong_command_line_is_one_line(arguments, says, capsys):
    assert main(["demo", "--no-spark", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_check_that_does_not_hold_ends_the_tour(tmp_path, monkeypatch, capsys):
    """The tour cannot say that all is well when it is not."""
    monkeypatch.setattr(demo.Tour, "_customers", lambda self: {})
    assert main(["demo", "--no-spark", "--orders", "1000", "--data", str(tmp_path / "tour")]) == 1
    assert "this is a bug in stratalog" in capsys.readouterr().err


def test_the_shop_makes_the_same_records_each_time():
    one, two = Shop(1_000, now_ms=10**12), Shop(1_000, now_ms=10**12)
    events = list(one.events())
    assert events == list(two.events())
    assert len(events) == one.total + one.repeated
    stamps = {topic: [e.timestamp for e in events if e.topic == topic] for topic in ("orders", "clicks", "customers")}
    assert all(found == sorted(found) for found in stamps.values())
    assert max(stamps["orders"]) - min(stamps["orders"]) > 2 * 86_400_000
    assert sum(event.value is None for event in events) > 0
    assert sum(one.revenue.values()) > 0 and one.last and one.repeated
