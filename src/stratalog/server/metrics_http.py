"""The metrics port: `GET /metrics` in Prometheus' text format, nothing else.

A thread of its own, so that a slow scraper costs the loop nothing; it reads the node's counters as they are.  Bounded:
one request at a time, 4 KiB of it, five seconds.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

_REQUEST_BYTES_MAX: Final = 4096
_SECONDS_MAX: Final = 5.0


class MetricsServer:
    """Serves what `render` gives."""

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        self._render = render
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
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            with client, contextlib.suppress(OSError):
                client.settimeout(_SECONDS_MAX)
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            data = client.recv(_REQUEST_BYTES_MAX)
            if not data or len(request) + len(data) > _REQUEST_BYTES_MAX:
                return
            request += data
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET" or words[1].split(b"?")[0] not in (b"/", b"/metrics"):
            client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        body = self._render().encode()
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        client.sendall(head.encode() + body)
