"""Straight code for the shape that most messages of a kind have, tried by a decoder before its loops.

Which shape: one element in each array, short strings, the rare fields empty, nothing null that is not null by default,
no tags.  `Message.one_of_each` says of a class that it nearly always looks so; a consumer commits one partition, a
producer sends one batch.  Such a message is a few runs of values, each with at most one string among those of fixed
width: its length is looked up first, and one `unpack_from` for that length takes the run apart into locals.  The bytes
that must be so are compared, and only then the objects are made.  Whatever is different, or malformed, goes to the
general code behind, which begins anew; so nothing is decided here.

Part of `compiler`, which alone calls it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from stratalog.protocol.schema import FIXED_WIDTH, Field, Struct

if TYPE_CHECKING:
    from stratalog.protocol.compiler import _DecoderSource


def fits(structure: type[Struct], version: int) -> bool:
    """Whether the shape can be read this way: all that it holds is of fixed width, a string, records, or one of these
    in an array."""
    for field in structure.__fields__:
        if not field.exists_in(version) or field.tagged_in(version):
            continue
        if not field.compact:
            return False
        if field.kind in FIXED_WIDTH or field.kind in ("string", "records") or field.rare:
            continue
        inner = field.element if field.kind == "array" else field
        if inner is None or (field.kind == "struct" and field.nullable_in(version)):
            return False
        if inner.structure is not None:
            if not fits(inner.structure, version):
                return False
        elif inner.kind not in FIXED_WIDTH and inner.kind != "string":
            return False
    return True


def write(source: _DecoderSource) -> None:
    """Write the attempt into the source of a decoder."""
    attempt = _Attempt(source)
    depth = source.depth
    source.line("try:")
    source.depth += 1
    made = attempt.structure(source.cls)
    attempt.flush()
    for line in attempt.build:
        source.line(line)
    source.line(f"return {made}, {attempt.at}")
    source.depth = depth
    source.line("except short:")
    source.line("    pass")


class _Attempt:
    """The run that is being collected, and what is to be done with its values when all of them are there."""

    def __init__(self, source: _DecoderSource) -> None:
        self.source = source
        self.at = "p"
        """Where the run begins: an expression."""
        self.run: list[tuple[str, str]] = []
        """The letters of the run and the locals that take their values; `*` is a string."""
        self.length = ""
        """The local with the length on the wire of the run's string, "" where it has none."""
        self.bytes_there = b""
        """Bytes at the end of the run that must be just so."""
        self.conditions: list[str] = []
        self.build: list[str] = []

    # -- runs --

    def read(self, letter: str, name: str) -> str:
        self.close_bytes()
        local = self.source.local(name)
        self.run.append((letter, local))
        return local

    def must_be(self, byte: int) -> None:
        self.bytes_there += bytes((byte,))

    def close_bytes(self) -> None:
        """The bytes that must be so, as few integers."""
        rest, self.bytes_there = self.bytes_there, b""
        while rest:
            width = 4 if len(rest) >= 4 else 2 if len(rest) >= 2 else 1
            local = self.source.local("c")
            self.run.append(({4: "I", 2: "H", 1: "B"}[width], local))
            self.conditions.append(f"{local} == {int.from_bytes(rest[:width], 'big')}")
            rest = rest[width:]

    def begin(self) -> str:
        """Where the run begins: a local."""
        if not self.at.isidentifier():
            start = self.source.local("q")
            self.source.line(f"{start} = {self.at}")
            self.at = start
        return self.at

    def flush(self) -> None:
        """Read the run and compare; the block for what follows is open afterwards."""
        self.close_bytes()
        source = self.source
        letters = "".join(letter for letter, _ in self.run)
        width = struct.calcsize(">" + letters.replace("*", ""))
        start, length = self.begin(), self.length
        targets = ", ".join(local for letter, local in self.run if letter != "x")
        if letters == "B":
            source.line(f"{targets} = b[{start}]")
        else:
            unpack = f"{source.unpacker_around(letters)}[{length}]" if length else source.unpacker(letters)
            source.line(f"{targets}{',' if ',' not in targets else ''} = {unpack}(b, {start})")
        if self.conditions:
            source.line(f"if {' and '.join(self.conditions)}:")
            source.depth += 1
        self.run = []
        self.length = ""
        self.conditions = []
        self.at = f"{start} + {length} + {width - 1}" if length else f"{start} + {width}"

    # -- values --

    def structure(self, structure: type[Struct]) -> str:
        """Reads a struct; the local that will hold it."""
        source = self.source
        made = source.local("o")
        self.build.append(f"{made} = new({source.name(structure.__name__, structure)})")
        absent: list[tuple[Field, str]] = []
        for field in structure.__fields__:
            if field.exists_in(source.version) and not field.tagged_in(source.version):
                self.value(field, f"{made}.{field.name}")
            else:
                absent.append((field, source.literal(field)))
        self.must_be(0)  # no tags
        self.build += source.constant_lines(made, absent)
        return made

    def value(self, field: Field, target: str) -> None:
        kind = field.kind
        nullable = field.nullable_in(self.source.version)
        if field.rare and kind == "array" and nullable:
            count = self.read("B", "n")
            self.conditions.append(f"{count} < 2")
            self.build.append(f"{target} = [] if {count} else None")
        elif field.rare:
            self.must_be(not nullable)
            self.build.append(f"{target} = {'None' if nullable else '[]' if kind == 'array' else repr('')}")
        elif kind == "string" and nullable and field.default is None:
            self.must_be(0)
            self.build.append(f"{target} = None")
        elif kind == "records":
            self.payload(target)
        elif kind == "array":
            assert field.element is not None
            self.must_be(2)
            self.build.append(f"{target} = [{self.plain(field.element)}]")
        else:
            value = self.plain(field)
            self.build.append(f"{target} = {value}")

    def plain(self, field: Field) -> str:
        """A value that is there, as an expression."""
        if field.kind == "string":
            return f"{self.string()}.decode()"
        if field.kind == "struct":
            assert field.structure is not None
            return self.structure(field.structure)
        value = self.read(FIXED_WIDTH[field.kind][0], "v")
        return f"new_uuid(Uuid, {value}) if {value} != zero else ZERO_UUID" if field.kind == "uuid" else value

    def string(self) -> str:
        """The local for the bytes of a string that is neither null nor long."""
        if self.length:
            self.flush()
        self.close_bytes()
        width = struct.calcsize(">" + "".join(letter for letter, _ in self.run))
        self.length, local = self.source.local("n"), self.source.local("s")
        self.source.line(f"{self.length} = b[{self.begin()}{f' + {width}' if width else ''}]")
        self.run += [("x", ""), ("*", local)]
        return local

    def payload(self, target: str) -> None:
        """Records: three bytes hold the length of any batch that is not huge, and there always are three, because
        the tags of the partition, the topic and the message come behind."""
        source = self.source
        first, second, third = (self.read("B", "x") for _ in range(3))
        self.flush()
        start = self.begin()
        begin, end = source.local("r"), source.local("q")
        source.line(f"if {first} < 128:")
        source.line(f"    {begin} = {start} - 2")
        source.line(f"    {end} = {start} + {first} - 3")
        source.line(f"elif {second} < 128:")
        source.line(f"    {begin} = {start} - 1")
        source.line(f"    {end} = {start} + {first} + ({second} << 7) - {2 + (1 << 7)}")
        source.line(f"elif {third} < 128:")
        source.line(f"    {begin} = {start}")
        source.line(f"    {end} = {start} + {first} + ({second} << 7) + ({third} << 14) - {1 + (1 << 7) + (1 << 14)}")
        source.line("else:")
        source.line("    raise IndexError(p)")
        self.conditions.append(f"{begin} <= {end}")  # null, in however many bytes, ends one before it begins
        self.at = end
        view = "b" if source.on_view else "memoryview(b)"
        self.build.append(f"{target} = {view}[{begin}:{end}]")
