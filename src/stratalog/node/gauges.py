"""Gauges that are worked out when somebody asks for the metrics: sizes, offsets, who waits.  Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.node.metrics import Sample, escape
from stratalog.node.waits import ParkedFetch

if TYPE_CHECKING:
    from stratalog.node.node import Node


def gauges(node: Node) -> list[Sample]:
    """Rows of (name, labels, value)."""
    rows: list[Sample] = [
        ("stratalog_bytes_out_total", "", node.bytes_out),
        ("stratalog_fetch_purgatory", "", len(node.parked_fetches)),
        ("stratalog_produce_purgatory", "", _waiting_produces(node)),
        ("stratalog_fetch_sessions", "", len(node.sessions)),
        ("stratalog_fetch_session_partitions", "", node.sessions.partitions),
        ("stratalog_fetch_sessions_evicted_total", "", node.sessions.evictions),
        ("stratalog_partitions", "", len(node.partitions)),
        ("stratalog_leaders", "", sum(partition.is_leader for partition in list(node.partitions.values()))),
        ("stratalog_offline_replicas", "", sum(p.failure is not None for p in list(node.partitions.values()))),
        (
            "stratalog_under_min_isr_partitions",
            "",
            sum(
                partition.is_leader and len(partition.isr) < partition.log.config.min_insync_replicas
                for partition in list(node.partitions.values())
            ),
        ),
    ]
    for partition in list(node.partitions.values()):
        log = partition.log
        labels = f'{{topic="{escape(partition.topic)}",partition="{partition.index}"}}'
        rows.append(("stratalog_log_size_bytes", labels, log.size))
        rows.append(("stratalog_log_segments", labels, len(log.segments)))
        rows.append(("stratalog_log_start_offset", labels, log.log_start_offset))
        rows.append(("stratalog_log_end_offset", labels, log.log_end_offset))
        rows.append(("stratalog_high_watermark", labels, log.high_watermark))
    return rows


def _waiting_produces(node: Node) -> int:
    """Requests that wait for a high watermark."""
    waiting = {waiter for partition in list(node.partitions.values()) for waiter in list(partition.waiters)}
    return sum(not isinstance(waiter, ParkedFetch) for waiter in waiting)
