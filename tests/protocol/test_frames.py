"""Frames out of a stream, and the headers in them."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.protocol.apis import APIS
from stratalog.protocol.connection import FrameReader, frame_end, next_frame
from stratalog.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request,
    encode_response,
    frame_head,
    response_header,
)
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from stratalog.protocol.k18_api_versions import ApiVersionsResponse
from stratalog.protocol.schema import Unencodable


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(content)) + content for content in contents)


# --- frames ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 250), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_split_of_the_bytes_gives_the_same_frames(contents: list[bytes], cuts: list[int]) -> None:
    """Issue 3: incremental frames over any split of the bytes."""
    stream = framed(*contents)
    reader = FrameReader()
    got = []
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in itertools.pairwise(places):
        got += [bytes(frame) for frame in reader.feed(stream[start:stop])]
    assert got == contents
    assert reader.held == 0


@pytest.mark.parametrize("tail", [b"", b"\0", b"\0\0\0\5abc"])
def test_frames_come_whole_byte_by_byte_and_with_a_tail(tail: bytes) -> None:
    stream = framed(b"one", b"", b"three")
    reader = FrameReader()
    assert [bytes(frame) for frame in reader.feed(stream + tail)] == [b"one", b"", b"three"]
    assert reader.held == len(tail)
    reader = FrameReader()
    got = []
    for byte in stream + tail:
        got += [bytes(frame) for frame in reader.feed(bytes((byte,)))]
    assert got == [b"one", b"", b"three"]
    assert reader.held == len(tail)


def test_a_frame_within_one_piece_is_not_copied() -> None:
    """Issue 3: without joining payloads."""
    data = bytearray(framed(b"x" * 10_000, b"y"))
    first, second = FrameReader().feed(data)
    assert first.obj is data
    assert second.obj is data


def test_an_announced_size_allocates_nothing() -> None:
    """Issue 3: limits before allocation; only what has come is held."""
    reader = FrameReader()
    tracemalloc.start()
    reader.feed(struct.pack(">i", 100 << 20) + b"abc")
    for _ in range(100):
        reader.feed(b"0123456789")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.held == 1_007
    assert peak < 1 << 20


@pytest.mark.parametrize("step", [1, 3, 1_000])
def test_a_frame_in_small_pieces_takes_little_more_than_its_bytes(step: int) -> None:
    """Issue 3: no allocation above 8 x input + 1 MiB; an object for each byte was ninety times the bytes."""
    data = framed(bytes(range(256)) * 400)
    reader = FrameReader()
    frames = []
    tracemalloc.start()
    for at in range(0, len(data), step):
        frames += reader.feed(memoryview(data)[at : at + step])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [bytes(frame) for frame in frames] == [data[4:]]
    assert peak < 4 * len(data)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes, at most 104857600"),
    ],
)
def test_a_size_that_cannot_be_names_who_speaks(first: bytes, reason: str) -> None:
    """N03: a TLS client hello or a browser on a plain port is recognised from its first bytes."""
    with pytest.raises(Malformed, match=reason):
        FrameReader().feed(first)
    with pytest.raises(Malformed, match=reason):
        next_frame(first, 0, len(first))
    with pytest.raises(Malformed, match=reason):
        frame_end(first, 0, len(first))
    reader = FrameReader()
    with pytest.raises(Malformed, match=reason.split(",")[0] if "TLS" in reason or "HTTP" in reason else "a frame of"):
        for byte in first:
            reader.feed(bytes((byte,)))


def test_a_limit_is_inclusive() -> None:
    assert [bytes(frame) for frame in FrameReader(limit=3).feed(framed(b"abc"))] == [b"abc"]
    with pytest.raises(Malformed, match="at most 3"):
        FrameReader(limit=3).feed(framed(b"abcd"))


def test_next_frame_works_inside_a_receive_buffer() -> None:
    buffer = bytearray(b"????" + framed(b"abc", b"defg") + b"????")
    assert next_frame(buffer, 4, 10) is None
    assert frame_end(buffer, 4, 6) == 8
    assert frame_end(buffer, 4, 8) == 11
    assert next_frame(buffer, 4, 11) == (8, 11)
    assert next_frame(buffer, 11, 18) is None
    assert next_frame(buffer, 11, 19) == (15, 19)
    assert next_frame(buffer, 19, 19) is None


# --- request headers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ä" * 200])
def test_request_headers_go_both_ways_for_every_version(api: object, client_id: str | None) -> None:
    """Headers v1 and v2: the client id is plain in both, tagged fields follow in flexible versions."""
    for version in range(api.versions[0], api.versions[1] + 1):  # type: ignore[attr-defined]
        header = RequestHeader(api.key, version, 77, client_id)  # type: ignore[attr-defined]
        encoded = header.encode()
        raw = b"" if client_id is None else client_id.encode()
        size = -1 if client_id is None else len(raw)
        plain = struct.pack(">hhih", api.key, version, 77, size) + raw  # type: ignore[attr-defined]
        assert encoded == plain + (b"\0" if api.is_flexible(version) else b"")  # type: ignore[attr-defined]
        assert RequestHeader.decode(memoryview(b"##" + encoded + b"body"), 2) == (header, 2 + len(encoded))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = struct.pack(">hhih", 12, 4, 5, 1) + b"c" + b"\x02\x00\x03abc\x05\x00" + b"body"
    header, position = RequestHeader.decode(data)
    assert (header.api_key, header.client_id, data[position:]) == (12, "c", b"body")


def test_controlled_shutdown_0_has_a_header_without_client_id() -> None:
    """Header v0: only ControlledShutdown 0 ever had it."""
    header, position = RequestHeader.decode(struct.pack(">hhii", 7, 0, 9, 1))
    assert (header.api_key, header.correlation_id, header.client_id, position) == (7, 9, None, 8)


def test_a_client_id_that_is_not_utf_8_is_readable_all_the_same() -> None:
    """Kafka's broker takes it, so a client with a Latin-1 name in its configuration works."""
    header, position = RequestHeader.decode(struct.pack(">hhih", 12, 1, 5, 5) + b"k\xe4se!")
    assert (header.client_id, position) == ("k\ufffdse!", 15)


