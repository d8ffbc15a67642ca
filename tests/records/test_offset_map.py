"""The offset map and the rewrite of batches: twins agree, and both do what a dict and a loop would do (issue 6)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.records import kernels, plain
from stratalog.records.arrow import payloads_of
from stratalog.records.batch import BatchBuilder, batches, check, records_of
from stratalog.records.kernels import (
    DISCARD,
    EMPTY_TRANSACTION,
    MAP_FULL,
    NEEDS_PYTHON,
    OK,
    OUTPUT_FULL,
    RETAIN_EMPTY,
    BatchTable,
    FilterRules,
)
from stratalog.records.offset_map import OffsetMap, rewrite_batch, rewrite_run

compiled = kernels.load_kernels()
TWINS = (plain, compiled)
twins = pytest.mark.parametrize("twin", TWINS, ids=["plain", "compiled"])
SECRET = bytes(range(16))
DAY = 86_400_000

keys = st.none() | st.sampled_from((b"", b"a", b"b", b"long key of more than eight bytes", b"12345678"))
values = st.none() | st.binary(max_size=20)
records = st.lists(st.tuples(st.integers(0, 1 << 41), keys, values), min_size=1, max_size=9)


def batch(base, rows, **options):
    builder = BatchBuilder(base_offset=base, **options)
    for time, key, value in rows:
        builder.append(time, key, value, [("h", b"1")] if time % 3 == 0 else [])
    return bytes(builder.build())


@st.composite
def logs(draw, codecs=(0,)):
    out = b""
    base = draw(st.integers(0, 100))
    for rows in draw(st.lists(records, min_size=1, max_size=5)):
        horizon = draw(st.sampled_from((None, None, 500, 2000)))
        out += batch(
            base,
            rows,
            timestamp_type=draw(st.integers(0, 1)),
            codec=draw(st.sampled_from(codecs)),
            producer_id=draw(st.sampled_from((-1, 7))),
            producer_epoch=0,
            base_sequence=base,
            transactional=draw(st.booleans()),
            delete_horizon_ms=horizon,
        )
        base += len(rows) + draw(st.integers(0, 3))
    return out


def scan(data, twin=plain):
    table = BatchTable(64)
    assert twin.scan_batches(data, table) == OK
    return table


def model(data, start=0):
    """Key to highest offset."""
    latest = {}
    for header in batches(data):
        for record in records_of(data, header):
            if record.key is not None and record.offset >= start:
                latest[record.key] = record.offset
    return latest


# --- the hash -------------------------------------------------------------------------------------------------------
@twins
def test_the_hash_is_siphash_of_128_bits(twin):
    """The first vectors of the reference implementation: key 00 to 0f, input 00, 00 01, ..."""
    k0, k1 = (int.from_bytes(bytes(range(i, i + 8)), "little") for i in (0, 8))
    vectors = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
    for size, expected in vectors.items():
        low, high = twin.hash_key(bytes(range(size)), k0, k1)
        assert (low.to_bytes(8, "little", signed=True) + high.to_bytes(8, "little", signed=True)).hex() == expected


@given(st.binary(max_size=70), st.binary(min_size=16, max_size=16))
@settings(max_examples=200, deadline=None)
def test_the_hash_agrees_with_its_twin(key, secret):
    k0, k1 = (int.from_bytes(secret[i : i + 8], "little", signed=True) for i in (0, 8))
    assert compiled.hash_key(key, k0, k1) == plain.hash_key(key, k0, k1)


# --- the map --------------------------------------------------------------------------------------------------------
@given(logs(), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_the_map_holds_the_highest_offset_of_each_key(data, start):
    for twin in TWINS:
        offset_map = OffsetMap(24 * 100, secret=SECRET, twin=twin)
        table = scan(data)
        assert offset_map.put_run(data, table, start_offset=start)[0] == OK
        wanted = model(data, start)
        assert len(offset_map) == len(wanted)
        assert {key: offset_map.get(key) for key in wanted} == wanted
        assert offset_map.get(b"never seen") == -1
        last = [header.last_offset for header in batches(data)][-1]
        assert offset_map.latest_offset == (last if last >= start else -1)
        bitmap = offset_map.survivors(0, last + 1)
        found = {i for i in range(last + 1) if bitmap[i >> 3] >> (i & 7) & 1}
        assert found == set(wanted.values())
        assert sorted(offset_map.items()[1]) == sorted(wanted.values())


@twins
def test_a_full_map_stops_at_its_load_and_knows_up_to_where(twin):
    """C08: more keys than slots; everything before the record that found no room is in, and the pass ends there."""
    data = batch(10, [(i, b"%d" % i, b"v") for i in range(30)]) + batch(40, [(1, b"x", b"v")])
    offset_map = OffsetMap(24 * 20, secret=SECRET, load_factor=0.5, twin=twin)
    assert offset_map.entries_max == 10
    code, row, _ = offset_map.put_run(data, scan(data))
    assert (code, row, len(offset_map)) == (MAP_FULL, 0, 10)
    assert offset_map.latest_offset == 19
    assert [offset_map.get(b"%d" % i) for i in range(30)] == [*range(10, 20)] + [-1] * 20
    offset_map.clear()
    assert (len(offset_map), offset_map.latest_offset, offset_map.get(b"3")) == (0, -1, -1)


@twins
def test_every_slot_can_be_used(twin):
    offset_map = OffsetMap(24 * 64, secret=SECRET, load_factor=1.0, twin=twin)
    assert all(offset_map.put(b"%d" % i, i) for i in range(64))
    assert not offset_map.put(b"64", 64)
    assert [offset_map.get(b"%d" % i) for i in range(65)] == [*range(64), -1]


@twins
def test_aborted_and_control_batches_are_not_mapped(twin):
    data = batch(0, [(1, b"a", b"v")]) + batch(1, [(1, b"b", b"v")]) + batch(2, [(1, b"c", b"v")], control=True)
    offset_map = OffsetMap(24 * 10, secret=SECRET, twin=twin)
    assert offset_map.put_run(data, scan(data), verdicts=bytes((0, DISCARD, 0)))[0] == OK
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [0, -1, -1]
    assert offset_map.latest_offset == 2


@twins
def test_compressed_batches_ask_for_their_records(twin):
    data = batch(0, [(1, b"a", b"v")]) + batch(1, [(1, b"b", b"v" * 50)], codec=4)
    table = scan(data)
    offset_map = OffsetMap(24 * 10, secret=SECRET, twin=twin)
    assert offset_map.put_run(data, table)[:2] == (NEEDS_PYTHON, 1)
    assert offset_map.put_run(data, table, first=1, payloads=payloads_of(data, table))[0] == OK
    assert [offset_map.get(key) for key in (b"a", b"b")] == [0, 1]


@twins
def test_forced_collisions_count_two_keys_as_one(twin):
    """C15: what a collision does, with a hash of one bit; with all 128 and a secret nobody can make one."""
    weak = OffsetMap(24 * 100, secret=SECRET, weak_bits=1, twin=twin)
    strong = OffsetMap(24 * 100, secret=SECRET, twin=twin)
    for i in range(50):
        assert weak.put(b"%d" % i, i) and strong.put(b"%d" % i, i)
    assert len(weak) == 2
    assert len(strong) == 50
    assert all(weak.get(b"%d" % i) in (48, 49) or weak.get(b"%d" % i) >= i for i in range(50))


def test_two_maps_with_different_secrets_hash_differently():
    """Colliding keys cannot be prepared: they would have to collide under a secret that nobody has yet."""
    one, two = (OffsetMap(24 * 100, secret=bytes((i,) * 16), twin=compiled) for i in (1, 2))
    for offset_map in (one, two):
        offset_map.put(b"key", 5)
    assert one.items()[0].tolist() != two.items()[0].tolist()


def test_a_map_takes_the_memory_it_is_given_and_no_more():
    offset_map = OffsetMap(1 << 20, secret=SECRET, twin=compiled)
    assert offset_map.slots == (1 << 20) // 24
    assert len(offset_map._slots._memory) <= 1 << 20
    with pytest.raises(ValueError, match="hold no key"):
        OffsetMap(10, secret=SECRET)


# --- the rewrite ----------------------------------------------------------------------------------------------------
def filtered(twin, data, *, latest=None, start=0, now=1000, verdicts=None, bitmap=True, room=1 << 16):
    table = scan(data)
    offset_map = OffsetMap(24 * 100, secret=SECRET, twin=twin)
    assert offset_map.put_run(data, table, start_offset=start, payloads=payloads_of(data, table))[0] == OK
    if latest is None:
        latest = offset_map.latest_offset
    bits = offset_map.survivors(start, latest + 1) if bitmap else None
    rules = FilterRules(latest, now, DAY, bits, start if bits else 0, latest + 1 if bits else 0)
    output = bytearray(room)
    if verdicts is None:
        verdicts = bytes(table.count)
    run = offset_map.filter_run(data, table, rules, verdicts, output)
    return run, bytes(output[: run.output_size])


def survivors_by_hand(data, latest, start, now, verdicts):
    """Kafka's rule, one record after the other: {offset: (timestamp, key, value, headers)} and the batches kept."""
    offsets = model(data, start)
    kept = {}
    bases = []
    for header, verdict in zip(batches(data), verdicts, strict=True):
        found = {}
        for record in records_of(data, header):
            horizon = header.delete_horizon_ms
            keep = record.offset > latest
            if not keep and record.key is not None:
                last = record.offset >= offsets.get(record.key, -1)
                keep = last and (record.value is not None or horizon is None or now < horizon)
            if keep and not verdict & DISCARD:
                found[record.offset] = (record.timestamp, record.key, record.value, record.headers, record.sequence)
        if found or verdict & RETAIN_EMPTY:
            bases.append((header.base_offset, header.last_offset, header.producer_id, header.base_sequence))
        kept.update(found)
    return kept, bases


