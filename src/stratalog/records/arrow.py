"""Records as Arrow columns.

`decode` turns the batches of a scanned buffer into one `pyarrow.RecordBatch`, with the columns that were asked for and
no others.  Stateless; any thread; the interpreter's lock is free while the kernel works.  Needs PyArrow (the extra
`arrow`) at the first call, not at import.

Not obvious: the kernel goes over the records twice, once to check them and to add up what they need, once to write.  So
nothing is allocated for what a damaged batch claims, and the buffers have exactly the size of their content.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.types import MAX_INT64, Buffer
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    OK,
    POSITION,
    ROW,
    SIZE,
    BatchTable,
    best,
)
from stratalog.records.walk import fail

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
"""The names that `decode` knows, in the order of its schema; Spark's names for the same things."""
COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Arrow's `binary` counts its bytes with 32 bits, and Spark takes no larger kind."""
_MIN_INT64: Final = -(2**63)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Arrow columns need PyArrow: pip install stratalog[arrow]") from error
    return pyarrow


def chosen(columns: Iterable[str] | None) -> tuple[str, ...]:
    """The columns in the schema's order; all of them for None.  `ValueError` for a name that is none."""
    if columns is None:
        return COLUMNS
    wanted = set(columns)
    unknown = sorted(wanted.difference(COLUMNS))
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted)


def schema(columns: Iterable[str] | None = None, *, unit: str = "ms") -> pa.Schema:
    """The schema of what `decode` gives.  `unit` of the timestamps: `ms` as they are, or `us` as Spark wants them."""
    pa = _pyarrow()
    kinds = {
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp(unit, tz="UTC"), nullable=False),
        "timestampType": pa.field("timestampType", pa.int32(), nullable=False),
        "key": pa.field("key", pa.binary()),
        "value": pa.field("value", pa.binary()),
        "headers": pa.field("headers", _headers_type(pa)),
    }
    return pa.schema([kinds[name] for name in chosen(columns)])


def _headers_type(pa: Any) -> Any:
    return pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def payloads_of(data: Buffer, table: BatchTable, indexes: Sequence[int] | None = None) -> dict[int, Buffer]:
    """The records of compressed batches, decompressed under the limits, and those of the old formats as v2 records.

    For a batch of an old format the table's row is changed to fit: its first offset, its number of records.
    """
    payloads: dict[int, Buffer] = {}
    rows = table.rows
    view = memoryview(data)
    for index in range(table.count) if indexes is None else indexes:
        at = index * ROW
        codec = rows[at + ATTRIBUTES] & CODEC_MASK
        position = rows[at + POSITION]
        if rows[at + MAGIC] < 2:
            payloads[index] = _modern(view, table, index)
        elif codec:
            from stratalog.records.compression import decompress

            payloads[index] = decompress(codec, view[position + 61 : position + rows[at + SIZE]])
    return payloads


def _modern(data: memoryview, table: BatchTable, index: int) -> Buffer:
    """A message set's records in the form of v2 (rare: nobody has written them since 2017)."""
    from stratalog.records.batch import encode_record, read_header, records_of

    at = index * ROW
    header = read_header(data, table.rows[at + POSITION])
    out = bytearray()
    base = -1
    count = 0
    for record in records_of(data, header):
        if base < 0:
            base = record.offset
        out += encode_record(record.offset - base, record.timestamp, record.key, record.value)
        table.rows[at + LAST_OFFSET] = record.offset
        count += 1
    table.rows[at + BASE_OFFSET] = max(base, 0)
    table.rows[at + BASE_TIMESTAMP] = 0
    table.rows[at + COUNT] = count
    return out


def decode(
    data: Buffer,
    table: BatchTable,
    *,
    indexes: Sequence[int] | None = None,
    columns: Iterable[str] | None = None,
    start: int = 0,
    stop: int = MAX_INT64,
    start_time: int = _MIN_INT64,
    end_time: int = MAX_INT64,
    unit: str = "ms",
    payloads: dict[int, Buffer] | None = None,
    twin: Any = None,
) -> pa.RecordBatch:
    """The records of the batches `indexes` (all of the table's for None) with an offset in [start, stop) and a
    timestamp in [start_time, end_time).

    `CorruptBatch` for records that do not follow the format; `OverflowError` where a column would pass 2 GiB: give
    fewer batches.
    """
    names = chosen(columns)
    if payloads is None:
        payloads = payloads_of(data, table, indexes)
    if twin is None:
        twin = best()
    read = _read_compiled if twin.COMPILED else _read_plain
    return read(twin, data, table, indexes, names, (start, stop, start_time, end_time), unit, payloads)


