"""The real clock and the real randomness."""

from __future__ import annotations

import secrets
import time

from stratalog.base.types import Millis


class RealClock:
    """`base.ports.Clock` of the machine."""

    __slots__ = ()

    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> Millis:
        return Millis(time.monotonic_ns() // 1_000_000)


class RealRng:
    """`base.ports.Rng` of the operating system."""

    __slots__ = ()

    def integer(self, low: int, high: int) -> int:
        return low + secrets.randbelow(high - low)

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
