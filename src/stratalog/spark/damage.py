"""Damaged batches as a table: what `badBatches=report` writes and `findings` reads.

Tasks write one small file of JSON for each damaged batch that they pass over, named by what it says, so that a task
that is tried again, and a query that is run again, write the same file again: a finding is in the table once, however
often it was seen.  The directory is one that tasks and driver both reach.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.options import FINDINGS, ReadOptions

if TYPE_CHECKING:
    from stratalog.reader import Damage
    from stratalog.spark.origin import Slice

SCHEMA: Final = (
    "topic string, partition int, file string, position bigint, bytes bigint, first_offset bigint, "
    "next_offset bigint, reason string"
)
"""`file` is the segment, or the broker's address; `position` and `bytes` are null for what came over the wire, and
`next_offset` where nothing sound follows."""


def findings(path: str | os.PathLike[str] | None = None, spark: Any = None) -> Any:
    """The table of findings as a data frame; of `badBatches=report` without the option `findings` for None."""
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
    place = os.path.abspath(FINDINGS if path is None else os.fspath(path))
    if not os.path.isdir(place):
        return spark.createDataFrame([], SCHEMA)
    # Spark leaves out files whose names begin with a dot: those are being written.
    return spark.read.schema(SCHEMA).json(place).orderBy("topic", "partition", "first_offset")


def reporter(options: ReadOptions, piece: Slice) -> Callable[[Damage], None] | None:
    """What a scan of this slice tells of damage; None where damage fails the query."""
    if not options.findings:
        return None

    def note(damage: Damage) -> None:
        on_disk = damage.position >= 0
        row = {
            "topic": piece.topic,
            "partition": piece.partition,
            "file": damage.path,
            "position": damage.position if on_disk else None,
            "bytes": damage.size if on_disk else None,
            "first_offset": damage.first_offset,
            "next_offset": damage.next_offset if damage.next_offset >= 0 else None,
            "reason": damage.reason,
        }
        print(
            f"stratalog: {damage.path}: {damage.reason}"
            + (f" (at byte {damage.position})" if on_disk else f" (at offset {damage.first_offset})")
            + f"; passed over, noted in {options.findings} (badBatches=report)",
            file=sys.stderr,
        )
        _write(options.findings, row)

    return note


def _write(place: str, row: dict[str, Any]) -> None:
    text = json.dumps(row)
    place_of_it = row["first_offset"] if row["position"] is None else row["position"]
    identity = json.dumps([row["topic"], row["partition"], row["file"], place_of_it])
    name = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
    os.makedirs(place, exist_ok=True)
    fresh = os.path.join(place, f".{name}.{os.getpid()}")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(fresh, os.path.join(place, f"{name}.json"))
