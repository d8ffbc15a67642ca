"""Codecs written by hand for the broker's hot path: Produce and Fetch, flexible versions.

Each knows one shape, the one that most requests have: one topic, one partition, nothing unusual set; fetch requests and
produce responses, whose partitions then have a fixed width, may bring several of them.  It reads or
writes that shape with a few `struct` calls and hands everything else to the generated codec of the same version, so
there is nothing that only the hand-written code can do.  The tests of the generated codecs run over these too.

Used by `compiler.decoder` and `compiler.encoder`; nobody else calls it.  From any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

from stratalog.base.types import MAX_INT64, ZERO_UUID, Buffer, FileRegion, Uuid
from stratalog.protocol import k00_produce, k01_fetch
from stratalog.protocol.schema import Message

_Decode = Callable[[Buffer, int, int], tuple[Any, int]]
_Encode = Callable[[Any], list[Any]]

_new: Any = object.__new__
_new_uuid = bytes.__new__
_SHORT: Final = struct.error, IndexError, UnicodeDecodeError
"""What ends the attempt at the one shape: the bytes are another shape, or none; the generated codec finds out."""


def decoder(cls: type[Message], version: int) -> _Decode | None:
    """The decoder of one version, or None where the generated one does."""
    make = _DECODERS.get(cls)
    if make is None or cls.flexible is None or version < cls.flexible:
        return None
    from stratalog.protocol.compiler import compiled_decoder

    return make(version, compiled_decoder(cls, version, straight=False))


def encoder(cls: type[Message], version: int) -> _Encode | None:
    """The encoder of one version, or None where the generated one does."""
    make = _ENCODERS.get(cls)
    if make is None or cls.flexible is None or version < cls.flexible:
        return None
    from stratalog.protocol.compiler import compiled_encoder

    return make(version, compiled_encoder(cls, version))


def _by_name(first: str, last: str) -> Callable[[int], Any]:
    """Structs with a topic name of any short length in their middle, made when first wanted."""
    made: dict[int, Any] = {}

    def of(length: int) -> Any:
        found = made.get(length)
        if found is None:
            found = made[length] = struct.Struct(f">{first}{length}s{last}").pack
        return found

    return of


# --- produce request ------------------------------------------------------------------------------------------------

_produce_head = struct.Struct(">BhiBB").unpack_from  # no transactional id, acks, timeout, topics, name's length
_produce_head_id = struct.Struct(">BhiB16s").unpack_from  # the same with a topic id
_produce_part = struct.Struct(">BiBBB").unpack_from  # partitions, index, up to three bytes of the payload's length
_four_bytes = struct.Struct(">I").unpack_from
_NO_TAGS_3: Final = 0xFFFFFF
"""Three empty tag sections as the low bytes of four: the fourth is the payload's last byte."""


def _produce_request(version: int, general: _Decode) -> _Decode:
    new, new_uuid = _new, _new_uuid
    request_class: Any = k00_produce.ProduceRequest
    topic_class: Any = k00_produce.TopicProduceData
    partition_class: Any = k00_produce.PartitionProduceData
    by_id = version >= 13

    def decode(b: Any, p: int, end: int) -> tuple[Any, int]:
        try:
            o = new(request_class)
            if by_id:
                transactional, o.acks, o.timeout_ms, topics, raw = _produce_head_id(b, p)
                q = p + 24
            else:
                transactional, o.acks, o.timeout_ms, topics, n = _produce_head(b, p)
                q = p + 8 + n
            d = new(partition_class)
            partitions, d.index, x, y, z = _produce_part(b, q)
            if transactional == 0 and topics == partitions == 2:
                if 0 < y < 128 <= x:
                    size = (x & 127 | y << 7) - 1
                    q += 7
                elif 0 < z < 128 <= x and y >= 128:
                    size = (x & 127 | (y & 127) << 7 | z << 14) - 1
                    q += 8
                elif 0 < x < 128:
                    size = x - 1
                    q += 6
                else:
                    return general(b, p, end)
                e = q + size
                if not _four_bytes(b, e - 1)[0] & _NO_TAGS_3 and (by_id or 0 < n < 128):
                    o._tags = o.transactional_id = None
                    t = new(topic_class)
                    t._tags = None
                    if by_id:
                        t.name = ""
                        t.topic_id = new_uuid(Uuid, raw)
                    else:
                        t.name = str(b[p + 9 : p + 8 + n], "utf-8")
                        t.topic_id = ZERO_UUID
                    d._tags = None
                    d.records = memoryview(b)[q:e]
                    t.partition_data = [d]
                    o.topic_data = [t]
                    return o, e + 3
        except _SHORT:
            pass
        return general(b, p, end)

    return decode


