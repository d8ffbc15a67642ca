"""Counters and gauges of one broker, cheap enough for the hot path: plain integers in slots and lists.

The loop's thread writes; `render` may run on any thread and sees each number as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

BUCKETS: Final = 24
"""Latency buckets by power of two of microseconds: 1 us to 8 s, and the rest."""
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
        """Requests by API key and bucket; the server counts them when an answer leaves."""
        self.elapsed_us = [0] * KEYS
        """The sum of the latencies by API key."""
        self.bytes_in = 0
        self.produce_bytes = 0
        self.sources: list[Callable[[], Iterable[Sample]]] = []
        """Gauges that are read when somebody asks."""

    # --- printing -------------------------------------------------------------------------------------------------

    def samples(self, names: dict[int, str]) -> Iterable[tuple[str, str, str, float]]:
        """Everything as (name, type, labels, value); `names` are the API keys' names."""
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
                for quantile in (0.5, 0.95, 0.99, 0.999):
                    labels = _labels(request=name, quantile=str(quantile))
                    yield "stratalog_request_seconds", "summary", labels, quantile_of(counts, quantile) / 1e6
                yield "stratalog_request_seconds_sum", "", _labels(request=name), self.elapsed_us[key] / 1e6
                yield "stratalog_request_seconds_count", "", _labels(request=name), total
        yield "stratalog_bytes_in_total", "counter", "", self.bytes_in
        yield "stratalog_produce_bytes_total", "counter", "", self.produce_bytes
        for source in self.sources:
            for metric, labels, value in source():
                kind = "counter" if metric.endswith("_total") else "gauge"
                yield metric, kind, labels, value

    def render(self, names: dict[int, str]) -> str:
        """Prometheus' text format: all lines of a metric in one group."""
        groups: dict[str, list[str]] = {}
        for name, kind, labels, value in self.samples(names):
            family = name if kind else name.rpartition("_")[0]
            lines = groups.get(family)
            if lines is None:
                text = HELP.get(family, family.removeprefix("stratalog_").replace("_", " "))
                lines = groups[family] = [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
            lines.append(f"{name}{labels} {value:.12g}" if isinstance(value, float) else f"{name}{labels} {value}")
        return "\n".join(line for lines in groups.values() for line in lines) + "\n"


def quantile_of(counts: list[int], quantile: float) -> float:
    """Microseconds below which this share of the observations lies, as if they lay evenly in their bucket."""
    wanted = sum(counts) * quantile
    seen = 0
    for bucket, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = (1 << bucket) >> 1
            return low + ((1 << bucket) - low) * max(wanted - seen, 0.0) / count
        seen += count
    return float(1 << BUCKETS)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label's value as Prometheus wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
