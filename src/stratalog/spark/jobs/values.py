"""Record values as columns: JSON, Avro and Protobuf, decoded into an Arrow struct.

    json             a Spark schema in SQL form: `id bigint, customer struct<name: string>, amount double`
    avro             an Avro schema in JSON; the value is one datum
    confluent-avro   the same behind a byte 0 and a schema id of four bytes, which is not looked up
    protobuf         a descriptor set (`protoc -o`) and the name of a message: `FILE:package.Message`; needs `protobuf`

A decoder is made in the driver, where a wrong schema is said, and travels to the tasks as its text.  A null value is a
null struct.  A value that does not fit is an error that names its offset, or null, as the caller chose.  Bounded: a
collection in a value never has more items than the value has bytes.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.spark.errors import OptionError, SparkSourceError

FORMATS: Final = ("raw", "json", "avro", "confluent-avro", "protobuf")
_DEPTH_MAX: Final = 64
"""Of schemas: deeper ones are a mistake or an attack."""


class BadValue(SparkSourceError):
    """A record whose value does not fit the schema."""


class _Unfit(Exception):
    """One value does not fit; the text says why."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """What a value is, in a form that can be pickled."""

    format: str
    text: str
    arrow: Any
    """`pa.DataType` of the column: a struct."""
    null_if_bad: bool = False

    def decoder(self) -> Callable[[Any], tuple[Any, Sequence[tuple[int, str]]]]:
        """A function from a binary array to (array of the type, rows that did not fit with the reason)."""
        if self.format == "json":
            return _Json(self.arrow)
        if self.format in ("avro", "confluent-avro"):
            one = _avro_reader(json.loads(self.text), {}, 0)[1]
            return _Each(self.arrow, _framed(one, 5 if self.format == "confluent-avro" else 0))
        return _Each(self.arrow, _protobuf_reader(_message_class(self.text)))


def value_schema(format: str, text: str | None, *, null_if_bad: bool = False) -> ValueSchema | None:
    """The schema of values, checked; None for `raw`: the value stays bytes.  In the driver."""
    import pyarrow as pa

    if format not in FORMATS:
        raise OptionError.of("values", format, "one of " + ", ".join(FORMATS))
    if format == "raw":
        if text is not None:
            raise OptionError.of("value_schema", text, "a schema goes with values=json, avro, ... only")
        return None
    if not text:
        raise OptionError(f"option value_schema is missing: values={format} needs one")
    if format == "json":
        kind = _from_ddl(text)
    elif format == "protobuf":
        kind = _protobuf_type(_message_class(text).DESCRIPTOR, 0)
    else:
        try:
            kind = _avro_reader(json.loads(text), {}, 0)[0]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OptionError.of("value_schema", text[:80], f"an Avro schema in JSON ({error})") from None
        if not pa.types.is_struct(kind):
            raise OptionError.of("value_schema", text[:80], "an Avro record")
    return ValueSchema(format, text, kind, null_if_bad)


def _from_ddl(text: str) -> Any:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(text)
        if not isinstance(parsed, StructType):
            raise OptionError.of("value_schema", text[:80], "columns in SQL form, `id bigint, name string`")
        return pa.struct(list(to_arrow_schema(parsed, timezone="UTC")))
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise OptionError.of(
            "value_schema", text[:80], f"columns in SQL form, `id bigint, name string` ({first})"
        ) from None


# --- JSON ------------------------------------------------------------------------------------------------------------
class _Json:
    """Whole batches through Arrow's parser; each value is wrapped with its number, so that a broken one cannot shift
    the others; where a batch fails, halves are tried until the broken ones stand alone."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __call__(self, values: Any) -> tuple[Any, Sequence[tuple[int, str]]]:
        import pyarrow as pa

        bad: list[tuple[int, str]] = []
        parts = self._parsed(values, 0, bad)
        return pa.concat_arrays(parts) if len(parts) != 1 else parts[0], bad

    def _parsed(self, values: Any, first: int, bad: list[tuple[int, str]]) -> list[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import json as pa_json

        count = len(values)
        if not count:
            return [pa.array([], self._kind)]
        numbers = pa.array(range(count), pa.int64()).cast(pa.string()).cast(pa.binary())
        joined = pc.binary_join_element_wise(
            b'{"i":', numbers, b',"v":', values, b"}\n", b"", null_handling="replace", null_replacement=b"null"
        )
        begin, end = joined.offset, joined.offset + count
        offsets = memoryview(joined.buffers()[1]).cast("i")
        data = joined.buffers()[2].slice(offsets[begin], offsets[end] - offsets[begin])
        explicit = pa.schema([("i", pa.int64()), ("v", self._kind)])
        try:
            table = pa_json.read_json(
                pa.BufferReader(data),
                read_options=pa_json.ReadOptions(use_threads=False, block_size=max(data.size, 1 << 16)),
                parse_options=pa_json.ParseOptions(
                    explicit_schema=explicit, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows == count and table.column("i").to_pylist() == list(range(count)):
                return [table.column("v").combine_chunks()]
            reason = "not one JSON object"
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
        if count == 1:
            bad.append((first, reason))
            return [pa.nulls(1, self._kind)]
        half = count // 2
        return [*self._parsed(values[:half], first, bad), *self._parsed(values[half:], first + half, bad)]


# --- one value after the other ---------------------------------------------------------------------------------------
class _Each:
    def __init__(self, kind: Any, read: Callable[[bytes], Any]) -> None:
        self._kind = kind
        self._read = read

    def __call__(self, values: Any) -> tuple[Any, Sequence[tuple[int, str]]]:
        import pyarrow as pa

        bad: list[tuple[int, str]] = []
        found: list[Any] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                found.append(None)
                continue
            try:
                found.append(self._read(value))
            except (_Unfit, struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
                bad.append((row, str(error) or "cut off"))
                found.append(None)
        try:
            return pa.array(found, self._kind), bad
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            # Read, and too large for its column, such as an Avro int of 40 bits.  Which one: once more, one by one.
            for row, value in enumerate(found):
                try:
                    pa.array([value], self._kind)
                except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                    bad.append((row, str(error)))
                    found[row] = None
            return pa.array(found, self._kind), sorted(bad)


def _framed(read: Callable[[bytes, int], tuple[Any, int]], skip: int) -> Callable[[bytes], Any]:
    def one(value: bytes) -> Any:
        if skip and (len(value) < skip or value[0]):
            raise _Unfit("no schema id in front")
        found, end = read(value, skip)
        if end != len(value):
            raise _Unfit(f"{len(value) - end} bytes are left over")
        return found

    return one


# --- Avro ------------------------------------------------------------------------------------------------------------
_Reader = Callable[[bytes, int], tuple[Any, int]]
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def _long(data: bytes, at: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise _Unfit("a number is too long")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise _Unfit("a field runs past the end")
    return data[at : at + size], at + size


def _string(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode("utf-8"), at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise _Unfit("a boolean is neither 0 nor 1")
    return bool(data[at]), at + 1


def _avro_reader(schema: Any, names: dict[str, tuple[Any, _Reader]], depth: int) -> tuple[Any, _Reader]:
    """(Arrow type, reader) of a schema."""
    import pyarrow as pa

    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    if isinstance(schema, list):
        return _avro_union(schema, names, depth)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _avro_reader(kind, names, depth + 1)
    logical = schema.get("logicalType")
    if kind in ("int", "long"):
        units = {"timestamp-millis": "ms", "timestamp-micros": "us"}
        if logical in units:
            unit = units[logical]
            return pa.timestamp("us", "UTC"), (_scaled(1000) if unit == "ms" else _long)
        if logical == "date":
            return pa.date32(), _long
        return (pa.int32() if kind == "int" else pa.int64()), _long
    plain: dict[str, tuple[Any, _Reader]] = {
        "null": (pa.null(), lambda data, at: (None, at)),
        "boolean": (pa.bool_(), _boolean),
        "float": (pa.float32(), lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4)),
        "double": (pa.float64(), lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8)),
        "bytes": (pa.binary(), _bytes),
        "string": (pa.string(), _string),
    }
    if kind in plain:
        return plain[kind]
    if kind in ("record", "error"):
        return _avro_record(schema, names, depth)
    if kind == "enum":
        symbols = list(schema["symbols"])
        return _named(schema, names, (pa.string(), _symbol(symbols)))
    if kind == "fixed":
        return _named(schema, names, (pa.binary(int(schema["size"])), _fixed(int(schema["size"]))))
    if kind == "array":
        inner, read = _avro_reader(schema["items"], names, depth + 1)
        return pa.list_(inner), _blocks(read)
    if kind == "map":
        inner, read = _avro_reader(schema["values"], names, depth + 1)
        return pa.map_(pa.string(), inner), _blocks(_pair(read))
    if kind in names:
        return names[kind]
    raise ValueError(f"unknown type {kind!r}; types that contain themselves are not supported")


def _named(schema: Any, names: dict[str, tuple[Any, _Reader]], found: tuple[Any, _Reader]) -> tuple[Any, _Reader]:
    name = str(schema["name"])
    names[name] = found
    if "." not in name and schema.get("namespace"):
        names[f"{schema['namespace']}.{name}"] = found
    return found


def _avro_record(schema: Any, names: dict[str, tuple[Any, _Reader]], depth: int) -> tuple[Any, _Reader]:
    import pyarrow as pa

    fields = [(str(field["name"]), *_avro_reader(field["type"], names, depth + 1)) for field in schema["fields"]]
    readers = [(name, read) for name, _, read in fields]

    def record(data: bytes, at: int) -> tuple[Any, int]:
        found = {}
        for name, read in readers:
            found[name], at = read(data, at)
        return found, at

    return _named(schema, names, (pa.struct([(name, kind) for name, kind, _ in fields]), record))


def _avro_union(schema: list[Any], names: dict[str, tuple[Any, _Reader]], depth: int) -> tuple[Any, _Reader]:
    import pyarrow as pa

    branches = [_avro_reader(one, names, depth + 1) for one in schema]
    kinds = [kind for kind, _ in branches if not pa.types.is_null(kind)]
    if len(kinds) > 1:
        raise ValueError("a union of several types has no column type; null and one other is supported")

    def union(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        if not 0 <= branch < len(branches):
            raise _Unfit(f"a union has no branch {branch}")
        return branches[branch][1](data, at)

    return (kinds[0] if kinds else pa.null()), union


def _scaled(factor: int) -> _Reader:
    def read(data: bytes, at: int) -> tuple[int, int]:
        value, at = _long(data, at)
        return value * factor, at

    return read


def _symbol(symbols: list[str]) -> _Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise _Unfit(f"an enum has no symbol {index}")
        return symbols[index], at

    return read


def _fixed(size: int) -> _Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if len(data) - at < size:
            raise _Unfit("a field runs past the end")
        return data[at : at + size], at + size

    return read


def _pair(read: _Reader) -> _Reader:
    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = read(data, at)
        return (key, value), at

    return pair


def _blocks(read: _Reader) -> _Reader:
    def blocks(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _long(data, at)
            if not count:
                return found, at
            if count < 0:
                count = -count
                _, at = _long(data, at)
            if len(found) + count > len(data):
                raise _Unfit("a collection claims more items than there are bytes")
            for _ in range(count):
                item, at = read(data, at)
                found.append(item)

    return blocks


# --- Protobuf --------------------------------------------------------------------------------------------------------
def _message_class(text: str) -> Any:
    path, _, name = text.rpartition(":")
    if not path or not name:
        raise OptionError.of("value_schema", text, "FILE:package.Message, the file a descriptor set from protoc -o")
    try:
        descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
        pools = importlib.import_module("google.protobuf.descriptor_pool")
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError:
        raise OptionError.of("values", "protobuf", "needs the package protobuf: pip install protobuf") from None
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    pool = pools.DescriptorPool()
    try:
        with open(path, "rb") as file:
            files = descriptors.FileDescriptorSet.FromString(file.read())
        for one in files.file:
            pool.Add(one)
    except (decode_error, TypeError) as error:
        raise OptionError.of(
            "value_schema", text, f"{path} is no whole descriptor set from protoc --include_imports -o ({error})"
        ) from None
    try:
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise OptionError.of("value_schema", text, f"the descriptor set has no message {name}") from None


def _protobuf_type(descriptor: Any, depth: int) -> Any:
    import pyarrow as pa

    if depth > _DEPTH_MAX:
        raise OptionError.of("value_schema", descriptor.full_name, "messages that do not contain themselves")
    return pa.struct([(field.name, _protobuf_field(field, depth)) for field in descriptor.fields])


def _protobuf_field(field: Any, depth: int) -> Any:
    import pyarrow as pa

    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.uint64(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return pa.map_(_protobuf_field(key, depth + 1), _protobuf_field(value, depth + 1))
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        kind = _protobuf_type(field.message_type, depth + 1)
    elif field.cpp_type == field.CPPTYPE_STRING:
        kind = pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    else:
        kind = kinds[field.cpp_type]
    return pa.list_(kind) if field.is_repeated else kind


def _protobuf_reader(made: Any) -> Callable[[bytes], Any]:
    decode_error = importlib.import_module("google.protobuf.message").DecodeError

    def cell(field: Any, value: Any) -> Any:
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return row(value)
        if field.cpp_type == field.CPPTYPE_ENUM:
            found = field.enum_type.values_by_number.get(value)
            return str(value) if found is None else found.name
        return value

    def row(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in message.DESCRIPTOR.fields:
            value = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                inner = field.message_type.fields_by_name["value"]
                found[field.name] = [(key, cell(inner, one)) for key, one in value.items()]
            elif field.is_repeated:
                found[field.name] = [cell(field, one) for one in value]
            elif field.has_presence and not message.HasField(field.name):
                found[field.name] = None
            else:
                found[field.name] = cell(field, value)
        return found

    def one(value: bytes) -> Any:
        try:
            return row(made.FromString(value))
        except decode_error as error:
            raise _Unfit(str(error)) from None

    return one
