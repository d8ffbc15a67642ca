"""Exports: read back by somebody else they are the log, and each record is there once, whatever happened in between."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from jobs_kit import PARTITIONS, Sent, checksum, day, of_arrow, of_duckdb

import stratalog.testing
from stratalog.records.batch import build_batch
from stratalog.spark import export, reason
from stratalog.spark.errors import DataLoss, OptionError, SparkSourceError
from stratalog.spark.jobs import job

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
FORMATS = ("parquet", "iceberg", "delta")


def needs(kind):
    if kind == "iceberg":
        pytest.importorskip("pyiceberg")
    if kind == "delta":
        pytest.importorskip("deltalake")


@pytest.fixture(scope="module")
def broker():
    with stratalog.testing.broker() as running:
        yield running


@pytest.fixture
def sent(broker, request):
    """A topic of this test's own: three days, three partitions."""
    name = f"events.{abs(hash(request.node.name)) % 10**9}"
    broker.create_topic(name, PARTITIONS)
    return Sent(broker, name).send(1_500)


def data_of(broker):
    return str(broker.directory / "data")


def parquet_files(place):
    return sorted(path for path in Path(place).rglob("*.parquet") if "_stratalog" not in path.parts)


def table_of(kind, place, topic):
    """(Arrow table, files) by a reader that is not ours."""
    if kind == "parquet":
        import pyarrow.dataset as ds

        files = parquet_files(place)
        return ds.dataset([str(file) for file in files]).to_table(), files
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(place))
        return table.to_pyarrow_table(), [Path(uri.removeprefix("file://")) for uri in table.file_uris()]
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("stratalog", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    try:
        table = catalog.load_table("stratalog." + topic.replace(".", "_"))
        files = table.inspect.files()["file_path"].to_pylist()
        return table.scan().to_arrow(), [Path(name.removeprefix("file://")) for name in files]
    finally:
        catalog.close()


def assert_is_the_log(kind, place, sent):
    table, files = table_of(kind, place, sent.topic)
    wanted = checksum(sent.rows)
    assert of_arrow(table) == wanted
    pytest.importorskip("duckdb")
    assert of_duckdb(files) == wanted
    return table, files


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_by_date_is_the_log_and_runs_go_on_where_the_last_one_ended(spark, tmp_path, broker, sent, kind):
    """From files; a second run finds nothing; a third finds what one partition has got since, and nothing else."""
    needs(kind)
    options = {"format": kind, "path": data_of(broker)}
    report = export(sent.topic, tmp_path / "t", spark, **options)
    assert (report.records, report.nulled) == (1_500, 0)
    _, files = assert_is_the_log(kind, tmp_path / "t", sent)
    assert report.files == len(files) > PARTITIONS
    assert report.bytes == sum(file.stat().st_size for file in files)
    days = {day(row.timestamp) for row in sent.rows}
    assert len(days) >= 2
    if kind != "iceberg":
        import pyarrow.parquet as pq

        for file in files if kind == "parquet" else ():
            folder = file.parent.name
            times = pq.ParquetFile(file).read(columns=["timestamp"])["timestamp"].to_pylist()
            assert {f"date={time.date()}" for time in times} == {folder}
        if kind == "delta":
            found = table_of(kind, tmp_path / "t", sent.topic)[0]
            assert found["date"].to_pylist() == [stamp.date() for stamp in found["timestamp"].to_pylist()]
    assert export(sent.topic, tmp_path / "t", spark, **options).records == 0
    sent.send(77, partitions=[2], codec="gzip")
    assert export(sent.topic, tmp_path / "t", spark, **options).records == 77
    assert export(sent.topic, tmp_path / "t", spark, **options).records == 0
    assert_is_the_log(kind, tmp_path / "t", sent)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_by_offset_from_a_broker_is_the_log(spark, tmp_path, broker, sent, kind):
    """Over the wire, with headers; each file has records of one range of offsets."""
    needs(kind)
    export(
        sent.topic, tmp_path / "t", spark, format=kind, bootstrap=broker.bootstrap, by="offset", span=200, headers=True
    )
    table, files = assert_is_the_log(kind, tmp_path / "t", sent)
    places = {(row.partition, row.offset): row for row in sent.rows}
    for row in table.select(["partition", "offset", "headers"]).to_pylist():
        wanted = [{"key": name, "value": value} for name, value in places[row["partition"], row["offset"]].headers]
        assert (row["headers"] or []) == wanted
    import pyarrow.parquet as pq

    for file in files:
        offsets = pq.ParquetFile(file).read(columns=["offset"])["offset"].to_pylist()
        assert len({offset // 200 for offset in offsets}) == 1
        if kind == "parquet":
            assert file.parent.name == f"offset_from={offsets[0] // 200 * 200}"


def test_iceberg_and_delta_know_their_partitions(spark, tmp_path, broker, sent):
    """A filter on the partition's column reads some files only."""
    needs("iceberg")
    needs("delta")
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    for kind in ("iceberg", "delta"):
        export(sent.topic, tmp_path / kind, spark, format=kind, path=data_of(broker), table="lake.events")
    first = min(day(row.timestamp) for row in sent.rows)
    wanted = sum(day(row.timestamp) == first for row in sent.rows)
    delta = DeltaTable(str(tmp_path / "delta"))
    some = delta.to_pyarrow_table(filters=[("date", "=", first)])
    assert some.num_rows == wanted
    assert len(delta.file_uris(file_pruning_predicate=f"date = '{first}'")) < len(delta.file_uris())
    place = tmp_path / "iceberg"
    catalog = load_catalog("stratalog", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    table = catalog.load_table("lake.events")
    assert [field.name for field in table.spec().fields] == ["date"]
    from datetime import timedelta

    scan = table.scan(row_filter=f"timestamp < '{first + timedelta(days=1)}T00:00:00+00:00'")
    assert scan.to_arrow().num_rows == wanted
    assert len(list(scan.plan_files())) < len(list(table.scan().plan_files()))
    catalog.close()


def test_aborted_records_are_not_exported_and_an_open_transaction_waits(spark, tmp_path):
    """The committed view of a partition with all codecs, transactions, aborted ones among them."""
    from files_kit import write_data_directory

    import stratalog

    data = write_data_directory(tmp_path / "data")
    export("orders", tmp_path / "t", spark, path=str(data), by=None)
    wanted = stratalog.open(data, topic="orders").to_arrow(columns=["offset", "key", "value"])
    found = table_of("parquet", tmp_path / "t", "orders")[0].select(["offset", "key", "value"]).sort_by("offset")
    assert found.to_pylist() == wanted.to_pylist()
    everything = stratalog.open(data, topic="orders").log_end_offset
    assert 0 < found.num_rows < everything


# --- what may come in between -----------------------------------------------------------------------------------------
class Killed(BaseException):
    """The driver is gone: nothing after it runs, as the tests take its clean-up away, too."""


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("where", ["before the commit", "after the commit"])
def test_a_run_that_is_cut_off_is_finished_by_the_next(spark, tmp_path, broker, sent, monkeypatch, kind, where):
    """All tasks have written; the driver dies before or after the table's commit: the next run fills in."""
    needs(kind)
    from stratalog.spark.jobs import tables

    target = {"parquet": tables.ParquetDirectory, "iceberg": tables.IcebergTable, "delta": tables.DeltaLake}[kind]
    original = target.commit

    def killed(self, files, ends):
        if where == "after the commit":
            original(self, files, ends)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(target, "commit", killed)
        patch.setattr(target, "discard", lambda *_: None)
        with pytest.raises(Killed):
            export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    report = export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    assert report.records == (0 if where == "after the commit" else 1_500)
    assert_is_the_log(kind, tmp_path / "t", sent)


def test_a_parquet_commit_that_is_cut_off_among_its_renames_is_finished(spark, tmp_path, broker, sent, monkeypatch):
    """The commit's file is there, some of its files have their place, some have not."""
    from stratalog.spark.jobs import tables

    rename, done = os.rename, []

    def some(source, target):
        done.append(target)
        if len(done) > 2:
            raise Killed
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(tables.os, "rename", some)
        patch.setattr(tables.ParquetDirectory, "discard", lambda *_: None)
        with pytest.raises(Killed):
            export(sent.topic, tmp_path / "t", spark, path=data_of(broker))
    assert len(parquet_files(tmp_path / "t")) == 2
    assert export(sent.topic, tmp_path / "t", spark, path=data_of(broker)).records == 0
    assert_is_the_log("parquet", tmp_path / "t", sent)


def test_files_of_attempts_that_do_not_count_are_not_in_the_table(spark, tmp_path, broker, sent, monkeypatch):
    """A task that was tried twice: the files of the attempt that failed are there, and are removed, not committed."""
    needs("delta")
    from stratalog.spark.jobs import tables

    place = tmp_path / "t"
    original = tables.DeltaLake.commit

    def commit(self, files, ends):
        assert not [name for name in os.listdir(self.directory) if "stray" in name]
        original(self, files, ends)

    names = job("export").__globals__["_names"]

    def with_a_stray(directory, work):
        Path(directory, f"x-{work}-stray.parquet").write_bytes(b"half")
        return names(directory, work)

    monkeypatch.setitem(job("export").__globals__, "_names", with_a_stray)
    monkeypatch.setattr(tables.DeltaLake, "commit", commit)
    export(sent.topic, place, spark, format="delta", path=data_of(broker))
    assert_is_the_log("delta", place, sent)


_DRIVER = """
import sys
from stratalog.spark import export, session
kind, topic, place, data, warehouse = sys.argv[1:]
spark = session("local[2]", warehouse=warehouse, config={"spark.log.level": "OFF"})
spark.range(2).mapInArrow(lambda batches: batches, "id bigint").count()   # workers are up
print("ready", flush=True)
export(topic, place, spark, format=kind, path=data)
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_kill_9_of_the_driver_in_the_middle(spark, tmp_path, broker, sent, kind):
    """Driver, Java and workers are killed at some time of the run; then it is run again, and again."""
    needs(kind)
    arguments = [kind, sent.topic, str(tmp_path / "t"), data_of(broker), str(tmp_path / "warehouse")]
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert driver.stdout.readline() == "ready\n"
        time.sleep({"parquet": 0.3, "iceberg": 0.8, "delta": 0.6}[kind])
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    assert_is_the_log(kind, tmp_path / "t", sent)
    assert export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker)).records == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_of_two_exports_at_a_time_one_fails_and_nothing_is_doubled(spark, tmp_path, broker, sent, monkeypatch, kind):
    """The second begins before the first has committed."""
    needs(kind)
    from stratalog.spark.jobs import tables

    target = {"parquet": tables.ParquetDirectory, "iceberg": tables.IcebergTable, "delta": tables.DeltaLake}[kind]
    original = target.commit
    entered = []

    def commit(self, files, ends):
        if not entered:
            entered.append(True)
            if kind == "parquet":
                with pytest.raises(SparkSourceError, match="another export is writing"):
                    export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
            else:
                assert export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker)).records == 1_500
        return original(self, files, ends)

    monkeypatch.setattr(target, "commit", commit)
    if kind == "parquet":
        export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    else:
        with pytest.raises(SparkSourceError, match="somebody else wrote to the table meanwhile"):
            export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    assert_is_the_log(kind, tmp_path / "t", sent)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_commit_whose_answer_was_lost_keeps_its_files(spark, tmp_path, broker, sent, monkeypatch, kind):
    """The commit is there and the driver hears of an error: the files that it names must not be removed."""
    needs(kind)
    from stratalog.spark.jobs import tables

    target = {"iceberg": tables.IcebergTable, "delta": tables.DeltaLake}[kind]
    original = target.commit

    def commit(self, files, ends):
        twin = tables.open_target(kind, str(tmp_path / "t"), schema, by="date", span=1, table=name, catalog=None)
        original(twin, files, ends)  # this object does not know of it
        twin.close()
        raise ConnectionError("the answer was lost")

    schema = job("export").__globals__["_schema"](None, False)
    name = "stratalog." + sent.topic.replace(".", "_")
    with monkeypatch.context() as patch:
        patch.setattr(target, "commit", commit)
        with pytest.raises(ConnectionError):
            export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker))
    assert_is_the_log(kind, tmp_path / "t", sent)
    assert export(sent.topic, tmp_path / "t", spark, format=kind, path=data_of(broker)).records == 0


def test_another_topic_of_the_same_name_is_refused(spark, tmp_path, broker):
    """The table was read up to an offset that the log has not: nothing is written."""
    broker.create_topic("again", PARTITIONS)
    Sent(broker, "again").send(300)
    export("again", tmp_path / "t", spark, path=data_of(broker))
    from stratalog.client import admin

    with broker.client() as client:
        admin.delete_topics(client, ["again"])
    broker.create_topic("again", PARTITIONS)
    with pytest.raises(DataLoss, match="another topic of the same name"):
        export("again", tmp_path / "t", spark, bootstrap=broker.bootstrap)


# --- values -----------------------------------------------------------------------------------------------------------
def test_json_values_become_columns(spark, tmp_path, broker, sent):
    """Lists and text that is not ASCII; a record without a value stays without; DuckDB reads the struct."""
    schema = "id bigint, name string, tags array<string>, x double"
    export(sent.topic, tmp_path / "t", spark, path=data_of(broker), values="json", value_schema_text=schema)
    table, files = table_of("parquet", tmp_path / "t", sent.topic)
    found = {
        (p, o): v
        for p, o, v in zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True)
    }
    wanted = {(row.partition, row.offset): None if row.value is None else json.loads(row.value) for row in sent.rows}
    assert found == wanted
    duckdb = pytest.importorskip("duckdb")
    names = [str(file) for file in files]
    (total,) = duckdb.execute("SELECT sum(value.x) FROM read_parquet($f)", {"f": names}).fetchone()
    assert total == sum(value["x"] for value in wanted.values() if value)


def test_a_value_that_does_not_fit_names_its_offset_or_becomes_null(spark, tmp_path, broker, request):
    broker.create_topic("crooked", PARTITIONS)
    sent = Sent(broker, "crooked").send(40, value=lambda n: b"{broken" if n == 25 else b'{"id": %d}' % n)
    bad = sent.rows[25]
    options = {"path": data_of(broker), "values": "json", "value_schema_text": "id bigint"}
    with pytest.raises(Exception, match=r".") as raised:
        export("crooked", tmp_path / "t", spark, **options)
    assert f"crooked-{bad.partition} at offset {bad.offset}: the value does not fit" in reason(raised.value)
    assert parquet_files(tmp_path / "t") == []
    report = export("crooked", tmp_path / "t", spark, **options, bad_values="null")
    assert (report.records, report.nulled) == (40, 1)
    table = table_of("parquet", tmp_path / "t", "crooked")[0]
    assert [row["offset"] for row in table.to_pylist() if row["value"] is None] == [bad.offset]


def test_avro_values_as_polars_writes_them(spark, tmp_path, broker):
    """Datums out of files that Polars has written, plain and behind the header of a schema registry."""
    pl = pytest.importorskip("polars")
    from values_kit import datum_of_avro_file

    rows = [{"id": n, "name": f"näme {n}", "x": n / 4, "ok": n % 2 == 0, "tags": ["t"] * (n % 3)} for n in range(30)]
    values, schema = [], ""
    for row in rows:
        path = tmp_path / "one.avro"
        pl.DataFrame([row], schema_overrides={"id": pl.Int64, "tags": pl.List(pl.String)}).write_avro(path, name="row")
        schema, datum = datum_of_avro_file(path.read_bytes())
        values.append(datum)
    for values_kind, front in (("avro", b""), ("confluent-avro", b"\0\0\0\0\7")):
        topic = f"avro.{values_kind}"
        broker.create_topic(topic, PARTITIONS)
        sent = Sent(broker, topic).send(30, value=lambda n, front=front: front + values[n])
        export(topic, tmp_path / values_kind, spark, path=data_of(broker), values=values_kind, value_schema_text=schema)
        table = table_of("parquet", tmp_path / values_kind, topic)[0]
        found = {(row["partition"], row["offset"]): row["value"] for row in table.to_pylist()}
        assert found == {(row.partition, row.offset): rows[n] for n, row in enumerate(sent.rows)}


def test_a_partition_that_had_nothing_yet_is_not_known_to_delta(tmp_path):
    """Its log may begin anywhere when it has something: retention has not taken anything from the table."""
    import pyarrow as pa

    from stratalog.spark.jobs.tables import DeltaLake

    pytest.importorskip("deltalake")
    table = DeltaLake(str(tmp_path), pa.schema([pa.field("offset", pa.int64())]), None)
    table.commit([], {("t", 2): 5, ("other", 0): 7})
    assert table.offsets("t") == {("t", 2): 5}
    table.commit([], {("t", 0): 3})
    assert table.offsets("t") == {("t", 0): 3, ("t", 2): 5}
    assert table.offsets("other") == {("other", 0): 7}


def test_numbers_that_do_not_fit_their_column_are_named_or_become_null():
    """An Avro int is written as a long is: one of 40 bits is read, and does not fit."""
    import pyarrow as pa

    from stratalog.spark.jobs.values import value_schema

    fields = (
        '[{"name": "n", "type": "int"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]'
    )
    schema = value_schema("avro", f'{{"type": "record", "name": "r", "fields": {fields}}}')

    def zigzag(number):
        number = number << 1 ^ number >> 63
        out = bytearray()
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes(out) + bytes([number])

    values = [zigzag(n) + zigzag(at) for n, at in ((1, 5), (1 << 40, 5), (2, 1 << 62), (3, 6))]
    found, bad = schema.decoder()(pa.array([*values, None, b"\x80"], pa.binary()))
    assert [row for row, _ in bad] == [1, 2, 5]
    assert [None if row is None else row["n"] for row in found.to_pylist()] == [1, None, None, 3, None, None]


def test_a_descriptor_set_that_is_none_is_one_line(tmp_path):
    from stratalog.spark.errors import OptionError
    from stratalog.spark.jobs.values import value_schema

    pytest.importorskip("google.protobuf")
    (tmp_path / "set").write_bytes(b"\xff nonsense")
    with pytest.raises(OptionError, match="is no whole descriptor set from protoc") as raised:
        value_schema("protobuf", f"{tmp_path}/set:a.B")
    assert "\n" not in str(raised.value)


def test_protobuf_values_as_googles_library_writes_them(spark, tmp_path, broker):
    """Scalars, text, an enum, a repeated field, a map, a message, a field that may be missing."""
    pytest.importorskip("google.protobuf")
    from values_kit import protobuf_rows

    schema, values, wanted = protobuf_rows(tmp_path / "shop.desc", 30)
    broker.create_topic("protobuf", PARTITIONS)
    sent = Sent(broker, "protobuf").send(30, value=lambda n: values[n])
    export("protobuf", tmp_path / "t", spark, path=data_of(broker), values="protobuf", value_schema_text=schema)
    table = table_of("parquet", tmp_path / "t", "protobuf")[0]
    found = {(row["partition"], row["offset"]): row["value"] for row in table.to_pylist()}
    assert found == {(row.partition, row.offset): wanted[n] for n, row in enumerate(sent.rows)}
    with pytest.raises(OptionError, match=r"has no message shop\.Nothing"):
        export(
            "protobuf", tmp_path / "u", spark, path=data_of(broker), values="protobuf",
            value_schema_text=schema.replace("Order", "Nothing"),
        )  # fmt: skip


# --- wrong options ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "orc"}, "format='orc': one of parquet, iceberg, delta"),
        ({"by": "hour"}, "by='hour': date, offset or None"),
        ({"span": 0}, "span=0: at least 1"),
        ({"bad_values": "drop"}, "bad_values='drop': fail or null"),
        ({"values": "xml"}, "values='xml': one of raw, json, avro"),
        ({"values": "json"}, "value_schema is missing"),
        ({"values": "json", "value_schema_text": "id bigintt"}, "columns in SQL form"),
        ({"values": "avro", "value_schema_text": '{"type": "nope"}'}, "an Avro schema in JSON"),
        ({"values": "avro", "value_schema_text": '"string"'}, "an Avro record"),
        ({"values": "protobuf", "value_schema_text": "nothing"}, "FILE:package.Message"),
        ({"options": {"startingOfsets": "earliest"}}, "startingOffsets"),
        ({"format": "iceberg", "table": "orders"}, "table='orders': NAMESPACE.NAME"),
    ],
)
def test_a_wrong_option_is_one_line(spark, tmp_path, broker, options, says):
    with pytest.raises(OptionError) as raised:
        export("t", tmp_path / "t", spark, path=data_of(broker), **options)
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_a_missing_topic_path_or_broker_is_one_line(spark, tmp_path, broker):
    for options, says in (
        ({"path": data_of(broker)}, "nothing-here"),
        ({"path": str(tmp_path / "none")}, str(tmp_path / "none")),
        ({"bootstrap": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"bootstrap": broker.bootstrap}, "nothing-here"),
    ):
        with pytest.raises(Exception, match=r".") as raised:
            export("nothing-here", tmp_path / "t", spark, **options)
        assert says in reason(raised.value)
        assert "\n" not in reason(raised.value)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_a_table_with_another_layout_is_refused(spark, tmp_path, broker, sent, kind):
    pytest.importorskip({"parquet": "pyarrow", "iceberg": "pyiceberg", "delta": "deltalake"}[kind])
    options = {"format": kind, "path": data_of(broker)}
    export(sent.topic, tmp_path / "t", spark, **options)
    for by in ("offset", None):
        with pytest.raises(SparkSourceError, match=r"another layout|no column offset_from"):
            export(sent.topic, tmp_path / "t", spark, by=by, **options)


def test_a_time_that_is_no_date_goes_to_the_partition_of_null(spark, tmp_path):
    """Microseconds that a producer took for milliseconds: the year 55840."""
    duckdb = pytest.importorskip("duckdb")
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    batch = build_batch([(1_700_000_000_000_000, b"k", b"late"), (1_700_000_000_000, b"k", b"good")], base_offset=0)
    (tmp_path / "data" / "t-0" / "00000000000000000000.log").write_bytes(bytes(batch))
    wanted = [(0, None), (1, date(2023, 11, 14))]
    export("t", tmp_path / "parquet", spark, path=str(tmp_path / "data"))
    with duckdb.connect() as connection:
        query = 'SELECT "offset", date FROM read_parquet(?, hive_partitioning = true) ORDER BY 1'
        assert connection.execute(query, [str(tmp_path / "parquet/**/*.parquet")]).fetchall() == wanted
    export("t", tmp_path / "delta", spark, path=str(tmp_path / "data"), format="delta")
    rows = deltalake.DeltaTable(tmp_path / "delta").to_pyarrow_table(columns=["offset", "date"]).to_pylist()
    assert sorted((row["offset"], row["date"]) for row in rows) == wanted
    with pytest.raises(SparkSourceError, match="years 1 to 9999"):
        export("t", tmp_path / "iceberg", spark, path=str(tmp_path / "data"), format="iceberg")