@given(logs(), st.data())
@settings(max_examples=200, deadline=None)
def test_the_rewrite_keeps_what_kafkas_rule_keeps(data, draw):
    """Both twins, with the bitmap and with look-ups, byte for byte the same; and the records that a loop would keep."""
    table = scan(data)
    last = table.column(kernels.LAST_OFFSET)[-1]
    latest = draw.draw(st.integers(-1, last))
    start = draw.draw(st.integers(0, last))
    verdicts = bytes(
        draw.draw(st.sampled_from((0, 0, DISCARD, RETAIN_EMPTY, RETAIN_EMPTY | DISCARD))) for _ in range(table.count)
    )
    now = draw.draw(st.sampled_from((0, 1000, 3000)))
    runs = [
        filtered(twin, data, latest=latest, start=start, now=now, verdicts=verdicts, bitmap=bitmap)
        for twin in TWINS
        for bitmap in (False, True)
    ]
    assert runs[0] == runs[2] and runs[1] == runs[3]  # the twins
    assert runs[0][1] == runs[1][1]  # the bitmap changes nothing
    run, out = runs[0]
    assert run.code == OK
    wanted, bases = survivors_by_hand(data, latest, start, now, verdicts)
    found = {}
    for header in batches(out):
        check(out, header)
        for record in records_of(out, header):
            found[record.offset] = (record.timestamp, record.key, record.value, record.headers, record.sequence)
        tombstones = [record for record in records_of(out, header) if record.value is None]
        if tombstones:
            assert header.delete_horizon_ms is not None
    assert found == wanted
    assert bases == [(h.base_offset, h.last_offset, h.producer_id, h.base_sequence) for h in batches(out)]
    assert run.records_kept == len(wanted) and run.bytes_read == len(data)


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_batches_stop_the_rewrite_alike(data, draw):
    """A CRC that was made for damaged records: the code, the row and the output before it are the same."""
    bad = bytearray(data)
    table = scan(data)
    row = draw.draw(st.integers(0, table.count - 1))
    begin = table.row(row)[kernels.POSITION] + 61
    bad[draw.draw(st.integers(begin, begin + table.row(row)[kernels.SIZE] - 62))] = draw.draw(st.integers(0, 255))
    rules = FilterRules(1 << 40, 1000, DAY)
    runs = []
    for twin in TWINS:
        output = bytearray(1 << 16)
        run = twin.filter_run(bad, table, 0, bytes(table.count), None, rules, output, {})
        runs.append((run, bytes(output[: run.output_size])))
    assert runs[0] == runs[1]


