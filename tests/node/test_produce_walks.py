"""The three readers of a produce request: straight code for one topic with one partition, loops for the rest."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.node.handlers.k00_produce import _walk_flexible, _walk_old, _walk_one
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([126, 127, 128, 16_382, 16_383, 16_384, 70_000]))
PARTITIONS = st.lists(st.tuples(st.integers(-1, 1 << 20), st.one_of(st.none(), SIZES)), max_size=2)
TOPICS = st.lists(st.tuples(st.text("ab.-é", max_size=130), PARTITIONS), max_size=2)


def request(version, transactional, acks, topics):
    body = ProduceRequest(
        transactional_id=transactional,
        acks=acks,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=Uuid(b"\3" * 16),
                partition_data=[
                    PartitionProduceData(index=index, records=None if size is None else bytes(size))
                    for index, size in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    return body.encode_bytes(version)


def loops(version):
    return _walk_flexible if version >= 9 else _walk_old


def outcome(walk, frame, version):
    try:
        return walk(memoryview(frame), 0, len(frame), version)
    except (Malformed, IndexError, struct.error):
        return Malformed


@given(st.integers(3, 13), st.sampled_from([None, None, "", "t"]), st.sampled_from([-1, 0, 1]), TOPICS, st.data())
@settings(max_examples=400, deadline=None)
def test_the_straight_walk_reads_what_the_loops_read(version, transactional, acks, topics, data):
    """Also of a damaged request: None, an error, or the same."""
    frame = bytearray(request(version, transactional, acks, topics))
    straight = outcome(_walk_one, frame, version)
    expected = outcome(loops(version), frame, version)
    assert expected is not Malformed
    assert straight in (None, expected)
    shape = [(size is not None) for _, partitions in topics for _, size in partitions]
    if transactional is None and len(topics) == 1 and shape == [True] and len(topics[0][0].encode()) < 127:
        assert straight == expected, "the usual shape is read straight"
    at = data.draw(st.integers(0, min(len(frame), 200) - 1))
    frame = bytearray(frame)
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    frame = frame[: data.draw(st.sampled_from([len(frame), len(frame) - 1, at]))]
    straight = outcome(_walk_one, frame, version)
    assert straight is None or straight == outcome(loops(version), frame, version)
