"""The codecs: for each class and version one flat decode and one flat encode function, made at first use.

The source is generated from the field table: nested structs stand inline, runs of fixed-width fields, the one-byte
lengths after them and short integer arrays become one `struct` call.  It is kept in `linecache`, so tracebacks,
debuggers and profilers show it, and `dump` prints it (`stratalog protocol dump Fetch 12`).

What a decoder checks, and why it is enough.  Reading past the end raises by itself (IndexError, struct.error) or, for
slices, clips; so strings and bytes are not checked one by one, but the position at the end is, and a clipped slice
never holds more than the input.  Counts of arrays are checked before anything is made of them.  A decoder raises
whatever is cheapest; `Message.decode` turns it into `Malformed` by asking `interpreter` for position and reason.

Called from any thread: two threads that compile the same codec at once make the same function twice.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.failures import Malformed
from stratalog.base.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from stratalog.base.types import ZERO_UUID, Buffer, FileRegion, Uuid
from stratalog.protocol import straight as straight_code
from stratalog.protocol.interpreter import check_version, is_flexible
from stratalog.protocol.schema import (
    FIXED_WIDTH,
    STRING_BYTES_MAX,
    UNSET,
    Field,
    Message,
    Struct,
    Unencodable,
    least_bytes,
)

if TYPE_CHECKING:
    from types import CodeType

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
"""(data, position, len(data)) to (message, position behind it); raises one of `schema.DECODE_ERRORS`."""
Encoder = Callable[[Any], list[Buffer | FileRegion]]
"""message to buffers; raises one of `schema.ENCODE_ERRORS`."""


def decoder(cls: type[Message], version: int) -> Decoder:
    """The decoder of one version, made if need be."""
    known = cls._decoders.get(version)
    if known is None:
        check_version(cls, version, Malformed)
        known = _load(_DecoderSource(cls, version), "decode")
        cls._decoders[version] = known
    return known


def encoder(cls: type[Message], version: int) -> Encoder:
    """The encoder of one version, made if need be."""
    known = cls._encoders.get(version)
    if known is None:
        check_version(cls, version, Unencodable)
        known = _by_hand(cls, version) or compiled_encoder(cls, version)
        cls._encoders[version] = known
    return known


def compiled_encoder(cls: type[Message], version: int) -> Encoder:
    """The generated one, also where there is one written by hand, which hands on to it."""
    return _load(_EncoderSource(cls, version), "encode")  # type: ignore[no-any-return]


def dump(name: str, version: int) -> str:
    """The source of the codecs of `Fetch`, `1`, `FetchRequest` or a record on disk in one version."""
    from stratalog.protocol import apis

    found = apis.find(name)
    if not found:
        raise KeyError(name)
    parts = []
    for cls in found:
        check_version(cls, version, Malformed)
        sources = (_DecoderSource(cls, version), _EncoderSource(cls, version))
        if _by_hand(cls, version) is not None:
            parts.append(
                f"# {cls.__name__}, version {version}: one topic with one partition is written by hot_codecs.py"
            )
        parts += [f"# {cls.__name__}, version {version}\n{source.text()}" for source in sources]
    return "\n\n".join(parts)


def _by_hand(cls: type[Message], version: int) -> Encoder | None:
    """The few encoders that are written by hand, for the broker's hot path."""
    if cls.__name__ not in ("ProduceResponse", "FetchResponse"):
        return None
    from stratalog.protocol import hot_codecs

    return hot_codecs.encoder(cls, version)


def _load(source: _Source, function: str) -> Any:
    """Compile the source under a readable file name and hand out its function."""
    text = source.text()
    filename = f"<stratalog {source.cls.__name__} {source.version} {function}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    code: CodeType = compile(text, filename, "exec")
    names: dict[str, Any] = {**_HELPERS, **source.names}
    exec(code, names)  # the source is made of our own field tables only
    return names[function]


# --- what the generated code calls ----------------------------------------------------------------------------------


