"""`stratalog spark ...`: each job's table, its JSON, its errors.  The jobs themselves are tested in `spark_jobs`."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from files_kit import write_data_directory

import stratalog.testing
from stratalog.cli import main
from stratalog.cli import spark as command

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True)
def shared_session(monkeypatch):
    """The commands get the session that the tests share, and leave it running."""
    pytest.importorskip("pyspark")
    import spark_session

    @contextlib.contextmanager
    def session(*_, **__):
        yield spark_session.shared()

    monkeypatch.setattr(command, "session", session)


@pytest.fixture(scope="module")
def broker():
    with stratalog.testing.broker({"in": 2, "out": 2}) as running:
        running.produce("in", [(b"k%d" % (i % 7), b'{"id": %d}' % i) for i in range(1000)], compression="lz4")
        running.produce("in", [b"same"] * 3, partition=0)
        yield running


def run(capsys, *arguments):
    code = main(["spark", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_export_prints_a_table_and_goes_on(broker, tmp_path, capsys):
    source = ("--path", broker.directory / "data")
    code, out, _ = run(capsys, "export", "in", tmp_path / "lake", *source, "--by", "offset", "--span", 100)
    assert code == 0 and "PARTITION  FROM" in out and "1,003 records in " in out and "parquet table" in out
    code, out, _ = run(capsys, "export", "in", tmp_path / "lake", *source, "--by", "offset", "--json")
    assert code == 0 and json.loads(out)["records"] == 0


def test_profile_prints_keys_and_a_plot_and_writes_the_page(broker, tmp_path, capsys):
    page = tmp_path / "page.html"
    code, out, _ = run(capsys, "profile", "in", "-b", broker.bootstrap, "--page", page)
    assert code == 0 and "1,003 records, 7 keys" in out and "2 repeat an earlier one" in out
    assert "over time" in out and "█" in out
    assert page.read_text().startswith("<!doctype html>")
    code, out, _ = run(
        capsys, "profile", "in", "-b", broker.bootstrap, "--page", page, "--json", "--top", 2, "--no-duplicates"
    )
    found = json.loads(out)
    assert (found["total"]["records"], found["duplicates"], len(found["top_keys"])) == (1003, None, 2)
    assert found["page"] == str(page)


def test_verify_ends_with_1_when_something_is_wrong(tmp_path, capsys):
    data = Path(write_data_directory(tmp_path / "data"))
    code, out, _ = run(capsys, "verify", data)
    assert code == 0 and "0 findings in" in out
    path = sorted((data / "orders-0").glob("*.index"))[0]
    path.unlink()
    code, out, _ = run(capsys, "verify", data)
    assert code == 1 and str(path) in out and "1 findings in" in out
    code, out, _ = run(capsys, "verify", data, "--json")
    assert code == 1 and len(json.loads(out)["findings"]) == 1


def test_compact_prints_before_and_after_as_bars(tmp_path, capsys):
    sys.path.insert(0, str(Path(__file__).parent.parent / "logs"))
    from logs_kit import Kit

    kit = Kit(tmp_path / "data" / "t-0")
    for i in range(200):
        kit.put(*[(b"k%d" % (i * j % 50), b"v" * 30) for j in range(5)])
    kit.log.close()
    options = ("-o", "cleanup.policy=compact", "-o", "internal.segment.bytes=4096", "-o", "segment.index.bytes=4096")
    code, out, err = run(capsys, "compact", tmp_path / "data", "--topic", "t", *options)
    assert code == 0, err
    assert "t-0" in out and "#" in out and "%" in out
    code, out, err = run(capsys, "compact", tmp_path / "data", "--topic", "t", "--json", "--from-start", *options)
    assert code == 0 and json.loads(out)["partitions"][0]["partition"] == "t-0"


def test_compact_takes_the_topics_configuration_from_the_metadata(tmp_path, capsys):
    """A topic whose policy is not compact is refused; one that is compacted has its own segment size."""
    with stratalog.testing.broker(directory=tmp_path) as broker:
        broker.create_topic("plain")
        broker.create_topic("users", cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio="1.0")
        for topic in ("plain", "users"):
            broker.produce(topic, [(b"k%d" % (i % 40), b"%08d" % i * 20) for i in range(9000)])
    code, _, err = run(capsys, "compact", tmp_path / "data", "--topic", "plain")
    assert code == 2 and "plain: its cleanup.policy is delete; --force" in err
    code, out, err = run(capsys, "compact", tmp_path / "data", "--topic", "users", "--json")
    assert code == 0, err
    done = json.loads(out)["partitions"][0]
    assert done["segments_before"] == 1 and done["records_after"] == 40
    with stratalog.testing.broker(directory=tmp_path) as broker:
        found = {record.key: record.value for record in broker.records("users")}
        assert found == {b"k%d" % (i % 40): b"%08d" % i * 20 for i in range(9000)}
        assert len(broker.records("plain")) == 9000


def test_replay_says_what_was_there_already(broker, capsys):
    arguments = ("replay", "in", "out", "-b", broker.bootstrap, "--write-id", "again")
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "1,003 records to out at" in out
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0 and sum(one["repeated"] for one in json.loads(out)["partitions"]) == 1003
    assert len(broker.records("out")) == 1003


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("export", "in", "x"), "--path or --bootstrap is missing"),
        (("profile", "nowhere", "--path", "{data}"), "nowhere"),
        (("profile", "in", "--path", "/not/there"), "/not/there"),
        (("profile", "in", "-b", "127.0.0.1:1"), "127.0.0.1:1"),
        (("profile", "in", "--path", "{data}", "-o", "startingOfsets=earliest"), "startingOffsets"),
        (("profile", "in", "--path", "{data}", "-o", "nonsense"), "NAME=VALUE"),
        (
            ("profile", "in", "--path", "{data}", "--page", "/not/there/p.html"),
            "/not/there: there is no such directory",
        ),
        (("verify", "/not/there"), "/not/there: there is no such directory"),
        (("compact", "{data}"), "name the topics"),
        (("compact", "{data}", "--topic", "nowhere"), "no partition of nowhere"),
        (("compact", "{data}", "--topic", "in", "--force"), "stop the broker first"),
        (("compact", "{data}", "--topic", "in", "--map-mib", "0"), "at least"),
        (("replay", "in", "nowhere", "-b", "{bootstrap}"), "nowhere"),
        (("export", "in", "{tmp}", "--path", "{data}", "--values", "json", "--schema", "x y z"), "columns in SQL form"),
        (("export", "in", "{tmp}", "--path", "{data}", "--values", "json", "--schema", "@/not/there"), "/not/there"),
        (("export", "in", "{tmp}", "--path", "{data}", "--values", "json", "--schema", "id bigint"), "does not fit"),
    ],
)
def test_what_goes_wrong_is_one_line_without_a_stack(broker, tmp_path, capsys, arguments, says):
    names = {"data": broker.directory / "data", "tmp": tmp_path / "t", "bootstrap": broker.bootstrap}
    code, _, err = run(capsys, *(argument.format(**names) for argument in arguments))
    assert code in (1, 2)
    assert says in err and err.startswith("stratalog: ") and err.count("\n") == 1
    assert "Traceback" not in err and "at org.apache" not in err and "at java" not in err


def test_an_exception_of_java_is_its_message_without_the_stack():
    import spark_session
    from stratalog.spark.errors import SparkSourceError

    with pytest.raises(SparkSourceError) as raised, command.one_line_errors():
        spark_session.shared()._jvm.java.util.ArrayList().get(5)
    assert str(raised.value) == "java.lang.IndexOutOfBoundsException: Index 5 out of bounds for length 0"


def test_a_damaged_batch_names_its_file_and_position(tmp_path, capsys):
    from files_kit import flip_payload

    data = Path(write_data_directory(tmp_path / "data"))
    flip_payload(data / "orders-0")
    for arguments in (("profile", "orders"), ("export", "orders", tmp_path / "t")):
        code, _, err = run(capsys, *arguments, "--path", data)
        assert code == 1 and err.count("\n") == 1, err
        assert ".log" in err and "at byte" in err, err
