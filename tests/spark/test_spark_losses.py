"""A stream's log that became shorter or is gone (issue 7).  No Spark is started here."""

import shutil

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import stratalog.testing
from stratalog.client import Client, admin
from stratalog.spark.errors import DataLoss
from stratalog.spark.options import read_options
from stratalog.spark.stream import StreamReader

LIVE = shutil.ignore_patterns("*.tmp")
"""What a running broker may rename while its directory is copied."""


def streaming(broker, **options):
    raw = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "in", "startingOffsets": "earliest", **options}
    raw = {name: value for name, value in raw.items() if value is not None}
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


@pytest.mark.parametrize("way", ["files", "broker"])
def test_a_partition_that_is_gone_when_its_batch_is_repeated_is_a_loss(tmp_path, capsys, monkeypatch, way):
    """A query that was killed in a batch plans it again from its checkpoint, by a reader that has seen nothing yet."""
    monkeypatch.setattr("stratalog.client.client._pause", lambda attempt: None)
    with stratalog.testing.broker({"in": 1, "on": 1}) as broker:
        for topic in ("in", "on"):
            broker.produce(topic, [b"x"] * 5)
        options = {"subscribe": None, "subscribePattern": "in|on"}
        if way == "files":
            shutil.copytree(broker.directory / "data", tmp_path / "copy", ignore=LIVE)
            options |= {"kafka.bootstrap.servers": None, "path": str(tmp_path / "copy")}
        first = streaming(broker, **options)
        begin = first.initialOffset()
        ends = first.latestOffset(begin, first.getDefaultReadLimit())
        planned = first.partitions(begin, ends)
        if way == "files":
            shutil.rmtree(tmp_path / "copy" / "on-0")
        else:
            with Client(broker.bootstrap) as client:
                admin.delete_topics(client, ["on"])
        for start in (begin, {}):  # noticed, or new in this batch
            with pytest.raises(DataLoss, match="on-0 does not exist any more"):
                streaming(broker, **options).partitions(start, ends)
            lax = streaming(broker, failOnDataLoss="false", **options)
            tasks = lax.partitions(start, ends)
            assert [piece.name for task in tasks for piece in task.value] == ["in-0"]
            assert sum(batch.num_rows for task in tasks for batch in lax.read(task)) == 5
        assert "on-0 does not exist any more" in capsys.readouterr().err
        # Gone between planning and reading.
        assert sum(batch.num_rows for task in planned for batch in lax.read(task)) == 5
        assert "on-0" in capsys.readouterr().err


def test_files_that_go_away_are_read_from_the_broker(tmp_path):
    with stratalog.testing.broker({"in": 2}) as broker:
        for partition in range(2):
            broker.produce("in", [b"x"] * 5, partition=partition)
        shutil.copytree(broker.directory / "data", tmp_path / "copy", ignore=LIVE)
        reader = streaming(broker, path=str(tmp_path / "copy"))
        begin = reader.initialOffset()
        ends = reader.latestOffset(begin, reader.getDefaultReadLimit())
        shutil.rmtree(tmp_path / "copy" / "in-1")
        tasks = reader.partitions(begin, ends)
        assert [bool(piece.directory) for task in tasks for piece in task.value] == [True, False]
        assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 10
        assert reader.latestOffset(ends, reader.getDefaultReadLimit()) == ends
        reader.stop()
