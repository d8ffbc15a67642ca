"""Frames from nobody's client: whatever comes, the node answers or says `Malformed`; nothing else leaves it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harness import Bench, batch

from stratalog.base.failures import Malformed
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k01_fetch import FetchPartition, FetchRequest, FetchTopic

RANGES = {0: 13, 1: 18, 2: 11, 18: 5, 21: 2, 22: 5, 23: 4}


def offer(bench: Bench, frame: bytes) -> None:
    try:
        bench.node.handle_frame(bench.peer(), memoryview(bytearray(frame)), bench.clock.now_ms())
    except Malformed:
        pass
    bench.end_turn()
    bench.node.connection_closed(bench.peer())


@pytest.mark.parametrize("key", RANGES)
def test_random_bodies_are_malformed_or_answered(tmp_path: Any, key: int) -> None:
    """F: 2,000 bodies for each key, short and long, mostly small numbers so that they get far."""
    bench = Bench(str(tmp_path))
    bench.create("a")
    bench.node.producer_ids._end = 1_000_000
    rng = random.Random(key)
    for _ in range(2_000):
        version = rng.randint(0, RANGES[key])
        size = rng.choice((0, 1, 5, 20, 60, 200))
        body = bytes(rng.choice((0, 0, 0, 1, 2, 3, 97, 255, rng.randint(0, 255))) for _ in range(size))
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\1x"
        offer(bench, head + rng.choice((b"", b"\0")) + body)
    assert bench.node.partitions["a", 0].log.log_end_offset == 0


@pytest.mark.parametrize("version", [2, 3, 8, 9, 11, 13])
def test_a_changed_byte_of_a_good_request_does_no_harm(tmp_path: Any, version: int) -> None:
    """F: every byte of a produce and a fetch, three values each; the log stays whole."""
    bench = Bench(str(tmp_path))
    topic_id = bench.create("orders")
    topic = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=batch(b"a", b"b"))])
    wanted = FetchTopic(partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
    if version >= 13:
        topic.topic_id = wanted.topic_id = topic_id
    else:
        topic.name = wanted.topic = "orders"
    produce = ProduceRequest(acks=1, timeout_ms=10, topic_data=[topic])
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[wanted])
    for name, body in (("Produce", produce), ("Fetch", fetch)):
        frame = bytes(bench.frame(name, version, body))
        for at in range(8, len(frame)):
            for change in (0x01, 0x80, 0xFF):
                offer(bench, frame[:at] + bytes((frame[at] ^ change,)) + frame[at + 1 :])
    bench.node.partitions["orders", 0].log.check_invariants()


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"", id="none"),
        pytest.param(b"\x01", id="a count and nothing else"),
        pytest.param(b"\x01\x00\x05a", id="cut off"),
        pytest.param(b"\x02\x03\x00\x03\x00", id="one twice"),
        pytest.param(b"\x02\x03\x00\x02\x00", id="out of order"),
        pytest.param(b"\xff\xff\xff\xff\x1f", id="a count of more than 32 bits"),
        pytest.param(b"\x91\x4e" + b"\x00\x00" * 10_001, id="10,001 of them"),
    ],
)
def test_tagged_fields_of_a_header_are_held_to_the_rules_of_a_message(tmp_path: Any, tags: bytes) -> None:
    """security.md 7.1: tagged-field count and order checked, varints of five bytes and 32 bits."""
    bench = Bench(str(tmp_path))
    head = b"\0\x12\0\x03\0\0\0\1\0\1x"
    good = head + b"\x01\x07\x02ab" + b"\x02a\x02b\0"
    assert bench.node.handle_frame(bench.peer(), memoryview(good), bench.clock.now_ms()).output is not None
    with pytest.raises(Malformed):
        bench.node.handle_frame(bench.peer(), memoryview(head + tags), bench.clock.now_ms())


def test_a_client_id_that_is_no_text_is_served(tmp_path: Any) -> None:
    """As Kafka does: the id is for people to read, what is not UTF-8 in it becomes U+FFFD."""
    bench = Bench(str(tmp_path))
    frame = b"\0\x12\0\x03\0\0\0\1\0\2x\xe4\0" + b"\x02a\x02b\0"
    request = bench.node.handle_frame(bench.peer(), memoryview(frame), bench.clock.now_ms())
    assert (request.client_id, request.output is None) == ("x\ufffd", False)
