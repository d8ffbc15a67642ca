"""The codecs, made at first use: see `decoder`, `encoder`, `dump`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratalog.base.types import Buffer, FileRegion
from stratalog.protocol import interpreter

if TYPE_CHECKING:
    from stratalog.protocol.schema import Message

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
"""(data, position, end) to (message, position behind it)."""
Encoder = Callable[[Any], list[Buffer | FileRegion]]


def decoder(cls: type[Message], version: int) -> Decoder:
    """The decoder of one version, made if need be."""
    return lambda data, position, end: interpreter.decode(cls, data, position, version)


def encoder(cls: type[Message], version: int) -> Encoder:
    """The encoder of one version, made if need be."""
    return lambda message: interpreter.encode(message, version)


def dump(name: str, version: int) -> str:
    """The source of the codecs of `Fetch`, `FetchRequest` or `1` in one version."""
    raise NotImplementedError
