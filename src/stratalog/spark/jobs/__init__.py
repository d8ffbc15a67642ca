"""Jobs over whole logs, as functions: `stratalog.spark.compact(...)` and so on; `stratalog spark ...` calls the same.

    compact   cleans a compacted partition as the broker's cleaner would, with the keys shuffled instead of in one map
    export    a topic to Parquet, Iceberg or Delta, going on where the last run ended
    profile   what is in a topic: sizes, rates, keys, codecs, gaps; a report with plots
    verify    the audit of `stratalog verify`, a task a partition
    replay    a range of a topic into another topic or broker

Each takes `spark=None` (the active session, else a local one), `progress=None` (called with what, done, total) and
gives a small report object with `.as_dict()`.  The bytes of records never go through the JVM, except in `export` where Spark
writes the table.  Called from the driver; functions whose names begin with `_` and take a task run in Python workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stratalog.spark.jobs.compact import compact
    from stratalog.spark.jobs.export import export
    from stratalog.spark.jobs.profile import profile
    from stratalog.spark.jobs.replay import replay
    from stratalog.spark.jobs.verify import verify

JOBS = ("compact", "export", "profile", "replay", "verify")
__all__ = ["compact", "export", "profile", "replay", "verify"]


def job(name: str) -> Any:
    """The function of a job, imported when it is wanted."""
    import importlib

    return getattr(importlib.import_module(f"stratalog.spark.jobs.{name}"), name)


def __getattr__(name: str) -> Any:
    if name in JOBS:
        return job(name)
    raise AttributeError(f"module 'stratalog.spark.jobs' has no attribute {name!r}")