# --- produce response -----------------------------------------------------------------------------------------------

# Partitions, index, error, base offset, time, log start, four bytes for no record errors, no message, no tags of
# partition and topic, then throttle time, no tags.
_produced = struct.Struct(">BihqqqIiB").unpack_from
_PRODUCED_BYTES: Final = struct.calcsize(">BihqqqIiB")
_NOTHING_SPECIAL: Final = 0x01_00_00_00
_produced_end = struct.Struct(">BiB").unpack_from  # the topic's tags, throttle time, tags
_PRODUCED_END_BYTES: Final = struct.calcsize(">BiB")
_produced_parts = struct.Struct(">ihqqqxxx").iter_unpack
_PRODUCED_PART_BYTES: Final = struct.calcsize(">ihqqqxxx")
_put_produced_name = _by_name("BB", "BihqqqBxxxix")
_put_produced_id = struct.Struct(">B16sBihqqqBxxxix").pack
_two_bytes = struct.Struct(">BB").unpack_from
_count_and_id = struct.Struct(">B16s").unpack_from


def _produce_response_reader(version: int, general: _Decode) -> _Decode:
    new, new_uuid = _new, _new_uuid
    response_class: Any = k00_produce.ProduceResponse
    topic_class: Any = k00_produce.TopicProduceResponse
    partition_class: Any = k00_produce.PartitionProduceResponse
    by_id = version >= 13

    def decode(b: Any, p: int, end: int) -> tuple[Any, int]:
        try:
            if by_id:
                topics, raw = _count_and_id(b, p)
                q = p + 17
            else:
                topics, n = _two_bytes(b, p)
                q = p + 1 + n
            d = new(partition_class)
            o = new(response_class)
            (
                count, d.index, d.error_code, d.base_offset, d.log_append_time_ms, d.log_start_offset,
                special, o.throttle_time_ms, no_tags,
            ) = _produced(b, q)  # fmt: skip
            if topics == count == 2 and special == _NOTHING_SPECIAL and no_tags == 0 and (by_id or 0 < n < 128):
                d._tags = d.error_message = d._current_leader = None
                d.record_errors = []
                t = new(topic_class)
                t._tags = None
                if by_id:
                    t.name = ""
                    t.topic_id = new_uuid(Uuid, raw)
                else:
                    t.name = str(b[p + 2 : q], "utf-8")
                    t.topic_id = ZERO_UUID
                t.partition_responses = [d]
                o._tags = None
                o.responses = [t]
                o.node_endpoints = []
                return o, q + _PRODUCED_BYTES
            if topics == 2 < count < 128 and (by_id or 0 < n < 128):
                k = count - 1
                q += 1
                e = q + k * _PRODUCED_PART_BYTES
                parts = bytes(b[q:e])
                topic_tags, throttle, no_tags = _produced_end(b, e)
                if (
                    topic_tags == no_tags == 0
                    and parts[30::33].count(1) == k
                    and not (any(parts[31::33]) or any(parts[32::33]))
                ):
                    made = [*map(new, repeat(partition_class, k))]
                    for d, (
                        d.index, d.error_code, d.base_offset, d.log_append_time_ms, d.log_start_offset,
                    ) in zip(made, _produced_parts(parts), strict=True):  # fmt: skip
                        d._tags = d.error_message = d._current_leader = None
                        d.record_errors = []
                    t = new(topic_class)
                    t._tags = None
                    if by_id:
                        t.name = ""
                        t.topic_id = new_uuid(Uuid, raw)
                    else:
                        t.name = str(b[p + 2 : q - 1], "utf-8")
                        t.topic_id = ZERO_UUID
                    t.partition_responses = made
                    o.throttle_time_ms = throttle
                    o._tags = None
                    o.responses = [t]
                    o.node_endpoints = []
                    return o, e + _PRODUCED_END_BYTES
        except _SHORT:
            pass
        return general(b, p, end)

    return decode


