"""Counters and gauges of one broker, cheap enough for the hot path: plain integers in slots and lists.

The loop's thread writes; `render` may run on any thread and sees each number as it is at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

OCTAVES: Final = 24
BUCKETS: Final = OCTAVES * 8
"""Latency buckets: eight for each doubling of microseconds up to 8 s, and the rest.  A quantile is off by an eighth at
most."""
WINDOW_MS: Final = 300_000
"""Quantiles tell of the last five minutes, as Kafka's do, not of all that was since the start."""
_SNAPSHOT_MS: Final = 30_000
KEYS: Final = 128
"""One more than the greatest API key that is counted."""

Sample = tuple[str, str, float]
"""Name, labels as they are printed (`{api="Fetch"}` or empty), value."""


HELP: Final = {
    "stratalog_requests_total": "Requests by API (Kafka: RequestsPerSec)",
    "stratalog_request_errors_total": "Requests answered with an error (Kafka: ErrorsPerSec)",
    "stratalog_request_seconds": "From a request's arrival to its answer's leaving (Kafka: TotalTimeMs)",
    "stratalog_bytes_in_total": "Bytes of requests (Kafka: BytesInPerSec, with headers)",
    "stratalog_bytes_out_total": "Bytes of answers (Kafka: BytesOutPerSec, with headers)",
    "stratalog_produce_bytes_total": "Bytes of records taken (Kafka: BytesInPerSec)",
    "stratalog_fetch_purgatory": "Fetches that wait (Kafka: PurgatorySize of Fetch)",
    "stratalog_produce_purgatory": "Produce requests that wait for replicas (Kafka: PurgatorySize of Produce)",
    "stratalog_log_size_bytes": "Bytes of a partition's segments (Kafka: Log Size)",
    "stratalog_log_start_offset": "Kafka: LogStartOffset",
    "stratalog_log_end_offset": "Kafka: LogEndOffset",
    "stratalog_group_lag": "Records that a group has not consumed yet",
}
"""What a metric means, and what Kafka calls it; the rest says it by its name."""


class Metrics:
    """What the node counts."""

    __slots__ = (
        "_before",
        "bytes_in",
        "elapsed_us",
        "errors",
        "latency",
        "produce_bytes",
        "requests",
        "sources",
    )

    def __init__(self) -> None:
        self.requests = [0] * KEYS
        self.errors = [0] * KEYS
        self.latency = [[0] * (BUCKETS + 1) for _ in range(KEYS)]
        """Requests by API key and bucket (`bucket_of`); the server counts them when an answer leaves."""
        self._before: list[tuple[int, dict[int, list[int]]]] = []
        """What `latency` was when somebody asked: moments at least `_SNAPSHOT_MS` apart, one of them older than the
        window."""
        self.elapsed_us = [0] * KEYS
        """The sum of the latencies by API key."""
        self.bytes_in = 0
        self.produce_bytes = 0
        self.sources: list[Callable[[], Iterable[Sample]]] = []
        """Gauges that are read when somebody asks."""

    def observe(self, key: int, elapsed_us: int, count: int) -> None:
        """So many requests with this key took so long."""
        self.elapsed_us[key] += elapsed_us * count
        self.latency[key][bucket_of(elapsed_us)] += count

    # --- printing -------------------------------------------------------------------------------------------------

    def samples(self, names: dict[int, str], monotonic_ms: int) -> Iterable[tuple[str, str, str, float]]:
        """Everything as (name, type, labels, value); `names` are the API keys' names."""
        before = self._window(monotonic_ms)
        for key, name in names.items():
            if self.requests[key]:
                yield "stratalog_requests_total", "counter", _labels(request=name), self.requests[key]
        for key, name in names.items():
            if self.errors[key]:
                yield "stratalog_request_errors_total", "counter", _labels(request=name), self.errors[key]
        for key, name in names.items():
            counts = self.latency[key][:]
            total = sum(counts)
            if total:
                recent = counts
                if key in before:
                    recent = [now - then for now, then in zip(counts, before[key], strict=True)]
                for quantile in (0.5, 0.95, 0.99, 0.999):
                    labels = _labels(request=name, quantile=str(quantile))
                    yield "stratalog_request_seconds", "summary", labels, quantile_of(recent, quantile) / 1e6
                yield "stratalog_request_seconds_sum", "", _labels(request=name), self.elapsed_us[key] / 1e6
                yield "stratalog_request_seconds_count", "", _labels(request=name), total
        yield "stratalog_bytes_in_total", "counter", "", self.bytes_in
        yield "stratalog_produce_bytes_total", "counter", "", self.produce_bytes
        for source in self.sources:
            for metric, labels, value in source():
                kind = "counter" if metric.endswith("_total") else "gauge"
                yield metric, kind, labels, value

    def _window(self, monotonic_ms: int) -> dict[int, list[int]]:
        """The counts at the beginning of the window; remembers those of now."""
        before = self._before
        while len(before) > 1 and before[1][0] <= monotonic_ms - WINDOW_MS:
            del before[0]
        if not before or before[-1][0] <= monotonic_ms - _SNAPSHOT_MS:
            before.append((monotonic_ms, {key: counts[:] for key, counts in enumerate(self.latency) if any(counts)}))
        at, counts = before[0]
        return counts if at <= monotonic_ms - WINDOW_MS else {}

    def render(self, names: dict[int, str], monotonic_ms: int) -> str:
        """Prometheus' text format: all lines of a metric in one group."""
        groups: dict[str, list[str]] = {}
        for name, kind, labels, value in self.samples(names, monotonic_ms):
            family = name if kind else name.rpartition("_")[0]
            lines = groups.get(family)
            if lines is None:
                text = HELP.get(family, family.removeprefix("stratalog_").replace("_", " "))
                lines = groups[family] = [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
            if isinstance(value, float):
                text = "NaN" if math.isnan(value) else f"{value:.12g}"
            else:
                text = str(value)
            lines.append(f"{name}{labels} {text}")
        return "\n".join(line for lines in groups.values() for line in lines) + "\n"


def bucket_of(elapsed_us: int) -> int:
    """The bucket of a latency: its octave, and the three bits below its highest one."""
    bits = elapsed_us.bit_length()
    if bits > OCTAVES:
        return BUCKETS
    return bits - 1 << 3 | (elapsed_us << 3 >> bits - 1) & 7 if bits else 0


def _lower_bound(bucket: int) -> float:
    """The least microseconds that fall into a bucket."""
    octave, eighth = divmod(bucket, 8)
    return float((1 << octave) * (8 + eighth)) / 8 if bucket else 0.0


def quantile_of(counts: list[int], quantile: float) -> float:
    """Microseconds below which this share of the observations lies, as if they lay evenly in their bucket; not a
    number where there are none, as Prometheus has it."""
    total = sum(counts)
    if not total:
        return math.nan
    wanted = total * quantile
    seen = 0
    for bucket, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = _lower_bound(bucket)
            return low + (_lower_bound(bucket + 1) - low) * max(wanted - seen, 0.0) / count
        seen += count
    return float(1 << OCTAVES)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label's value as Prometheus wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
