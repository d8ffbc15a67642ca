"""The schema language: a message is a slotted class, one for all its versions.

    class FetchTopic(Struct):
        topic: str = string(until=12, ignorable=True)
        topic_id: Uuid = uuid(since=13)
        partitions: list[FetchPartition] = array(FetchPartition)

    class FetchRequest(Message):
        api_key = 1
        versions = (0, 18)
        flexible = 12
        cluster_id: str | None = tag(0, string(nullable=0, default=None), since=12)
        topics: list[FetchTopic] = array(FetchTopic)

Rules.  The order of the fields is the order on the wire.  `since` and `until` (inclusive) say in which versions a field
exists; what a version does not have takes its default when read, and must have it when written, unless the field is
`ignorable`.  Strings, bytes and arrays are compact in flexible versions.  Tagged fields that we do not know are kept
in `unknown_tags` and written back.

Who may call it: anybody, from any thread.  The codecs are made by `compiler` when a class first meets a version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, dataclass_transform

from stratalog.base.failures import Malformed
from stratalog.base.limits import REQUEST_UNCOUNTED_BYTES
from stratalog.base.types import ZERO_UUID, Buffer, FileRegion

if TYPE_CHECKING:
    from stratalog.protocol.compiler import Decoder, Encoder

STRING_BYTES_MAX: Final = 32_767
"""Bytes of one string: the old form's length is an int16, and Kafka holds the compact form to the same."""

