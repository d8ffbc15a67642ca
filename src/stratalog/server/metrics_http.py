"""The metrics port: `GET /metrics` in Prometheus' text format, nothing else.

A thread of its own, so that a slow scraper costs the loop nothing; it reads the node's counters as they are.  Bounded:
one request at a time, 4 KiB of it, two seconds for all of it and five for its answer.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("stratalog.server")

_REQUEST_BYTES_MAX: Final = 4096
_REQUEST_SECONDS_MAX: Final = 2.0
"""For the whole request, however it trickles in: the next scraper waits meanwhile."""
_ANSWER_SECONDS_MAX: Final = 5.0


class MetricsServer:
    """Serves what `render` gives."""

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        self._render = render
        self._client: socket.socket | None = None
        try:
            self._socket = socket.create_server((host, port), backlog=16)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{host}:{port}, stratalog.metrics.port") from error
        self._thread = threading.Thread(target=self._run, name="stratalog-metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        client = self._client
        if client is not None:  # whoever is being served is not waited for
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            with client, contextlib.suppress(OSError):
                self._client = client
                self._answer(client)
            self._client = None

    def _answer(self, client: socket.socket) -> None:
        deadline = time.monotonic() + _REQUEST_SECONDS_MAX
        request = b""
        while b"\r\n\r\n" not in request:
            client.settimeout(max(deadline - time.monotonic(), 0.001))
            data = client.recv(_REQUEST_BYTES_MAX)
            if not data or len(request) + len(data) > _REQUEST_BYTES_MAX:
                return
            request += data
        client.settimeout(_ANSWER_SECONDS_MAX)  # `sendall` takes it for all of the answer
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET" or words[1].split(b"?")[0] not in (b"/", b"/metrics"):
            client.sendall(_head("404 Not Found", 0))
            return
        try:
            body = self._render().encode()
        except Exception:  # this thread's top: a gauge's bug costs this answer, and is told
            log.exception("the metrics cannot be told")
            client.sendall(_head("500 Internal Server Error", 0))
            return
        client.sendall(_head("200 OK", len(body)) + body)


def _head(status: str, length: int) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()
