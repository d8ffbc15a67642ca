"""The table's columns, as Spark has them and as Arrow has them.

Spark takes a record batch only when its schema equals, in order, types and nullability, what it makes of the table's
own; so everything here begins with that one.  Only the columns that the table has are decoded; `topic` and
`partition` are constants that are made once and cut to length.  Used in the driver's planning process and in workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from stratalog.records import arrow
from stratalog.spark.errors import OptionError
from stratalog.spark.options import COLUMNS

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
_NULLABLE: Final = frozenset({"key", "value", "headers"})


def table_schema(columns: Iterable[str]) -> str:
    """The schema of the columns, as Spark's Kafka source has it."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def checked(schema: Any) -> tuple[str, ...]:
    """The columns of a schema that the user gave; `OptionError` for a name or a type that is not ours."""
    names = []
    for column in schema.fields:
        if column.name not in COLUMNS:
            raise OptionError(f"schema: there is no column {column.name!r}, only " + ", ".join(COLUMNS))
        kind = column.dataType.simpleString()
        if kind != TYPES[column.name]:
            raise OptionError(f"schema: the column {column.name} is {TYPES[column.name]}, not {kind}")
        if not column.nullable and column.name in _NULLABLE:
            raise OptionError(f"schema: the column {column.name} is null in some records, so it cannot be NOT NULL")
        names.append(column.name)
    return tuple(names)


class Shape:
    """Turns what the kernels decode into what Spark wants.  One for a task."""

    def __init__(self, schema: Any) -> None:
        self.names = checked(schema)
        self._schema = _arrow_schema(schema)
        wanted = [name for name in self.names if name in arrow.COLUMNS]
        self.decoded = arrow.chosen(wanted or ("offset",))
        self._constants: dict[str, Any] = {}

    def shaped(self, batch: Any, topic: str, partition: int) -> Any:
        """A decoded batch with the table's columns."""
        import pyarrow as pa

        rows = batch.num_rows
        columns = []
        for place, name in enumerate(self.names):
            if name == "topic":
                columns.append(self._constant(name, topic, pa.string(), rows))
            elif name == "partition":
                columns.append(self._constant(name, partition, pa.int32(), rows))
            elif name == "headers":
                columns.append(_null_where_empty(batch.column(name), self._schema.field(place).type))
            else:
                column = batch.column(name)
                wanted = self._schema.field(place).type
                columns.append(column if column.type == wanted else column.cast(wanted))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _constant(self, name: str, value: Any, kind: Any, rows: int) -> Any:
        import pyarrow as pa

        made = self._constants.get(name)
        if made is None or len(made) < rows:
            made = self._constants[name] = pa.repeat(pa.scalar(value, kind), max(rows, 16_384))
        return made.slice(0, rows)


def _arrow_schema(schema: Any) -> Any:
    """What Spark makes of the schema: with times in UTC, which 4.1 does by itself and later ones are told."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def _null_where_empty(headers: Any, kind: Any) -> Any:
    """Spark's Kafka source has null, not an empty array, for a record without headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=kind, mask=empty)