def _produce_response_writer(version: int, general: _Encode) -> _Encode:
    by_id = version >= 13

    def encode(o: Any) -> list[Any]:
        topics = o.responses
        if len(topics) == 1:
            t = topics[0]
            partitions = t.partition_responses
            if len(partitions) == 1:
                d = partitions[0]
                if (
                    d.error_message is None
                    and d._current_leader is None
                    and not (len(d.record_errors) or len(o.node_endpoints) or d._tags or t._tags or o._tags)
                ):
                    if by_id:
                        return [
                            _put_produced_id(
                                2, t.topic_id, 2, d.index, d.error_code, d.base_offset, d.log_append_time_ms,
                                d.log_start_offset, 1, o.throttle_time_ms,
                            )
                        ]  # fmt: skip
                    name = t.name.encode()
                    n = len(name)
                    if n < 127:
                        return [
                            _put_produced_name(n)(
                                2, n + 1, name, 2, d.index, d.error_code, d.base_offset, d.log_append_time_ms,
                                d.log_start_offset, 1, o.throttle_time_ms,
                            )
                        ]  # fmt: skip
        return general(o)

    return encode


# --- fetch request --------------------------------------------------------------------------------------------------

# Replica id, wait, minimum, maximum, isolation, session and its epoch, topics, name's length.
_fetch_head = struct.Struct(">iiiibiiBB").unpack_from
_fetch_head_id = struct.Struct(">iiiibiiB16s").unpack_from
_fetch_head_id_no_replica = struct.Struct(">iiibiiB16s").unpack_from  # from version 15 on the replica id is a tag
# Partitions, partition, leader epoch, offset, last epoch, log start, maximum, four bytes for no tags of partition and
# topic, no forgotten topics, no rack, then no tags.
_fetch_part = struct.Struct(">BiiqiqiIB").unpack_from
_FETCH_PART_BYTES: Final = struct.calcsize(">BiiqiqiIB")
_fetch_parts = struct.Struct(">iiqiqix").iter_unpack
_FETCH_EACH_BYTES: Final = struct.calcsize(">iiqiqix")
_fetch_end = struct.Struct(">I").unpack_from  # the topic's tags, no forgotten topics, no rack, tags
_NOTHING_MORE: Final = 0x00_00_01_01
_NO_MORE_AT_ALL: Final = 0x00_01_01_00


