"""The readable oracle: decodes, encodes and measures a message by walking its field table, one field at a time.

`compiler` makes the fast codecs; tests hold them equal to this for every class and version.  In production this runs
only when a fast codec has refused something: it then finds the position, the field and the reason.
"""

from __future__ import annotations

import struct
from typing import Any

from stratalog.base.failures import Malformed
from stratalog.base.limits import ARRAY_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from stratalog.base.types import Buffer, FileRegion, Uuid
from stratalog.protocol.schema import (
    FIXED_WIDTH,
    INTEGERS,
    STRING_BYTES_MAX,
    Field,
    Message,
    Struct,
    Unencodable,
    least_bytes,
)


def decode(cls: type[Message], data: Buffer, position: int, version: int) -> tuple[Any, int]:
    """The message at `position` and the position behind it, or `Malformed`."""
    check_version(cls, version, Malformed)
    reader = _Reader(data, position, version, is_flexible(cls, version))
    message = reader.struct(cls)
    return message, reader.position


def encode(message: Message, version: int) -> list[Buffer | FileRegion]:
    """The message's buffers, or `Unencodable`."""
    check_version(type(message), version, Unencodable)
    writer = _Writer(version, is_flexible(type(message), version))
    writer.struct(message)
    return writer.parts


def size(message: Message, version: int) -> int:
    """The bytes that `encode` makes."""
    return sum(len(part) for part in encode(message, version))


def reason(cls: type[Message], data: Buffer, position: int, version: int, *, whole: bool) -> Malformed:
    """Why a fast decoder refused this."""
    try:
        _, position = decode(cls, data, position, version)
    except Malformed as malformed:
        return malformed
    assert whole and position != len(data), f"{cls.__name__} {version}: refused by the compiled codec only"
    return Malformed(f"{cls.__name__}: {len(data) - position} bytes too many", position=position)


def refusal(message: Message, version: int) -> Unencodable:
    """Why a fast encoder refused this."""
    try:
        encode(message, version)
    except Unencodable as error:
        return error
    raise AssertionError(f"{type(message).__name__} {version}: refused by the compiled codec only")


def is_flexible(cls: type[Message], version: int) -> bool:
    return cls.flexible is not None and version >= cls.flexible


def check_version(cls: type[Message], version: int, error: type[Malformed] | type[Unencodable]) -> None:
    first, last = cls.versions
    if not first <= version <= last:
        raise error(f"{cls.__name__} has versions {first} to {last}, not {version}")


def require_few(cls: type[Message], data: Buffer, position: int, version: int) -> None:
    """`Malformed` for a request of more elements than `REQUEST_ELEMENTS_MAX`, before anything is made of it.  Asked for
    large messages only; answers are not counted, who reads them has asked for them."""
    if cls.api_key < 0 or not cls.__name__.endswith("Request"):
        return
    check_version(cls, version, Malformed)
    reader = _Reader(data, position, version, is_flexible(cls, version))
    reader.path.append(cls.__name__)
    _skim_struct(reader, cls, 0)


def _skim_struct(reader: _Reader, structure: type[Struct], seen: int) -> int:
    """Go over a struct without making it: the elements seen so far."""
    version = reader.version
    for field in structure.__fields__:
        if field.exists_in(version) and not field.tagged_in(version):
            seen = _skim(reader, field, seen)
    if reader.flexible:
        count = reader.uvarint()
        seen = _seen(reader, seen, count)
        for _ in range(count):
            tag, length = reader.uvarint(), reader.uvarint()
            end = reader.position + length
            known = [field for field in structure.__fields__ if field.tag == tag and field.tagged_in(version)]
            if known:
                seen = _skim(reader, known[0], seen)
            if reader.position > end:
                raise reader.fail(f"tag {tag} says {length} bytes, its field ends behind them")
            reader.take(end - reader.position)
    return seen


def _skim(reader: _Reader, field: Field, seen: int) -> int:
    kind = field.kind
    if kind in FIXED_WIDTH:
        reader.take(FIXED_WIDTH[kind][1])
    elif kind in ("string", "bytes", "records"):
        reader.take(reader.length(field, "int16" if kind == "string" else "int32") or 0)
    elif kind == "array":
        element = field.element
        assert element is not None
        count = reader.length(field, "int32") or 0
        if element.kind in FIXED_WIDTH:
            reader.take(count * FIXED_WIDTH[element.kind][1])
            return seen
        seen = _seen(reader, seen, count)
        for _ in range(count):
            seen = _skim(reader, element, seen)
    else:
        assert field.structure is not None
        if not field.nullable_in(reader.version) or reader.fixed("int8") != field.null_mark_in(reader.version):
            seen = _skim_struct(reader, field.structure, seen)
    return seen


def _seen(reader: _Reader, seen: int, more: int) -> int:
    if seen + more > REQUEST_ELEMENTS_MAX:
        raise reader.fail(f"a request of more than {REQUEST_ELEMENTS_MAX} elements")
    return seen + more


