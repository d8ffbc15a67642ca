"""The straight way of an append and its plain twin: same answers, same bytes, same state (STYLE 14)."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import CONFIG, NOW, Kit, make_batch

from stratalog.base.failures import ApiError, Malformed
from stratalog.records import batch as batches

BATCH = st.fixed_dictionaries(
    {
        "values": st.lists(st.binary(max_size=40), min_size=1, max_size=4),
        "timestamp": st.sampled_from([NOW, NOW - 10_000_000, NOW + 3_599_990, NOW + 3_700_000, 0]),
        "pid": st.sampled_from([-1, 1, 1, 2]),
        "epoch": st.integers(0, 1),
        "sequence": st.sampled_from([0, 1, 2, 3, 2**31 - 1, -1]),
        "base": st.sampled_from([0, 0, 0, 5]),
        "damage": st.sampled_from([None, None, None, 18, 26, 60, 66, -1, -2]),
        "claims": st.sampled_from([None, None, None, 5, 100, 2**31 - 1]),
        "codec": st.sampled_from([0, 0, 1, 2, 3, 4]),
        "bits": st.sampled_from([0, 0, 0, 0, 1, 4, 7, 8, 16, 32, 64]),
        "highest": st.sampled_from([0, 0, 0, -1, 1]),
    }
)


def outcome(log, raw):
    try:
        info = log.append_as_leader(memoryview(raw), 3, NOW)
    except ApiError as error:
        return "refused", error.code
    except Malformed:
        return "refused", 2
    return info.first_offset, info.last_offset, info.max_timestamp, info.log_append_time, info.duplicate, info.size


@settings(max_examples=150, deadline=None)
@given(produced=st.lists(BATCH, min_size=1, max_size=12))
def test_the_fast_append_equals_the_general_one(tmp_path_factory, produced):
    root = tmp_path_factory.mktemp("twin")
    fast, plain = Kit(root / "fast-0").open(CONFIG), Kit(root / "plain-0").open(CONFIG)
    plain._plain = False  # the straight way is closed
    for batch in produced:
        fields = dict(batch)
        damage = fields.pop("damage")
        claims = fields.pop("claims")
        bits = fields.pop("bits")
        highest = fields.pop("highest")
        raw = make_batch(fields.pop("values"), **fields)
        if claims is not None:
            struct.pack_into(">i", raw, batches.LAST_OFFSET_DELTA_AT, claims - 1)
            struct.pack_into(">i", raw, batches.COUNT_AT, claims)
        raw[batches.ATTRIBUTES_AT + 1] ^= bits
        if highest and fields["codec"]:  # of what is not compressed, the header is believed
            (told,) = struct.unpack_from(">q", raw, batches.MAX_TIMESTAMP_AT)
            struct.pack_into(">q", raw, batches.MAX_TIMESTAMP_AT, told + highest)
        if damage == -2:
            raw[len(raw) // 2] ^= 4  # within what is compressed, and the CRC is right
        struct.pack_into(">I", raw, batches.CRC_AT, batches.crc32c(raw[batches.ATTRIBUTES_AT :]))
        if damage not in (None, -2):
            raw[damage] ^= 1
        assert outcome(fast, bytearray(raw)) == outcome(plain, bytearray(raw))
    assert fast.read(0, 1 << 20).size == plain.read(0, 1 << 20).size
    if fast.log_end_offset:
        assert fast.read(0, 1 << 20).region.read() == plain.read(0, 1 << 20).region.read()
    rows = [[entry.row() for _, entry in sorted(log.producers.entries.items())] for log in (fast, plain)]
    assert rows[0] == rows[1]
    assert fast.epochs.rows == plain.epochs.rows
