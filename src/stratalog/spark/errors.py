"""What goes wrong in Spark, in one line.

Spark wraps whatever a Python data source raises into an exception of its own, with Python's traceback and often a
Java one in its text.  Everything raised here has one line that says what and where; `reason` finds it again.
Pure functions; any thread; no PySpark needed.
"""

from __future__ import annotations

import re
from typing import Final


class SparkSourceError(Exception):
    """Anything that this data source raises on purpose.  The text is one line."""


class OptionError(SparkSourceError, ValueError):
    """An option that cannot be: its name, its value, and what is allowed."""

    @classmethod
    def of(cls, name: str, value: object, allowed: str) -> OptionError:
        return cls(f"option {name}={value!r}: {allowed}")


class DataLoss(SparkSourceError):
    """Offsets that a query was to read are not there any more, and `failOnDataLoss` is true."""


class NotThere(SparkSourceError):
    """A path, topic or partition that does not exist."""


_OURS: Final = re.compile(
    r"^(?:stratalog\.[\w.]*\.\w+|(?:[\w.]*\.)?(?:OptionError|DataLoss|NotThere|SinkError|CorruptBatch|LogChanged|"
    r"Unreachable|Refused|ConnectionLost|FileNotFoundError|FileExistsError|PermissionError)): (.+)$",
    re.MULTILINE,
)
"""The last line of a Python traceback that ends in an error of ours, or of the system's."""


_PYTHON: Final = re.compile(r"^((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt): .+)$", re.MULTILINE)
"""The last line of any Python traceback."""


def reason(error: BaseException) -> str:
    """The one line behind an exception from Spark: ours where there is one, else the first line of its text."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    if "Traceback (most recent call last)" in text:
        found = _PYTHON.findall(text[text.index("Traceback (most recent call last)") :])
        if found:
            return str(found[-1]).strip()
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return type(error).__name__
