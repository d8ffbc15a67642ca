"""The codecs: gzip, snappy, lz4, zstd; every output is capped before it is allocated.

`compress(codec, data, level)` and `decompress(codec, data, ...)`.  Codec libraries are imported at a codec's first use.
"""

from __future__ import annotations

from stratalog.base import limits
from stratalog.base.types import Buffer


def compress(codec: int, data: Buffer, level: int | None = None, *, broken_lz4: bool = False) -> Buffer:
    """`data` in the codec's format as Kafka's clients write it."""
    raise NotImplementedError


def decompress(
    codec: int, data: Buffer, *, max_bytes: int = limits.BATCH_DECOMPRESSED_BYTES_MAX, broken_lz4: bool = False
) -> Buffer:
    """What `data` unfolds to; `TooLarge` past `max_bytes` or past the ratio, `CorruptBatch` for anything else."""
    raise NotImplementedError
