"""Which library for which codec: the single ones against cramjam, which has all of them.

    python -m bench.micro.bench_codecs

Text of random words at 1 KiB, 16 KiB and 1 MiB.  The first case of each group is Stratalog's own function, caps and
framing included; the others are the libraries bare.  The choice that follows from it is in docs/DEPENDENCIES.md.
"""

from __future__ import annotations

import random
import zlib

import cramjam
import lz4.frame
import zstandard

from bench._run import Bench
from stratalog.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress


def text(size: int) -> bytes:
    chooser = random.Random(1)
    words = [b"%x " % chooser.getrandbits(48) for _ in range(400)]
    return b"".join(chooser.choices(words, k=size // 10))[:size]


def zlib_pack(data: bytes) -> bytes:
    stream = zlib.compressobj(-1, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def main() -> None:
    bench = Bench("codecs", rounds=9)
    for label, size in (("1 KiB", 1 << 10), ("16 KiB", 16 << 10), ("1 MiB", 1 << 20)):
        data = text(size)
        packed = {codec: bytes(compress(codec, data)) for codec in (GZIP, SNAPPY, LZ4, ZSTD)}
        raw = bytes(cramjam.snappy.compress_raw(data))
        packer, unpacker = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
        groups = {
            "gzip, pack": {
                "stratalog (zlib)": lambda data=data: compress(GZIP, data),
                "zlib": lambda data=data: zlib_pack(data),
                "cramjam": lambda data=data: cramjam.gzip.compress(data, 6),
            },
            "gzip, unpack": {
                "stratalog (zlib)": lambda p=packed[GZIP]: decompress(GZIP, p),
                "zlib": lambda p=packed[GZIP]: zlib.decompress(p, 31),
                "cramjam": lambda p=packed[GZIP]: cramjam.gzip.decompress(p),
            },
            "snappy, pack": {
                "stratalog (cramjam, xerial)": lambda data=data: compress(SNAPPY, data),
                "cramjam, raw": lambda data=data: cramjam.snappy.compress_raw(data),
            },
            "snappy, unpack": {
                "stratalog (cramjam, xerial)": lambda p=packed[SNAPPY]: decompress(SNAPPY, p),
                "cramjam, raw": lambda raw=raw: cramjam.snappy.decompress_raw(raw),
            },
            "lz4, pack": {
                "stratalog (lz4)": lambda data=data: compress(LZ4, data),
                "lz4.frame": lambda data=data: lz4.frame.compress(data, block_linked=False),
                "cramjam": lambda data=data: cramjam.lz4.compress(data),
            },
            "lz4, unpack": {
                "stratalog (lz4)": lambda p=packed[LZ4]: decompress(LZ4, p),
                "lz4.frame": lambda p=packed[LZ4]: lz4.frame.decompress(p),
                "cramjam": lambda p=packed[LZ4]: cramjam.lz4.decompress(p),
            },
            "zstd, pack": {
                "stratalog (zstandard)": lambda data=data: compress(ZSTD, data),
                "zstandard, one context": lambda data=data, packer=packer: packer.compress(data),
                "cramjam": lambda data=data: cramjam.zstd.compress(data, 3),
            },
            "zstd, unpack": {
                "stratalog (zstandard)": lambda p=packed[ZSTD]: decompress(ZSTD, p),
                "zstandard, one context": lambda p=packed[ZSTD], unpacker=unpacker: unpacker.decompress(p),
                "cramjam": lambda p=packed[ZSTD]: cramjam.zstd.decompress(p),
            },
        }
        for name, cases in groups.items():
            bench.compare(f"{label}, {name}", cases, bytes_per_call=size)
    bench.finish()


if __name__ == "__main__":
    main()
