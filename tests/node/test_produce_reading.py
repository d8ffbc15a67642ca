"""The produce request as its handler reads it, beside the interpreter: it has a reader of its own for speed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.node.handlers import k00_produce
from stratalog.protocol import interpreter
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = range(ProduceRequest.versions[0], ProduceRequest.versions[1] + 1)
LATER = ("UTF-8", "a string of")
"""What the handler does not look at while it reads: text is held against the names that there are."""


def some_request(version: int, rng: random.Random) -> ProduceRequest:
    topics = []
    for number in range(rng.choice((1, 1, 1, 0, 2, 130))):
        partitions = [
            PartitionProduceData(
                index=rng.choice((0, 1, 2**31 - 1)), records=rng.choice((None, b"", b"r" * 9, b"r" * 200))
            )
            for _ in range(rng.choice((1, 1, 0, 2, 130 if number < 2 else 1)))
        ]
        name = (
            {"name": "t" * rng.choice((1, 5, 126, 127, 200))} if version < 13 else {"topic_id": Uuid(rng.randbytes(16))}
        )
        topics.append(TopicProduceData(partition_data=partitions, **name))
        if version >= 9 and rng.random() < 0.2:
            topics[-1].unknown_tags = [(3, b"x"), (200, b"")]
    made = ProduceRequest(acks=rng.choice((-1, 0, 1)), timeout_ms=rng.randrange(2**31), topic_data=topics)
    if version >= 3 and rng.random() < 0.2:
        made.transactional_id = "x" * rng.choice((0, 3, 130))
    return made


def damaged(data: bytes, rng: random.Random) -> bytes:
    value = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(value)) if value else 0
        kind = rng.randrange(5)
        if kind == 0:
            value[at : at + 1] = bytes((value[at] | 0x80,)) + b"\x80" * rng.randrange(4) + b"\0" if value else b""
        elif kind == 1:
            value[at : at + 1] = bytes((rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF)),))
        elif kind == 2:
            del value[at : at + rng.choice((1, 2))]
        elif kind == 3:
            value[at:at] = rng.choice((b"\0", b"\0\0", b"\xff\xff\xff\xff"))
        else:
            del value[at:]
    return bytes(value)


def as_the_handler_reads(data: bytes, version: int) -> Any:
    walk = k00_produce._walk_flexible if version >= 9 else k00_produce._walk_old
    try:
        transactional, acks, timeout_ms, topics = walk(memoryview(data), 0, len(data), version)
    except (Malformed, IndexError, k00_produce.struct.error):
        return None
    rows = [
        (key, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for _, key, partitions in topics
    ]
    return transactional, acks, timeout_ms, rows


def as_the_interpreter_reads(data: bytes, version: int) -> Any:
    request, position = interpreter.decode(ProduceRequest, data, 0, version)
    if position != len(data):
        raise Malformed("bytes behind the request")
    rows = [
        (
            bytes(topic.topic_id) if version >= 13 else topic.name.encode(),
            [(one.index, None if one.records is None else bytes(one.records)) for one in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    transactional = request.transactional_id
    return None if transactional is None else transactional.encode(), request.acks, request.timeout_ms, rows


@pytest.mark.parametrize("version", VERSIONS)
def test_the_handler_reads_what_the_interpreter_reads_and_refuses_what_it_refuses(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        good = b"".join(interpreter.encode(some_request(version, rng), version))  # type: ignore[arg-type]
        assert as_the_handler_reads(good, version) == as_the_interpreter_reads(good, version)
        if len(good) > 2_000:
            continue
        for _ in range(20):
            bad = damaged(good, rng)
            try:
                wanted = as_the_interpreter_reads(bad, version)
            except Malformed as malformed:
                if not any(word in malformed.reason for word in LATER):
                    assert as_the_handler_reads(bad, version) is None, (bad, malformed)
            else:
                assert as_the_handler_reads(bad, version) == wanted, bad


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_request_of_too_many_partitions_is_refused(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """security.md 7.2: elements become objects, so all of them together are bounded."""
    monkeypatch.setattr(k00_produce, "REQUEST_ELEMENTS_MAX", 1_000)
    for partitions, refused in ((499, False), (500, True)):
        name = {"name": "t"} if version < 13 else {}
        topic = TopicProduceData(partition_data=[PartitionProduceData(records=b"")] * partitions, **name)
        data = ProduceRequest(topic_data=[topic, topic]).encode_bytes(version)
        walk = k00_produce._walk_flexible if version >= 9 else k00_produce._walk_old
        if refused:
            with pytest.raises(Malformed, match="more than 1000 elements"):
                walk(memoryview(data), 0, len(data), version)
        else:
            walk(memoryview(data), 0, len(data), version)