def _fetch_request(version: int, general: _Decode) -> _Decode:
    new, new_uuid, zero = _new, _new_uuid, ZERO_UUID
    request_class: Any = k01_fetch.FetchRequest
    topic_class: Any = k01_fetch.FetchTopic
    partition_class: Any = k01_fetch.FetchPartition
    by_id = version >= 13
    with_replica = version < 15

    def decode(b: Any, p: int, end: int) -> tuple[Any, int]:
        try:
            o = new(request_class)
            if not by_id:
                (
                    o.replica_id, o.max_wait_ms, o.min_bytes, o.max_bytes, o.isolation_level, o.session_id,
                    o.session_epoch, topics, n,
                ) = _fetch_head(b, p)  # fmt: skip
                q = p + 26 + n
            elif with_replica:
                (
                    o.replica_id, o.max_wait_ms, o.min_bytes, o.max_bytes, o.isolation_level, o.session_id,
                    o.session_epoch, topics, raw,
                ) = _fetch_head_id(b, p)  # fmt: skip
                q = p + 42
            else:
                o.replica_id = -1
                (
                    o.max_wait_ms, o.min_bytes, o.max_bytes, o.isolation_level, o.session_id,
                    o.session_epoch, topics, raw,
                ) = _fetch_head_id_no_replica(b, p)  # fmt: skip
                q = p + 38
            d = new(partition_class)
            (
                count, d.partition, d.current_leader_epoch, d.fetch_offset, d.last_fetched_epoch, d.log_start_offset,
                d.partition_max_bytes, more, no_tags,
            ) = _fetch_part(b, q)  # fmt: skip
            if topics == count == 2 and more == _NOTHING_MORE and no_tags == 0 and (by_id or 0 < n < 128):
                d._tags = None
                d.replica_directory_id = ZERO_UUID
                d.high_watermark = MAX_INT64
                t = new(topic_class)
                t._tags = None
                if by_id:
                    t.topic = ""
                    t.topic_id = new_uuid(Uuid, raw)
                else:
                    t.topic = str(b[p + 27 : q], "utf-8")
                    t.topic_id = ZERO_UUID
                t.partitions = [d]
                o._tags = o.cluster_id = o._replica_state = None
                o.topics = [t]
                o.forgotten_topics_data = []
                o.rack_id = ""
                return o, q + _FETCH_PART_BYTES
            if topics == 2 < count < 128 and (by_id or 0 < n < 128):
                k = count - 1
                q += 1
                e = q + k * _FETCH_EACH_BYTES
                parts = bytes(b[q:e])
                if _fetch_end(b, e)[0] == _NO_MORE_AT_ALL and not any(parts[32::33]):
                    made = [*map(new, repeat(partition_class, k))]
                    for d, (
                        d.partition, d.current_leader_epoch, d.fetch_offset, d.last_fetched_epoch, d.log_start_offset,
                        d.partition_max_bytes,
                    ) in zip(made, _fetch_parts(parts), strict=True):  # fmt: skip
                        d._tags = None
                        d.replica_directory_id = zero
                        d.high_watermark = MAX_INT64
                    t = new(topic_class)
                    t._tags = None
                    if by_id:
                        t.topic = ""
                        t.topic_id = new_uuid(Uuid, raw)
                    else:
                        t.topic = str(b[p + 27 : q - 1], "utf-8")
                        t.topic_id = ZERO_UUID
                    t.partitions = made
                    o._tags = o.cluster_id = o._replica_state = None
                    o.topics = [t]
                    o.forgotten_topics_data = []
                    o.rack_id = ""
                    return o, e + 4
        except _SHORT:
            pass
        return general(b, p, end)

    return decode


# --- fetch response -------------------------------------------------------------------------------------------------

_fetched_head = struct.Struct(">ihiBB").unpack_from  # throttle time, error, session, topics, name's length
_fetched_head_id = struct.Struct(">ihiB16s").unpack_from
# Partitions, partition, error, high watermark, last stable offset, log start, aborted transactions, preferred
# replica, up to three bytes of the payload's length.
_fetched_part = struct.Struct(">BihqqqBiBBB").unpack_from
_put_fetched_name = _by_name("ihiBB", "BihqqqBi")
_put_fetched_id = struct.Struct(">ihiB16sBihqqqBi").pack