def uvarint(b: Buffer, p: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits at `p`, and the position behind it."""
    byte = b[p]
    if byte < 0x80:
        return byte, p + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        p += 1
        byte = b[p]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, p + 1
    raise Malformed("a varint of more than 32 bits", position=p)


def uvarint_bytes(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string_length(n: int) -> bytes:
    """The varint before a string that needs more than one byte of length."""
    if n > STRING_BYTES_MAX + 1:
        raise Unencodable(f"a string of {n - 1} bytes")
    return uvarint_bytes(n)


def unknown_tags(b: Buffer, p: int) -> tuple[list[tuple[int, bytes]] | None, int]:
    """The tagged fields of a struct that knows none; `p` is where their count begins."""
    count, p = uvarint(b, p)
    if count > TAGGED_FIELDS_MAX:
        raise Malformed("too many tagged fields", position=p)
    tags = []
    last = -1
    for _ in range(count):
        tag, p = uvarint(b, p)
        length, p = uvarint(b, p)
        if tag <= last:
            raise Malformed("tags out of order", position=p)
        last = tag
        tags.append((tag, bytes(b[p : p + length])))
        p += length
    return tags or None, p


def tagged(known: list[tuple[int, bytes]], unknown: list[tuple[int, bytes]] | None, reserved: frozenset[int]) -> bytes:
    """A struct's tagged fields in ascending order."""
    if unknown:
        for tag, _ in unknown:
            if tag in reserved:
                raise Unencodable(f"tag {tag} is known and stands among the unknown ones")
        known = sorted(known + unknown, key=lambda item: item[0])
    parts = [uvarint_bytes(len(known))]
    for tag, content in known:
        parts += (uvarint_bytes(tag), uvarint_bytes(len(content)), content)
    return b"".join(parts)


def payload_length(payload: Any) -> int:
    return sum(map(len, payload)) if type(payload) is list else len(payload)


def put_payload(out: list[Any], parts: list[Any], payload: Any) -> None:
    """Close the buffer of what came before, and hand the payload on as it is."""
    out.append(b"".join(parts))
    parts.clear()
    if type(payload) is list:
        out.extend(payload)
    else:
        out.append(payload)


def _refuse(b: Buffer, p: int) -> tuple[Any, ...]:
    raise IndexError(p)


def long_unpacker(count: int, letter: str) -> Callable[..., tuple[Any, ...]]:
    """`unpack_from` for an array of integers that has none prepared."""
    if not 0 <= count <= ARRAY_ELEMENTS_MAX:
        raise IndexError(count)
    return struct.Struct(f">{count}{letter}").unpack_from


class _Packers(dict[Any, Callable[..., bytes]]):
    """By the lengths on the wire of all arrays in a run: `pack` of the whole run.  The format has a `*` for each
    count."""

    def __init__(self, formats: tuple[str, ...], compact: bool) -> None:
        self.formats = formats
        self.compact = compact

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        counts = key if isinstance(key, tuple) else (key,)
        text = ">" + self.formats[0]
        for count, following in zip(counts, self.formats[1:], strict=True):
            count = max(0, count - self.compact)
            letter, rest = following.split("|")
            text += (letter * count if letter == "16s" else f"{count}{letter}") + rest
        pack = struct.Struct(text).pack
        if len(self) < _PACKERS_MAX:
            self[key] = pack
        return pack


_SHORT: Final = 32
"""Arrays of fewer integers have an unpacker prepared: replicas, partitions."""
_REPEAT: Final = tuple(range(count) for count in range(128))
"""Loops over short arrays, prepared: making a range costs as much as decoding a small field."""
_BATCH_MIN: Final = 3
"""Structs of fixed width beyond which one `iter_unpack` for all costs less than an `unpack_from` for each."""
_PACKERS_MAX: Final = 1_000
"""Combinations of array lengths kept for one run: replica lists have the same few lengths everywhere."""

_HELPERS: Final = {
    "new": object.__new__,
    "again": repeat,
    "new_uuid": bytes.__new__,
    "Uuid": Uuid,
    "ZERO_UUID": ZERO_UUID,
    "zero": bytes(16),
    "Unencodable": Unencodable,
    "uvarint": uvarint,
    "uvarint_bytes": uvarint_bytes,
    "string_length": string_length,
    "unknown_tags": unknown_tags,
    "short": (struct.error, IndexError, UnicodeDecodeError),
    "tagged": tagged,
    "payload_length": payload_length,
    "put_payload": put_payload,
    "join": b"".join,
    "long_unpacker": long_unpacker,
    "byte": tuple(bytes((value,)) for value in range(128)),
    "no_tags": frozenset(),
    "repeat": _REPEAT,
    "repeat_compact": (_REPEAT[0], *_REPEAT[:-1]),  # by the length on the wire, which is one more
}


# --- the generators -------------------------------------------------------------------------------------------------


class _Source:
    """Lines of Python, and the names that they use."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = is_flexible(cls, version)
        self.with_records = _has_records(cls, version)
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.depth = 0
        self.locals = 0

    def text(self) -> str:
        if not self.lines:
            self.generate()
        return "\n".join(self.lines) + "\n"

    def generate(self) -> None:
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def local(self, letter: str) -> str:
        self.locals += 1
        return f"{letter}{self.locals}"

    def name(self, text: str, value: Any) -> str:
        """A global name for a value; the same one for the same value."""
        candidate = text = text.replace("?", "o")
        suffix = 1
        while candidate in self.names and self.names[candidate] != value:
            suffix += 1
            candidate = f"{text}_{suffix}"
        self.names[candidate] = value
        return candidate

    def literal(self, field: Field) -> str:
        """The default as an expression; mutable ones are made anew by it."""
        if field.made_late:
            return "None"
        if field.default is UNSET:
            if field.kind == "array":
                return "[]"
            assert field.structure is not None
            return self.name(field.structure.__name__, field.structure) + "()"
        return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)

    def is_default(self, field: Field, expression: str) -> str:
        """A condition: the value says no more than its absence."""
        if field.default is None and not field.made_late:
            return f"{expression} is None"
        if field.default is UNSET:
            if field.kind == "array":
                empty = f"not len({expression})"
                return empty if field.nullable is None else f"({expression} is not None and {empty})"
            assert field.structure is not None
            fresh = self.name(field.structure.__name__, field.structure) + "()"
            return (
                f"({expression} is None or {expression} == {fresh})" if field.made_late else f"{expression} == {fresh}"
            )
        return f"{expression} == {self.literal(field)}"

    def least(self, field: Field) -> int:
        return least_bytes(field, self.version, self.flexible)

    def is_compact(self, field: Field) -> bool:
        return self.flexible and field.compact


class _Read:
    """One value of a run that a decoder reads with a single `unpack_from`."""

    __slots__ = ("field", "final", "letter", "target", "usual", "value")

    def __init__(
        self, target: str, letter: str, field: Field | None = None, final: str = "", usual: str = "", value: str = ""
    ) -> None:
        self.target = target
        self.letter = letter
        self.field = field
        """A rare field, of which this is the length; the rest is about it alone."""
        self.final = final
        self.usual = usual
        """The condition for its being empty, and what `final` then gets."""
        self.value = value


class _Layout:
    """A struct of fixed width: its `struct` letters, the fields that they are, and the bytes that must be so."""

    __slots__ = ("absent", "columns", "fields", "letters")

    def __init__(self) -> None:
        self.letters = ""
        self.fields: list[Field] = []
        self.absent: list[tuple[Field, str]] = []
        self.columns: list[tuple[int, int]] = []

    def column(self, byte: int) -> None:
        self.columns.append((struct.calcsize(">" + self.letters), byte))
        self.letters += "x"


class _DecoderSource(_Source):
    """`b` is the input, `p` the position.  Reads of fixed width are collected in `run` until something needs `p`."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.straight = cls.one_of_each and self.flexible and straight_code.fits(cls, version)
        self.run: list[_Read] = []
        self.guessing = True
        self.nesting = 0
        """How many structs are open, each of which still has its tags to come."""
        self.on_view = False
        self.after: list[str] = []

    def generate(self) -> None:
        with self.block("def decode(b, p, end):"):
            with self.block("if type(b) is not bytes:"):
                if self.with_records:
                    self.line("return decode_view(b if type(b) is memoryview else memoryview(b), p, end)")
                else:
                    self.line("b = bytes(b)")
            self.body()
        if self.with_records:
            # The same once more for a memoryview, of which nothing but the small fields may be copied.
            self.on_view = True
            self.line("")
            self.line("")
            with self.block("def decode_view(b, p, end):"):
                self.body()

    def body(self) -> None:
        if self.straight:
            straight_code.write(self)
        if self.with_records:
            self.line("view = b" if self.on_view else "view = memoryview(b)")
        self.structure(self.cls, "o")
        with self.block("if p > end:"):
            self.line("raise IndexError(p)")
        self.line("return o, p")

    # -- runs --

    def read(self, target: str, letter: str) -> None:
        self.run.append(_Read(target, letter))

    def flush(self) -> None:
        run = self.run
        if run:
            self.unpack(run)
            rare = [index for index, item in enumerate(run) if item.field is not None]
            if rare:
                with self.block(f"if {' and '.join(run[index].usual for index in rare)}:"):
                    for index in rare:
                        self.line(f"{run[index].final} = {run[index].value}")
                with self.block("else:"):
                    self.again(run[rare[0] :])
        for line in self.after:
            self.line(line)
        self.run = []
        self.after.clear()

    def unpack(self, run: list[_Read]) -> None:
        letters = "".join(item.letter for item in run)
        targets = ", ".join(item.target for item in run)
        if letters == "B":
            self.line(f"{targets} = b[p]")
            self.line("p += 1")
        else:
            self.line(f"{targets}{',' if len(run) == 1 else ''} = {self.unpacker(letters)}(b, p)")
            self.line(f"p += {struct.calcsize('>' + letters)}")

    def unpacker(self, letters: str) -> str:
        """The name of `unpack_from` for these letters."""
        return self.name(f"unpack_{letters}", _unpack_from(letters))

    def unpacker_around(self, letters: str) -> str:
        """The name of a table of `unpack_from`, by the length on the wire of the string at the `*`."""
        return self.name(f"unpack_{letters.replace('*', 's')}", _unpackers_around(*letters.split("*")))

    def again(self, run: list[_Read]) -> None:
        """The guess was wrong: go back to the first rare field and read what follows field by field."""
        self.line(f"p -= {struct.calcsize('>' + ''.join(item.letter for item in run))}")
        after, self.after = self.after, []
        self.run = []
        self.guessing = False
        for item in run:
            if item.field is None:
                self.run.append(item)
            else:
                self.value(item.field, item.final)
        self.flush()
        self.guessing = True
        self.after = after

    def guess(self, field: Field, target: str) -> None:
        """A rare field as one byte of the run.  A value takes at least that byte, so the run reads no further than a
        message without a guess would."""
        length = self.local("n")
        empty = '""' if field.kind == "string" else "[]"
        if not field.nullable_in(self.version):
            usual, value = f"{length} == 1", empty
        elif field.kind == "string":
            usual, value = f"{length} == 0", "None"
        else:
            usual, value = f"{length} < 2", f"{empty} if {length} else None"
        self.run.append(_Read(length, "B", field, target, usual, value))

    # -- values --

    def length(self, field: Field, letter: str, least: int = 0) -> str:
        """Read the length before a value into a local.  As on the wire: one more than the length where compact.

        `least`, for arrays, is the fewest bytes of an element.  A short array that lies about its length runs into the
        end; only a long one must be checked before its loop begins.
        """
        length = self.local("n")
        compact = self.is_compact(field)
        self.read(length, "B" if compact else letter)
        self.flush()
        checks = []
        if field.kind == "string":
            checks.append(f"{length} > {STRING_BYTES_MAX + 1}")
        elif least:
            checks.append(f"{length} > {ARRAY_ELEMENTS_MAX + compact}")
            checks.append(f"({length} - 1) * {least} > end - p" if compact else f"{length} * {least} > end - p")
        if compact or least:
            with self.block(f"if {length} > 127:"):
                if compact:
                    self.line(f"{length}, p = uvarint(b, p - 1)")
                if checks:
                    with self.block(f"if {' or '.join(checks)}:"):
                        self.line(f"raise IndexError({length})")
        return length

    def payload(self, field: Field, target: str) -> None:
        """Records of a struct inside others.  Batches have lengths of two and three bytes, so the two bytes behind the
        first one are read with it: there always are two more, the tags of this struct and of the one around it.  A
        null ends one before it begins, in however many bytes it is written."""
        first, second, third = self.local("n"), self.local("x"), self.local("x")
        for local in (first, second, third):
            self.read(local, "B")
        self.flush()
        with self.block(f"if {first} < 128:"):
            self.line("p -= 2")
            self.line(f"q = p + {first} - 1")
        with self.block(f"elif {second} < 128:"):
            self.line("p -= 1")
            self.line(f"q = p + {first} + ({second} << 7) - {1 + (1 << 7)}")
        with self.block(f"elif {third} < 128:"):
            self.line(f"q = p + {first} + ({second} << 7) + ({third} << 14) - {1 + (1 << 7) + (1 << 14)}")
        with self.block("else:"):
            self.line(f"{first}, p = uvarint(b, p - 3)")
            self.line(f"q = p + {first} - 1")
        with self.block("if p <= q:"):
            self.line(f"{target} = view[p:q]")
            self.line("p = q")
        with self.block("else:"):
            self.line(f"{target} = None" if field.nullable_in(self.version) else "raise IndexError(p)")

    def absent(self, field: Field, length: str, target: str, empty: str = "") -> None:
        """The other sides of a length: empty, null, or an error."""
        if empty:
            with self.block(f"elif {length} == {int(self.is_compact(field))}:"):
                self.line(f"{target} = {empty}")
        if not field.nullable_in(self.version):
            with self.block("else:"):
                self.line(f"raise IndexError({length})")
        elif self.is_compact(field):
            with self.block("else:"):
                self.line(f"{target} = None")
        else:
            with self.block(f"elif {length} == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.line(f"raise IndexError({length})")

    def present(self, field: Field, length: str) -> str:
        return f"if {length} > {int(self.is_compact(field))}:"

    def value(self, field: Field, target: str) -> None:
        kind = field.kind
        if field.rare and self.guessing and self.is_compact(field):
            self.guess(field, target)
        elif kind == "uuid":
            raw = self.local("u")
            self.read(raw, "16s")
            self.after.append(f"{target} = new_uuid(Uuid, {raw}) if {raw} != zero else ZERO_UUID")
        elif kind in FIXED_WIDTH:
            self.read(target, FIXED_WIDTH[kind][0])
        elif kind == "records" and self.is_compact(field) and self.nesting > 1:
            self.payload(field, target)
        elif kind in ("string", "bytes", "records"):
            length = self.length(field, "h" if kind == "string" else "i")
            with self.block(self.present(field, length)):
                self.line(f"q = p + {length}" + (" - 1" if self.is_compact(field) else ""))
                if field.any_bytes:
                    self.line(f'{target} = str(b[p:q], "utf-8", "replace")')
                elif kind == "string":
                    self.line(f"{target} = " + ('str(b[p:q], "utf-8")' if self.on_view else "b[p:q].decode()"))
                elif kind == "bytes":
                    self.line(f"{target} = " + ("bytes(b[p:q])" if self.on_view else "b[p:q]"))
                else:
                    self.line(f"{target} = view[p:q]")
                self.line("p = q")
            self.absent(field, length, target, {"string": '""', "bytes": 'b""', "records": "view[p:p]"}[kind])
        elif kind == "array":
            self.array(field, target)
        else:
            assert kind == "struct" and field.structure is not None
            if field.nullable_in(self.version):
                mark = self.local("m")
                self.read(mark, "b")
                self.flush()
                with self.block(f"if {mark} == 1:"):
                    self.nested(field.structure, target)
                with self.block(f"elif {mark} == {field.null_mark_in(self.version)}:"):
                    self.line(f"{target} = None")
                with self.block("else:"):
                    self.line(f"raise IndexError({mark})")
            else:
                self.nested(field.structure, target)

    def nested(self, structure: type[Struct], target: str) -> None:
        made = self.local("o")
        self.structure(structure, made)
        self.flush()
        self.line(f"{target} = {made}")

    def array(self, field: Field, target: str) -> None:
        element = field.element
        assert element is not None
        compact = self.is_compact(field)
        least = self.least(element)
        length = self.length(field, "i", least)
        minus = " - 1" if compact else ""
        if element.kind in FIXED_WIDTH and element.kind != "uuid":
            letter, width = FIXED_WIDTH[element.kind]
            table = self.name(f"unpack_n{letter}{'_compact' if compact else ''}", _unpackers(letter, compact))
            step = f"p += {length} * {width}" + (f" - {width}" if compact else "")
            if field.nullable_in(self.version) or not compact:
                with self.block(self.present(field, length)):
                    with self.block(f"if {length} < {_SHORT}:"):
                        self.line(f"{target} = [*{table}[{length}](b, p)]")
                    with self.block("else:"):
                        self.line(f'{target} = [*long_unpacker({length}{minus}, "{letter}")(b, p)]')
                    self.line(step)
                self.absent(field, length, target, "[]")
                return
            with self.block(f"if {length} == 1:"):
                self.line(f"{target} = []")
            with self.block(f"elif {length} < {_SHORT}:"):  # for null the table has a function that refuses
                self.line(f"{target} = [*{table}[{length}](b, p)]")
                self.line(step)
            with self.block("else:"):
                self.line(f'{target} = [*long_unpacker({length}{minus}, "{letter}")(b, p)]')
                self.line(step)
            return
        with self.block(self.present(field, length)):
            if element.kind == "uuid":
                self.line(f"q = p + {length} * 16{' - 16' if compact else ''}")
                self.line(f"{target} = [new_uuid(Uuid, b[i : i + 16]) for i in range(p, q, 16)]")
                self.line("p = q")
            else:
                values = self.local("a")
                batch = self.fixed_layout(element.structure) if element.kind == "struct" else None
                if batch is not None:
                    self.batch(element.structure, batch, values, length, compact)
                    with self.block(f"if {values} is None:"):
                        self.line(f"{values} = []")
                        self.elements(element, values, length, compact)
                    self.line(f"{target} = {values}")
                else:
                    self.line(f"{target} = {values} = []")
                    self.elements(element, values, length, compact)
        self.absent(field, length, target, "[]")

    def elements(self, element: Field, values: str, length: str, compact: bool) -> None:
        """The elements one by one."""
        repeat, minus = ("repeat_compact", " - 1") if compact else ("repeat", "")
        with self.block(f"for _ in {repeat}[{length}] if {length} < 128 else range({length}{minus}):"):
            if element.kind == "struct":
                assert element.structure is not None
                made = self.local("o")
                self.structure(element.structure, made)
            else:
                made = self.local("v")
                self.value(element, made)
            self.flush()
            self.line(f"{values}.append({made})")

    def fixed_layout(self, structure: type[Struct] | None) -> _Layout | None:
        """How a struct looks that has all its rare fields empty and no tags, if it then has a fixed width."""
        assert structure is not None
        layout = _Layout()
        for field in structure.__fields__:
            if not field.exists_in(self.version) or (field.tagged_in(self.version) and self.flexible):
                layout.absent.append((field, self.literal(field)))
            elif field.kind in FIXED_WIDTH and field.kind != "uuid":
                layout.fields.append(field)
                layout.letters += FIXED_WIDTH[field.kind][0]
            elif field.rare and self.is_compact(field) and not (field.kind == "array" and field.nullable):
                null = field.nullable_in(self.version)
                layout.column(0 if null else 1)
                layout.absent.append((field, "None" if null else '""' if field.kind == "string" else "[]"))
            else:
                return None
        if self.flexible:
            layout.column(0)
        return layout if layout.fields else None

    def batch(self, structure: type[Struct] | None, layout: _Layout, values: str, length: str, compact: bool) -> None:
        """Several such structs with one `iter_unpack`; None in `values` where they are not all so."""
        assert structure is not None
        made = self.local("o")
        letters, width = layout.letters, struct.calcsize(">" + layout.letters)
        cls = self.name(structure.__name__, structure)
        self.line(f"{values} = None")
        with self.block(f"if {length} > {_BATCH_MIN + compact}:"):
            self.line(f"k = {length}{' - 1' if compact else ''}")
            self.line(f"q = p + k * {width}")
            column = f"b[p + {{}} : q : {width}]"
            if self.on_view:
                column = f"bytes({column})"
            checks = ["q <= end"]
            checks += [f"{column.format(at)}.count({byte}) == k" for at, byte in layout.columns]
            with self.block(f"if {' and '.join(checks)}:"):
                unpack = self.name(f"iter_unpack_{letters}", _iter_unpack(letters))
                self.line(f"{values} = [*map(new, again({cls}, k))]")
                targets = "".join(f"{made}.{field.slot}, " for field in layout.fields)
                with self.block(f"for {made}, ({targets}) in zip({values}, {unpack}(b[p:q])):"):
                    self.constants(made, layout.absent)
                self.line("p = q")

    def constants(self, made: str, absent: list[tuple[Field, str]]) -> None:
        for line in self.constant_lines(made, absent):
            self.line(line)

    def constant_lines(self, made: str, absent: list[tuple[Field, str]]) -> list[str]:
        """What does not come from the input: one line for each value that fields may share."""
        lines = []
        shared: dict[str, list[str]] = {"None": [f"{made}._tags"]}
        for field, literal in absent:
            if literal == "[]" or literal.endswith("()"):
                lines.append(f"{made}.{field.slot} = {literal}")
            else:
                shared.setdefault(literal, []).append(f"{made}.{field.slot}")
        return lines + [" = ".join(targets) + f" = {literal}" for literal, targets in shared.items()]

    def structure(self, structure: type[Struct], made: str) -> None:
        """A struct into the local `made`."""
        self.flush()
        self.line(f"{made} = new({self.name(structure.__name__, structure)})")
        tags: list[Field] = []
        plain: list[Field] = []
        absent: list[tuple[Field, str]] = []
        for field in structure.__fields__:
            if field.tagged_in(self.version) and self.flexible:
                tags.append(field)
            elif field.exists_in(self.version) and not field.tagged_in(self.version):
                plain.append(field)
                continue
            absent.append((field, self.literal(field)))
        self.constants(made, absent)
        self.nesting += 1
        for field in plain:
            self.value(field, f"{made}.{field.name}")
        self.nesting -= 1
        if self.flexible:
            if not self.run:
                count = "b[p]"
                position = "p"
            else:
                count = self.local("t")
                self.read(count, "B")
                self.flush()
                position = "p - 1"
            with self.block(f"if {count}:"):
                if tags:
                    nesting, self.nesting = self.nesting, 0
                    self.tags(tags, made, position)
                    self.nesting = nesting
                else:
                    self.line(f"{made}._tags, p = unknown_tags(b, {position})")
            if position == "p":
                with self.block("else:"):
                    self.line("p += 1")
        elif structure is self.cls:
            self.flush()

    def tags(self, tags: list[Field], made: str, position: str) -> None:
        count, tag, last, stop = self.local("t"), self.local("k"), self.local("k"), self.local("e")
        self.line(f"{count}, p = uvarint(b, {position})")
        with self.block(f"if {count} > {TAGGED_FIELDS_MAX}:"):
            self.line(f"raise IndexError({count})")
        self.line(f"{last} = -1")
        with self.block(f"for _ in range({count}):"):
            self.line(f"{tag}, p = uvarint(b, p)")
            self.line(f"{stop}, p = uvarint(b, p)")
            self.line(f"{stop} += p")
            with self.block(f"if {tag} <= {last} or {stop} > end:"):
                self.line(f"raise IndexError({tag})")
            self.line(f"{last} = {tag}")
            for index, field in enumerate(tags):
                with self.block(f"{'el' if index else ''}if {tag} == {field.tag}:"):
                    self.value(field, f"{made}.{field.slot}")
                    self.flush()
            with self.block("else:"):
                self.line(f"{made}.unknown_tags.append(({tag}, bytes(b[p:{stop}])))")
                self.line(f"p = {stop}")
            with self.block(f"if p != {stop}:"):
                self.line("raise IndexError(p)")


class _Item:
    """One value of a run that an encoder writes with a single `pack`, if it can."""

    __slots__ = ("argument", "compact", "condition", "count", "letter", "long", "slow")

    def __init__(
        self,
        letter: str,
        argument: str = "",
        *,
        condition: str = "",
        slow: Callable[[], None] | None = None,
        count: str = "",
        compact: bool = False,
        long: str = "",
    ) -> None:
        self.letter = letter
        self.long = long
        """The expression for a length that needs more than one byte."""
        self.argument = argument
        self.condition = condition
        """What must hold for the item to be in the one call."""
        self.slow = slow
        """Writes the lines for the case that it does not."""
        self.count = count
        """The local with the length on the wire of an array, "" for a single value."""
        self.compact = compact


class _EncoderSource(_Source):
    """`w` takes the next bytes; a value of fixed width waits in `run` for more of its kind."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.run: list[_Item] = []
        self.writer = "w"

    def generate(self) -> None:
        with self.block("def encode(o):"):
            if self.with_records:
                self.line("out = []")
            self.line("parts = []")
            self.line("w = parts.append")
            self.structure(self.cls, "o")
            self.flush()
            if self.with_records:
                with self.block("if parts:"):
                    self.line("out.append(join(parts))")
                self.line("return out")
            else:
                self.line("return [join(parts)]")

    # -- runs --

    def flush(self) -> None:
        run, self.run = self.run, []
        conditions = [item.condition for item in run if item.condition]
        if not conditions:
            self.pack(run)
            return
        if len(run) == 1 and run[0].letter == "B" and run[0].long:
            length = run[0].argument
            self.line(f"{self.writer}(byte[{length}] if {length} < 128 else {run[0].long})")
            return
        with self.block(f"if {' and '.join(dict.fromkeys(conditions))}:"):
            self.pack(run)
        with self.block("else:"):
            fixed: list[_Item] = []
            for item in run:
                if item.slow is None:
                    fixed.append(item)
                else:
                    self.pack(fixed)
                    fixed = []
                    item.slow()
            self.pack(fixed)

    def pack(self, run: list[_Item]) -> None:
        """One call for all of them."""
        if not run:
            return
        arguments = ", ".join(item.argument for item in run if item.argument)
        letters = "".join(item.letter for item in run)
        counts = [item for item in run if item.count]
        if counts:
            formats = [""]
            for item in run:
                if item.count:
                    formats.append(item.letter + "|")
                else:
                    formats[-1] += item.letter
            compact = counts[0].compact
            name = "pack_" + "".join(f"{item.letter}s" if item.count else item.letter for item in run)
            table = self.name(name, _packers(tuple(formats), compact))
            self.line(f"{self.writer}({table}[{', '.join(item.count for item in counts)}]({arguments}))")
        elif letters == "x":
            self.line(f'{self.writer}(b"\\0")')
        else:
            pack = self.name(f"pack_{letters}", _pack(letters))
            self.line(f"{self.writer}({pack}({arguments}))")

    # -- values --

    def put_length(self, field: Field, length: str, letter: str) -> None:
        if not self.is_compact(field):
            self.run.append(_Item(letter, length))
            return
        writer = self.writer
        helper = "string_length" if field.kind == "string" else "uvarint_bytes"
        self.run.append(
            _Item(
                "B",
                length,
                condition=f"{length} < 128",
                slow=lambda: self.line(f"{writer}({helper}({length}))"),
                long=f"{helper}({length})",
            )
        )

    def measure(self, field: Field, content: str, expression: str, made: str, measured: str, empty: str) -> str:
        """Take the value into the local `content` and its length on the wire into another, null included."""
        length = self.local("n")
        one_more = " + 1" if self.is_compact(field) else ""
        null = "0" if self.is_compact(field) else "-1"
        if field.nullable_in(self.version):
            self.line(f"{content} = {expression}")
            with self.block(f"if {content} is None:"):
                self.line(f"{content} = {empty}")
                self.line(f"{length} = {null}")
            with self.block("else:"):
                if made != "{}":
                    self.line(f"{content} = {made.format(content)}")
                self.line(f"{length} = {measured.format(content)}{one_more}")
        else:
            self.line(f"{content} = {made.format(expression)}")
            self.line(f"{length} = {measured.format(content)}{one_more}")
        return length

    def value(self, field: Field, expression: str) -> None:
        kind = field.kind
        if kind in FIXED_WIDTH:
            self.run.append(_Item(FIXED_WIDTH[kind][0], expression))
        elif kind == "string":
            content = self.local("s")
            length = self.measure(field, content, expression, "{}.encode()", "len({})", 'b""')
            self.put_length(field, length, "h")
            self.flush()
            self.line(f"{self.writer}({content})")
        elif kind == "bytes":
            content = self.local("s")
            length = self.measure(field, content, expression, "{}", "len({})", 'b""')
            self.put_length(field, length, "i")
            self.flush()
            self.line(f"{self.writer}({content})")
        elif kind == "records":
            content = self.local("r")
            length = self.measure(field, content, expression, "{}", "payload_length({})", "[]")
            self.put_length(field, length, "i")
            self.flush()
            with self.block(f"if {content}:"):
                self.line(f"put_payload(out, parts, {content})")
        elif kind == "array":
            self.array(field, expression)
        else:
            assert kind == "struct" and field.structure is not None
            content = self.local("o")
            if field.nullable_in(self.version):
                self.flush()
                self.line(f"{content} = {expression}")
                with self.block(f"if {content} is None:"):
                    null = field.null_mark_in(self.version).to_bytes(1, "big", signed=True)
                    self.line(f"{self.writer}({null!r})")
                with self.block("else:"):
                    self.run.append(_Item("b", "1"))
                    self.structure(field.structure, content)
                    self.flush()
            else:
                self.line(f"{content} = {expression}")
                self.structure(field.structure, content)

    def array(self, field: Field, expression: str) -> None:
        element = field.element
        assert element is not None
        values = self.local("a")
        length = self.measure(field, values, expression, "{}", "len({})", "()")
        self.put_length(field, length, "i")
        if element.kind in FIXED_WIDTH:
            letter = FIXED_WIDTH[element.kind][0]
            writer = self.writer
            self.name("pack", struct.pack)
            many = f"join({values})" if letter == "16s" else f'pack(f">{{len({values})}}{letter}", *{values})'
            self.run.append(
                _Item(
                    letter,
                    f"*{values}",
                    condition=f"{length} < 128",
                    slow=lambda: self.line(f"{writer}({many})"),
                    count=length,
                    compact=self.is_compact(field),
                )
            )
            return
        self.flush()
        item = self.local("o" if element.kind == "struct" else "v")
        with self.block(f"for {item} in {values}:"):
            if element.kind == "struct":
                assert element.structure is not None
                self.structure(element.structure, item)
            else:
                self.value(element, item)
            self.flush()

    def structure(self, structure: type[Struct], value: str) -> None:
        """The fields of the struct in the local `value`; what is still in the run goes out with what follows."""
        tags: list[Field] = []
        plain: list[Field] = []
        lacking = [] if self.flexible else [f"not {value}._tags"]
        for field in structure.__fields__:
            if field.tagged_in(self.version) and self.flexible:
                tags.append(field)
            elif field.exists_in(self.version) and not field.tagged_in(self.version):
                plain.append(field)
            elif not field.ignorable:
                lacking.append(self.is_default(field, f"{value}.{field.slot}"))
        if lacking:
            with self.block(f"if not ({' and '.join(lacking)}):"):
                self.line('raise Unencodable("a field is set that this version does not have")')
        for field in plain:
            self.value(field, f"{value}.{field.name}")
        if self.flexible:
            conditions = [f"not {value}._tags"]
            conditions += [self.is_default(field, f"{value}.{field.slot}") for field in tags]
            self.run.append(_Item("x", condition=" and ".join(conditions), slow=lambda: self.tags(tags, value)))

    def tags(self, tags: list[Field], value: str) -> None:
        """The tagged fields of a struct that has some."""
        if not tags:
            self.line(f"{self.writer}(tagged([], {value}._tags, no_tags))")
            return
        reserved = self.name(
            "reserved_" + "_".join(str(field.tag) for field in tags), frozenset(field.tag for field in tags)
        )
        known = self.local("k")
        self.line(f"{known} = []")
        outer = self.writer
        for field in sorted(tags, key=lambda field: field.tag or 0):
            expression = f"{value}.{field.slot}"
            with self.block(f"if not ({self.is_default(field, expression)}):"):
                parts = self.local("parts")
                self.writer = self.local("w")
                self.line(f"{parts} = []")
                self.line(f"{self.writer} = {parts}.append")
                self.value(field, expression)
                self.flush()
                self.line(f"{known}.append(({field.tag}, join({parts})))")
                self.writer = outer
        self.line(f"{self.writer}(tagged({known}, {value}._tags, {reserved}))")


def _has_records(structure: type[Struct], version: int) -> bool:
    for field in structure.__fields__:
        if field.exists_in(version):
            inner = field.element or field
            if inner.kind == "records" or (inner.structure is not None and _has_records(inner.structure, version)):
                return True
    return False


# Prebuilt struct methods, one for each format, shared by all codecs.
_UNPACK: dict[str, Callable[..., tuple[Any, ...]]] = {}
_ITER_UNPACK: dict[str, Callable[..., Any]] = {}
_PACK: dict[str, Callable[..., bytes]] = {}
_UNPACKERS: dict[tuple[str, bool], list[Any]] = {}
_UNPACKERS_AROUND: dict[tuple[str, str], tuple[Callable[..., tuple[Any, ...]], ...]] = {}
_PACKERS: dict[tuple[tuple[str, ...], bool], _Packers] = {}


def _unpack_from(letters: str) -> Callable[..., tuple[Any, ...]]:
    if letters not in _UNPACK:
        _UNPACK[letters] = struct.Struct(">" + letters).unpack_from
    return _UNPACK[letters]


def _iter_unpack(letters: str) -> Callable[..., Any]:
    if letters not in _ITER_UNPACK:
        _ITER_UNPACK[letters] = struct.Struct(">" + letters).iter_unpack
    return _ITER_UNPACK[letters]


def _pack(letters: str) -> Callable[..., bytes]:
    if letters not in _PACK:
        _PACK[letters] = struct.Struct(">" + letters).pack
    return _PACK[letters]


def _unpackers(letter: str, compact: bool) -> list[Any]:
    """By the length on the wire: `unpack_from` of so many integers."""
    if (letter, compact) not in _UNPACKERS:
        counts = range(-1, _SHORT - 1) if compact else range(_SHORT)
        table = [_refuse if count < 0 else struct.Struct(f">{count}{letter}").unpack_from for count in counts]
        _UNPACKERS[letter, compact] = table
    return _UNPACKERS[letter, compact]


def _unpackers_around(before: str, after: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """By the length on the wire of a compact string: `unpack_from` of it and of the values before and behind it.  A
    longer one is no index of the table."""
    if (before, after) not in _UNPACKERS_AROUND:
        table = (struct.Struct(f">{before}{count}s{after}").unpack_from for count in range(127))
        _UNPACKERS_AROUND[before, after] = (_refuse, *table)
    return _UNPACKERS_AROUND[before, after]


def _packers(formats: tuple[str, ...], compact: bool) -> _Packers:
    return _PACKERS.setdefault((formats, compact), _Packers(formats, compact))