@twins
def test_a_batch_that_loses_nothing_is_copied_as_it_is(twin):
    data = batch(5, [(9, b"a", b"v"), (3, b"b", b"v")], producer_id=4, producer_epoch=1, base_sequence=0)
    run, out = filtered(twin, data)
    assert out == data
    assert run.written.tolist() == [0, len(data), 5, 6, 9, 2, 0, 0]


@twins
def test_base_offset_last_offset_and_sequences_outlive_their_records(twin):
    """C07: the middle one of three survives; an idempotent producer's last sequence must still be found."""
    data = batch(
        5, [(10, b"a", b"1"), (20, b"b", b"2"), (30, b"a", b"3")], producer_id=4, producer_epoch=1, base_sequence=100
    ) + batch(8, [(40, b"a", b"4")])
    run, out = filtered(twin, data)
    first = next(batches(out))
    assert (first.base_offset, first.last_offset, first.count) == (5, 7, 1)
    assert (first.base_sequence, first.last_sequence, first.producer_id) == (100, 102, 4)
    assert (first.base_timestamp, first.max_timestamp) == (20, 20)
    assert run.highest_kept_offset == 8


@twins
def test_a_tombstone_gets_a_delete_horizon_and_goes_when_it_is_over(twin):
    """C05: stamped at the first cleaning, gone at the first one past the horizon; its time stays what it was."""
    data = batch(0, [(10, b"a", b"1"), (20, b"a", None)])
    run, once = filtered(twin, data, now=1000)
    header = next(batches(once))
    assert header.delete_horizon_ms == 1000 + DAY
    assert [record.timestamp for record in records_of(once, header)] == [20]
    run, twice = filtered(twin, once, now=999 + DAY)
    assert twice == once
    run, gone = filtered(twin, once, now=1000 + DAY)
    assert gone == b"" and run.records_read == 1


