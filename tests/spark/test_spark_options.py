"""The options: Kafka's rules, each refusal one line with the name, the value and what is allowed (issue 7, Bad input).
No Spark is started here."""

import pytest

from stratalog.spark.errors import OptionError, reason
from stratalog.spark.options import Bound, columns_of, read_options, write_options

BASE = {"path": "/data", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def reading(streaming=False, **options):
    return read_options({**BASE, **options}, streaming=streaming)


def test_defaults_are_those_of_sparks_kafka_source():
    batch, stream = reading(), reading(streaming=True)
    assert (batch.start.kind, batch.end.kind) == ("earliest", "latest")
    assert (stream.start.kind, stream.end.kind) == ("latest", "latest")
    assert batch.fail_on_data_loss and not batch.latest_if_no_match
    assert stream.max_trigger_delay_s == 900
    assert batch.committed


def test_names_do_not_care_about_case():
    options = read_options(
        {"PATH": "/data", "Subscribe": "a, b", "STARTINGOFFSETS": "Earliest", "failondataloss": "FALSE"}, streaming=True
    )
    assert options.selection.topics == ("a", "b")
    assert options.start.kind == "earliest"
    assert not options.fail_on_data_loss


def test_a_timestamp_goes_over_timestamps_and_these_over_offsets():
    offsets = {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 9}}'}
    each = {"startingOffsetsByTimestamp": '{"orders": {"0": 7}}', "endingOffsetsByTimestamp": '{"orders": {"0": 8}}'}
    alone = {"startingTimestamp": "100", "endingTimestamp": "200"}
    assert reading(**offsets).start.by_partition == {("orders", 0): 5}
    assert reading(**offsets, **each).start == Bound("times", {("orders", 0): 7}, option="startingOffsetsByTimestamp")
    assert reading(**offsets, **each).end.by_partition == {("orders", 0): 8}
    assert reading(**offsets, **each, **alone).start == Bound("time", time=100, option="startingTimestamp")
    assert reading(**offsets, **each, **alone).end.time == 200


@pytest.mark.parametrize(
    ("options", "streaming", "says"),
    [
        ({"startngOffsets": "1"}, False, "startngoffsets='1': is startingOffsets meant"),
        ({"kafka.bootstrap.servers": "nonsense"}, False, "kafka.bootstrap.servers='nonsense': HOST:PORT"),
        ({"kafka.bootstrap.servers": "a:1,b:99999"}, False, "'b:99999' is not"),
        ({"kafka.bootstrap.servers": ","}, False, "HOST:PORT"),
        ({"path": "s3a://bucket/data"}, False, "path='s3a://bucket/data': a directory on this machine"),
        ({"path": "file://other/data"}, False, "file:///DIRECTORY"),
        ({"paths": "/a"}, False, "paths='/a': a JSON list"),
        ({"startingOffsets": "latest"}, False, "startingOffsets='latest'"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False, "-1 (latest)"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, False, "earliest, latest or JSON"),
        ({"startingOffsets": '{"orders": [1]}'}, True, "JSON such as"),
        ({"startingOffsets": "{"}, True, "startingOffsets='{'"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets='earliest'"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, False, "-2 (earliest)"),
        ({"endingOffsets": "latest"}, True, "no end"),
        ({"startingTimestamp": "-5"}, False, "startingTimestamp='-5'"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, False, "one of error, latest"),
        ({"failOnDataLoss": "yes"}, False, "true or false"),
        ({"minPartitions": "0"}, False, "at least 1"),
        ({"maxRecordsPerPartition": "many"}, False, "maxRecordsPerPartition='many'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, True, "at most maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, True, "a duration"),
        ({"isolation": "dirty"}, False, "committed or uncommitted"),
        ({"columns": "value,nothing"}, False, "no column 'nothing'"),
        ({"columns": "value,value"}, False, "each once"),
        ({"splitBytes": "0"}, False, "bytes between"),
        ({"assign": '{"orders": [0]}'}, False, "exactly one of"),
        ({"kafka.auto.offset.reset": "latest"}, False, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, False, "checkpoint"),
        ({"kafka.security.protocol": "SSL"}, False, "only PLAINTEXT"),
        ({"badBatches": "skip"}, False, "one of fail, report"),
        ({"findings": "/tmp/x"}, False, "badBatches=report"),
        ({"kafka.isolation.level": "none"}, False, "read_committed, read_uncommitted"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options, streaming, says):
    with pytest.raises(OptionError) as raised:
        reading(streaming=streaming, **options)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"subscribePattern": "a"}, "exactly one of"),
        ({"startingOffsets": "{"}, "startingOffsets='{'"),
        ({"path": ""}, "is missing"),
        ({"startingOffsets": "latest"}, ""),
        ({"endingOffsets": "latest"}, ""),
    ],
)
def test_load_says_what_is_wrong_with_batch_and_stream(options, says):
    """Before a query is there; what one of the two may have waits until it is known which one it is."""
    from stratalog.spark.source import StratalogDataSource

    source = StratalogDataSource({**BASE, **options})
    if not says:
        assert source.schema()
        return
    with pytest.raises(OptionError) as raised:
        source.schema()
    assert says in str(raised.value)


