"""Which offsets a query over files reads: times behind an open transaction, ranges without an offset, damage on the
way, snapshots of the producers that are missing (issue 7).  No Spark is started here."""

import pytest

from stratalog.records.batch import build_batch, build_control_batch
from stratalog.records.control import ABORT, key, marker_value
from stratalog.spark import origin
from stratalog.spark.errors import OptionError
from stratalog.spark.files import Files
from stratalog.spark.options import read_options
from stratalog.spark.origin import Span
from stratalog.storage.producers import ProducerEntry, encode_snapshot

HERE = ("in", 0)


def segment(directory, base, *batches):
    directory.mkdir(exist_ok=True)
    (directory / f"{base:020d}.log").write_bytes(b"".join(map(bytes, batches)))


def plain(base, *values, stamp=1):
    return build_batch([(stamp + i, None, value) for i, value in enumerate(values)], base_offset=base)


def transactional(base, *values, stamp=1):
    rows = [(stamp + i, None, value) for i, value in enumerate(values)]
    return build_batch(rows, base_offset=base, producer_id=9, producer_epoch=0, base_sequence=base, transactional=True)


def aborted(base, stamp=9):
    return build_control_batch(
        stamp, key(ABORT), marker_value(0), base_offset=base, producer_id=9, producer_epoch=0, transactional=True
    )


def files_options(place, **options):
    return read_options({"path": str(place), "subscribe": "in", **options}, streaming=False)


# --- times and offsets ------------------------------------------------------------------------------------------------
def planned(options):
    found = Files(options)
    partitions = found.partitions(options.selection)
    spans = found.spans(partitions)
    starts = origin.resolve_start(found, options, partitions, spans)
    return origin.within(options, starts, origin.resolve_end(found, options, partitions, spans), spans)


def test_a_time_behind_the_last_stable_offset_is_none_for_a_committed_reader(tmp_path):
    """Kafka's ListOffsets answers a committed reader with offsets below the last stable one only: a query that ends at
    such a time ends where it may read to, one that begins there has no record."""
    segment(tmp_path / "in-0", 0, plain(0, b"a", b"b", stamp=10), transactional(2, b"c", b"d", stamp=20))
    assert planned(files_options(tmp_path, endingTimestamp="21")) == {HERE: Span(0, 2)}
    assert planned(files_options(tmp_path, endingTimestamp="11")) == {HERE: Span(0, 1)}
    dirty = files_options(tmp_path, endingTimestamp="21", isolation="uncommitted")
    assert planned(dirty) == {HERE: Span(0, 3)}
    with pytest.raises(OptionError, match="no record from then on"):
        planned(files_options(tmp_path, startingTimestamp="20"))
    lax = files_options(tmp_path, startingTimestamp="20", startingOffsetsByTimestampStrategy="latest")
    assert planned(lax) == {}


def test_a_time_is_that_of_a_marker_too(tmp_path):
    """As Kafka's ListOffsets answers, and so as the same query finds it over the wire: what comes behind the marker is
    read, whatever its time, and a time that only a marker has is no error."""
    marked = (transactional(0, b"t", stamp=10), aborted(1, stamp=100))
    segment(tmp_path / "in-0", 0, *marked, plain(2, b"earlier", stamp=50), plain(3, b"later", stamp=150))
    assert planned(files_options(tmp_path, startingTimestamp="90")) == {HERE: Span(1, 4)}
    assert planned(files_options(tmp_path, startingTimestamp="101")) == {HERE: Span(3, 4)}
    segment(tmp_path / "in-0", 0, *marked)
    assert planned(files_options(tmp_path, startingTimestamp="90")) == {HERE: Span(1, 2)}
    with pytest.raises(OptionError, match="no record from then on"):
        planned(files_options(tmp_path, startingTimestamp="101"))


@pytest.mark.parametrize("place", [0, 5, 99])
def test_a_range_without_an_offset_is_empty_wherever_it_lies(tmp_path, place):
    segment(tmp_path / "in-0", 5, plain(5, b"a", b"b"))
    offsets = f'{{"in": {{"0": {place}}}}}'
    assert planned(files_options(tmp_path, startingOffsets=offsets, endingOffsets=offsets)) == {}


def test_times_are_found_behind_a_damaged_batch_that_is_reported(tmp_path):
    broken = bytearray(plain(0, b"a" * 50, stamp=10))
    broken[-5] ^= 1
    segment(tmp_path / "in-0", 0, broken, plain(1, b"b", stamp=20))
    lax = {"badBatches": "report", "findings": str(tmp_path / "found"), "startingTimestamp": "15"}
    assert planned(files_options(tmp_path, **lax)) == {HERE: Span(1, 2)}
    assert len(list((tmp_path / "found").iterdir())) == 1


# --- open transactions ------------------------------------------------------------------------------------------------
def entry(first_offset):
    return ProducerEntry(9, epoch=0, txn_first_offset=first_offset)


@pytest.mark.parametrize(
    "snapshots",
    [
        {},  # the first roll: the broker writes the snapshot after it has made the segment
        {0: []},
        {0: [], 6: b"damaged"},
        {6: [entry(2)]},
    ],
)
def test_a_transaction_that_is_open_since_an_earlier_segment_is_not_read(tmp_path, snapshots):
    """Without the newest snapshot of the producers the segments since the one before it are gone through."""
    directory = tmp_path / "in-0"
    segment(directory, 0, plain(0, b"a", b"b"), transactional(2, b"c", b"d"), plain(4, b"e", b"f"))
    segment(directory, 6, plain(6, b"g"))
    for base, entries in snapshots.items():
        data = entries if isinstance(entries, bytes) else encode_snapshot(entries)
        (directory / f"{base:020d}.snapshot").write_bytes(data)
    found = Files(files_options(tmp_path))
    assert found.spans([HERE])[HERE] == Span(0, 2)
    with (directory / f"{6:020d}.log").open("ab") as file:
        file.write(bytes(aborted(7)))
    assert found.spans([HERE])[HERE] == Span(0, 8)
