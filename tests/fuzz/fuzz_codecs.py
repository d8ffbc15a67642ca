"""The first byte picks a codec, the rest is what it gets: as compressed data, or as data to pack and unpack.

A value within the cap or the declared error, nothing else (issue 3, bad input; N02, N11).  `tests/fuzz/run.py` drives
it; `one` is the target.
"""

from __future__ import annotations

from stratalog.base.failures import Malformed
from stratalog.records.compression import compress, decompress, output_max

CAP = 64 << 10


def one(data: bytes) -> None:
    if not data:
        return
    choice = data[0]
    codec = 1 + choice % 4
    broken = bool(choice & 0x10)
    rest = memoryview(data)[1:]
    if choice & 0x80:
        packed = compress(codec, rest, broken_lz4=broken)
        assert decompress(codec, packed, broken_lz4=broken) == rest
        return
    try:
        plain = decompress(codec, rest, max_bytes=CAP, broken_lz4=broken)
    except Malformed:
        return
    assert len(plain) <= output_max(len(rest), CAP)
