"""Stratalog: the Kafka log that you can open.

Importing this package is cheap on purpose: nothing here imports NumPy, Numba, Arrow or the broker.  What needs
them is loaded at first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would take longer than the rest of this import
if TYPE_CHECKING:
    from stratalog.reader import open_log as open

__all__ = ["__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`stratalog.open(path)`: a partition's log, read-only (see `stratalog.reader`)."""
    if name == "open":
        from stratalog.reader import open_log

        return open_log
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
