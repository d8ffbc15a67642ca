"""The kernels and their plain twins agree, on sound bytes and on damaged ones (issue 3, section 3)."""

import os
import random
import struct
import subprocess
import sys
import zlib

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.limits import RECORD_DECOMPRESSED_BYTES_MAX
from stratalog.records import kernels, plain, walk
from stratalog.records.batch import BatchBuilder, encode_record
from stratalog.records.errors import CorruptBatch, TooLarge
from stratalog.records.varint import varint_bytes

compiled = kernels.load_kernels()

nullable = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3)
times = st.integers(-2, 1 << 41)
record_lists = st.lists(st.tuples(times, nullable, nullable, header_lists), max_size=12)


@st.composite
def record_sections(draw):
    """(records section, count, base timestamp): dense or not."""
    records = draw(record_lists)
    base = draw(times)
    step = draw(st.sampled_from((1, 1, 3)))
    section = b"".join(
        encode_record(i * step, time - base, key, value, headers)
        for i, (time, key, value, headers) in enumerate(records)
    )
    return section, len(records), base


@st.composite
def damaged(draw, sections):
    """The same with a byte changed, bytes lost, bytes added or another count."""
    section, count, base = draw(sections)
    section = bytearray(section)
    kind = draw(st.sampled_from(("flip", "cut", "add", "count", "many")))
    if kind == "flip" and section:
        section[draw(st.integers(0, len(section) - 1))] = draw(st.integers(0, 255))
    elif kind == "many" and section:
        for _ in range(5):
            section[draw(st.integers(0, len(section) - 1))] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    elif kind == "cut":
        del section[draw(st.integers(0, len(section))) :]
    elif kind == "add":
        section += draw(st.binary(min_size=1, max_size=9))
    else:
        count = max(0, count + draw(st.sampled_from((-1, 1, 5))))
    return bytes(section), count, base


@given(record_sections())
@settings(max_examples=200, deadline=None)
def test_walk_agrees_with_its_twin(section):
    """STYLE 14."""
    assert compiled.walk(*section) == plain.walk(*section)
    assert plain.walk(*section)[0] == kernels.OK


@given(damaged(record_sections()))
@settings(max_examples=400, deadline=None)
def test_walk_of_damaged_records_agrees_with_its_twin(section):
    """The same code at the same position."""
    fast, slow = compiled.walk(*section), plain.walk(*section)
    assert fast[:3] == slow[:3]
    if fast[0] == kernels.OK:
        assert fast == slow


@given(st.binary(max_size=300), st.integers(0, 20))
@settings(max_examples=300, deadline=None)
def test_walk_of_random_bytes_agrees_with_its_twin(data, count):
    assert compiled.walk(data, count, 0)[:3] == plain.walk(data, count, 0)[:3]


def test_walk_sums_up_what_validation_asks_for():
    section = (
        encode_record(0, 5, b"k", b"v", [("h", b"x"), ("i", None)])
        + encode_record(1, 9, None, b"w")
        + encode_record(2, 7, b"k", None)
    )
    summary = walk.validate_records(section, 3, base_timestamp=1000)
    assert summary == walk.WalkSummary(3, 1005, 1009, 1, 1005, 2, True, 1, 1, 1, 2)
    with pytest.raises(CorruptBatch, match="record 1 has no key"):
        walk.validate_records(section, 3, base_timestamp=1000, require_keys=True)
    with pytest.raises(CorruptBatch, match="not 0, 1, 2"):
        walk.validate_records(
            section[: len(encode_record(0, 5, b"k", b"v", [("h", b"x"), ("i", None)]))]
            + encode_record(2, 7, b"k", None),
            2,
            base_timestamp=0,
            require_dense=True,
        )