@pytest.mark.parametrize("given", [{}, {"subscribe": " , "}, {"assign": "{}"}, {"assign": '{"t": ["0"]}'},
                                   {"subscribePattern": "("}, {"subscribe": "a", "subscribePattern": "a"}])  # fmt: skip
def test_exactly_one_sound_selection_is_wanted(given):
    with pytest.raises(OptionError):
        read_options({"path": "/data", **given}, streaming=False)


def test_a_path_or_a_broker_is_wanted():
    with pytest.raises(OptionError, match=r"path or kafka\.bootstrap\.servers"):
        read_options({"subscribe": "a"}, streaming=False)


def test_a_path_may_be_relative_or_a_uri_or_several(monkeypatch, tmp_path):
    """Tasks get absolute places; `load` of a list of paths comes as `paths`."""
    monkeypatch.chdir(tmp_path)
    assert reading(path="a dir, ./b").path == (str(tmp_path / "a dir"), str(tmp_path / "b"))
    assert reading(path="file:///a%20dir").path == ("/a dir",)
    assert reading(path="file:/a").path == ("/a",)
    assert reading(paths='["/x,y", "file:/z"]').path == ("/x,y", "/z")
    assert write_options({"path": "file:/out", "topic": "t"}).path == "/out"


def test_brokers_are_named_as_kafka_names_them():
    for value in ("h:1", "a:1, b:2", "[::1]:9092", "a:1,"):
        assert reading(**{"kafka.bootstrap.servers": value}).bootstrap == value


def test_a_fetch_size_that_kafka_takes_is_taken():
    for given, used in ((0, 1 << 10), (1 << 20, 1 << 20), (100 << 20, 64 << 20), (2**31 - 1, 64 << 20)):
        assert reading(**{"kafka.max.partition.fetch.bytes": str(given)}).fetch_bytes == used


def test_durations_are_those_of_spark():
    for text, seconds in (("500ms", 0.5), ("30s", 30), ("15M", 900), ("2 min", 120), ("1H", 3600), ("750", 0.75)):
        assert reading(streaming=True, maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_columns_keep_the_order_that_was_asked_for():
    assert columns_of({}) == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert columns_of({"includeHeaders": "true"})[-1] == "headers"
    assert columns_of({"columns": "Offset, key"}) == ("offset", "key")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compression": "brotli"}, "one of none, gzip"),
        ({"kafka.partitioner.class": "org.example.P"}, "column partition"),
        ({"kafka.acks": "1"}, "all replicas"),
        (
            {"compression": "gzip", "compressionLevel": "22"},
            "compressionLevel='22': a whole number of at least 1 and at most 9",
        ),
        ({"kafka.compression.type": "lz4", "compressionLevel": "0"}, "at least 1 and at most 17"),
        ({"compressionLevel": "3"}, "it goes with gzip, lz4, zstd; compression is none"),
        ({"path": "/data"}, "both are given"),
        ({"guarantee": "maybe"}, "exactly-once, at-least-once"),
        ({"kafka.key.serializer": "x"}, "cannot be set"),
    ],
)
def test_a_wrong_option_of_the_sink_is_named_too(options, says):
    with pytest.raises(OptionError) as raised:
        write_options({**SINK, **options})
    assert says in str(raised.value)


def test_the_codec_comes_from_either_name():
    assert write_options({**SINK, "kafka.compression.type": "lz4"}).compression == "lz4"
    chosen = write_options({**SINK, "kafka.compression.type": "lz4", "compression": "zstd", "compressionLevel": "19"})
    assert (chosen.compression, chosen.level) == ("zstd", 19)


def test_the_line_behind_a_stack_is_found():
    """`reason` gives what a person can use of an exception with Python's and Java's stacks in its text."""
    text = (
        '[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File "x.py", line 3, in f\n'
        "stratalog.spark.errors.NotThere: there is no topic x at h:1\n\n\tat org.apache.spark.Foo(Foo.scala:1)"
    )
    assert reason(RuntimeError(text)) == "there is no topic x at h:1"
    assert reason(RuntimeError("plain\nmore")) == "plain"
    text = "[X] thrown\nTraceback (most recent call last):\n  File 'x'\nTypeError: not so\n\n\tat java.lang.Foo: bar"
    assert reason(RuntimeError(text)) == "TypeError: not so"


@pytest.mark.parametrize("name", ["key", "value", "headers"])
def test_a_column_that_may_be_null_cannot_be_not_null(name):
    from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

    from stratalog.spark.schema import checked

    kind = BinaryType()
    if name == "headers":
        kind = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    offset = StructField("offset", LongType(), nullable=False)
    with pytest.raises(OptionError, match=f"the column {name} is null in some records"):
        checked(StructType([offset, StructField(name, kind, nullable=False)]))
    assert checked(StructType([offset, StructField(name, kind)])) == ("offset", name)