class _Reader:
    """A cursor on the input.  Every length is held against what is left before anything is made of it."""

    def __init__(self, data: Buffer, position: int, version: int, flexible: bool) -> None:
        self.data = memoryview(data)
        self.position = position
        self.version = version
        self.flexible = flexible
        self.path: list[str] = []

    def fail(self, reason: str, position: int | None = None) -> Malformed:
        return Malformed(f"{'.'.join(self.path)}: {reason}", position=self.position if position is None else position)

    def take(self, count: int) -> memoryview:
        left = len(self.data) - self.position
        if count > left:
            raise self.fail(f"{count} bytes wanted, {left} left")
        self.position += count
        return self.data[self.position - count : self.position]

    def fixed(self, kind: str) -> Any:
        letter, width = FIXED_WIDTH[kind]
        (value,) = struct.unpack(">" + letter, self.take(width))
        return Uuid(value) if kind == "uuid" else value

    def uvarint(self) -> int:
        start = self.position
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    raise self.fail("a varint of more than 32 bits", start)
                return value
        raise self.fail("a varint of more than five bytes", start)

    def length(self, field: Field, plain: str) -> int | None:
        """The length before a string, bytes or an array; None for null, where the field may be null."""
        start = self.position
        if self.flexible and field.compact:
            length = self.uvarint() - 1
        else:
            length = self.fixed(plain)
        if length >= 0:
            return length
        if length < -1:
            raise self.fail(f"a length of {length}", start)
        if not field.nullable_in(self.version):
            raise self.fail("null where it cannot be", start)
        return None

    def value(self, field: Field) -> Any:
        kind = field.kind
        if kind in FIXED_WIDTH:
            return self.fixed(kind)
        if kind == "string":
            length = self.length(field, "int16")
            if length is None:
                return None
            if length > STRING_BYTES_MAX:
                raise self.fail(f"a string of {length} bytes")
            raw = self.take(length)
            try:
                return str(raw, "utf-8", "replace" if field.any_bytes else "strict")
            except UnicodeDecodeError as error:
                raise self.fail("not UTF-8", self.position - length + error.start) from None
        if kind in ("bytes", "records"):
            length = self.length(field, "int32")
            if length is None:
                return None
            return self.take(length) if kind == "records" else bytes(self.take(length))
        if kind == "array":
            return self.array(field)
        assert kind == "struct" and field.structure is not None
        if field.nullable_in(self.version):
            mark = self.fixed("int8")
            null = field.null_mark_in(self.version)
            if mark == null:
                return None
            if mark != 1:
                raise self.fail(f"{mark} where 1 or {null} says whether there is a struct", self.position - 1)
        return self.struct(field.structure)

    def array(self, field: Field) -> list[Any] | None:
        count = self.length(field, "int32")
        if count is None:
            return None
        element = field.element
        assert element is not None
        left = len(self.data) - self.position
        if count > ARRAY_ELEMENTS_MAX or count * least_bytes(element, self.version, self.flexible) > left:
            raise self.fail(f"{count} elements, {left} bytes left")
        values = []
        for index in range(count):
            self.path.append(f"[{index}]")
            values.append(self.value(element))
            self.path.pop()
        return values

    def struct(self, structure: type[Struct]) -> Any:
        made = structure()
        self.path.append(structure.__name__)
        tagged = {}
        for field in structure.__fields__:
            if field.tagged_in(self.version):
                tagged[field.tag] = field
            elif field.exists_in(self.version):
                self.path.append(field.name)
                setattr(made, field.name, self.value(field))
                self.path.pop()
        if self.flexible:
            self.tags(made, tagged)
        self.path.pop()
        return made

    def tags(self, made: Struct, tagged: dict[int | None, Field]) -> None:
        count = self.uvarint()
        if count > TAGGED_FIELDS_MAX:
            raise self.fail(f"{count} tagged fields")
        last = -1
        for _ in range(count):
            start = self.position
            tag = self.uvarint()
            length = self.uvarint()
            if tag <= last:
                raise self.fail(f"tag {tag} after tag {last}", start)
            last = tag
            left = len(self.data) - self.position
            if length > left:
                raise self.fail(f"tag {tag} of {length} bytes, {left} left", start)
            end = self.position + length
            field = tagged.get(tag)
            if field is None:
                made.unknown_tags.append((tag, bytes(self.take(length))))
                continue
            self.path.append(field.name)
            setattr(made, field.name, self.value(field))
            if self.position != end:
                raise self.fail(f"tag {tag} says {length} bytes, its field ends at byte {self.position}", start)
            self.path.pop()


