"""A broker that is restarted while it is read or written, and one that is not there (issue 7).  No Spark is started
here."""

import threading
import time

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import stratalog.testing
from stratalog.client import Unreachable
from stratalog.spark.options import read_options, write_options
from stratalog.spark.origin import Slice
from stratalog.spark.sink import Identity, TaskWriter
from stratalog.spark.stream import StreamReader
from stratalog.spark.wire import Wire, read_wire


def wire_options(broker, **options):
    raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "in", **options}
    return read_options(raw, streaming=False)


def back_after(broker, seconds):
    """Kill the broker now, and bring it back on the same port a while later."""
    broker.kill()
    timer = threading.Timer(seconds, broker.start)
    timer.start()
    return timer


def test_a_task_waits_for_a_broker_that_is_restarted_and_goes_on_at_its_offset():
    with stratalog.testing.broker({"in": 1}) as broker:
        broker.produce("in", [b"%d" % i * 100 for i in range(3000)])
        options = wire_options(broker, **{"kafka.max.partition.fetch.bytes": "16k"})
        batches = read_wire(Slice("in", 0, 0, 3000, ""), options, ("offset",), None, None)
        offsets = next(batches).column(0).to_pylist()
        timer = back_after(broker, 1.5)
        for batch in batches:
            offsets += batch.column(0).to_pylist()
        timer.join()
        assert offsets == list(range(3000))


def test_a_writer_waits_for_a_broker_that_is_restarted_and_doubles_nothing():
    import pyarrow as pa

    from stratalog.spark.rows import rows_of

    with stratalog.testing.broker({"out": 2}) as broker:
        options = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": "out", "batchBytes": "1k"})
        with TaskWriter(options, Identity("q", 0, 0)) as writer:
            timer = None
            for at in range(0, 2000, 100):
                values = pa.array([b"%d" % i for i in range(at, at + 100)])
                for rows in rows_of(pa.RecordBatch.from_arrays([values], names=["value"]), options):
                    writer.add(rows)
                timer = timer or (back_after(broker, 1.5) if at == 1000 else None)
            writer.finish()
        timer.join()
        assert sorted(int(r.value) for r in broker.records("out")) == list(range(2000))


def test_a_stream_waits_for_a_broker_that_is_restarted():
    with stratalog.testing.broker({"in": 1}) as broker:
        reader = stream_reader(broker)
        begin = reader.initialOffset()
        broker.produce("in", [b"x"] * 3)
        timer = back_after(broker, 1.5)
        assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == {"in": {"0": 3}}
        timer.join()
        reader.stop()


def test_a_broker_that_was_never_there_is_said_at_once():
    options = read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "in"}, streaming=True)
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"cannot connect to 127\.0\.0\.1:1"):
        Wire(options).partitions(options.selection)
    assert time.monotonic() - begun < 5


def test_patience_ends():
    with stratalog.testing.broker({"in": 1}) as broker:
        options = wire_options(broker, **{"kafka.default.api.timeout.ms": "300"})
        wire = Wire(options)
        wire.partitions(options.selection)
        broker.stop()
        begun = time.monotonic()
        with pytest.raises(Unreachable, match="cannot connect"):
            wire.partitions(options.selection)
        assert 0.3 <= time.monotonic() - begun < 5


def stream_reader(broker):
    raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "in", "startingOffsets": "earliest"}
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    return StreamReader(read_options(raw, streaming=True), schema)
