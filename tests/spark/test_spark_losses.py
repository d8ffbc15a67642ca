"""A stream's log that became shorter or is gone (issue 7).  No Spark is started here."""

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import stratalog.testing
from stratalog.spark.errors import DataLoss
from stratalog.spark.options import read_options
from stratalog.spark.stream import StreamReader


def streaming(broker, **options):
    raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "in", "startingOffsets": "earliest", **options}
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    return StreamReader(read_options(raw, streaming=True), schema)


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "2"}, {"minOffsetsPerTrigger": "50"}])
def test_a_log_that_became_shorter_is_a_loss_and_then_read_from_where_it_ends(options):
    """As Kafka's source does it: the query goes on at the new end instead of waiting until the old one is passed."""
    begin = {"in": {"0": 100, "1": 0}}
    with stratalog.testing.broker({"in": 2}) as broker:
        broker.produce("in", [b"x"] * 5, partition=0)
        strict = streaming(broker, **options)
        with pytest.raises(DataLoss, match="in-0 ends at offset 5, the query stands at 100"):
            strict.latestOffset(begin, strict.getDefaultReadLimit())
        strict.prepareForTriggerAvailableNow()
        with pytest.raises(DataLoss, match="in-0 ends at offset 5"):
            strict.latestOffset(begin, strict.getDefaultReadLimit())
        for now in (False, True):
            lax = streaming(broker, failOnDataLoss="false", **options)
            if now:
                lax.prepareForTriggerAvailableNow()
            ends = lax.latestOffset(begin, lax.getDefaultReadLimit())
            assert ends == {"in": {"0": 5, "1": 0}}
            assert lax.partitions(begin, ends) == []
            assert lax.latestOffset(ends, lax.getDefaultReadLimit()) == ends
            lax.stop()
        strict.stop()


def test_a_partition_that_is_gone_is_said_once(capsys):
    begin = {"in": {"0": 5}, "other": {"0": 7}}
    with stratalog.testing.broker({"in": 1}) as broker:
        broker.produce("in", [b"x"] * 5)
        reader = streaming(broker, failOnDataLoss="false")
        ends = reader.latestOffset(begin, reader.getDefaultReadLimit())
        assert ends == {"in": {"0": 5}}
        assert "other-0 does not exist any more" in capsys.readouterr().err
        assert reader.latestOffset(ends, reader.getDefaultReadLimit()) == ends
        assert capsys.readouterr().err == ""
        reader.stop()
