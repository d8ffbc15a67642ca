"""Replays: a range arrives as it was, in order, and a job that is tried again adds nothing."""

import pytest
from jobs_kit import PARTITIONS, Sent

import stratalog.testing
from stratalog.spark import reason, replay
from stratalog.spark.errors import OptionError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def broker():
    with stratalog.testing.broker({"in": PARTITIONS}) as running:
        yield running


@pytest.fixture(scope="module")
def sent(broker):
    return Sent(broker, "in").send(2_000)


def plain(records):
    return [(r.partition, r.timestamp, r.key, r.value, r.headers) for r in records]


def wanted(sent, chosen=lambda row: True):
    rows = sorted(row for row in sent.rows if chosen(row))
    return [(row.partition, row.timestamp, row.key, row.value, row.headers) for row in rows]


def data_of(broker):
    return str(broker.directory / "data")


@pytest.mark.parametrize("way", ["path", "wire", "both"])
def test_a_whole_topic_to_another_broker_is_the_same_topic(spark, broker, sent, way) -> None:
    """Keys, values, headers, timestamps, partitions and the order in each."""
    options = {}
    if way != "wire":
        options["path"] = data_of(broker)
    if way != "path":
        options["bootstrap"] = broker.bootstrap
    with stratalog.testing.broker({"out": PARTITIONS}) as other:
        report = replay(
            "in", "out", spark, to_bootstrap=other.bootstrap, write_options_={"compression": "lz4"}, **options
        )
        assert plain(other.records("out")) == wanted(sent)
        assert report.records == 2_000
        assert [(one.partition, one.start) for one in report.partitions] == [(f"in-{p}", 0) for p in range(PARTITIONS)]
        assert all(one.repeated == 0 and one.bytes > 0 for one in report.partitions)


def test_a_range_of_offsets_and_one_of_time(spark, broker, sent) -> None:
    broker.create_topic("by-offset", PARTITIONS)
    options = {"startingOffsets": '{"in":{"0":100,"1":-2,"2":50}}', "endingOffsets": '{"in":{"0":200,"1":10,"2":50}}'}
    replay("in", "by-offset", spark, bootstrap=broker.bootstrap, options=options)
    bounds = {0: (100, 200), 1: (0, 10), 2: (50, 50)}
    inside = wanted(sent, lambda row: bounds[row.partition][0] <= row.offset < bounds[row.partition][1])
    assert plain(broker.records("by-offset")) == inside

    broker.create_topic("by-time", PARTITIONS)
    stamps = sorted(row.timestamp for row in sent.rows)
    first, last = stamps[500], stamps[1500]
    options = {"startingTimestamp": str(first), "endingTimestamp": str(last)}
    replay("in", "by-time", spark, path=data_of(broker), to_bootstrap=broker.bootstrap, options=options)
    assert plain(broker.records("by-time")) == wanted(sent, lambda row: first <= row.timestamp < last)


def test_by_key_to_a_topic_with_fewer_partitions(spark, broker, sent) -> None:
    from stratalog.client import partition_for_key

    broker.create_topic("narrow", 2)
    with pytest.raises(OptionError, match="has 2 partitions, the range has a partition 2"):
        replay("in", "narrow", spark, bootstrap=broker.bootstrap)
    replay("in", "narrow", spark, bootstrap=broker.bootstrap, partitions="key")
    found = broker.records("narrow")
    assert sorted(r.timestamp for r in found) == sorted(row.timestamp for row in sent.rows)
    assert all(partition_for_key(r.key, 2) == r.partition for r in found if r.key is not None)


def test_a_job_that_is_tried_again_with_its_id_adds_nothing(spark, broker, sent) -> None:
    """As after a driver that died: a part was written, of one partition nothing; then all of it, twice."""
    broker.create_topic("again", PARTITIONS)
    half = {"endingOffsets": '{"in":{"0":0,"1":300,"2":300}}'}
    whole = {"startingOffsets": "earliest"}
    options = {"path": data_of(broker), "to_bootstrap": broker.bootstrap, "write_id": "move-1"}
    assert replay("in", "again", spark, options=half, **options).records == 600
    second = replay("in", "again", spark, options=whole, **options)
    assert (second.records, sum(one.repeated for one in second.partitions)) == (2_000, 600)
    third = replay("in", "again", spark, options=whole, **options)
    assert sum(one.repeated for one in third.partitions) == 2_000
    assert plain(broker.records("again")) == wanted(sent)


def test_after_a_task_that_failed_the_next_run_goes_on_behind_it(spark, broker, sent) -> None:
    """One task is refused while the others write: the job fails, the next one with its id finishes."""
    broker.create_topic("dying", PARTITIONS)
    options = {"path": data_of(broker), "to_bootstrap": broker.bootstrap, "write_id": "move-2"}
    broker.refuse("Produce", times=1, error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(Exception, match=r".") as raised:
        replay("in", "dying", spark, write_options_={"batchBytes": "4k"}, **options)
    assert "\n" not in reason(raised.value)
    done = replay("in", "dying", spark, write_options_={"batchBytes": "4k"}, **options)
    assert done.records == 2_000
    assert plain(broker.records("dying")) == wanted(sent)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("in", "in"), {}, "would be read into itself"),
        (("in", "out"), {"partitions": "all"}, "partitions='all': keep or key"),
        (("in", "nowhere"), {}, "nowhere"),
        (("nowhere", "in"), {}, "nowhere"),
        (("in", "out"), {"to_bootstrap": "127.0.0.1:1"}, "127.0.0.1:1"),
        (("in", "again"), {"options": {"minPartitions": "9"}}, "minPartitions=9: not in a replay"),
        (("in", "out"), {"bootstrap": None}, "to_bootstrap is missing"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(spark, broker, sent, arguments, options, says) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        replay(*arguments, spark, **{"bootstrap": broker.bootstrap, **options})
    assert says in reason(raised.value) and "\n" not in reason(raised.value)
