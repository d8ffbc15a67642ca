"""What the jobs share: a session, tasks by number, progress while an action blocks.  Driver only, but `_each`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final

Progress = Callable[[str, int, int], None]
"""`progress("rewrite", tasks done, tasks in all)`, from a thread of its own."""

_POLL_S: Final = 0.2
_MASK: Final = 0xFFFFFFFF


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


def spread(count: int, parts: int) -> list[int]:
    """Increasing numbers of which the i-th is put into partition `i % parts` by `repartition(parts, column)` of a
    bigint column: every partition gets its share, where plain numbers would pile up in some."""
    found: list[int] = []
    number = 0
    for index in range(count):
        while _spark_hash(number) % parts != index % parts:
            number += 1
        found.append(number)
        number += 1
    return found


def _spark_hash(number: int) -> int:
    """Spark's hash of a bigint, Murmur3 with the seed 42, as a signed number."""
    mixed = 42
    for half in (number & _MASK, number >> 32 & _MASK):
        word = half * 0xCC9E2D51 & _MASK
        word = (word << 15 | word >> 17) & _MASK
        mixed ^= word * 0x1B873593 & _MASK
        mixed = (mixed << 13 | mixed >> 19) & _MASK
        mixed = mixed * 5 + 0xE6546B64 & _MASK
    mixed ^= 8
    mixed ^= mixed >> 16
    mixed = mixed * 0x85EBCA6B & _MASK
    mixed ^= mixed >> 13
    mixed = mixed * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed
