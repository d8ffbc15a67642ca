"""What the jobs share: a session, tasks by number, progress while an action blocks.  Driver only, but `_each`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final

Progress = Callable[[str, int, int], None]
"""`progress("rewrite", tasks done, tasks in all)`, from a thread of its own."""

_POLL_S: Final = 0.2


def session_of(spark: Any) -> Any:
    """The given session, else the active one, else a local one that is made now."""
    if spark is not None:
        return spark
    from stratalog.spark.local import ensure_java, session

    ensure_java()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or session()


def tasks(spark: Any, count: int, function: Callable[[int], Iterator[Any]], schema: str) -> Any:
    """A DataFrame of what `function(0)` ... `function(count - 1)` yield as Arrow record batches, a Spark task each."""
    return spark.range(0, count, 1, count).mapInArrow(_Each(function), schema)


class _Each:
    """Runs in the worker: one number in, the function's batches out."""

    def __init__(self, function: Callable[[int], Iterator[Any]]) -> None:
        self._function = function

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._function(number)


class Watch:
    """Reports how many tasks of the actions within the `with` block are done, while the block waits for them.

    Needs a classic session (a remote one has no status tracker) and a callback; does nothing without.
    """

    def __init__(self, spark: Any, what: str, progress: Progress | None) -> None:
        self._spark = spark
        self._what = what
        self._progress = progress
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._totals: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Watch:
        if self._progress is not None and hasattr(self._spark, "_jsc"):
            self._thread = threading.Thread(target=self._poll, name="stratalog-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _poll(self) -> None:
        assert self._progress is not None
        tracker = self._spark.sparkContext.statusTracker()
        while not self._end.wait(_POLL_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    self._totals[stage] = (info.numCompletedTasks, info.numTasks)
            active = set(tracker.getActiveStageIds())
            done = sum(total if stage not in active else some for stage, (some, total) in self._totals.items())
            self._progress(self._what, done, sum(total for _, total in self._totals.values()))


def balanced(spark: Any, parts: int) -> list[int]:
    """For each of `parts` partitions a number that Spark's hash puts there: `repartition(parts, column)` of these
    numbers gives every partition one of them, where plain numbers would pile up."""
    if parts == 1:
        return [0]
    found: dict[int, int] = {}
    start = 0
    while len(found) < parts:
        rows = (
            spark.range(start, start + 16 * parts + 64)
            .selectExpr("id", f"pmod(hash(id), {parts}) AS place")
            .groupBy("place")
            .min("id")
            .collect()
        )
        for place, number in rows:
            found.setdefault(int(place), int(number))
        start += 16 * parts + 64
    return [found[place] for place in range(parts)]