@pytest.mark.parametrize(
    ("section", "count", "text", "position"),
    [
        (b"", 1, "past the end", 0),
        (varint_bytes(100) + b"abc", 1, "past the end", 0),
        (varint_bytes(-5), 1, "past the end", 0),
        (b"\xff\xff\xff\xff\xff\xff", 1, "too long", 0),
        (encode_record(0, 0, b"k", b"v")[:-1] + b"\x02", 1, "number of headers", 0),
        (encode_record(0, 0, b"k", b"v") * 2, 1, "left over", len(encode_record(0, 0, b"k", b"v"))),
        (varint_bytes(8) + b"\0\0\0\1\1" + varint_bytes(1) + b"\1\1", 1, "header has no key", 0),
        (varint_bytes(7) + b"\0\0\0\1\1\0\0", 1, "do not fill", 0),
    ],
)
@pytest.mark.parametrize("twin", [plain, compiled])
def test_damage_is_named_with_its_position(section, count, text, position, twin):
    """Bad input ends in the one declared error, with reason and position."""
    answer = twin.walk(section, count, 0)
    with pytest.raises(CorruptBatch, match=text) as caught:
        walk.fail(answer[0], answer[1])
    assert caught.value.position == position


@pytest.mark.parametrize("twin", [plain, compiled])
def test_a_record_above_its_limit_is_refused_before_it_is_in_a_log(twin):
    """security.md 7.1: capped per record.  The reader of records refuses it, so a producer must not bring it in."""
    for more, code in ((0, kernels.OK), (1, kernels.RECORD_TOO_LARGE)):
        size = RECORD_DECOMPRESSED_BYTES_MAX + more
        value = size - 1 - 1 - 1 - 1 - 4 - 1  # attributes, time, offset, no key, the value's length, no headers
        section = encode_record(0, 0, b"", None) + varint_bytes(size) + b"\0\0\2\1" + varint_bytes(value)
        whole = bytearray(len(section) + value + 1)  # zeros that nobody touches take no memory
        whole[: len(section)] = section
        answer = twin.walk(whole, 2, 0)
        assert answer[0] == code
        if code:
            assert answer[1:3] == (7, 1)
            with pytest.raises(TooLarge, match="more than 134217728 bytes"):
                walk.fail(*answer[:2])


extremes = st.sampled_from((-(2**63), -(2**63) + 1, -1, 0, 1, 2**62, 2**63 - 1)) | st.integers(-(2**63), 2**63 - 1)


@given(extremes, st.lists(extremes, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_timestamp_that_leaves_64_bits_is_refused_by_both_twins(base, deltas):
    """security.md 7.1: timestamps may not overflow."""
    section = b"".join(encode_record(i, delta, b"k", None) for i, delta in enumerate(deltas))
    answer = plain.walk(section, len(deltas), base)
    assert compiled.walk(section, len(deltas), base)[:3] == answer[:3]
    if all(-(2**63) <= base + delta < 2**63 for delta in deltas):
        assert answer == compiled.walk(section, len(deltas), base)
        assert answer[3:5] == (base + min(deltas), base + max(deltas))
    else:
        with pytest.raises(CorruptBatch, match="overflows"):
            walk.validate_records(section, len(deltas), base_timestamp=base)


@given(st.binary(max_size=20_000), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_crc_agrees_with_the_library(data, start):
    assert compiled.crc32c(data, start) == crc32c.crc32c(data, start)
    assert compiled.crc32c_portable(data, start) == crc32c.crc32c(data, start)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 383, 384, 385, 2303, 2304, 2305, 15_359, 15_360, 15_361, 40_000])
def test_crc_at_the_edges_of_its_lanes(size):
    data = random.Random(size).randbytes(size)
    assert compiled.crc32c(data) == crc32c.crc32c(data) == compiled.crc32c_portable(data)


# --- scanning -------------------------------------------------------------------------------------------------------
def old_message(offset, value, *, magic=1, codec=0):
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", 77) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def batch(base, records, **options):
    builder = BatchBuilder(base_offset=base, **options)
    for time, key, value, headers in records:
        builder.append(time, key, value, headers)
    return bytes(builder.build())


@st.composite
def logs(draw):
    out = bytearray()
    base = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 5)) == 0:
            out += old_message(base, draw(st.binary(max_size=9)), magic=draw(st.integers(0, 1)))
            base += 1
            continue
        records = draw(st.lists(st.tuples(times, nullable, nullable, header_lists), min_size=1, max_size=5))
        out += batch(
            base,
            records,
            timestamp_type=draw(st.integers(0, 1)),
            leader_epoch=draw(st.integers(-1, 9)),
            producer_id=draw(st.integers(-1, 1 << 40)),
            producer_epoch=draw(st.integers(-1, 100)),
            base_sequence=draw(st.integers(-1, 1 << 30)),
            transactional=draw(st.booleans()),
        )
        base += len(records) + draw(st.integers(0, 3))
    return bytes(out)