class _Writer:
    """Collects the buffers.  What it refuses, it refuses with the field's name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.parts: list[Any] = []
        self.path: list[str] = []

    def fail(self, reason: str) -> Unencodable:
        return Unencodable(f"{'.'.join(self.path)}: {reason} (version {self.version})")

    def fixed(self, kind: str, value: Any) -> None:
        if kind in INTEGERS:
            low, high = INTEGERS[kind]
            if not isinstance(value, int) or not low <= value <= high:
                raise self.fail(f"{value!r} is not an {kind}")
        elif kind == "float64":
            if not isinstance(value, int | float):
                raise self.fail(f"{value!r} is not a number")
        elif kind == "uuid" and not (isinstance(value, bytes | bytearray) and len(value) == 16):
            raise self.fail(f"{value!r} is not a uuid")
        self.parts.append(struct.pack(">" + FIXED_WIDTH[kind][0], value))

    def uvarint(self, value: int) -> None:
        encoded = bytearray()
        while value >= 0x80:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
        self.parts.append(bytes(encoded))

    def length(self, field: Field, length: int | None, plain: str) -> None:
        if length is None:
            if not field.nullable_in(self.version):
                raise self.fail("null where it cannot be")
            length = -1
        if self.flexible and field.compact:
            self.uvarint(length + 1)
        else:
            self.fixed(plain, length)

    def value(self, field: Field, value: Any) -> None:
        kind = field.kind
        if kind in FIXED_WIDTH:
            self.fixed(kind, value)
        elif kind == "string":
            if value is None:
                self.length(field, None, "int16")
                return
            if not isinstance(value, str):
                raise self.fail(f"{value!r} is not a string")
            try:
                raw = value.encode()
            except UnicodeEncodeError:
                raise self.fail("a string with half a surrogate pair") from None
            if len(raw) > STRING_BYTES_MAX:
                raise self.fail(f"a string of {len(raw)} bytes")
            self.length(field, len(raw), "int16")
            self.parts.append(raw)
        elif kind == "bytes":
            if value is not None and not isinstance(value, bytes | bytearray | memoryview):
                raise self.fail(f"{type(value).__name__} is not bytes")
            self.length(field, None if value is None else len(value), "int32")
            if value is not None:
                self.parts.append(value)
        elif kind == "records":
            payload = value if isinstance(value, list) else [] if value is None else [value]
            for part in payload:
                if not isinstance(part, bytes | bytearray | memoryview | FileRegion):
                    raise self.fail(f"{type(part).__name__} is not a buffer or a file region")
            self.length(field, None if value is None else sum(map(len, payload)), "int32")
            self.parts.extend(payload)
        elif kind == "array":
            self.array(field, value)
        else:
            assert kind == "struct" and field.structure is not None
            if field.nullable_in(self.version):
                self.fixed("int8", field.null_mark_in(self.version) if value is None else 1)
                if value is None:
                    return
            if type(value) is not field.structure:
                raise self.fail(f"{value!r} is not a {field.structure.__name__}")
            self.struct(value)

    def array(self, field: Field, values: Any) -> None:
        if values is None:
            self.length(field, None, "int32")
            return
        if not isinstance(values, list | tuple):
            raise self.fail(f"{type(values).__name__} is not a list")
        element = field.element
        assert element is not None
        self.length(field, len(values), "int32")
        for index, value in enumerate(values):
            self.path.append(f"[{index}]")
            self.value(element, value)
            self.path.pop()

    def struct(self, value: Struct) -> None:
        self.path.append(type(value).__name__)
        tagged = []
        for field in type(value).__fields__:
            self.path.append(field.name)
            content = getattr(value, field.name)
            if field.tagged_in(self.version) and self.flexible:
                if not field.is_default(content):
                    tagged.append((field, content))
            elif field.exists_in(self.version) and not field.tagged_in(self.version):
                self.value(field, content)
            elif not field.ignorable and not field.is_default(content):
                raise self.fail("set, in a version that does not have it")
            self.path.pop()
        if self.flexible:
            self.tags(value, tagged)
        elif value.unknown_tags:
            raise self.fail("tagged fields, in a version that does not have them")
        self.path.pop()

    def tags(self, value: Struct, tagged: list[tuple[Field, Any]]) -> None:
        known = {field.tag for field in type(value).__fields__ if field.tagged_in(self.version)}
        content: list[tuple[int, list[Any]]] = []
        for tag, raw in value.unknown_tags:
            if tag in known:
                raise self.fail(f"tag {tag} is known and stands among the unknown ones")
            content.append((tag, [raw]))
        for field, item in tagged:
            inner = _Writer(self.version, self.flexible)
            inner.path = [*self.path, field.name]
            inner.value(field, item)
            assert field.tag is not None
            content.append((field.tag, inner.parts))
        content.sort(key=lambda item: item[0])
        self.uvarint(len(content))
        for tag, parts in content:
            self.uvarint(tag)
            self.uvarint(sum(map(len, parts)))
            self.parts.extend(parts)
