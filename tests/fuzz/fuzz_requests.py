"""Any bytes as any message of the API or any record on disk, in any version.

The compiled codec and the interpreter must agree, only `Malformed` may come out, and what is read can be written and
read again (issue 3, bad input).  `tests/fuzz/run.py` drives it.  `python tests/fuzz/fuzz_requests.py` writes the
corpus again: every message once, in its newest version, with one element in each array.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stratalog.base.failures import Malformed
from stratalog.base.types import Uuid
from stratalog.protocol import interpreter
from stratalog.protocol.apis import classes
from stratalog.protocol.schema import Field, Message, Struct

CLASSES = sorted(set(classes()), key=lambda cls: (cls.__module__, cls.__name__))


def one(data: bytes) -> None:
    """Two bytes for the class, one for the version, then the message."""
    if len(data) < 3:
        return
    cls = CLASSES[int.from_bytes(data[:2], "big") % len(CLASSES)]
    first, last = cls.versions
    version = first + data[2] % (last - first + 1)
    body = data[3:]
    try:
        message = cls.decode(body, version)
    except Malformed as malformed:
        assert -1 <= malformed.position <= len(body)
        return
    expected, position = interpreter.decode(cls, body, 0, version)
    assert position == len(body)
    assert repr(expected) == repr(message)  # not ==: a float may be NaN
    encoded = message.encode_bytes(version)
    assert encoded == b"".join(interpreter.encode(message, version))  # type: ignore[arg-type]
    # The bytes, not the message: a tagged field that was sent with its default is not written again.
    assert cls.decode(encoded, version).encode_bytes(version) == encoded


def example(structure: type[Struct], version: int, flexible: bool) -> Any:
    made = structure()
    for field in structure.__fields__:
        if field.exists_in(version) and (flexible or not field.tagged_in(version)):
            setattr(made, field.name, value(field, version, flexible))
    return made


def value(field: Field, version: int, flexible: bool) -> Any:
    kind = field.kind
    if kind == "string":
        return field.name
    if kind in ("bytes", "records"):
        return field.name.encode()
    if kind == "uuid":
        return Uuid(bytes(range(16)))
    if kind == "array":
        assert field.element is not None
        return [value(field.element, version, flexible)]
    if kind == "struct":
        assert field.structure is not None
        return example(field.structure, version, flexible)
    return 1.5 if kind == "float64" else kind == "boolean" or 7


def plain(cls: type[Message], payload: bytes | None) -> Any:
    """One topic with one partition, nothing else set."""
    topics = next(field for field in cls.__fields__ if field.name in ("topic_data", "responses"))
    assert topics.element is not None and topics.element.structure is not None
    partitions = topics.element.structure.__fields__[-1]
    assert partitions.element is not None and partitions.element.structure is not None
    partition = partitions.element.structure(records=payload)
    return cls(**{topics.name: [topics.element.structure(**{partitions.name: [partition]})]})


def write_corpus(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for index, cls in enumerate(CLASSES):
        version = cls.versions[1]
        message: Message = example(cls, version, interpreter.is_flexible(cls, version))
        data = index.to_bytes(2, "big") + bytes((version - cls.versions[0],)) + message.encode_bytes(version)
        (directory / cls.__name__).write_bytes(data)
        if cls.__name__ in ("ProduceRequest", "FetchResponse"):
            # The shape that is read by hand, with a payload and with a null in two bytes instead of one.
            for name, payload in (("plain", b"payload"), ("null", None)):
                body = plain(cls, payload).encode_bytes(version)
                if payload is None:
                    body = body[:-4] + b"\x80\0" + body[-3:]
                (directory / f"{cls.__name__}-{name}").write_bytes(data[:3] + body)


if __name__ == "__main__":
    write_corpus(Path(__file__).resolve().parent / "corpus" / "requests")
