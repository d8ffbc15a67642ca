"""Where an export goes: a directory of Parquet files, an Iceberg table, a Delta table.

Each keeps the offsets that were exported in the very commit that makes the rows visible, so that a run goes on where
the last commit ended, whatever happened in between:

    parquet   `_stratalog/commit-N.json` names the files and the offsets; it is there or not (written beside, synced,
              renamed).  Files wait under `_stratalog/staged` and are renamed into place after the commit, which the
              next run finishes where this one was stopped.
    iceberg   the snapshot's property `stratalog.offsets`; `add_files` and the property are one commit of the catalog
    delta     one application transaction for each partition, `stratalog/<topic>/<partition>`, whose version is the next
              offset, in the commit that adds the files

Two exports into one table at a time: the second commit fails, nothing is doubled.  Driver only, one thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from stratalog.server.disk import RealDisk
from stratalog.spark.errors import OptionError, SparkSourceError
from stratalog.spark.options import TopicPartition

FORMATS: Final = ("parquet", "iceberg", "delta")
PROPERTY: Final = "stratalog.offsets"
_RETRIES: Final = "commit.retry.num-retries"
_CONTROL: Final = "_stratalog"
_STAGED: Final = f"{_CONTROL}/staged"


class TableError(SparkSourceError):
    """A table that cannot take the export."""


Folder = tuple[str, str | None]


class DataFile(NamedTuple):
    """A file that a task wrote."""

    name: str
    """Below the target's directory for data, with the folder of its partition."""
    folder: Folder | None
    """Partition column and value, None where the table has none."""
    rows: int
    size: int
    first_offset: int
    last_offset: int


class Target(Protocol):
    """A table."""

    directory: str
    """Where tasks write their files."""
    folder_in_file: bool
    """Whether the partition's column is written into the files, too."""

    def offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Where the last commit ended, asked anew."""

    def commit(self, files: Sequence[DataFile], ends: Mapping[TopicPartition, int]) -> None:
        """Make the files' rows and the offsets visible at once."""

    def discard(self, files: Sequence[str]) -> None:
        """Remove files that no commit names: attempts that Spark did not count, an export that failed."""

    def close(self) -> None:
        """Let go of locks and connections."""


def open_target(
    kind: str,
    place: str,
    schema: Any,
    *,
    by: str | None,
    span: int,
    table: str,
    catalog: Mapping[str, str] | None,
) -> Target:
    """The table, made where it is missing.  `by` is `date`, `offset` or None; `span` the offsets in one partition."""
    if kind not in FORMATS:
        raise OptionError.of("format", kind, "one of " + ", ".join(FORMATS))
    if kind == "parquet":
        return ParquetDirectory(place, schema, by)
    try:
        if kind == "iceberg":
            return IcebergTable(place, schema, by=by, span=span, name=table, catalog=catalog)
        return DeltaLake(place, schema, by)
    except ImportError as error:
        raise TableError(f"format={kind} needs a package that is not there: pip install 'stratalog[lake]'") from error


def _remove(directory: str, names: Sequence[str]) -> None:
    for name in names:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            os.unlink(path)


def column_of(by: str | None) -> str | None:
    """The partition column of a layout."""
    return {"date": "date", "offset": "offset_from", None: None}[by]


