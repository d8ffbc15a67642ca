"""The codecs: what clients write, caps, bombs, damage.  security.md 7.1, scenarios N02, N11, P05."""

from __future__ import annotations

import concurrent.futures
import gzip
import os
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.records import batch
from stratalog.records.compression import (
    GZIP,
    LZ4,
    NAMES,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    output_max,
    xxh32,
)
from stratalog.records.errors import CorruptBatch, TooLarge

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def _text(size):
    chooser = random.Random(size)
    words = [b"%x " % chooser.getrandbits(30) for _ in range(300)]
    return b"".join(chooser.choices(words, k=size // 7 + 1))[:size]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [0, 1, 100, 16_384, 65_536, 65_537, 400_000])
@pytest.mark.parametrize("broken", [False, True])
def test_data_survives_a_round_trip(codec, size, broken):
    for data in (_text(size), os.urandom(size), bytes(size)):
        packed = compress(codec, memoryview(bytearray(data)), broken_lz4=broken)
        assert decompress(codec, memoryview(packed), broken_lz4=broken) == data


@pytest.mark.parametrize(("codec", "levels"), [(GZIP, (-1, 1)), (LZ4, (1, 9, 17)), (ZSTD, (-5, 1, 3, 22))])
def test_levels_are_heard(codec, levels):
    data = _text(200_000)
    sizes = [len(compress(codec, data, level)) for level in levels]
    assert all(decompress(codec, compress(codec, data, level)) == data for level in levels)
    assert len(set(sizes)) == len(sizes)


def test_snappy_is_read_in_both_framings():
    """Java and kafka-python write xerial's framing, librdkafka raw blocks."""
    data = _text(100_000)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(SNAPPY, raw) == data
    ours = compress(SNAPPY, data)
    assert bytes(ours[:16]) == XERIAL
    assert decompress(SNAPPY, bytes(ours) + bytes(ours)) == data + data  # joined streams, as snappy-java reads them


def test_gzip_members_may_follow_each_other():
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_zstd_frames_with_and_without_their_size_and_skippable_ones_are_read():
    data = _text(300_000)
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    unsized = stream.compress(data) + stream.flush()
    skippable = struct.pack("<II", 0x184D2A55, 4) + b"skip"
    sized = compress(ZSTD, data)
    assert decompress(ZSTD, unsized) == data
    assert decompress(ZSTD, skippable + sized + skippable + unsized) == data + data


def test_zstd_frames_of_nothing_are_read_also_without_their_size():
    """What a stream that was closed at once has written; Java's reader takes it, alone and before another."""
    empty = zstandard.ZstdCompressor(write_content_size=False).compress(b"")
    checked = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(b"")
    assert decompress(ZSTD, empty) == decompress(ZSTD, compress(ZSTD, b"")) == b""
    assert decompress(ZSTD, empty + compress(ZSTD, b"data") + checked) == b"data"
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, checked[:-1] + bytes((checked[-1] ^ 1,)))


def test_the_frame_checksum_is_that_of_the_lz4_library():
    for size in (1, 60, 100_000):
        for options in ({"store_size": True}, {"store_size": False}):
            packed = lz4.frame.compress(os.urandom(size), **options)
            header = packed[4:14] if options["store_size"] else packed[4:6]
            assert xxh32(header) >> 8 & 0xFF == packed[4 + len(header)]


def test_lz4_frames_with_checksums_and_large_blocks_are_read_and_linked_blocks_refused():
    data = _text(3_000_000)
    packed = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, content_checksum=True, block_checksum=True
    )
    assert decompress(LZ4, packed) == data
    damaged = bytearray(packed)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decompress(LZ4, damaged)
    with pytest.raises(CorruptBatch, match="depend"):
        decompress(LZ4, lz4.frame.compress(data, block_linked=True))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_behind_the_end_are_an_error(codec):
    packed = bytes(compress(codec, _text(1000)))
    for tail in (b"\0", b"garbage", b"\0" * 20):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed + tail)


@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_is_an_error(codec):
    packed = bytes(compress(codec, _text(300)))
    for end in range(len(packed)):
        if codec == SNAPPY and end == 16:
            continue  # a framing without blocks is a stream of nothing
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:end])


@settings(max_examples=400)
@given(st.sampled_from(CODECS), st.data(), st.booleans())
def test_damage_gives_a_value_or_the_declared_error(codec, data, broken):
    packed = bytearray(compress(codec, _text(data.draw(st.sampled_from((0, 10, 500))))))
    for position in data.draw(st.lists(st.integers(0, max(len(packed) - 1, 0)), max_size=5)):
        if packed:
            packed[position] = data.draw(st.integers(0, 255))
    try:
        decompress(codec, packed[: data.draw(st.integers(0, len(packed)))], broken_lz4=broken)
    except Malformed:
        pass


@settings(max_examples=400)
@given(st.sampled_from(CODECS), st.binary(max_size=80), st.booleans())
def test_any_bytes_give_a_value_or_the_declared_error(codec, data, magic):
    starts = {
        GZIP: b"\x1f\x8b\x08\x00",
        SNAPPY: XERIAL,
        LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        ZSTD: b"\x28\xb5\x2f\xfd",
    }
    try:
        decompress(codec, starts[codec] + data if magic else data)
    except Malformed:
        pass


