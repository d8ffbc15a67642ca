"""The numbers of a broker: latencies by bucket, quantiles of the last minutes."""

from __future__ import annotations

import math
import random

import pytest

from stratalog.node.metrics import BUCKETS, Metrics, bucket_of, quantile_of

PRODUCE = 0
NAMES = {PRODUCE: "Produce"}


def test_buckets_follow_each_other_and_are_an_eighth_wide() -> None:
    last = -1
    for elapsed in range(200_000):
        bucket = bucket_of(elapsed)
        assert bucket >= last
        last = bucket
    assert bucket_of(0) == 0 and bucket_of((1 << 24) - 1) < BUCKETS and bucket_of(1 << 24) == bucket_of(1 << 60)


@pytest.mark.parametrize("quantile", [0.5, 0.95, 0.99, 0.999])
def test_a_quantile_is_off_by_an_eighth_at_most(quantile: float) -> None:
    chance = random.Random(7)
    values = sorted(int(chance.lognormvariate(7, 1.2)) for _ in range(20_000))
    counts = [0] * (BUCKETS + 1)
    for value in values:
        counts[bucket_of(value)] += 1
    true = values[int(len(values) * quantile)]
    assert quantile_of(counts, quantile) == pytest.approx(true, rel=0.13)


def shown(metrics: Metrics, at_s: int) -> float:
    for line in metrics.render(NAMES, at_s * 1000).splitlines():
        if line.startswith('stratalog_request_seconds{request="Produce",quantile="0.5"}'):
            return float(line.rpartition(" ")[2])
    raise AssertionError("no quantile")


def test_quantiles_tell_of_the_last_minutes_and_sums_of_all_time() -> None:
    metrics = Metrics()
    metrics.latency[PRODUCE][bucket_of(100_000)] += 1_000
    assert shown(metrics, 1_000) == pytest.approx(0.1, rel=0.13)
    for minute in range(1, 7):
        metrics.latency[PRODUCE][bucket_of(1_000)] += 10
        told = shown(metrics, 1_000 + minute * 60)
    assert told == pytest.approx(0.001, rel=0.13), "the slow ones were more than five minutes ago"
    assert 'stratalog_request_seconds_count{request="Produce"} 1060' in metrics.render(NAMES, 1_360_000)
    assert math.isnan(shown(metrics, 9_000)), "nothing has come in the last five minutes"


def test_scrapes_keep_a_bounded_memory() -> None:
    metrics = Metrics()
    metrics.latency[PRODUCE][5] = 1
    for second in range(0, 100_000, 7):
        metrics.render(NAMES, second * 1000)
    assert len(metrics._before) <= 12
