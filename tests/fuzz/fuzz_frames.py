"""Any bytes as a stream: frames over any split of it, and a request header in each.

Only `Malformed` may come out, and the split must not matter (issue 3, bad input).  `tests/fuzz/run.py` drives it.
"""

from __future__ import annotations

from stratalog.base.failures import Malformed
from stratalog.protocol.connection import FrameReader, next_frame
from stratalog.protocol.headers import RequestHeader, decode_response_header

LIMIT = 1 << 20


def one(data: bytes) -> None:
    """The first byte says into pieces of which size the rest is cut."""
    step = max(1, data[0]) if data else 1
    stream = data[1:]
    whole, whole_ended = frames(stream, len(stream) or 1)
    pieces, pieces_ended = frames(stream, step)
    assert pieces_ended == whole_ended
    assert pieces[: len(whole)] == whole  # what came before the fault in one piece is lost with that piece
    assert whole_ended or pieces == whole
    try:
        place = next_frame(stream, 0, len(stream), LIMIT)
        if place is not None and not whole_ended:
            begin, end = place
            assert stream[begin:end] == whole[0]
    except Malformed:
        assert whole_ended
    for frame in pieces:
        try:
            header, position = RequestHeader.decode(frame)
        except Malformed:
            pass
        else:
            assert position <= len(frame)
            if header.client_id is not None and header.api_key != 7:
                again, _ = RequestHeader.decode(header.encode())
                assert again == header
        for key, version in ((12, 4), (12, 0), (18, 3)):
            try:
                _, position = decode_response_header(frame, key, version)
                assert position <= len(frame)
            except Malformed:
                pass


def frames(stream: bytes, step: int) -> tuple[list[bytes], bool]:
    """The frames, and whether the stream ended in a fault."""
    reader = FrameReader(LIMIT)
    found: list[bytes] = []
    for at in range(0, len(stream), step):
        try:
            found += [bytes(frame) for frame in reader.feed(stream[at : at + step])]
        except Malformed:
            return found, True
    assert reader.held <= len(stream)
    return found, False