@twins
def test_an_emptied_batch_is_kept_where_the_verdict_says_so(twin):
    """Seed 001: the last batch of an active producer, and the last batch of the round."""
    data = batch(0, [(10, b"a", b"1")], producer_id=4, producer_epoch=1, base_sequence=7) + batch(1, [(20, b"a", b"2")])
    _, out = filtered(twin, data, verdicts=bytes((RETAIN_EMPTY, 0)))
    first, second = batches(out)
    check(out, first)
    assert (first.count, first.base_offset, first.last_offset, first.last_sequence) == (0, 0, 0, 7)
    assert (first.base_timestamp, first.max_timestamp, first.size) == (-1, 10, 61)
    assert second.count == 1


@twins
def test_a_marker_of_an_emptied_transaction_gets_a_horizon(twin):
    """C03, and seed 001 on markers: kept whatever its key, stamped once its transaction is empty."""
    data = batch(0, [(10, b"\0\0\0\1", b"\0" * 6)], producer_id=4, control=True, transactional=True)
    _, kept = filtered(twin, data)
    assert kept == data
    _, stamped = filtered(twin, data, verdicts=bytes((EMPTY_TRANSACTION,)), now=5)
    header = next(batches(stamped))
    assert header.delete_horizon_ms == 5 + DAY and header.is_control and header.is_transactional
    assert next(records_of(stamped, header)).key == b"\0\0\0\1"
    _, gone = filtered(twin, stamped, verdicts=bytes((DISCARD,)))
    assert gone == b""


@twins
def test_records_without_a_key_are_dropped_and_counted(twin):
    data = batch(0, [(10, None, b"1"), (10, b"a", b"1"), (10, None, b"1")])
    run, out = filtered(twin, data, bitmap=False)
    assert run.keyless == 2
    assert [record.offset for header in batches(out) for record in records_of(out, header)] == [1]


@twins
def test_a_full_output_is_written_out_and_the_run_goes_on(twin):
    """C08: no batch is split, none is lost."""
    data = b"".join(batch(i, [(i, b"%d" % i, b"v" * 40)]) for i in range(10))
    table = scan(data)
    rules = FilterRules(1 << 40, 0, DAY)
    out = b""
    row = calls = 0
    while row < table.count:
        room = bytearray(400)
        run = twin.filter_run(data, table, row, bytes(table.count), None, rules, room, {})
        out += room[: run.output_size]
        assert run.next_row > row and run.code in (OK, OUTPUT_FULL)
        row = run.next_row
        calls += 1
    assert out == data and calls > 1


