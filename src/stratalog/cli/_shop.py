"""The shop of `stratalog demo`: orders, clicks and customers of three days, the same ones for the same seed.

It looks like what topics hold: few customers and visitors make most of the records, days are busier than nights,
headers say where a record came from, some clicks are sent twice, some customers leave (a record without a value).
What it has made is kept as sums, to compare them with what others find in the log.  Pure but for the clock's start.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

DAYS: Final = 3
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_BY_HOUR: Final = (2, 1, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 14, 12, 11, 11, 12, 14, 17, 20, 22, 18, 10, 5)
"""How busy each hour of a day is."""
_ITEMS: Final = {
    "tea": 340, "coffee": 520, "cup": 990, "kettle": 3490, "teapot": 2990, "honey": 650, "biscuits": 280,
    "filter": 310, "grinder": 5900, "spoon": 190, "tray": 1490, "sugar": 150,
}  # fmt: skip
"""Prices in cents."""
_CITIES: Final = ("Bremen", "Porto", "Lyon", "Graz", "Turku", "Gdansk", "Leeds", "Cork")
_PAGES: Final = ("/", "/tea", "/coffee", "/cups", "/basket", "/search", "/help", "/checkout")
_CUSTOMERS: Final = 4_000
_VISITORS: Final = 6_000
_TWICE: Final = 0.01
_LEAVE: Final = 0.02

Headers = tuple[tuple[str, bytes | None], ...]


class Event(NamedTuple):
    """A record to be."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Shop:
    """`orders` orders, three times as many clicks, and as many changes of customers as both halves of that."""

    def __init__(self, orders: int, *, now_ms: int | None = None, seed: int = 7) -> None:
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._rng = random.Random(seed)
        self._begin = now - DAYS * _DAY_MS
        self._numbers = {"orders": orders, "clicks": 3 * orders, "customers": 3 * orders // 2}
        self._made = 0
        self.revenue: Counter[str] = Counter()
        """Cents by item, of the orders that were given out."""
        self.last: dict[bytes, bytes] = {}
        """The last value of each customer who is still there."""
        self.repeated = 0
        """Clicks that were given out a second time."""
        self.total = sum(self._numbers.values())
        """About how many events there are: repeated clicks come on top."""
        self.about = {
            "orders": "JSON, keyed by customer, with headers, lz4",
            "clicks": f"JSON, few visitors click most, {_TWICE:.0%} sent twice, lz4",
            "customers": "changes of customers, some leave (no value); compacted",
        }

    def events(self) -> Iterator[Event]:
        """Everything, each topic in the order of its times."""
        yield from self._orders(self._times(self._numbers["orders"]))
        yield from self._clicks(self._times(self._numbers["clicks"]))
        yield from self._changes(self._times(self._numbers["customers"]))

    def later(self, number: int) -> Iterator[Event]:
        """More orders, of the last hour."""
        end = self._begin + DAYS * _DAY_MS
        yield from self._orders(sorted(self._rng.randrange(end - _HOUR_MS, end) for _ in range(number)))

    def _times(self, number: int) -> list[int]:
        rng = self._rng
        hours = rng.choices([hour for _ in range(DAYS) for hour in range(24)], _BY_HOUR * DAYS, k=number)
        days = rng.choices(range(DAYS), (5, 6, 8), k=number)
        return sorted(
            self._begin + day * _DAY_MS + hour * _HOUR_MS + rng.randrange(_HOUR_MS)
            for day, hour in zip(days, hours, strict=True)
        )

    def _few_are_many(self, number: int, total: int) -> list[int]:
        """`number` draws of 0 to `total` - 1, of which the low ones come most."""
        weights = list(accumulate(1 / (rank + 3) for rank in range(total)))
        return self._rng.choices(range(total), cum_weights=weights, k=number)

    def _orders(self, times: list[int]) -> Iterator[Event]:
        rng = self._rng
        items = rng.choices(list(_ITEMS), range(len(_ITEMS) + 3, 3, -1), k=len(times))
        for stamp, who, item in zip(times, self._few_are_many(len(times), _CUSTOMERS), items, strict=True):
            self._made += 1
            quantity = rng.choice((1, 1, 1, 2, 2, 3))
            customer = f"c{who:05d}"
            order = {
                "order": f"o{self._made:08d}", "customer": customer, "item": item, "quantity": quantity,
                "cents": _ITEMS[item] * quantity,
            }  # fmt: skip
            self.revenue[item] += _ITEMS[item] * quantity
            headers: Headers = (("source", rng.choice((b"web", b"app"))), ("trace", rng.randbytes(8).hex().encode()))
            yield Event("orders", customer.encode(), json.dumps(order).encode(), stamp, headers)

    def _clicks(self, times: list[int]) -> Iterator[Event]:
        rng = self._rng
        pages = rng.choices(_PAGES, (9, 6, 6, 4, 3, 3, 1, 1), k=len(times))
        for number, (stamp, who, page) in enumerate(
            zip(times, self._few_are_many(len(times), _VISITORS), pages, strict=True)
        ):
            click = {"click": number, "page": page, "ms": int(rng.expovariate(1 / 180)) + 8}
            event = Event("clicks", b"v%05d" % who, json.dumps(click).encode(), stamp)
            yield event
            if rng.random() < _TWICE:
                self.repeated += 1
                yield event

    def _changes(self, times: list[int]) -> Iterator[Event]:
        rng = self._rng
        for stamp, who in zip(times, self._few_are_many(len(times), _CUSTOMERS), strict=True):
            key = b"c%05d" % who
            if rng.random() < _LEAVE:
                self.last.pop(key, None)
                yield Event("customers", key, None, stamp)
                continue
            customer = {
                "city": rng.choice(_CITIES), "points": rng.randrange(5_000), "mail": rng.random() < 0.4,
                "token": rng.randbytes(40).hex(),
            }  # fmt: skip
            value = json.dumps(customer).encode()
            self.last[key] = value
            yield Event("customers", key, value, stamp)
