"""The default partitioner of Kafka's Java producer: murmur2 of the key.  Equal for every client that wants to send a
key where Java would send it."""

from __future__ import annotations

from stratalog.base.types import Buffer

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """The 32-bit hash, unsigned."""
    data = bytes(data)
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = (h * _M) & _MASK
        h ^= k
    rest = length - whole
    if rest:
        for i in range(rest):
            h ^= data[whole + i] << (8 * i)
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h


def partition_for_key(key: Buffer, partitions: int) -> int:
    """Where the Java producer sends this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