@twins
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_compressed_again(twin, codec):
    rows = [(i, b"%d" % (i % 5), b"value" * 10) for i in range(20)]
    data = batch(0, rows, codec=codec, producer_id=3, base_sequence=0, producer_epoch=0)
    table = scan(data)
    offset_map = OffsetMap(24 * 100, secret=SECRET, twin=twin)
    assert offset_map.put_run(data, table, payloads=payloads_of(data, table))[0] == OK
    rules = FilterRules(offset_map.latest_offset, 0, DAY)
    run, out = rewrite_batch(data, table, 0, rules, 0, offset_map)
    header = next(batches(out))
    check(out, header)
    assert (header.codec, header.count, header.last_offset, header.size) == (codec, 5, 19, len(out))
    assert [record.offset for record in records_of(out, header)] == [15, 16, 17, 18, 19]
    assert run.written[1] == run.output_size == len(out)
    whole = FilterRules(-1, 0, DAY)
    run, out = rewrite_batch(data, table, 0, whole, 0, offset_map)
    assert bytes(out) == data  # nothing lost: the producer's own compression stays


def test_a_long_log_survives_like_a_dict():
    """Larger than a block of hashes, with more keys than a batch."""
    rng = random.Random(3)
    data = b""
    for number in range(40):
        data += batch(
            number * 200, [(number, b"%d" % rng.randrange(3000), b"v" * rng.randrange(30)) for _ in range(200)]
        )
    table = BatchTable(64)
    assert compiled.scan_batches(data, table) == OK
    offset_map = OffsetMap(24 * 4000, secret=SECRET, twin=compiled)
    assert offset_map.put_run(data, table)[0] == OK
    wanted = model(data)
    for bits in (offset_map.survivors(0, 8000), None):
        output = bytearray(2 * len(data))
        rules = FilterRules(7999, 0, DAY, bits, 0, 8000 if bits else 0)
        run = offset_map.filter_run(data, table, rules, bytes(table.count), output)
        out = bytes(output[: run.output_size])
        kept = {record.key: record.offset for header in batches(out) for record in records_of(out, header)}
        assert kept == wanted and run.records_kept == len(wanted)


@given(logs(codecs=(0, 1, 2, 3, 4)), st.data())
@settings(max_examples=100, deadline=None)
def test_a_run_of_any_codecs_is_its_batches_one_by_one(data, draw):
    """In outputs of any size, with and without the bitmap; positions and sizes are those of the written log."""
    table = scan(data)
    verdicts = bytes(draw.draw(st.sampled_from((0, 0, DISCARD, RETAIN_EMPTY))) for _ in range(table.count))
    for twin in TWINS:
        offset_map = OffsetMap(24 * 100, secret=SECRET, twin=twin)
        assert offset_map.put_run(data, table, payloads=payloads_of(data, table))[0] == OK
        latest = offset_map.latest_offset
        bits = offset_map.survivors(0, latest + 1) if draw.draw(st.booleans()) else None
        rules = FilterRules(latest, 1000, DAY, bits, 0, latest + 1)
        single = [rewrite_batch(data, table, i, rules, verdicts[i], offset_map) for i in range(table.count)]
        room = bytearray(draw.draw(st.sampled_from((0, 300, 1 << 16))))
        out = b""
        row = kept = 0
        while row < table.count:
            run, buffers = rewrite_run(data, table, rules, verdicts, offset_map, room, first=row)
            assert run.code == OK and run.next_row > row
            piece = b"".join(buffers)
            assert len(piece) == run.output_size == run.bytes_kept
            for line in range(0, len(run.written), kernels.OUT_ROW):
                place, size, base, last, newest, records, source, _ = run.written[line : line + kernels.OUT_ROW]
                header = next(batches(piece[place : place + size]))
                check(piece[place : place + size], header)
                assert (header.base_offset, header.last_offset, header.size) == (base, last, size)
                assert (header.max_timestamp, header.count) == (newest, records)
                assert table.row(source)[kernels.BASE_OFFSET] == base
            out += piece
            row = run.next_row
            kept += run.records_kept
        assert out == b"".join(bytes(written) for _, written in single)
        assert kept == sum(run.records_kept for run, _ in single)