def _fetch_response_reader(version: int, general: _Decode) -> _Decode:
    new, new_uuid = _new, _new_uuid
    response_class: Any = k01_fetch.FetchResponse
    topic_class: Any = k01_fetch.FetchableTopicResponse
    partition_class: Any = k01_fetch.PartitionData
    by_id = version >= 13

    def decode(b: Any, p: int, end: int) -> tuple[Any, int]:
        try:
            o = new(response_class)
            if by_id:
                o.throttle_time_ms, o.error_code, o.session_id, topics, raw = _fetched_head_id(b, p)
                q = p + 27
            else:
                o.throttle_time_ms, o.error_code, o.session_id, topics, n = _fetched_head(b, p)
                q = p + 11 + n
            d = new(partition_class)
            (
                count, d.partition_index, d.error_code, d.high_watermark, d.last_stable_offset, d.log_start_offset,
                aborted, d.preferred_read_replica, x, y, z,
            ) = _fetched_part(b, q)  # fmt: skip
            if topics == count == 2 and aborted < 2:
                if 0 < y < 128 <= x:
                    size = (x & 127 | y << 7) - 1
                    r = q + 38
                elif 0 < z < 128 <= x and y >= 128:
                    size = (x & 127 | (y & 127) << 7 | z << 14) - 1
                    r = q + 39
                elif 0 < x < 128:
                    size = x - 1
                    r = q + 37
                else:
                    return general(b, p, end)
                e = r + size
                if not _four_bytes(b, e - 1)[0] & _NO_TAGS_3 and (by_id or 0 < n < 128):
                    o._tags = None
                    o.node_endpoints = []
                    t = new(topic_class)
                    t._tags = None
                    if by_id:
                        t.topic = ""
                        t.topic_id = new_uuid(Uuid, raw)
                    else:
                        t.topic = str(b[p + 12 : q], "utf-8")
                        t.topic_id = ZERO_UUID
                    d._tags = d._diverging_epoch = d._current_leader = d._snapshot_id = None
                    d.aborted_transactions = [] if aborted else None
                    d.records = memoryview(b)[r:e]
                    t.partitions = [d]
                    o.responses = [t]
                    return o, e + 3
        except _SHORT:
            pass
        return general(b, p, end)

    return decode


def _length(size: int) -> bytes:
    """A payload's length, one more, as a varint."""
    n = size + 1
    if n < 1 << 7:
        return bytes((n,))
    if n < 1 << 14:
        return bytes((n & 127 | 128, n >> 7))
    if n < 1 << 21:
        return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14))
    return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21))


def _fetch_response_writer(version: int, general: _Encode) -> _Encode:
    by_id = version >= 13

    def encode(o: Any) -> list[Any]:
        topics = o.responses
        if len(topics) == 1:
            t = topics[0]
            partitions = t.partitions
            if len(partitions) == 1:
                d = partitions[0]
                payload = d.records
                aborted = d.aborted_transactions
                if (
                    type(payload) in _ONE_BUFFER
                    and not aborted
                    and d._diverging_epoch is None
                    and d._current_leader is None
                    and d._snapshot_id is None
                    and not (len(o.node_endpoints) or d._tags or t._tags or o._tags)
                ):
                    size = len(payload)
                    name = t.topic_id if by_id else t.topic.encode()
                    n = len(name)
                    if n < 127 and 0 < size < 1 << 27:
                        if by_id:
                            head = _put_fetched_id(
                                o.throttle_time_ms, o.error_code, o.session_id, 2, name, 2, d.partition_index,
                                d.error_code, d.high_watermark, d.last_stable_offset, d.log_start_offset,
                                0 if aborted is None else 1, d.preferred_read_replica,
                            )  # fmt: skip
                        else:
                            head = _put_fetched_name(n)(
                                o.throttle_time_ms, o.error_code, o.session_id, 2, n + 1, name, 2, d.partition_index,
                                d.error_code, d.high_watermark, d.last_stable_offset, d.log_start_offset,
                                0 if aborted is None else 1, d.preferred_read_replica,
                            )  # fmt: skip
                        return [head + _length(size), payload, b"\0\0\0"]
        return general(o)

    return encode


_ONE_BUFFER: Final = frozenset((bytes, bytearray, memoryview, FileRegion))

_DECODERS: Final[dict[type[Message], Callable[[int, _Decode], _Decode]]] = {
    k00_produce.ProduceRequest: _produce_request,
    k00_produce.ProduceResponse: _produce_response_reader,
    k01_fetch.FetchRequest: _fetch_request,
    k01_fetch.FetchResponse: _fetch_response_reader,
}
_ENCODERS: Final[dict[type[Message], Callable[[int, _Encode], _Encode]]] = {
    k00_produce.ProduceResponse: _produce_response_writer,
    k01_fetch.FetchResponse: _fetch_response_writer,
}
