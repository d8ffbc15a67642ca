"""Jobs over whole logs, as functions: `stratalog.spark.compact(...)` and so on; `stratalog spark ...` calls the same.

    compact   cleans a compacted partition as the broker's cleaner would, with the keys shuffled instead of in one map
    export    a topic to Parquet, Iceberg or Delta, going on where the last run ended
    profile   what is in a topic: sizes, rates, keys, codecs, gaps; a report with plots
    verify    the audit of `stratalog verify`, a task a partition
    replay    a range of a topic into another topic or broker

Each takes `spark=None` (the active session, else a local one), `progress=None` (called with what, done, total) and
gives a small report object with `.as_dict()`.  The bytes of records never go through the JVM, except in `export`
where values are parsed.  The functions are called from the driver; what a worker runs are the callables that they
give to Spark.
"""

from __future__ import annotations

import importlib
from typing import Any

JOBS = ("compact", "export", "profile", "replay", "verify")


def job(name: str) -> Any:
    """The function of a job, imported when it is wanted: a module of this package and its function have one name."""
    return getattr(importlib.import_module(f"stratalog.spark.jobs.{name}"), name)
