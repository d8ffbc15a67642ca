"""Writers by hand for the broker's hot path: Produce and Fetch responses, flexible versions.

Each knows one shape, the one that most responses have: one topic, one partition, nothing unusual set.  It writes that
shape with one `struct` call and hands everything else to the generated encoder of the same version, so there is
nothing that only the hand-written code can do.  The tests of the generated codecs run over these too.  There are no
readers: the generated decoders try that shape first, see `straight`, and are no slower.

Used by `compiler.encoder`; nobody else calls it.  From any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from stratalog.base.types import FileRegion
from stratalog.protocol import k00_produce, k01_fetch
from stratalog.protocol.schema import Message

_Encode = Callable[[Any], list[Any]]


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


# --- produce response -----------------------------------------------------------------------------------------------

_put_produced_name = _by_name("BB", "BihqqqBxxxix")
_put_produced_id = struct.Struct(">B16sBihqqqBxxxix").pack


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


# --- fetch response -------------------------------------------------------------------------------------------------

_put_fetched_name = _by_name("ihiBB", "BihqqqBi")
_put_fetched_id = struct.Struct(">ihiB16sBihqqqBi").pack


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

_ENCODERS: Final[dict[type[Message], Callable[[int, _Encode], _Encode]]] = {
    k00_produce.ProduceResponse: _produce_response_writer,
    k01_fetch.FetchResponse: _fetch_response_writer,
}