# --- Parquet ---------------------------------------------------------------------------------------------------------
class ParquetDirectory:
    """Files in folders, for anything that reads Parquet."""

    folder_in_file = False

    def __init__(self, place: str, schema: Any, by: str | None) -> None:
        self._root = Path(place).absolute()
        self.directory = str(self._root / _STAGED)
        self._disk = RealDisk()
        os.makedirs(self.directory, exist_ok=True)
        self._lock = open(self._root / _CONTROL / "lock", "w")  # noqa: SIM115  held until close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise TableError(f"{place}: another export is writing to it") from None
        self._layout = {"schema": str(schema.remove_metadata()), "by": by}
        self._number, self._last = self._newest()
        self._finish(self._last.get("files", []))
        for name in os.listdir(self.directory):
            os.unlink(f"{self.directory}/{name}")  # nobody else writes here: what is left is of an attempt that failed
        if self._last and {name: self._last.get(name) for name in self._layout} != self._layout:
            self.close()
            raise TableError(f"{place} has other columns or another layout than this export: use another directory")

    def _newest(self) -> tuple[int, dict[str, Any]]:
        found = [
            int(match[1])
            for name in os.listdir(self._root / _CONTROL)
            if (match := re.fullmatch(r"commit-(\d{8})\.json", name))
        ]
        if not found:
            return 0, {}
        with open(self._root / _CONTROL / f"commit-{max(found):08d}.json", encoding="utf-8") as file:
            return max(found), dict(json.load(file))

    def offsets(self, topic: str) -> dict[TopicPartition, int]:
        return _of_topic(self._last.get("offsets", {}), topic)

    def commit(self, files: Sequence[DataFile], ends: Mapping[TopicPartition, int]) -> None:
        self._disk.fsync_dir(self.directory)
        rows = [
            {
                "staged": file.name,
                "path": file.name if file.folder is None else f"{_folder_name(file.folder)}/{file.name}",
                "rows": file.rows,
            }
            for file in files
        ]
        for row in rows:
            row["path"] = str(row["path"]).removesuffix(".staged")
        made = {"offsets": _merged(self._last.get("offsets", {}), ends), "files": rows, **self._layout}
        self._number += 1
        path = str(self._root / _CONTROL / f"commit-{self._number:08d}.json")
        self._disk.write_atomically(path, json.dumps(made, indent=1).encode())
        self._last = made
        self._finish(rows)

    def _finish(self, rows: Sequence[Mapping[str, Any]]) -> None:
        folders = set()
        for row in rows:
            staged, place = f"{self.directory}/{row['staged']}", self._root / row["path"]
            if os.path.exists(staged):
                os.makedirs(place.parent, exist_ok=True)
                os.rename(staged, place)
                folders.add(str(place.parent))
        for folder in sorted(folders):
            self._disk.fsync_dir(folder)

    def discard(self, files: Sequence[str]) -> None:
        _remove(self.directory, files)

    def close(self) -> None:
        self._lock.close()


def _folder_name(folder: Folder) -> str:
    """As Hive names it, which is what readers know."""
    column, value = folder
    return f"{column}=__HIVE_DEFAULT_PARTITION__" if value is None else f"{column}={value}"


def _of_topic(offsets: Mapping[str, Mapping[str, int]], topic: str) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): offset for partition, offset in offsets.get(topic, {}).items()}


