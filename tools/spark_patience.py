"""Spark gives the Python process of a streaming source ten seconds to begin, which a busy machine may miss."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_ATTEMPTS = 4


def patiently(run: Callable[[int], T]) -> T:
    """`run(attempt)`, again when the query did not even begin for that reason."""
    for attempt in range(_ATTEMPTS):
        try:
            return run(attempt)
        except Exception as error:
            if "failed to connect back" not in str(error) or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
