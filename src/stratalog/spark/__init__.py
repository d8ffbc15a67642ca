"""PySpark: the log as tables.

    from stratalog.spark import session

    spark = session()                                   # a local one; any other will do as well
    orders = (
        spark.read.format("stratalog")
        .option("path", "/var/lib/stratalog")           # the segments, no broker in the way
        .option("subscribe", "orders")
        .load()
    )

`format("stratalog")` is known as soon as the package is installed, to `read`, `readStream`, `write` and `writeStream`.
The jobs (`compact`, `export`, `profile`, `replay`, `verify`) are functions here; `docs/SPARK.md` has the options
and the guarantees.  Importing this brings neither PySpark nor PyArrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.errors import OptionError, reason

if TYPE_CHECKING:
    from stratalog.spark.damage import findings
    from stratalog.spark.jobs.compact import compact
    from stratalog.spark.jobs.export import export
    from stratalog.spark.jobs.profile import profile
    from stratalog.spark.jobs.replay import replay
    from stratalog.spark.jobs.verify import verify
    from stratalog.spark.local import session
    from stratalog.spark.stream import lag

__all__ = [
    "OptionError",
    "compact",
    "export",
    "findings",
    "lag",
    "profile",
    "reason",
    "replay",
    "session",
    "verify",
]
_PLACES: Final = {
    "session": "local",
    "lag": "stream",
    "findings": "damage",
    **{name: f"jobs.{name}" for name in ("compact", "export", "profile", "replay", "verify")},
}
"""Where a name is; imported when it is wanted."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'stratalog.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(f"stratalog.spark.{_PLACES[name]}"), name)
