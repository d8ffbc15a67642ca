"""A data frame's rows on their way out: the sink's columns, checked, and each row's topic, partition and time.

The columns are those of Spark's Kafka sink: `value` (needed), `key`, `headers`, `topic`, `partition`; others are left
alone.  With the option `timestamps=column` the column `timestamp` is the records' time.  Runs in tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stratalog.spark.errors import OptionError, SparkSourceError
from stratalog.spark.options import WriteOptions

_ALLOWED = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


class SinkError(SparkSourceError):
    """Rows that cannot be written."""


def check_columns(schema: Any, options: WriteOptions) -> None:
    """Whether a data frame can be written; said when the query is planned."""
    kinds = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in kinds:
        raise OptionError("the data frame has no column value, which is what is written; there are " + ", ".join(kinds))
    for name, allowed in _ALLOWED.items():
        if name == "timestamp" and not options.keep_timestamps:
            continue
        if name in kinds and kinds[name] not in allowed:
            raise OptionError(f"the column {name} is {kinds[name]}, allowed is {' or '.join(allowed)}")
    if options.topic is None and "topic" not in kinds:
        raise OptionError("no topic: set the option topic, or give the data frame a column topic")
    if options.keep_timestamps and "timestamp" not in kinds:
        raise OptionError.of("timestamps", "column", "the data frame has no column timestamp")


class Rows(NamedTuple):
    """Some rows of one topic."""

    topic: str
    keys: Any
    """The columns as the kernels want them (`encode.Column`)."""
    values: Any
    partitions: Any
    """The partition of each row, -1 where the partitioner decides."""
    stamps: Any
    headers: Any
    """The Arrow column, None where no row has headers."""
    rows: Any
    """The numbers of the rows."""
    key_array: Any
    value_array: Any


def rows_of(batch: Any, options: WriteOptions, now_ms: Callable[[], int] | None = None) -> Iterator[Rows]:
    """A record batch, topic by topic."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from stratalog.spark.encode import column_of

    count = batch.num_rows
    if not count:
        return
    names = batch.schema.names

    def get(name: str) -> Any:
        return batch.column(names.index(name)) if name in names else None

    key, value = get("key"), get("value")
    stamps = _stamps(get("timestamp") if options.keep_timestamps else None, count, now_ms)
    wanted = get("partition")
    if wanted is None:
        partitions = np.full(count, -1, np.int64)
    else:
        numbers = pc.fill_null(wanted, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers.min() < -1 or bool(pc.any(pc.less(wanted, 0)).as_py()):
            raise SinkError(f"the column partition has {pc.min(wanted).as_py()}: it is null, or a number from 0 on")
        partitions = numbers
    headers = get("headers")
    if headers is not None and (headers.null_count == count or len(headers.flatten()) == 0):
        headers = None
    keys, values = column_of(key, count), column_of(value, count)
    if options.topic is not None:
        yield Rows(options.topic, keys, values, partitions, stamps, headers, np.arange(count), key, value)
        return
    topics = get("topic")
    if topics.null_count:
        raise SinkError("a row has no topic: its column topic is null, and the option topic is not set")
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield Rows(name, keys, values, partitions, stamps, headers, np.flatnonzero(codes == code), key, value)
    del pa


def _stamps(column: Any, count: int, now_ms: Callable[[], int] | None) -> Any:
    import numpy as np
    import pyarrow as pa

    if column is None:
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms()
        return np.full(count, now, np.int64)
    if column.null_count:
        raise SinkError("a row has no timestamp: its column timestamp is null")
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return micros // 1000


def pour(rows: Rows, chosen: Any, pending: Any, full: Callable[[], None]) -> None:
    """Put rows of one partition into its batch (`encode.Pending`); `full` takes a batch away when the next row has no
    room in it.  Rows with headers go one by one, others through the kernel."""
    if rows.headers is None:
        at = 0
        while at < len(chosen):
            at = pending.fill(chosen, at, rows.keys, rows.values, rows.stamps)
            if at < len(chosen):
                full()
        return
    for row in chosen.tolist():
        record = (
            plain(rows.key_array, row),
            plain(rows.value_array, row),
            int(rows.stamps[row]),
            headers_at(rows.headers, row),
        )
        if not pending.add(*record):
            full()
            pending.add(*record)


def headers_at(headers: Any, row: int) -> list[tuple[str, bytes | None]]:
    """The headers of one row."""
    found = headers[row].as_py() if headers is not None else None
    pairs: list[tuple[str, bytes | None]] = []
    for pair in found or ():
        if pair is None or pair["key"] is None:
            raise SinkError("a header has no key")
        pairs.append((pair["key"], pair["value"]))
    return pairs


def plain(array: Any, row: int) -> bytes | None:
    """A cell of a column of bytes or text."""
    if array is None:
        return None
    cell = array[row].as_py()
    return cell.encode("utf-8") if isinstance(cell, str) else cell