def test_an_unknown_key_has_a_readable_header() -> None:
    """The broker wants the key and the correlation id before it closes the connection."""
    header, position = RequestHeader.decode(struct.pack(">hhih", 999, 3, 9, 1) + b"crest")
    assert (header.api_key, header.client_id, position) == (999, "c", 11)


def test_a_newer_api_versions_request_has_a_readable_header() -> None:
    """A client of the future asks with a version that we do not know; its header is the newest."""
    header, position = RequestHeader.decode(struct.pack(">hhih", 18, 99, 9, 1) + b"c\0rest")
    assert (header.api_version, position) == (99, 12)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off, 0 bytes"),
        (struct.pack(">hhi", 12, 1, 5), "cut off, 8 bytes"),
        (struct.pack(">hhih", 12, 1, 5, 4) + b"abc", "ends 1 bytes behind"),
        (struct.pack(">hhih", 12, 4, 5, 1) + b"a", "cut off"),
        (struct.pack(">hhih", 12, 4, 5, 1) + b"a\x01\x00\x05a", "cut off"),
        (struct.pack(">hhih", 12, 4, 5, 1) + b"a\x02\x03\x00\x03\x00", "out of order"),
        (struct.pack(">hhih", 12, 1, 5, -2), "client id of -2 bytes"),
    ],
)
def test_a_malformed_header_says_so(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        RequestHeader.decode(data)


@given(st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        _, position = RequestHeader.decode(data)
    except Malformed:
        return
    assert position <= len(data)


def test_a_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(Unencodable, match="client id"):
        RequestHeader(12, 1, 5, "a" * 40_000).encode()


# --- response headers and whole frames ------------------------------------------------------------------------------


def test_response_headers_have_tags_in_flexible_versions_but_never_for_api_versions() -> None:
    """Response headers v0 and v1, and the exception that lets a client read any answer to ApiVersions."""
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            expected = struct.pack(">i", 5) + (b"\0" if api.is_flexible(version) and api.key != 18 else b"")
            assert response_header(api.key, version, 5) == expected
            assert decode_response_header(b"#" + expected + b"body", api.key, version, 1) == (5, 1 + len(expected))
            assert frame_head(api.key, version, 5, 10) == struct.pack(">i", len(expected) + 10) + expected


def test_tagged_fields_of_a_response_header_are_skipped_and_cut_ones_malformed() -> None:
    assert decode_response_header(b"\0\0\0\5\1\0\1a", 12, 4) == (5, 8)
    for data in (b"\0\0", b"\0\0\0\5", b"\0\0\0\5\1\0\4a"):
        with pytest.raises(Malformed):
            decode_response_header(data, 12, 4)


def test_a_whole_response_is_one_buffer_and_a_frame() -> None:
    (frame,) = encode_response(HeartbeatResponse(error_code=27), 4, 9)
    (content,) = FrameReader().feed(frame)
    correlation_id, position = decode_response_header(content, 12, 4)
    assert correlation_id == 9
    assert HeartbeatResponse.decode(content[position:], 4).error_code == 27


def test_an_answer_to_api_versions_has_the_old_header() -> None:
    (frame,) = encode_response(ApiVersionsResponse(error_code=35), 3, 9)
    assert bytes(frame[4:10]) == b"\0\0\0\x09\0\x23"


def test_a_whole_request_keeps_its_payload_apart() -> None:
    """The design: encode returns a list of buffers; payloads are not joined."""
    payload = memoryview(bytearray(b"p" * 100_000))
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=payload)])]
    )
    parts = encode_request(request, 9, 5, "me")
    assert [part for part in parts if part is payload]
    assert len(parts) == 3
    (content,) = FrameReader().feed(b"".join(parts))  # type: ignore[arg-type]
    header, position = RequestHeader.decode(content)
    assert (header.api_key, header.client_id) == (0, "me")
    assert ProduceRequest.decode(content[position:], 9) == request


def test_a_request_without_payload_is_one_buffer() -> None:
    (frame,) = encode_request(HeartbeatRequest(group_id="g"), 4, 5, None)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