def _bomb(codec, size):
    zeros = bytes(1 << 20)
    if codec == GZIP:
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(stream.compress(zeros) for _ in range(size >> 20)) + stream.flush()
    if codec == ZSTD:
        stream = zstandard.ZstdCompressor().compressobj()
        return b"".join(stream.compress(zeros) for _ in range(size >> 20)) + stream.flush()
    return bytes(compress(codec, bytes(size)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_ends_at_the_cap_without_the_memory_of_its_output(codec):
    """N02, N11: memory stays within the cap and 8 x the input and a MiB."""
    bomb = _bomb(codec, 64 << 20)
    cap = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, bomb, max_bytes=cap)
        assert tracemalloc.get_traced_memory()[1] <= 2 * cap + 8 * len(bomb) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [2 << 20, 10 << 20, 16 << 20])
def test_a_large_record_of_one_letter_is_no_bomb(codec, size):
    """Kafka takes it: zstd packs ten MiB of one letter into 339 bytes."""
    data = b"x" * size
    assert decompress(codec, compress(codec, data)) == data


def test_an_absurd_ratio_ends_early():
    """zstd packs zeros far denser than any data; 20 KB of it would fill half a gigabyte."""
    bomb = _bomb(ZSTD, 192 << 20)
    assert output_max(len(bomb)) < 64 << 20
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(ZSTD, bomb)
        assert tracemalloc.get_traced_memory()[1] < 2 * output_max(len(bomb)) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        pytest.param(SNAPPY, b"\xff\xff\xff\xff\x0f\x00", id="snappy says 4 GiB"),
        pytest.param(SNAPPY, XERIAL + b"\x00\x00\x00\x06\xff\xff\xff\xff\x07\x00", id="a xerial block says 2 GiB"),
        pytest.param(SNAPPY, XERIAL + b"\x7f\xff\xff\xff\x00", id="a xerial block of 2 GiB"),
        pytest.param(SNAPPY, XERIAL + b"\xff\xff\xff\xff\x00", id="a xerial block of -1"),
        pytest.param(SNAPPY, XERIAL[:15] + b"\x02", id="a newer xerial"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x00" + b"\x01\x00\x00", id="zstd says 2^55"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd\x80\xf0" + b"\x00\x00\x00\x40" + b"\x01\x00\x00", id="a huge window"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd\x21\x07\x01" + b"\x01\x00\x00", id="a dictionary"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd\x20\x00" + b"\x07\x00\x00", id="a reserved block"),
        pytest.param(ZSTD, struct.pack("<II", 0x184D2A50, 0), id="only a skippable frame"),
        pytest.param(LZ4, b"\x04\x22\x4d\x18\x68\x40" + b"\xff" * 8 + b"\x00" + b"\0" * 4, id="lz4 says 2^64"),
        pytest.param(LZ4, b"\x04\x22\x4d\x18\x60\x40\x82" + b"\x01\x00\x01\x00" + b"x" * 65537, id="a block too large"),
        pytest.param(LZ4, b"\x04\x22\x4d\x18\x60\x30\x82" + b"\0" * 4, id="an unknown block size"),
        pytest.param(GZIP, (b"\x1f\x8b\x08" + b"\0" * 7 + b"\x03" + b"\0" * 9) * 1001, id="empty gzip members"),
        pytest.param(ZSTD, (b"\x28\xb5\x2f\xfd\x20\x00" + b"\x01\x00\x00") * 1001, id="empty zstd frames"),
        pytest.param(ZSTD, struct.pack("<II", 0x184D2A50, 0) * 1001, id="skippable zstd frames"),
        pytest.param(SNAPPY, XERIAL + b"\x00\x00\x00\x01\x00" * 5_000, id="empty xerial blocks"),
    ],
)
def test_lies_about_sizes_cost_nothing(codec, packed):
    """N11."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed)
        assert tracemalloc.get_traced_memory()[1] <= 8 * len(packed) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_the_libraries_own_memory_stays_small_as_well(codec, tmp_path):
    """N02: what tracemalloc does not see.  A bomb in a process of its own, by the kernel's count."""
    (tmp_path / "bomb").write_bytes(_bomb(codec, 64 << 20))
    code = f"""if True:
        import resource
        from stratalog.records.compression import compress, decompress
        from stratalog.records.errors import TooLarge
        bomb = open({str(tmp_path / "bomb")!r}, "rb").read()
        decompress({codec}, compress({codec}, b"warm"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            decompress({codec}, bomb, max_bytes=1 << 20)
        except TooLarge:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(bomb) // 1024)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, size = map(int, done.stdout.split())
    assert grown < 8 * size + 4 * 1024


def test_uncompressed_data_has_the_cap_too():
    with pytest.raises(TooLarge):
        decompress(0, bytes(11), max_bytes=10)
    with pytest.raises(CorruptBatch):
        decompress(5, b"x")


def test_a_record_inside_may_not_claim_more_than_its_limit(monkeypatch):
    data = batch.build_batch([batch.Record(0, 0, None, bytes(5000))], codec=GZIP)
    monkeypatch.setattr(batch.limits, "RECORD_DECOMPRESSED_BYTES_MAX", 4999)
    with pytest.raises(CorruptBatch, match="too large"):
        list(batch.records_of(data, batch.read_header(data)))


@pytest.mark.parametrize("codec", CODECS)
def test_threads_do_not_share_a_context(codec):
    """P05."""
    texts = [_text(20_000 + 1_000 * number) for number in range(8)]
    packed = [bytes(compress(codec, text)) for text in texts]

    def work(number):
        for _ in range(40):
            assert decompress(codec, packed[number]) == texts[number]
            assert decompress(codec, compress(codec, texts[number])) == texts[number]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_every_codec_has_a_name():
    assert NAMES == ("none", "gzip", "snappy", "lz4", "zstd")
