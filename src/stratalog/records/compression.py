"""The codecs: gzip, snappy, lz4, zstd.  Every output is capped before it is allocated.

`compress(codec, data, level)` writes what Kafka's clients read; `decompress(codec, data)` reads what they write: snappy
in xerial's framing (Java, kafka-python) and raw (librdkafka), lz4 frames with independent blocks, and for magic 0 the
wrong header checksum of Kafka's first lz4 clients.

The cap of an output is `limits.BATCH_DECOMPRESSED_BYTES_MAX`, or less where the ratio would be absurd.  Where a format
says how much it unfolds to (snappy, zstd frames, the block lengths of lz4 and zstd), the claim is held against the cap
*and* against what that many bytes can hold at most, so that a lie of ten bytes costs nothing.  Bytes behind the end
of the compressed data are an error.

Stateless but for the zstd contexts, which are kept for each thread because making one costs more than a small batch;
any thread may call.  A codec's library is imported at its first use.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any, Final

from stratalog.base import limits
from stratalog.base.errors import ErrorCode
from stratalog.base.types import Buffer
from stratalog.records.errors import CorruptBatch, InvalidBatch, TooLarge

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

LEVELS: Final = {GZIP: (1, 9), LZ4: (1, 17), ZSTD: (-131_072, 22)}
"""The levels that `compression.<codec>.level` may have; gzip also takes -1, the library's own choice."""

_GZIP_WBITS: Final = 31
_INT32: Final = struct.Struct(">i")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
"""Magic, version 1, readable since version 1."""
_XERIAL_BLOCK: Final = 32 << 10
"""Java's default block."""
_SNAPPY_RATIO: Final = (64, 3)
"""The densest thing in snappy is a copy: three bytes that stand for 64."""

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_MAX: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_RATIO: Final = 255
"""A length byte of lz4 stands for at most 255 bytes of output."""

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 << 10
_ZSTD_WINDOW_MAX: Final = 1 << 27
"""128 MiB: what zstd's highest level uses, and where Java's decoder stops."""
_ZSTD_LEVELS_KEPT: Final = 8
"""Compression contexts kept for each thread: a broker uses one level, a test a few."""

PARTS_MAX: Final = 1_000
"""Gzip members, zstd frames, or xerial blocks of no more than a few bytes each: clients write one member or frame, and
blocks of 32 KiB; a payload that is all seams would cost time for nothing."""
_XERIAL_BLOCK_MEAN_MIN: Final = 32
"""Bytes of a xerial block on average, once there are more than `PARTS_MAX`."""

_LE16: Final = struct.Struct("<H")
_LE32: Final = struct.Struct("<I")
_LE64: Final = struct.Struct("<Q")


def output_max(size: int, max_bytes: int = limits.BATCH_DECOMPRESSED_BYTES_MAX) -> int:
    """What `size` compressed bytes may unfold to: the ratio counts past the first 16 MiB."""
    return min(max_bytes, limits.COMPRESSION_FREE_BYTES + size * limits.COMPRESSION_RATIO_MAX)


def compress(codec: int, data: Buffer, level: int | None = None, *, broken_lz4: bool = False) -> Buffer:
    """`data` in the codec's format.  `broken_lz4`: with the header checksum that readers of magic 0 expect."""
    if codec == GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
        return stream.compress(data) + stream.flush()
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, level, broken_lz4)
    if codec == ZSTD:
        compressed: bytes = _zstd_compressor(3 if level is None else level).compress(data)
        return compressed
    assert codec == NONE, codec
    return data


def decompress(
    codec: int, data: Buffer, *, max_bytes: int = limits.BATCH_DECOMPRESSED_BYTES_MAX, broken_lz4: bool = False
) -> Buffer:
    """What `data` unfolds to; `TooLarge` past `max_bytes` or past the ratio, `CorruptBatch` for anything else that is
    wrong.  `broken_lz4`: do not hold the frame header against its checksum (magic 0)."""
    allowed = output_max(len(data), max_bytes)
    if codec == LZ4:
        return _decompress_lz4(data, allowed, broken_lz4)
    if codec == ZSTD:
        return _decompress_zstd(data, allowed)
    if codec == SNAPPY:
        return _decompress_snappy(data, allowed)
    if codec == GZIP:
        return _decompress_gzip(data, allowed)
    if codec == NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    raise CorruptBatch(f"unknown codec {codec}")