def _read_plain(
    twin: Any,
    data: Buffer,
    table: BatchTable,
    indexes: Sequence[int] | None,
    names: tuple[str, ...],
    limits: tuple[int, int, int, int],
    unit: str,
    payloads: dict[int, Buffer],
) -> pa.RecordBatch:
    pa = _pyarrow()
    wanted = range(table.count) if indexes is None else indexes
    code, row, position, found = twin.read_columns(data, table, wanted, payloads, *limits)
    if code != OK:
        _fail(table, code, row, position)
    offsets, timestamps, kinds, keys, values, headers = found
    factor = 1000 if unit == "us" else 1
    made = {
        "offset": lambda: pa.array(offsets, pa.int64()),
        "timestamp": lambda: pa.array([t * factor for t in timestamps], pa.timestamp(unit, tz="UTC")),
        "timestampType": lambda: pa.array(kinds, pa.int32()),
        "key": lambda: pa.array(keys, pa.binary()),
        "value": lambda: pa.array(values, pa.binary()),
        "headers": lambda: pa.array(
            [[{"key": _text(name), "value": value} for name, value in record] for record in headers], _headers_type(pa)
        ),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in names], schema=schema(names, unit=unit))


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptBatch("a header's key is not UTF-8") from None


def _fail(table: BatchTable, code: int, row: int, position: int) -> None:
    fail(code, position, f"in the batch with base offset {table.rows[row * ROW + BASE_OFFSET]}")


def _read_compiled(
    twin: Any,
    data: Buffer,
    table: BatchTable,
    indexes: Sequence[int] | None,
    names: tuple[str, ...],
    limits: tuple[int, int, int, int],
    unit: str,
    payloads: dict[int, Buffer],
) -> pa.RecordBatch:
    pa = _pyarrow()
    rows, holders = twin.located(data, table, indexes, payloads)
    code, sizes = twin.measure(rows, *limits, "headers" in names)
    if code != OK:
        row = sizes[0] if indexes is None else indexes[sizes[0]]
        _fail(table, code, row, sizes[1])
    records, key_bytes, value_bytes, null_keys, null_values, headers, name_bytes, content_bytes, null_contents = sizes
    if max(key_bytes, value_bytes, name_bytes, content_bytes, headers, records) > COLUMN_BYTES_MAX:
        raise OverflowError("a column of more than 2 GiB: decode fewer batches at once")
    outs = array("q", bytes(15 * 8))

    def room(place: int, size: int) -> Any:
        buffer = pa.allocate_buffer(size)
        outs[place] = buffer.address
        return buffer

    def bits(place: int, length: int, nulls: int) -> Any:
        if not nulls:
            return None
        size = (length + 7) // 8
        buffer = pa.allocate_buffer(size)
        memoryview(buffer).cast("B")[:] = b"\xff" * size
        outs[place] = buffer.address
        return buffer

    made: dict[str, Any] = {}
    if "offset" in names:
        made["offset"] = [None, room(0, 8 * records)]
    if "timestamp" in names:
        made["timestamp"] = [None, room(1, 8 * records)]
    if "timestampType" in names:
        made["timestampType"] = [None, room(2, 4 * records)]
    if "key" in names:
        made["key"] = [bits(5, records, null_keys), room(3, 4 * records + 4), room(4, key_bytes)]
    if "value" in names:
        made["value"] = [bits(8, records, null_values), room(6, 4 * records + 4), room(7, value_bytes)]
    if "headers" in names:
        made["headers"] = [None, room(9, 4 * records + 4)]
        name_buffers = [None, room(10, 4 * headers + 4), room(11, name_bytes)]
        content_bits = bits(14, headers, null_contents)
        content_buffers = [content_bits, room(12, 4 * headers + 4), room(13, content_bytes)]
    code = twin.fill(rows, *limits, 1000 if unit == "us" else 1, sizes, outs)
    del holders
    if code != OK:
        raise CorruptBatch("the batches changed while they were read")
    nulls = {"key": null_keys, "value": null_values}
    shape = schema(names, unit=unit)
    arrays = []
    for name in names:
        kind = shape.field(name).type
        if name != "headers":
            arrays.append(pa.Array.from_buffers(kind, records, made[name], nulls.get(name, 0)))
            continue
        keys = pa.Array.from_buffers(pa.string(), headers, name_buffers, 0)
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:
            raise CorruptBatch("a header's key is not UTF-8") from None
        contents = pa.Array.from_buffers(pa.binary(), headers, content_buffers, null_contents)
        pairs = pa.Array.from_buffers(kind.value_type, headers, [None], 0, children=[keys, contents])
        arrays.append(pa.Array.from_buffers(kind, records, made[name], 0, children=[pairs]))
    return pa.RecordBatch.from_arrays(arrays, schema=shape)
