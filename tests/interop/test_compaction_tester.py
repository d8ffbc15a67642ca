"""Kafka's own `kafka-log-compaction-tester` against a running broker of ours: it writes keys and deletions, waits for
the cleaner, reads everything back and compares the last values.  Seed 001; LM-4, LM-6."""

from __future__ import annotations

import pytest

import kafka_peer
from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka"),
]
MESSAGES = 40_000
TOPICS = 2


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.slow)])
def test_kafkas_compaction_tester_finds_every_last_value(tmp_path, codec) -> None:
    """The tool also succeeds where nothing is compacted: so we look that most of it was.  It waits for 20 s at the end
    of what it reads, whatever we do."""
    options = [
        f"log.dirs={tmp_path}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "log.segment.bytes=1048576",
        "log.roll.ms=150",
        "log.cleaner.min.cleanable.ratio=0.01",
        "log.cleaner.backoff.ms=100",
        "log.initial.task.delay.ms=100",
        "log.cleaner.dedupe.buffer.size=1048576",
        "log.cleaner.delete.retention.ms=1000",
    ]
    with Broker(BrokerConfig.load("", options)).start() as broker:
        done = kafka_peer.tool(
            "kafka-log-compaction-tester",
            *("--bootstrap-server", broker.bootstrap),
            *("--messages", str(MESSAGES)),
            *("--duplicates", "10"),
            *("--percent-deletes", "20"),
            *("--topics", str(TOPICS)),
            *("--sleep", "1"),
            *("--compression-type", codec),
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert "0 mismatches" in output and "Data verification is completed" in output, output
        reduced = output.partition("rows of data consumed (")[2].partition("%")[0]
        assert float(reduced) > 50.0, output
        totals = broker.run_on_loop(lambda: broker.log_service.cleaner.totals)
        assert totals.cleanings > 0 and totals.failures == 0
        assert totals.records_written < totals.records_read
        tested = [one for key, one in broker.logs.items() if key[0].startswith("log-cleaner-test")]
        assert [one.log_end_offset for one in tested] == [MESSAGES] * TOPICS, output