def require_supported(codec: int, *, magic: int) -> None:
    """zstd came with batches v2: older formats and their clients do not know it."""
    if codec == ZSTD and magic < 2:
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd cannot be used with message format version {magic}"
        )


def _too_large(allowed: int) -> TooLarge:
    return TooLarge(f"a compressed batch unfolds to more than {allowed} bytes")


# --- gzip -----------------------------------------------------------------------------------------------------------
def _decompress_gzip(data: Buffer, allowed: int) -> Buffer:
    """One member, or several one behind the other, as gzip files may be."""
    parts: list[bytes] = []
    left = allowed
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = stream.decompress(rest, left + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise _too_large(allowed)
        parts.append(part)
        if not stream.eof:
            raise CorruptBatch("gzip: the data is cut off")
        rest = stream.unused_data
        if not rest:
            return part if len(parts) == 1 else b"".join(parts)
        if rest[:2] != b"\x1f\x8b":
            raise CorruptBatch(f"gzip: {len(rest)} bytes are left behind the end")
        if len(parts) >= PARTS_MAX:
            raise CorruptBatch(f"gzip: more than {PARTS_MAX} members")


# --- snappy ---------------------------------------------------------------------------------------------------------
def _compress_snappy(data: Buffer) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = memoryview(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return out


def _snappy_size(data: memoryview, allowed: int) -> int:
    """What a raw block says it unfolds to: a varint without zigzag in front of it."""
    value = shift = 0
    for byte in data[:5]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CorruptBatch("snappy: the length is cut off")
    dense, bytes_used = _SNAPPY_RATIO
    if value * bytes_used > len(data) * dense:
        raise CorruptBatch(f"snappy: {len(data)} bytes cannot unfold to {value}")
    if value > allowed:
        raise _too_large(allowed)
    return value


def _xerial_blocks(view: memoryview, allowed: int) -> Iterator[tuple[memoryview, int]]:
    """The blocks behind xerial's header, each with what it says it unfolds to, together within the cap."""
    left = allowed
    position = count = 0
    end = len(view)
    while position < end:
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # a header, also in the middle of joined streams
            if end - position < 16:
                raise CorruptBatch("snappy: the header is cut off", position=position)
            if _INT32.unpack_from(view, position + 12)[0] > 1:
                raise CorruptBatch("snappy: a framing that is too new", position=position)
            position += 16
            continue
        if end - position < 4:
            raise CorruptBatch("snappy: a block's length is cut off", position=position)
        length = _INT32.unpack_from(view, position)[0]
        position += 4
        if not 0 < length <= end - position:
            raise CorruptBatch(f"snappy: a block claims {length} bytes", position=position)
        count += 1
        if count > PARTS_MAX and position < count * _XERIAL_BLOCK_MEAN_MIN:
            raise CorruptBatch(f"snappy: {count} blocks in {position} bytes", position=position)
        block = view[position : position + length]
        size = _snappy_size(block, left)
        left -= size
        yield block, size
        position += length


def _decompress_snappy(data: Buffer, allowed: int) -> Buffer:
    from cramjam import DecompressionError, snappy

    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        out = bytearray(_snappy_size(view, allowed))
        try:
            snappy.decompress_raw_into(view, out)
        except DecompressionError as error:
            raise CorruptBatch(f"snappy: {str(error)[:200]}") from None
        return out
    # Two passes, so that nothing is allocated for a payload whose lengths do not fit each other.
    out = bytearray(sum(size for _, size in _xerial_blocks(view, allowed)))
    target = memoryview(out)
    position = 0
    for block, size in _xerial_blocks(view, allowed):
        try:
            snappy.decompress_raw_into(block, target[position : position + size])
        except DecompressionError as error:
            raise CorruptBatch(f"snappy: {str(error)[:200]}") from None
        position += size
    return out


# --- lz4 ------------------------------------------------------------------------------------------------------------
def _compress_lz4(data: Buffer, level: int | None, broken: bool) -> Buffer:
    """Blocks of 64 KiB, independent, no checksums but the header's: what Java writes.  Level 9 is Java's default and
    means its fast compressor; any other one the high compressor."""
    from lz4 import frame

    native = 0 if level is None or level == 9 else min(max(level, 3), 12)
    compressed: bytes = frame.compress(
        data,
        compression_level=native,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    if broken:
        fixed = bytearray(compressed)
        fixed[6] = xxh32(compressed[:6]) >> 8 & 0xFF
        return fixed
    return compressed


def _decompress_lz4(data: Buffer, allowed: int, broken: bool) -> Buffer:
    from lz4 import frame

    bound, header_size = _walk_lz4(data)
    if broken:
        fixed = bytearray(data)
        fixed[header_size - 1] = xxh32(bytes(data[4 : header_size - 1])) >> 8 & 0xFF
        data = fixed
    # The library allocates the whole of `max_length` at once: hand it what is likely, and come back for more.
    step = min(bound, allowed + 1, max(8 * len(data), 256 << 10))
    stream: Any = frame.LZ4FrameDecompressor()
    try:
        out: bytes = stream.decompress(data, max_length=step + 1)
        if stream.eof:
            _check_lz4_end(stream, len(out), allowed)
            return out
        parts = [out]
        total = len(out)
        while not stream.eof and total <= allowed:
            if stream.needs_input:
                raise CorruptBatch("lz4: the data is cut off")
            part: bytes = stream.decompress(b"", max_length=min(max(total, step), allowed + 1 - total) + 1)
            total += len(part)
            parts.append(part)
            if not part and not stream.eof:
                raise CorruptBatch("lz4: the data is cut off")
    except RuntimeError as error:
        raise CorruptBatch(f"lz4: {str(error)[:200]}") from None
    _check_lz4_end(stream, total, allowed)
    return b"".join(parts)


def _check_lz4_end(stream: Any, total: int, allowed: int) -> None:
    if total > allowed:
        raise _too_large(allowed)
    if stream.unused_data:
        raise CorruptBatch(f"lz4: {len(stream.unused_data)} bytes are left behind the end")


def _walk_lz4(data: Buffer) -> tuple[int, int]:
    """Header and block lengths of a frame: (the most it can unfold to, the header's size)."""
    end = len(data)
    if end < 7 or _LE32.unpack_from(data)[0] != _LZ4_MAGIC:
        raise CorruptBatch("lz4: no frame header")
    flags = data[4]
    if flags >> 6 != 1 or flags & 0x03:
        raise CorruptBatch(f"lz4: frame flags {flags:#04x} are not supported", position=4)
    if not flags & 0x20:
        raise CorruptBatch("lz4: blocks that depend on each other, which Kafka's clients cannot read", position=4)
    block_max = _LZ4_BLOCK_MAX.get(data[5] >> 4)
    if block_max is None or data[5] & 0x8F:
        raise CorruptBatch(f"lz4: block descriptor {data[5]:#04x} is not supported", position=5)
    header_size = 15 if flags & 0x08 else 7
    tail = 4 if flags & 0x10 else 0
    position = header_size
    bound = 0
    while True:
        if end - position < 4:
            raise CorruptBatch("lz4: the data is cut off", position=position)
        length = _LE32.unpack_from(data, position)[0]
        position += 4
        if length == 0:
            return bound, header_size
        if length & 0x80000000:
            length &= 0x7FFFFFFF
            bound += length
        else:
            bound += min(block_max, length * _LZ4_RATIO)
        if length > block_max or length > end - position - tail:
            raise CorruptBatch(f"lz4: a block claims {length} bytes", position=position)
        position += length + tail


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes: a frame header's checksum is the second byte of it."""
    assert len(data) < 16
    value = 0x165667B1 + len(data)
    position = 0
    while position + 4 <= len(data):
        value = (value + _LE32.unpack_from(data, position)[0] * 0xC2B2AE3D) & 0xFFFFFFFF
        value = ((value << 17 | value >> 15) & 0xFFFFFFFF) * 0x27D4EB2F & 0xFFFFFFFF
        position += 4
    for byte in data[position:]:
        value = (value + byte * 0x165667B1) & 0xFFFFFFFF
        value = ((value << 11 | value >> 21) & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return value ^ value >> 16


# --- zstd -----------------------------------------------------------------------------------------------------------
class _Contexts(threading.local):
    """zstd contexts are not for two threads at a time; each keeps its own."""

    def __init__(self) -> None:
        self.decompressor: Any = None
        self.compressors: dict[int, Any] = {}


_contexts = _Contexts()


def _zstd_compressor(level: int) -> Any:
    found = _contexts.compressors.get(level)
    if found is None:
        import zstandard

        if len(_contexts.compressors) >= _ZSTD_LEVELS_KEPT:
            _contexts.compressors.clear()
        found = _contexts.compressors[level] = zstandard.ZstdCompressor(level=level)
    return found


def _decompress_zstd(data: Buffer, allowed: int) -> Buffer:
    import zstandard

    decompressor = _contexts.decompressor
    if decompressor is None:
        decompressor = _contexts.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    view = memoryview(data)
    parts: list[bytes] = []
    left = allowed
    position = frames = 0
    while position < len(view) or not parts:
        frames += 1
        if frames > PARTS_MAX:
            raise CorruptBatch(f"zstd: more than {PARTS_MAX} frames", position=position)
        end, content, bound = _walk_zstd(view, position)
        if end < 0:  # a skippable frame
            position = -end
            if position >= len(view) and not parts:
                raise CorruptBatch("zstd: no frame")
            continue
        if content is not None and content > left:
            raise _too_large(allowed)
        frame = view[position:end]
        size = content if content is not None else min(bound, left + 1, max(8 * len(frame), 256 << 10))
        size = size or 1  # room for nothing means "as much as the header says" to the library, and it may not say
        while True:
            try:
                part: bytes = decompressor.decompress(frame, max_output_size=size)
                break
            except zstandard.ZstdError as error:
                # The walk has seen the frame's end: "not the full frame" can only mean that the room was short.
                if content is not None or "full frame" not in str(error) or size >= bound:
                    raise CorruptBatch(f"zstd: {str(error)[:200]}") from None
                if size > left:
                    raise _too_large(allowed) from None
                size = min(bound, left + 1, size * 8)
        if len(part) > left:
            raise _too_large(allowed)
        left -= len(part)
        parts.append(part)
        position = end
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _walk_zstd(view: memoryview, position: int) -> tuple[int, int | None, int]:
    """One frame at `position`: (where it ends, its declared content size, the most it can unfold to).  The end is
    negative for a skippable frame."""
    end = len(view)
    start = position
    if end - position < 8:
        raise CorruptBatch("zstd: no frame header", position=start)
    magic = _LE32.unpack_from(view, position)[0]
    if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
        position += 8 + int(_LE32.unpack_from(view, position + 4)[0])
        if position > end:
            raise CorruptBatch("zstd: a skippable frame is cut off", position=start)
        return -position, None, 0
    if magic != _ZSTD_MAGIC:
        raise CorruptBatch("zstd: bytes that are no frame", position=start)
    descriptor = view[position + 4]
    if descriptor & 0x0B:
        raise CorruptBatch("zstd: a dictionary, or a frame that is too new", position=start)
    single = descriptor & 0x20
    position += 5
    window = 0
    if not single:
        exponent, mantissa = view[position] >> 3, view[position] & 7
        window = (1 << (10 + exponent)) + (1 << (10 + exponent)) // 8 * mantissa
        position += 1
        if window > _ZSTD_WINDOW_MAX:
            raise TooLarge(f"zstd: a window of {window} bytes", position=start)
    content: int | None = None
    kind = descriptor >> 6
    if end - position < 8:  # the longest size field; a frame's last block has three bytes and a size field is longer
        padded = bytes(view[position:end]).ljust(8, b"\0")
    else:
        padded = bytes(view[position : position + 8])
    if kind == 3:
        content = _LE64.unpack(padded)[0]
        position += 8
    elif kind == 2:
        content = _LE32.unpack_from(padded)[0]
        position += 4
    elif kind == 1:
        content = 256 + _LE16.unpack_from(padded)[0]
        position += 2
    elif single:
        content = padded[0]
        position += 1
    if content is not None and single:
        window = content
    block_max = min(window, _ZSTD_BLOCK_MAX)
    bound = 0
    while True:
        if end - position < 3:
            raise CorruptBatch("zstd: the data is cut off", position=position)
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        position += 3
        length = block >> 3
        kind = block >> 1 & 3
        if kind == 2:
            bound += block_max
        elif kind == 3:
            raise CorruptBatch("zstd: a block of an unknown kind", position=position)
        else:
            bound += length
            if kind == 1:
                length = 1
        if length > _ZSTD_BLOCK_MAX or length > end - position:
            raise CorruptBatch(f"zstd: a block claims {length} bytes", position=position)
        position += length
        if block & 1:
            break
    if descriptor & 0x04:
        position += 4
        if position > end:
            raise CorruptBatch("zstd: the checksum is cut off", position=position)
    if content is not None and content > bound:
        raise CorruptBatch(f"zstd: a frame claims {content} bytes and holds at most {bound}", position=start)
    return position, content, bound