def _merged(before: Mapping[str, Mapping[str, int]], ends: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found = {topic: dict(partitions) for topic, partitions in before.items()}
    for (topic, partition), offset in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


# --- Iceberg ---------------------------------------------------------------------------------------------------------
class IcebergTable:
    """A table in a catalog of pyiceberg; without one named, a catalog of SQLite in the directory itself."""

    folder_in_file = False

    def __init__(
        self, place: str, schema: Any, *, by: str | None, span: int, name: str, catalog: Mapping[str, str] | None
    ) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
        from pyiceberg.transforms import DayTransform, TruncateTransform

        if not all(part.strip() for part in name.split(".")) or "." not in name:
            raise OptionError.of("table", name, "NAMESPACE.NAME, such as stratalog.orders")
        properties = dict(catalog or {})
        if not properties:
            os.makedirs(place, exist_ok=True)
            root = os.path.abspath(place)
            properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}
        self._catalog = load_catalog(properties.pop("name", "stratalog"), **properties)
        try:
            self._catalog.create_namespace(name.rpartition(".")[0])
        except NamespaceAlreadyExistsError:
            pass
        try:
            self._table = self._catalog.load_table(name)
        except NoSuchTableError:
            self._table = self._catalog.create_table(name, schema=schema)
        if by is not None and not self._table.spec().fields and self._table.current_snapshot() is None:
            with self._table.update_spec() as update:
                if by == "date":
                    update.add_field("timestamp", DayTransform(), "date")
                else:
                    update.add_field("offset", TruncateTransform(span), "offset_from")
        if not self._is_laid_out(by, span):
            raise TableError(f"table {name} has another layout than this export: export into another table")
        missing = [field.name for field in schema if field.name not in self._table.schema().column_names]
        if missing:
            raise TableError(f"table {name} has no column {', '.join(missing)}: export into another table")
        location = self._table.location()
        self._uri = f"{location}/data"
        if not location.startswith("file://"):
            raise TableError(f"table {name} is at {location}: only tables on a mounted file system so far")
        self.directory = location.removeprefix("file://") + "/data"
        os.makedirs(self.directory, exist_ok=True)

    def _is_laid_out(self, by: str | None, span: int) -> bool:
        """Whether a file of this export is always within one partition of the table."""
        from pyiceberg.transforms import DayTransform, MonthTransform, TruncateTransform, YearTransform

        for field in self._table.spec().fields:
            column, transform = self._table.schema().find_column_name(field.source_id), field.transform
            dated = column == "timestamp" and isinstance(transform, (DayTransform, MonthTransform, YearTransform))
            ranged = column == "offset" and isinstance(transform, TruncateTransform) and transform.width % span == 0
            if not ((dated and by == "date") or (ranged and by == "offset")):
                return False
        return True

    def _offsets(self) -> dict[str, dict[str, int]]:
        """Of the newest snapshot that has them: other writers' snapshots may have come since."""
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self._table.metadata.snapshots}
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None and PROPERTY in snapshot.summary.additional_properties:
                return dict(json.loads(snapshot.summary.additional_properties[PROPERTY]))
            parent = snapshot.parent_snapshot_id
            snapshot = by_id.get(parent) if parent is not None else None
        return {}

    def offsets(self, topic: str) -> dict[TopicPartition, int]:
        self._table.refresh()
        return _of_topic(self._offsets(), topic)

    def commit(self, files: Sequence[DataFile], ends: Mapping[TopicPartition, int]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        # A commit that meets another writer's must fail: pyiceberg would put the files on top of it, twice in the
        # table when that writer was an export of the same records.  Only this object's copy of the property is set.
        self._table.metadata.properties[_RETRIES] = "0"
        offsets = json.dumps(_merged(self._offsets(), ends))
        paths = [f"{self._uri}/{file.name}" for file in files]
        try:
            self._table.add_files(paths, snapshot_properties={PROPERTY: offsets})
        except CommitFailedException as error:
            raise TableError(f"somebody else wrote to the table meanwhile; run the export again ({error})") from error
        except OverflowError as error:
            raise TableError(
                "a record's time is not in the years 1 to 9999, which are all that pyiceberg knows: export to Parquet "
                "or Delta, or a range without it"
            ) from error

    def discard(self, files: Sequence[str]) -> None:
        _remove(self.directory, files)

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()


# --- Delta -----------------------------------------------------------------------------------------------------------
class DeltaLake:
    """A table of delta-rs."""

    folder_in_file = False

    def __init__(self, place: str, schema: Any, by: str | None) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable, Schema

        self.directory = os.path.abspath(place)
        self._column = column_of(by)
        if self._column is not None:
            schema = schema.append(pa.field(self._column, pa.date32() if by == "date" else pa.int64()))
        self._schema = Schema.from_arrow(schema)
        partitions = [self._column] if self._column is not None else None
        os.makedirs(place, exist_ok=True)
        self._table = DeltaTable.create(self.directory, self._schema, mode="ignore", partition_by=partitions)
        there = {field.name for field in self._table.schema().fields}
        missing = [field.name for field in self._schema.fields if field.name not in there]
        if missing or (self._table.metadata().partition_columns or []) != (partitions or []):
            what = f"has no column {', '.join(missing)}" if missing else "has another layout"
            raise TableError(f"the table at {place} {what}: export into another one")

    def offsets(self, topic: str) -> dict[TopicPartition, int]:
        self._table.update_incremental()
        found: dict[TopicPartition, int] = {}
        partition = 0
        while (version := self._table.transaction_version(_application(topic, partition))) is not None:
            if version:  # 0 only says that there are partitions behind this one (`commit`)
                found[topic, partition] = version
            partition += 1
        return found

    def commit(self, files: Sequence[DataFile], ends: Mapping[TopicPartition, int]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        actions: list[Any] = []
        for file in files:
            stats = {
                "numRecords": file.rows,
                "minValues": {"offset": file.first_offset},
                "maxValues": {"offset": file.last_offset},
                "nullCount": {"offset": 0},
            }
            values: dict[str, str | None] = dict([file.folder]) if file.folder is not None else {}
            modified = os.stat(f"{self.directory}/{file.name}").st_mtime_ns // 1_000_000
            actions.append(AddAction(file.name, file.size, values, modified, True, json.dumps(stats)))
        versions = [(_application(*p), offset) for p, offset in sorted(ends.items())]
        # `offsets` counts up to the first partition that has none, so those below the highest get a version, too; one
        # that is there and has nothing new keeps what it has.
        for topic, highest in dict(sorted(ends)).items():
            names = [_application(topic, partition) for partition in range(highest) if (topic, partition) not in ends]
            versions += [(name, 0) for name in names if self._table.transaction_version(name) is None]
        transactions = [Transaction(name, offset) for name, offset in versions]
        properties = CommitProperties(
            custom_metadata={PROPERTY: json.dumps(_merged({}, ends))},
            max_commit_retries=0,
            app_transactions=transactions,
        )
        columns = [self._column] if self._column is not None else None
        try:
            self._table.create_write_transaction(actions, "append", self._schema, columns, commit_properties=properties)
        except CommitFailedError as error:
            raise TableError(f"somebody else wrote to the table meanwhile; run the export again ({error})") from error

    def discard(self, files: Sequence[str]) -> None:
        _remove(self.directory, files)

    def close(self) -> None:
        """Nothing is held."""


def _application(topic: str, partition: int) -> str:
    return f"stratalog/{topic}/{partition}"
