"""A connection of the small client, against somebody who is no broker."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from stratalog.base.failures import Malformed
from stratalog.client.connection import Connection


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"\0\0\0\x08\0\0\0\x63bad!", "the answer is to request 99, not to 1"),
        (b"\0\0\0\x05\0\0\0\x01\0", "ApiVersions"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this a Kafka port"),
    ],
)
def test_an_answer_that_is_none_names_who_gave_it(answer: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def one() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)
                with contextlib.suppress(ConnectionResetError):
                    peer.recv(1)

        thread = threading.Thread(target=one, daemon=True)
        thread.start()
        with pytest.raises(Malformed, match=rf"127\.0\.0\.1:{port}.*{says}"):
            Connection("127.0.0.1", port)
        thread.join(10)
