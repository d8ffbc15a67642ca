"""`stratalog why` and `stratalog compact` on directories that a broker wrote (seed 001; LM-11, C14)."""

import json
import subprocess
import sys
import time

import pytest

import stratalog.testing
from stratalog.cli import main
from stratalog.records import batch as batches
from stratalog.server.disk import RealDisk

DAY = 86_400_000


@pytest.fixture
def data(tmp_path):
    """A stopped broker's directory: a plain topic of three segments, a compacted one, an open transaction."""
    with stratalog.testing.broker(directory=tmp_path, config={"log.cleaner.enable": "false"}) as b:
        b.create_topic("plain", segment_bytes=1 << 20, retention_ms=7 * DAY)
        b.create_topic("keyed", cleanup_policy="compact", segment_bytes=1 << 20)
        for i in range(3):
            b.produce("plain", [b"%d" % i + bytes(700_000)])
            b.produce("keyed", [(b"k%d" % k, b"%d" % i + bytes(100_000)) for k in range(7)])
        running = b.running

        def opened():
            log = running.logs.get("plain", 0)
            made = batches.build_batch(
                [(b.clock.now_ms(), b"k", b"v")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            from stratalog.storage.log import Origin

            log.append_as_leader(memoryview(made), 0, b.clock.now_ms(), origin=Origin.REPLICATION)
            log.maybe_increment_high_watermark(log.log_end)

        running.run_on_loop(opened)
        b.stop()
        yield tmp_path / "data"


def why(capsys, *arguments):
    assert main(["why", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_segments_that_retention_takes_meanwhile_are_looked_for_no_more(data, capsys, monkeypatch) -> None:
    """A file that was listed is gone when it is opened; what is there then is explained."""
    real = RealDisk.open

    def opened(disk, path, **options):
        gone = data / "plain-0" / f"{0:020d}"
        if path.startswith(str(data / "plain-0")) and gone.with_suffix(".log").exists():
            for kind in (".log", ".index", ".timeindex"):
                gone.with_suffix(kind).unlink()
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(disk, path, **options)

    monkeypatch.setattr(RealDisk, "open", opened)
    (answer,) = why(capsys, "plain-0", "--data", str(data))
    assert [s["rule"] for s in answer["segments"]] == ["time", "active"]


def test_each_segment_says_which_rule_holds_it_and_until_when(data, capsys) -> None:
    (answer,) = why(capsys, "plain-0", "--data", str(data))
    assert [s["rule"] for s in answer["segments"]] == ["time", "time", "active"]
    assert all(s["until_ms"] == s["newest_ms"] + 7 * DAY + 1 for s in answer["segments"])
    late = answer["segments"][0]["until_ms"] + 1
    (answer,) = why(capsys, "plain-0", "--data", str(data), "--now", str(late))
    assert answer["segments"][0]["rule"] == "deletable"
    early = answer["segments"][0]["newest_ms"] - DAY
    (answer,) = why(capsys, "plain", "--data", str(data), "--now", str(early))
    assert answer["segments"][0]["rule"] == "future"


def test_the_last_stable_offset_is_explained_by_the_open_transaction(data, capsys) -> None:
    (answer,) = why(capsys, "plain-0", "--data", str(data))
    assert answer["last_stable_offset"] == 3 and answer["log_end_offset"] == 4
    assert "producer 7" in answer["last_stable_why"]


def test_a_compacted_log_says_why_it_is_or_is_not_cleaned(data, capsys) -> None:
    (answer,) = why(capsys, "keyed", "--data", str(data))
    assert answer["cleaning"]["is_due"] and answer["cleaning"]["dirty_share"] == 1.0
    (answer,) = why(capsys, "keyed", "--data", str(data), "-o", "min.compaction.lag.ms=100000000")
    assert not answer["cleaning"]["is_due"] and answer["cleaning"]["bound"] == "min-compaction-lag"
    assert main(["why", "keyed", "--data", str(data)]) == 0
    text = capsys.readouterr().out
    assert "due: its dirty share 1.00" in text and "WHY IT IS HERE" in text


def test_a_failed_cleaning_is_shown(data, capsys) -> None:
    """LM-11."""
    content = {
        "partitions": {
            "keyed-0": {"cleaning_failed": {"error": "broken batch", "at_ms": 1, "attempts": 3, "next_ms": 2}}
        }
    }
    (data / "stratalog-status.json").write_text(json.dumps(content))
    assert main(["why", "keyed", "--data", str(data)]) == 0
    text = capsys.readouterr().out
    assert "its last cleaning failed: broken batch" in text and "3 attempts" in text


def test_a_running_brokers_directory_can_be_asked(tmp_path, capsys) -> None:
    with stratalog.testing.broker(topics=["t"], directory=tmp_path) as b:
        b.produce("t", [b"x"])
        (answer,) = why(capsys, "t-0", "--data", str(tmp_path / "data"))
        assert answer["log_end_offset"] == 1


def test_settings_of_the_broker_count_in_each_of_its_directories(tmp_path, capsys) -> None:
    """What `serve -o` had set, and topics' overrides whose metadata lies in another directory."""
    homes = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, homes)), "log.cleanup.policy": "compact"}
    with stratalog.testing.broker(directory=tmp_path, config=config, topics={"t": 2}) as b:
        b.create_topic("other", partitions=2, cleanup_policy="delete")
        b.clock.advance(seconds=5)
        for home in homes:
            until(lambda home=home: (home / "stratalog-status.json").exists())
    for home in homes:
        for name in (path.name for path in home.iterdir() if path.name.startswith(("t-", "other-"))):
            (answer,) = why(capsys, name, "--data", str(home))
            assert answer["cleanup_policy"] == (["compact"] if name.startswith("t-") else ["delete"]), name


def until(reached) -> None:
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_unknown_names_are_one_line_with_what_there_is(data, capsys) -> None:
    assert main(["why", "nothing", "--data", str(data)]) == 2
    assert "keyed, plain" in capsys.readouterr().err


def test_compact_cleans_offline_and_the_broker_goes_on_from_there(data, capsys) -> None:
    assert main(["compact", str(data / "plain-0")]) == 2
    assert "cleanup.policy" in capsys.readouterr().err
    assert main(["compact", str(data / "keyed-0"), "--roll", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["end_offset"] == 21 and answer["bytes_after"] < answer["bytes_before"] / 2
    assert "keyed 0 21" in (data / "cleaner-offset-checkpoint").read_text()
    with stratalog.testing.broker(directory=data.parent) as b:
        assert [(r.offset, r.key, r.value[:1]) for r in b.records("keyed")] == [
            (14 + k, b"k%d" % k, b"2") for k in range(7)
        ]
        assert main(["compact", str(data / "keyed-0")]) == 2
        assert "running" in capsys.readouterr().err


def test_compact_goes_on_without_a_checkpoint_that_cannot_be_read(data, capsys) -> None:
    """LM-10: a broker does, too; what it then writes is whole."""
    (data / "cleaner-offset-checkpoint").write_text("garbage")
    assert main(["compact", str(data / "keyed-0"), "--roll", "--json"]) == 0
    capsys.readouterr()
    assert (data / "cleaner-offset-checkpoint").read_text() == "0\n1\nkeyed 0 21\n"


def test_compact_leaves_nothing_half_written_of_a_damaged_log(data, capsys) -> None:
    path = sorted((data / "keyed-0").glob("*.log"))[1]
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    before = sorted(file.name for file in (data / "keyed-0").iterdir())
    assert main(["compact", str(data / "keyed-0"), "--json"]) == 1
    assert path.name in capsys.readouterr().err
    assert sorted(file.name for file in (data / "keyed-0").iterdir()) == before


def test_compact_says_what_it_had_to_recover_first(data, capsys) -> None:
    """After a stop that was not clean it recovers the log as a start does: what that cuts off is not kept quiet."""
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    path = sorted((data / "keyed-0").glob("*.log"))[1]
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    assert main(["compact", str(data / "keyed-0")]) == 0
    text = capsys.readouterr().out
    assert "what the last start found" in text and f"{path.name}" in text


@pytest.mark.parametrize("command", ["why", "compact"])
def test_a_misspelt_option_is_an_error_with_the_nearest_name(data, capsys, command) -> None:
    where = ["keyed", "--data", str(data)] if command == "why" else [str(data / "keyed-0")]
    assert main([command, *where, "-o", "retention.m=1"]) == 2
    assert "retention.ms" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"partitions": []}',
        '{"partitions": {"keyed-0": []}}',
        '{"partitions": {"keyed-0": {"recovered": 5, "cleaning_failed": "x"}}}',
        '{"partitions": {"keyed-0": {"recovered": [1, {}], "cleaning_failed": {}}}}',
        '{"settings": [], "partitions": {"keyed-0": {"cleaning_failed": {"error": "e", "attempts": "many"}}}}',
    ],
)
def test_a_status_file_of_any_shape_is_survived(data, capsys, content) -> None:
    """It is a help for people; nothing depends on it."""
    (data / "stratalog-status.json").write_text(content)
    assert main(["why", "keyed", "--data", str(data)]) == 0
    assert "due: its dirty share 1.00" in capsys.readouterr().out


def test_both_print_help_quickly() -> None:
    for name in ("why", "compact"):
        done = subprocess.run(
            [sys.executable, "-m", "stratalog.cli", name, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "usage" in done.stdout