INTEGERS: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
FIXED_WIDTH: Final = {
    "boolean": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""The kinds with a fixed width: their letter in a `struct` format and their bytes."""


class Unencodable(ValueError):
    """A message that the asked version has no room for: a field that it lacks is set, null where it knows none, a
    number out of its range.  The text names the field."""


class Field:
    """One row of a class's field table.  Made by the functions below, named by the class that it stands in."""

    __slots__ = (
        "_kafka_name", "any_bytes", "compact", "default", "element", "ignorable", "kind", "name",
        "nullable", "rare", "since", "since_given", "structure", "tag", "tag_since", "tag_until", "until",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        *,
        since: int | None = None,
        until: int | None = None,
        nullable: int | tuple[int, int] | None = None,
        default: Any = None,
        ignorable: bool = False,
        kafka_name: str | None = None,
        compact: bool = True,
        element: Field | None = None,
        structure: type[Struct] | None = None,
        rare: bool = False,
        any_bytes: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.since = since or 0
        self.since_given = since is not None
        self.until = until
        self.nullable: tuple[int, int | None] | None
        """The versions in which it may be null, first and last, the last None where it is open."""
        if nullable is None:
            self.nullable = None
        elif isinstance(nullable, tuple):
            self.nullable = nullable
        else:
            self.nullable = (nullable, None)
        self.default = default
        self.ignorable = ignorable
        self._kafka_name = kafka_name
        self.compact = compact
        """False where the plain form stays in flexible versions: the client id of a request header."""
        self.rare = rare
        """Empty or null nearly always: decoders try that first, together with the fields around it."""
        self.any_bytes = any_bytes
        """A text that clients in C and Go put any bytes in: what is not UTF-8 becomes U+FFFD, as in Kafka."""
        self.element = element
        self.structure = structure
        self.tag: int | None = None
        self.tag_since = 0
        self.tag_until: int | None = None
        if default is None and kind != "struct" and self.nullable is None:
            raise TypeError(f"a {kind} that is never null cannot be null by default")

    @property
    def kafka_name(self) -> str:
        return self._kafka_name or "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))

    @property
    def slot(self) -> str:
        """Where the value is kept.  A tagged struct that is not nullable is made when it is first asked for, so its
        slot, behind a property, may hold None: three of them stand in each partition of a fetch response, and are
        almost never set."""
        return "_" + self.name if self.made_late else self.name

    @property
    def made_late(self) -> bool:
        return self.tag is not None and self.kind == "struct" and self.nullable is None

    def exists_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def tagged_in(self, version: int) -> bool:
        if self.tag is None or not self.exists_in(version):
            return False
        return self.tag_since <= version and (self.tag_until is None or version <= self.tag_until)

    def nullable_in(self, version: int) -> bool:
        if self.nullable is None:
            return False
        first, last = self.nullable
        return first <= version and (last is None or version <= last)

    def null_mark_in(self, version: int) -> int:
        """What stands in place of a struct that is null, where a 1 goes before one that is not: -1, but 0 in a tagged
        field.  Kafka writes an int8 in the one case and an unsigned varint in the other."""
        return 0 if self.tagged_in(version) else -1

    def fresh_default(self) -> Any:
        """The default as a value of its own: lists and structs are never shared."""
        if self.default is UNSET:
            if self.kind == "array":
                return []
            assert self.structure is not None
            return self.structure()
        return self.default

    def is_default(self, value: Any) -> bool:
        """Whether a value says no more than its absence does."""
        if self.default is UNSET:
            if self.kind == "array":
                return value is not None and len(value) == 0
            return bool(value == self.fresh_default())
        if self.default is None:
            return value is None
        return value is not None and bool(value == self.default)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class _Unset:
    __slots__ = ()

    def __repr__(self) -> str:
        return "..."


UNSET: Final = _Unset()
"""Stands for an empty list or a struct of defaults, which must be made anew each time."""


# The functions return Any and are not named as `field_specifiers` on purpose: a type checker then sees in
# `x: int = int32()` a field with a default, which is what it is, so every field may be left out of a constructor.


def _number(kind: str) -> Callable[..., Any]:
    def field(
        *,
        since: int | None = None,
        until: int | None = None,
        default: int = 0,
        ignorable: bool = False,
        kafka_name: str | None = None,
    ) -> Any:
        return Field(kind, since=since, until=until, default=default, ignorable=ignorable, kafka_name=kafka_name)

    field.__name__ = field.__qualname__ = kind
    field.__doc__ = f"A field of Kafka's {kind}, 0 by default."
    return field


int8 = _number("int8")
int16 = _number("int16")
uint16 = _number("uint16")
int32 = _number("int32")
uint32 = _number("uint32")
int64 = _number("int64")


def float64(
    *,
    since: int | None = None,
    until: int | None = None,
    default: float = 0.0,
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """A double of eight bytes."""
    return Field("float64", since=since, until=until, default=default, ignorable=ignorable, kafka_name=kafka_name)


def boolean(
    *,
    since: int | None = None,
    until: int | None = None,
    default: bool = False,
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """One byte; whatever is not 0 is true."""
    return Field("boolean", since=since, until=until, default=default, ignorable=ignorable, kafka_name=kafka_name)


def uuid(
    *,
    since: int | None = None,
    until: int | None = None,
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """Sixteen bytes, `base.types.Uuid`; the zero uuid stands for none."""
    return Field("uuid", since=since, until=until, default=ZERO_UUID, ignorable=ignorable, kafka_name=kafka_name)


def string(
    *,
    since: int | None = None,
    until: int | None = None,
    nullable: int | tuple[int, int] | None = None,
    default: str | None = "",
    ignorable: bool = False,
    kafka_name: str | None = None,
    compact: bool = True,
    rare: bool = False,
    any_bytes: bool = False,
) -> Any:
    """UTF-8 text.  `nullable` is the first version that may hold null, or the first and the last."""
    return Field(
        "string", since=since, until=until, nullable=nullable, default=default, ignorable=ignorable,
        kafka_name=kafka_name, compact=compact, rare=rare, any_bytes=any_bytes,
    )  # fmt: skip


def bytes_(
    *,
    since: int | None = None,
    until: int | None = None,
    nullable: int | tuple[int, int] | None = None,
    default: bytes | None = b"",
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """Bytes, copied out of the input when read."""
    return Field(
        "bytes", since=since, until=until, nullable=nullable, default=default, ignorable=ignorable,
        kafka_name=kafka_name,
    )  # fmt: skip


def records(
    *,
    since: int | None = None,
    until: int | None = None,
    nullable: int | tuple[int, int] | None = None,
    default: None = None,
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """Record batches: read as a memoryview on the input, written without being joined or copied.  A value to write
    is a `Buffer`, a `FileRegion` or a list of them.  Null by default, as in Kafka; null is refused where the version
    does not know it."""
    return Field(
        "records", since=since, until=until, nullable=(0, -1) if nullable is None else nullable, default=default,
        ignorable=ignorable, kafka_name=kafka_name,
    )  # fmt: skip


def array(
    element: type[Struct] | Callable[..., Any] | Field,
    *,
    since: int | None = None,
    until: int | None = None,
    nullable: int | tuple[int, int] | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
    kafka_name: str | None = None,
    rare: bool = False,
) -> Any:
    """A list of structs, `array(FetchPartition)`, or of a plain kind, `array(int32)`.  Empty by default, or None."""
    if isinstance(element, Field):
        inner = element
    elif isinstance(element, _StructType):
        inner = Field("struct", default=UNSET, structure=cast("type[Struct]", element))
    else:
        inner = element()
    return Field(
        "array", since=since, until=until, nullable=nullable, default=default, ignorable=ignorable,
        kafka_name=kafka_name, element=inner, rare=rare,
    )  # fmt: skip


def struct(
    structure: type[Struct],
    *,
    since: int | None = None,
    until: int | None = None,
    nullable: int | tuple[int, int] | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
    kafka_name: str | None = None,
) -> Any:
    """One nested struct, with its defaults by default; where it is nullable a byte goes before it, see
    `Field.null_mark_in`."""
    return Field(
        "struct", since=since, until=until, nullable=nullable, default=default, ignorable=ignorable,
        kafka_name=kafka_name, structure=structure,
    )  # fmt: skip


def tag(number: int, field: Field, *, since: int, until: int | None = None) -> Any:
    """A tagged field from version `since` on: written only when it is not its default.

    The inner field's own `since` is needed only where it was a plain field in versions before it got its tag.
    """
    field.tag = number
    field.tag_since = since
    field.tag_until = until
    if not field.since_given:
        field.since = since
    if field.until is None:
        field.until = until
    return field


@dataclass_transform(kw_only_default=True, eq_default=True)
class _StructType(type):
    """Turns the fields of a class body into slots and a field table; the constructor is made at its first call."""

    __fields__: tuple[Field, ...]

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _StructType:
        fields = []
        for attribute, value in list(namespace.items()):
            if isinstance(value, Field):
                if value.name:
                    raise TypeError(f"{name}.{attribute}: the same field object stands in two places")
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
                if value.made_late:
                    namespace[attribute] = _late_property(value)
        namespace.setdefault("__slots__", tuple(field.slot for field in fields))
        namespace["__fields__"] = tuple(fields)
        if fields:
            namespace["__init__"] = _first_init
        elif bases and "__init__" not in namespace:
            namespace["__init__"] = _init_without_fields
        if namespace.get("__module__") != __name__:
            namespace["_decoders"] = {}
            namespace["_encoders"] = {}
        return super().__new__(mcls, name, bases, namespace, **options)


def _late_property(field: Field) -> property:
    slot = field.slot
    structure = field.structure
    assert structure is not None

    def get(self: Any) -> Any:
        value = getattr(self, slot)
        if value is None:
            value = structure()
            setattr(self, slot, value)
        return value

    def set_(self: Any, value: Any) -> None:
        setattr(self, slot, value)

    return property(get, set_)


def _init_without_fields(self: Struct) -> None:
    self._tags = None


def _first_init(self: Struct, **values: Any) -> None:
    """Makes the class's real constructor, which is one flat function, puts it in place and calls it."""
    cls = type(self)
    arguments = []
    lines = ["    self._tags = None"]
    names: dict[str, Any] = {"UNSET": UNSET}
    for field in cls.__fields__:
        name = field.name
        if field.made_late:
            arguments.append(f"{name}=None")
            lines.append(f"    self.{field.slot} = {name}")
        elif field.default is UNSET:
            arguments.append(f"{name}=UNSET")
            if field.kind == "array":
                fresh = "[]"
            else:
                names[f"new_{name}"] = field.structure
                fresh = f"new_{name}()"
            lines.append(f"    self.{name} = {fresh} if {name} is UNSET else {name}")
        else:
            names[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
    source = f"def __init__(self, *, {', '.join(arguments)}):\n" + "\n".join(lines)
    exec(source, names)  # the source is made of our own field names only
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init  # type: ignore[method-assign]
    init(self, **values)


class Struct(metaclass=_StructType):
    """A part of a message.  Equal when all fields and unknown tags are; not hashable, because it can change."""

    __slots__ = ("_tags",)
    __fields__: ClassVar[tuple[Field, ...]]
    __hash__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:  # not an annotated attribute: that would be an argument of every constructor

        @property
        def _tags(self) -> list[tuple[int, bytes]] | None: ...

        @_tags.setter
        def _tags(self, tags: list[tuple[int, bytes]] | None) -> None: ...

    @property
    def unknown_tags(self) -> list[tuple[int, bytes]]:
        """Tagged fields that we do not know, (number, bytes) in ascending order; they are written back."""
        if self._tags is None:
            self._tags = []
        return self._tags

    @unknown_tags.setter
    def unknown_tags(self, tags: list[tuple[int, bytes]]) -> None:
        self._tags = tags

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Struct)
        for field in self.__fields__:
            mine = getattr(self, field.slot)
            theirs = getattr(other, field.slot)
            # A late struct that nobody asked for is equal to its default.
            if mine is not theirs and getattr(self, field.name) != getattr(other, field.name):
                return False
        return (self._tags or []) == (other._tags or [])

    def __repr__(self) -> str:
        parts = []
        for field in self.__fields__:
            value = getattr(self, field.slot)
            if value is None and field.made_late:
                continue
            if field.kind == "records" and value is not None and not isinstance(value, list):
                parts.append(f"{field.name}=<{len(value)} bytes>")  # payloads are never printed
            else:
                parts.append(f"{field.name}={value!r}")
        if self._tags:
            parts.append(f"unknown_tags={self._tags!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Message(Struct):
    """A whole message: a request or response body, or a record on disk."""

    __slots__ = ()
    api_key: ClassVar[int] = -1
    """The API key; for a record on disk its type number, -1 where it has none."""
    versions: ClassVar[tuple[int, int]] = (0, 0)
    """The first and the last version that we speak."""
    flexible: ClassVar[int | None] = None
    """The first flexible version; None for never."""
    one_of_each: ClassVar[bool] = False
    """Messages of this kind mostly have one element in each array and little that is unusual: decoders of flexible
    versions then try that shape first, see `straight`."""
    _decoders: ClassVar[dict[int, Decoder]] = {}
    _encoders: ClassVar[dict[int, Encoder]] = {}

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """The message that fills `data` from end to end; `Malformed` for anything else.  Fields of kind `records` are
        views on `data`, the rest is copied out of it."""
        decoder = cls._decoders.get(version) or _compiler().decoder(cls, version)
        end = len(data)
        if end > REQUEST_UNCOUNTED_BYTES:
            _interpreter().require_few(cls, data, 0, version)
        try:
            message, position = decoder(data, 0, end)
            if position == end:
                return message  # type: ignore[no-any-return]
        except DECODE_ERRORS:
            pass
        raise _interpreter().reason(cls, data, 0, version, whole=True)

    @classmethod
    def decode_at(cls, data: Buffer, position: int, version: int) -> tuple[Self, int]:
        """The message at `position`, and the position behind it; what follows is not looked at."""
        decoder = cls._decoders.get(version) or _compiler().decoder(cls, version)
        end = len(data)
        if end > REQUEST_UNCOUNTED_BYTES:
            _interpreter().require_few(cls, data, position, version)
        try:
            return decoder(data, position, end)
        except DECODE_ERRORS:
            pass
        raise _interpreter().reason(cls, data, position, version, whole=False)

    def encode(self, version: int) -> list[Buffer | FileRegion]:
        """The message as buffers to be sent one after the other; record payloads are handed on as they are.
        `Unencodable` where the version has no room for what is set."""
        encoder = self._encoders.get(version) or _compiler().encoder(type(self), version)
        try:
            return encoder(self)
        except ENCODE_ERRORS as error:
            raise _interpreter().refusal(self, version) from error

    def encode_bytes(self, version: int) -> bytes:
        """The same as one `bytes`, payloads copied and file regions read: for records on disk, tests and tools."""
        return b"".join(part.read() if isinstance(part, FileRegion) else part for part in self.encode(version))

    def size(self, version: int) -> int:
        """Bytes of the encoded message."""
        return sum(map(len, self.encode(version)))


def least_bytes(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a field's value takes in a version, tags apart: what bounds an array before it is made."""
    kind = field.kind
    if kind in FIXED_WIDTH:
        return FIXED_WIDTH[kind][1]
    if kind == "struct":
        assert field.structure is not None
        return 1 if field.nullable_in(version) else least_struct_bytes(field.structure, version, flexible)
    if flexible and field.compact:
        return 1
    return 2 if kind == "string" else 4


def least_struct_bytes(structure: type[Struct], version: int, flexible: bool) -> int:
    """The same for a whole struct; at least 1, so that a count is always bounded by the bytes that are left."""
    total = 1 if flexible else 0
    for field in structure.__fields__:
        if field.exists_in(version) and not field.tagged_in(version):
            total += least_bytes(field, version, flexible)
    return max(total, 1)


def _compiler() -> Any:
    """Imported when the first codec is wanted: a process that only names messages does not pay for it."""
    from stratalog.protocol import compiler

    return compiler


def _interpreter() -> Any:
    from stratalog.protocol import interpreter

    return interpreter


def _error_types() -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    from struct import error as struct_error

    reading = (Malformed, IndexError, UnicodeDecodeError, struct_error)
    writing = (Unencodable, AttributeError, TypeError, ValueError, IndexError, OverflowError, struct_error)
    return reading, writing


DECODE_ERRORS, ENCODE_ERRORS = _error_types()
"""What a codec may end in.  A decoder stops wherever it meets the first impossible byte, in whatever way is cheapest,
and an encoder at the first value that does not fit; the interpreter then goes the same way slowly and says why.  An
interpreter that finds nothing wrong is a bug, and an `AssertionError`."""
