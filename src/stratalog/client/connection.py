"""One connection to one broker: requests out, answers in, in order.

Owned by one thread.  Versions are agreed on at the start (ApiVersions).  An answer's buffer belongs to the caller: it
is never reused, so what was decoded from it may be kept (scenario P11).  Lengths are checked before anything is
allocated (N12).
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any, Final

from stratalog.base import limits
from stratalog.base.failures import Malformed
from stratalog.base.types import FileRegion
from stratalog.client.failures import ClientError, ConnectionLost
from stratalog.protocol.apis import APIS
from stratalog.protocol.headers import decode_response_header, encode_request
from stratalog.protocol.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from stratalog.protocol.schema import Message

_API_VERSIONS: Final = 18


class Connection:
    """A connection that knows which versions its broker speaks."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "stratalog",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        frame_bytes_max: int = limits.FRAME_BYTES_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._next_correlation = 0
        self._pending: deque[tuple[int, int, int]] = deque()
        self.versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
        self._socket.settimeout(timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def version_of(self, key: int) -> int:
        """The highest version of a request that both sides speak."""
        api = APIS[key]
        low, high = api.versions
        if api.latest_unstable:
            high -= 1
        if key not in self.versions:
            raise ClientError(f"the broker {self.host}:{self.port} does not offer {api.name}")
        their_low, their_high = self.versions[key]
        version = min(high, their_high)
        if version < max(low, their_low):
            raise ClientError(
                f"no common version of {api.name} with {self.host}:{self.port}: "
                f"we speak {low} to {high}, it speaks {their_low} to {their_high}"
            )
        return version

    def call(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and wait for its answer."""
        self.send(request, version=version)
        return self.receive(timeout_s=timeout_s)

    def send(self, request: Message, *, version: int | None = None, expects_reply: bool = True) -> None:
        """Send without waiting; the answers come from `receive` in the same order."""
        key = request.api_key
        if version is None:
            version = self.version_of(key)
        self._next_correlation = (self._next_correlation + 1) & 0x7FFFFFFF
        buffers = encode_request(request, version, self._next_correlation, self._client_id)
        plain = [part.read() if isinstance(part, FileRegion) else part for part in buffers]
        try:
            self._send_all(plain)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.host}:{self.port} closed the connection: {error}") from error
        if expects_reply:
            self._pending.append((self._next_correlation, key, version))

    def receive(self, *, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request that waits for one."""
        correlation, key, version = self._pending[0]
        before = self._socket.gettimeout()
        if timeout_s is not None:
            self._socket.settimeout(timeout_s)
        try:
            frame = self._read_frame()
        except OSError as error:
            self.close()
            what = "did not answer in time" if isinstance(error, TimeoutError) else f"broke the connection: {error}"
            raise ConnectionLost(f"{self.host}:{self.port} {what} ({APIS[key].name})") from error
        finally:
            if timeout_s is not None:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(before)
        self._pending.popleft()
        try:
            got, position = decode_response_header(frame, key, version)
            if got != correlation:
                raise Malformed(f"the answer is to request {got}, not to {correlation}", position=0)
            response = APIS[key].response
            if key == _API_VERSIONS and version > 0 and int.from_bytes(frame[position : position + 2], "big") == 35:
                # A broker that does not know our version answers in version 0, with its list.
                message, _ = response.decode_at(frame, position, 0)
                return message
            message, _ = response.decode_at(frame, position, version)
            return message
        except Malformed as error:
            self.close()
            where = f"{self.host}:{self.port}, {APIS[key].name} {version}"
            raise Malformed(f"{where}: {error.reason}", position=error.position) from error

    def _negotiate(self) -> None:
        highest = APIS[_API_VERSIONS].versions[1]
        answer: ApiVersionsResponse = self.call(_hello(), version=highest)
        if answer.error_code == 35:
            theirs = next((k.max_version for k in answer.api_keys if k.api_key == _API_VERSIONS), 0)
            answer = self.call(_hello(), version=min(highest, theirs))
        if answer.error_code:
            raise ClientError(f"{self.host}:{self.port} refused to say its versions (error {answer.error_code})")
        self.versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def _send_all(self, buffers: list[Any]) -> None:
        views = [memoryview(part).cast("B") for part in buffers if len(part)]
        while views:
            sent = self._socket.sendmsg(views[:64])
            done = 0
            while done < len(views) and sent >= len(views[done]):
                sent -= len(views[done])
                done += 1
            del views[:done]
            if sent:
                views[0] = views[0][sent:]

    def _read_frame(self) -> memoryview:
        size = int.from_bytes(self._read_exactly(4), "big", signed=True)
        if not 4 <= size <= self._frame_bytes_max:
            self.close()
            raise Malformed(
                f"{self.host}:{self.port} announced an answer of {size} bytes, allowed are 4 to "
                f"{self._frame_bytes_max}; is this a Kafka port without TLS?",
                position=0,
            )
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> memoryview:
        # The buffer grows with what has come, so that an announced length alone costs no memory.
        buffer = bytearray(min(size, 1 << 20))
        got = 0
        while got < size:
            if got == len(buffer):
                buffer.extend(bytes(min(size - got, len(buffer))))
            with memoryview(buffer) as view:
                count = self._socket.recv_into(view[got:size])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            got += count
        return memoryview(buffer)[:size]


def _hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="stratalog", client_software_version="0.1.0")