def scanned(twin, data, capacity=64, **options):
    table = kernels.BatchTable(capacity)
    code = twin.scan_batches(data, table, **options)
    assert code == table.error
    return code, table.count, table.end, table.rows[: table.count * kernels.ROW]


@given(logs())
@settings(max_examples=100, deadline=None)
def test_scan_agrees_with_its_twin(data):
    answer = scanned(compiled, data)
    assert answer == scanned(plain, data)
    assert answer[0] == kernels.OK and answer[2] == len(data)


@given(logs(), st.data())
@settings(max_examples=200, deadline=None)
def test_scan_of_damaged_logs_agrees_with_its_twin(data, draw):
    bad = bytearray(data or b"\0")
    for _ in range(draw.draw(st.integers(1, 3))):
        bad[draw.draw(st.integers(0, len(bad) - 1))] = draw.draw(st.integers(0, 255))
    del bad[draw.draw(st.integers(0, len(bad))) :]
    for verify in (True, False):
        for capacity in (2, 64):
            assert scanned(compiled, bad, capacity, verify=verify) == scanned(plain, bad, capacity, verify=verify)


def test_every_torn_tail_ends_at_the_last_whole_batch():
    """P05: what recovery needs to know of a file that was cut anywhere."""
    first = batch(0, [(1, b"k", b"v" * 50, [])])
    second = batch(1, [(2, b"k", b"v" * 50, [])])
    for cut in range(len(second)):
        code, count, end, _ = scanned(compiled, first + second[:cut])
        assert (count, end) == (1, len(first))
        assert code == (kernels.OK if cut == 0 else kernels.BATCH_TRUNCATED)
    assert scanned(compiled, first + bytes(200))[:3] == (kernels.BATCH_SIZE, 1, len(first))


def test_every_flipped_bit_of_a_batch_is_found():
    """All bits but those of base offset and leader epoch, which the CRC does not cover by design."""
    sound = batch(5, [(1, b"k", b"v", [])])
    for position in range(8, len(sound)):
        if 12 <= position < 16:
            continue
        for bit in range(8):
            bad = bytearray(sound)
            bad[position] ^= 1 << bit
            assert scanned(compiled, bad)[0] != kernels.OK


def test_a_table_that_is_full_says_where_to_go_on():
    data = b"".join(batch(i, [(1, b"k", b"v", [])]) for i in range(5))
    table = kernels.BatchTable(2)
    seen = []
    position = 0
    while True:
        code = compiled.scan_batches(data, table, position)
        seen += table.column(kernels.BASE_OFFSET)
        position = table.end
        if code != kernels.TABLE_FULL:
            break
    assert seen == [0, 1, 2, 3, 4] and code == kernels.OK


