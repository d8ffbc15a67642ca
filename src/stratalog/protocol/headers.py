"""The headers before requests and responses, and whole frames around a message.

Request headers: version 0 has no client id (only ControlledShutdown 0 ever had it), 1 has one, 2 has tagged fields
too.  The client id stays a plain nullable string in version 2, so that a broker can read the header of any ApiVersions
request.  Response headers: 0 is the correlation id, 1 has tagged fields.  A message's flexible versions go with the
newer header, except for answers to ApiVersions, whose header is always version 0.  Tagged fields of headers are
skipped: there are none yet.

Who may call it: anybody, from any thread.
"""

from __future__ import annotations

import struct
from typing import Final, Self

from stratalog.base.failures import Malformed
from stratalog.base.types import Buffer, FileRegion
from stratalog.protocol.apis import APIS
from stratalog.protocol.compiler import unknown_tags
from stratalog.protocol.schema import STRING_BYTES_MAX, Message, Unencodable

_API_VERSIONS: Final = 18
_CONTROLLED_SHUTDOWN: Final = 7
_NEVER: Final = 1 << 15

_FIRST_FLEXIBLE: Final = {api.key: _NEVER if api.flexible is None else api.flexible for api in APIS.values()}
_HEAD = struct.Struct(">hhih")
_unpack_head = _HEAD.unpack_from
_pack_size_id = struct.Struct(">ii").pack
_pack_size_id_tags = struct.Struct(">iix").pack


class RequestHeader:
    """Who asks for what.  `api_key` may be one that we do not know."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @classmethod
    def decode(cls, frame: Buffer, position: int = 0) -> tuple[Self, int]:
        """The header at `position` and where the body begins.  Of an unknown key the fields up to the client id are
        read; there is no telling what its body is.  A client id is for people to read: what is not UTF-8 in it becomes
        U+FFFD, as in Kafka, and does not cost the client its connection."""
        try:
            api_key, api_version, correlation_id, length = _unpack_head(frame, position)
            if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
                return cls(api_key, 0, correlation_id, None), position + 8
            p = position + 10
            if length >= 0:
                q = p + length
                client_id = str(frame[p:q], "utf-8", "replace")
                p = q
            elif length == -1:
                client_id = None
            else:
                raise Malformed(f"request header: a client id of {length} bytes", position=position + 8)
            if p > len(frame):
                raise Malformed(f"request header: ends {p - len(frame)} bytes behind the frame", position=position + 8)
            if api_version >= _FIRST_FLEXIBLE.get(api_key, _NEVER):
                p = skip_tags(frame, p)
        except (struct.error, IndexError):
            raise Malformed(f"request header: cut off, {len(frame) - position} bytes", position=position) from None
        return cls(api_key, api_version, correlation_id, client_id), p

    def encode(self) -> bytes:
        """The header in the version that goes with its key and version."""
        raw = None if self.client_id is None else self.client_id.encode()
        if raw is not None and len(raw) > STRING_BYTES_MAX:
            raise Unencodable(f"a client id of {len(raw)} bytes")
        return b"".join(
            (
                _HEAD.pack(self.api_key, self.api_version, self.correlation_id, -1 if raw is None else len(raw)),
                raw or b"",
                b"\0" if self.api_version >= _FIRST_FLEXIBLE.get(self.api_key, _NEVER) else b"",
            )
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestHeader):
            return NotImplemented
        return (self.api_key, self.api_version, self.correlation_id, self.client_id) == (
            other.api_key,
            other.api_version,
            other.correlation_id,
            other.client_id,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        api = APIS.get(self.api_key)
        name = api.name if api is not None else str(self.api_key)
        return f"<{name} {self.api_version}, correlation {self.correlation_id}, client {self.client_id!r}>"


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of an answer, without the frame's size."""
    return frame_head(api_key, version, correlation_id, 0)[4:]


def frame_head(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """The frame's size and the header of an answer whose body has `body_size` bytes."""
    if api_key != _API_VERSIONS and version >= _FIRST_FLEXIBLE[api_key]:
        return _pack_size_id_tags(body_size + 5, correlation_id)
    return _pack_size_id(body_size + 4, correlation_id)


def encode_response(
    message: Message, version: int, correlation_id: int, *, api_key: int | None = None
) -> list[Buffer | FileRegion]:
    """A whole frame: size, header and body, the small parts in one buffer and payloads as they are."""
    parts = message.encode(version)
    size = 0
    for part in parts:
        size += len(part)
    head = frame_head(message.api_key if api_key is None else api_key, version, correlation_id, size)
    return _headed(head, parts)


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer | FileRegion]:
    """A whole frame: size, header and body, the small parts in one buffer and payloads as they are."""
    header = RequestHeader(message.api_key, version, correlation_id, client_id).encode()
    parts = message.encode(version)
    size = len(header)
    for part in parts:
        size += len(part)
    return _headed(size.to_bytes(4, "big") + header, parts)


def _headed(head: bytes, parts: list[Buffer | FileRegion]) -> list[Buffer | FileRegion]:
    """What a codec wrote first is always bytes of its own, so the head may go in one buffer with it."""
    first = parts[0] if parts else b""
    if type(first) is bytes:
        parts[:1] = [head + first]
    else:
        parts.insert(0, head)
    return parts


def decode_response_header(frame: Buffer, api_key: int, version: int, position: int = 0) -> tuple[int, int]:
    """The correlation id of an answer to a request of this key and version, and where its body begins."""
    p = position + 4
    if p > len(frame):
        raise Malformed(f"response header: cut off, {len(frame) - position} bytes", position=position)
    correlation_id = int.from_bytes(frame[position:p], "big", signed=True)
    if api_key != _API_VERSIONS and version >= _FIRST_FLEXIBLE.get(api_key, _NEVER):
        p = skip_tags(frame, p)
    return correlation_id, p


def skip_tags(frame: Buffer, position: int) -> int:
    """The end of a header's tagged fields, which begin at `position`.  None of them means anything to us, but they
    are held to the same rules as those of a message."""
    try:
        if frame[position] == 0:
            return position + 1
        _, end = unknown_tags(frame, position)
    except IndexError:
        end = len(frame) + 1
    if end > len(frame):
        raise Malformed("a header's tagged fields are cut off", position=position)
    return end
