"""Records as Arrow columns.

`decode` turns the batches of a scanned buffer into one `pyarrow.RecordBatch`, with the columns that were asked for and
no others.  Stateless; any thread; the interpreter's lock is free while the kernel works.  Needs PyArrow (the extra
`arrow`) at the first call, not at import.

Not obvious: the kernel goes over the records once.  Keys and values get as much room as the records have bytes, of
which the system only provides what is touched, and give the rest back; what a damaged batch claims is never allocated.
Only where records have headers, and these are wanted, a first pass adds up their sizes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.types import MAX_INT64, Buffer
from stratalog.records.batch import header_key
from stratalog.records.errors import CorruptBatch
from stratalog.records.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    NEEDS_MEASURE,
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
_MICROSECONDS_MAX: Final = MAX_INT64 // 1000


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
    timestamp in [start_time, end_time); without an end also one that is itself the last that there is.

    `CorruptBatch` for records that do not follow the format; `OverflowError` where a column would pass 2 GiB: give
    fewer batches.
    """
    names = chosen(columns)
    if unit == "us" and "timestamp" in names:
        _check_times(table, indexes)
    if payloads is None:
        payloads = payloads_of(data, table, indexes)
    if twin is None:
        twin = best()
    read = _read_compiled if twin.COMPILED else _read_plain
    late = end_time if end_time == MAX_INT64 else max(end_time - 1, _MIN_INT64)
    return read(twin, data, table, indexes, names, (start, stop, start_time, late), unit, payloads)


def _check_times(table: BatchTable, indexes: Sequence[int] | None) -> None:
    """Nanoseconds that a producer took for milliseconds have no microseconds in 64 bits: an error, no other time."""
    for index in range(table.count) if indexes is None else indexes:
        latest = table.rows[index * ROW + MAX_TIMESTAMP]
        if latest > _MICROSECONDS_MAX:
            raise CorruptBatch(
                f"the timestamp {latest} is too large for a column in microseconds; without that column it can be read"
            )


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
    latest = MAX_INT64 // factor
    made = {
        "offset": lambda: pa.array(offsets, pa.int64()),
        "timestamp": lambda: pa.array(
            [min(max(time, -latest), latest) * factor for time in timestamps], pa.timestamp(unit, tz="UTC")
        ),
        "timestampType": lambda: pa.array(kinds, pa.int32()),
        "key": lambda: pa.array(keys, pa.binary()),
        "value": lambda: pa.array(values, pa.binary()),
        "headers": lambda: pa.array(
            [[{"key": header_key(name), "value": value} for name, value in record] for record in headers],
            _headers_type(pa),
        ),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in names], schema=schema(names, unit=unit))


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
    room = twin.rooms(rows)
    code, columns, sizes = _fill(pa, twin, rows, names, limits, unit, room)
    if code == NEEDS_MEASURE:
        code, sizes = twin.measure(rows, *limits, True)
        if code == OK:
            code, columns, sizes = _fill(pa, twin, rows, names, limits, unit, sizes)
            if code == NEEDS_MEASURE:
                raise CorruptBatch("the batches changed while they were read")
    del holders
    if code != OK:
        _fail(table, code, sizes[0] if indexes is None else indexes[sizes[0]], sizes[1])
    return _assembled(pa, names, unit, columns, sizes)


def _fill(
    pa: Any,
    twin: Any,
    rows: Any,
    names: tuple[str, ...],
    limits: tuple[int, int, int, int],
    unit: str,
    room: array[int],
) -> tuple[int, dict[str, list[Any]], array[int]]:
    """Allocate the columns with `room`, write them: (code, their buffers, what was used)."""
    if max(room) > COLUMN_BYTES_MAX:
        raise OverflowError("a column of more than 2 GiB: decode fewer batches at once")
    records, key_bytes, value_bytes, _, _, headers, name_bytes, content_bytes, _ = room
    outs = array("q", bytes(15 * 8))

    def space(place: int, size: int) -> Any:
        buffer = pa.allocate_buffer(size, resizable=True)
        outs[place] = buffer.address
        return buffer

    def bits(place: int, length: int) -> Any:
        size = (length + 7) // 8
        buffer = space(place, size)
        memoryview(buffer).cast("B")[:] = b"\xff" * size
        return buffer

    columns: dict[str, list[Any]] = {}
    if "offset" in names:
        columns["offset"] = [None, space(0, 8 * records)]
    if "timestamp" in names:
        columns["timestamp"] = [None, space(1, 8 * records)]
    if "timestampType" in names:
        columns["timestampType"] = [None, space(2, 4 * records)]
    if "key" in names:
        columns["key"] = [bits(5, records), space(3, 4 * records + 4), space(4, key_bytes)]
    if "value" in names:
        columns["value"] = [bits(8, records), space(6, 4 * records + 4), space(7, value_bytes)]
    if "headers" in names:
        columns["headers"] = [None, space(9, 4 * records + 4)]
        columns["name"] = [None, space(10, 4 * headers + 4), space(11, name_bytes)]
        columns["content"] = [bits(14, headers), space(12, 4 * headers + 4), space(13, content_bytes)]
    sizes = room[:]
    code = twin.fill(rows, *limits, 1000 if unit == "us" else 1, sizes, outs)
    return code, columns, sizes


def _assembled(
    pa: Any, names: tuple[str, ...], unit: str, columns: dict[str, list[Any]], sizes: array[int]
) -> pa.RecordBatch:
    """Arrays over the buffers, which give back what they have too much."""
    records, key_bytes, value_bytes, null_keys, null_values, headers, _, _, null_contents = sizes
    used = {"key": (key_bytes, null_keys), "value": (value_bytes, null_values)}
    shape = schema(names, unit=unit)
    arrays = []
    for name in names:
        kind = shape.field(name).type
        buffers = columns[name]
        if name == "headers":
            keys = pa.Array.from_buffers(pa.string(), headers, columns["name"], 0)
            try:
                keys.validate(full=True)
            except pa.ArrowInvalid:  # some are not UTF-8: made anew, one by one
                raw = pa.Array.from_buffers(pa.binary(), headers, columns["name"], 0)
                keys = pa.array([header_key(name) for name in raw.to_pylist()], pa.string())
            contents = pa.Array.from_buffers(pa.binary(), headers, columns["content"], null_contents)
            pairs = pa.Array.from_buffers(kind.value_type, headers, [None], 0, children=[keys, contents])
            arrays.append(pa.Array.from_buffers(kind, records, buffers, 0, children=[pairs]))
            continue
        nulls = 0
        if name in used:
            size, nulls = used[name]
            _shrink(buffers[2], size)
            if not nulls:
                buffers = [None, *buffers[1:]]
        arrays.append(pa.Array.from_buffers(kind, records, buffers, nulls))
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def _shrink(buffer: Any, size: int) -> None:
    """Give back room for bytes that were others, where it is worth a copy."""
    if size < buffer.size - buffer.size // 4:
        buffer.resize(size, shrink_to_fit=True)