# --- importing ------------------------------------------------------------------------------------------------------
def run_python(code, **env):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_records_brings_no_numba_numpy_or_arrow():
    """Issue 3: importing stratalog must not import Numba."""
    loaded = run_python(
        "import sys, stratalog, stratalog.records, stratalog.records.batch, stratalog.records.walk\n"
        "import stratalog.records.arrow, stratalog.records.offset_map, stratalog.records.kernels\n"
        "from stratalog.records.kernels import best; best()\n"
        "print([m for m in ('numba', 'numpy', 'pyarrow') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_the_plain_twin_answers_until_the_kernels_are_loaded():
    names = run_python(
        "from stratalog.records import kernels\n"
        "first = kernels.best().__name__, kernels.kernels_ready()\n"
        "kernels.load_kernels()\n"
        "print(*first, kernels.best().__name__, kernels.kernels_ready())"
    )
    assert names == "stratalog.records.plain False stratalog.records.kernels.compiled True"


def test_the_cache_finds_a_place_without_a_writable_package_or_home(tmp_path):
    """A container with read-only site-packages: Numba alone would refuse to start."""
    place = run_python(
        "import os, tempfile\n"
        "real = os.access\n"
        "os.access = lambda path, mode: False if 'records' in str(path) else real(path, mode)\n"
        "from stratalog.records import kernels\n"
        "kernels._prepare_cache_directory()\n"
        "print(os.environ['NUMBA_CACHE_DIR'])",
        HOME="/proc/nowhere",
        XDG_CACHE_HOME="",
        TMPDIR=str(tmp_path),
        NUMBA_CACHE_DIR="",
    )
    assert place.startswith(str(tmp_path)) and os.path.isdir(place)


def test_without_a_compiler_the_plain_twin_stays():
    """What a debugger sets, and what another processor's name does to the CRC instruction."""
    code = (
        "from stratalog.records import kernels; k = kernels.load_kernels(); print(k.__name__, k.crc32c(b'123456789'))"
    )
    assert run_python(code, NUMBA_DISABLE_JIT="1") == f"stratalog.records.plain {0xE3069283}"


GUARDED = """
import ctypes, mmap, random
from stratalog.records import arrow, kernels
from stratalog.records.batch import BatchBuilder
from stratalog.records.offset_map import OffsetMap
compiled = kernels.load_kernels()
libc = ctypes.CDLL(None, use_errno=True)
page, size = mmap.PAGESIZE, 4
memory = mmap.mmap(-1, (size + 1) * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert libc.mprotect(ctypes.c_void_p(start + size * page), page, 0) == 0, "no guard page"
rng = random.Random(1)
done = 0
for turn in range(1500):
    log = b""
    for base in range(rng.randint(1, 3)):
        builder = BatchBuilder(base_offset=base * 10)
        for i in range(rng.randint(1, 4)):
            builder.append(rng.randrange(1 << 40), rng.choice((None, b"k" * rng.randrange(40))),
                           rng.choice((None, b"v" * rng.randrange(200))), [("h", b"x" * rng.randrange(20))][: turn % 2])
        log += bytes(builder.build())
    bad = bytearray(log)
    for _ in range(turn % 4):
        bad[rng.randrange(len(bad))] = rng.randrange(256)
    data = memoryview(memory)[size * page - len(bad) : size * page]
    data[:] = bad
    table = kernels.BatchTable(8)
    compiled.scan_batches(data, table, verify=True)
    compiled.scan_batches(data, table, verify=False)
    compiled.walk(data[61:], 4, 0)
    compiled.crc32c(data)
    for first in range(table.count):
        key = data[rng.randrange(len(data)):]
        compiled.hash_key(key, 1, 2)
    if any(row & 7 for row in table.column(kernels.ATTRIBUTES)):
        continue
    try:
        done += arrow.decode(data, table).num_rows
    except arrow.CorruptBatch:
        pass
    offset_map = OffsetMap(24 * 64, secret=bytes(16))
    offset_map.put_run(data, table)
    output = bytearray(1 << 14)
    bits = offset_map.survivors(0, 100) if turn % 2 else None
    rules = kernels.FilterRules(rng.choice((5, 1 << 40)) if bits is None else 99, 0, 5, bits, 0, 100)
    offset_map.filter_run(data, table, rules, bytes(8), output)
    data.release()
print(done > 1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages by mprotect")
def test_no_kernel_reads_past_the_end_of_its_buffer():
    """K-2: sound and damaged batches end where an unreadable page begins; one byte too far would end the process."""
    assert run_python(GUARDED) == "True"
