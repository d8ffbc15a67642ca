"""PySpark's read limits, or stand-ins for PySpark 4.1, which has no admission control for Python sources.

With the stand-ins a query reads all that is there in each micro-batch, and `availableNow` in one; options that ask for
less are refused (`stream.py`).
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ADMISSION",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION = True
except ImportError:
    ADMISSION = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a micro-batch may read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Not more than this."""

        def __init__(self, *_: Any) -> None: ...

    class ReadMinRows(ReadMaxRows):  # type: ignore[no-redef]
        """Not less than this."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A mark."""
