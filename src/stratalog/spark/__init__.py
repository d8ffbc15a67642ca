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
`docs/parts/spark.md` has the options and the guarantees.  Importing this brings neither PySpark nor PyArrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.spark.errors import OptionError, reason

if TYPE_CHECKING:
    from stratalog.spark.local import session
    from stratalog.spark.stream import lag

__all__ = ["OptionError", "lag", "reason", "session"]


def __getattr__(name: str) -> Any:
    if name == "session":
        from stratalog.spark.local import session

        return session
    if name == "lag":
        from stratalog.spark.stream import lag

        return lag
    raise AttributeError(f"module 'stratalog.spark' has no attribute {name!r}")
