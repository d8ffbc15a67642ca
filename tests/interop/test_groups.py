"""Real clients in groups on our broker: kafka-python, aiokafka, librdkafka.

Each client has its own idea of the protocol (versions, strategies, static members); what they have in common: all
records are read once, what was committed is where the next one begins, and a restart of the broker is none
of their business.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from stratalog.coordinator.group.coordinator import GroupCoordinator
from stratalog.node.config import BrokerConfig
from stratalog.server.process import Broker

kafka = pytest.importorskip("kafka")
confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")

PARTITIONS = 4
SECONDS_MAX = 40


def start(directory, port: int = 0) -> Broker:
    options = [
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={directory}",
        "group.initial.rebalance.delay.ms=200",
        "offsets.topic.num.partitions=4",
        f"num.partitions={PARTITIONS}",
    ]
    return Broker(BrokerConfig.load("", options), fsync_metadata=False).start()


@pytest.fixture(autouse=True)
def deadlines(monkeypatch):
    """In each turn of the loop: what the coordinator remembers of its partitions' deadlines is what they are."""
    wrong = []
    asked = []
    remembered = GroupCoordinator.deadline

    def checked(self):
        told = remembered(self)
        real = [at for at in (runtime.deadline() for runtime in self.runtimes.values()) if at is not None]
        asked.append(told)
        if told != min(real, default=None):
            wrong.append((told, real))
        return told

    monkeypatch.setattr(GroupCoordinator, "deadline", checked)
    yield
    assert asked and wrong == []


@pytest.fixture
def broker(tmp_path):
    with start(tmp_path / "data") as broker:
        yield broker


def produce(bootstrap: str, topic: str, count: int, first: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for n in range(first, first + count):
        producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(20) == 0


def rdkafka(bootstrap: str, group: str, **settings):
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 300,
            "topic.metadata.refresh.interval.ms": 500,
            **settings,
        }
    )


def drain(consumer, count: int, seconds: float = SECONDS_MAX) -> list[int]:
    """The numbers that a librdkafka consumer reads, until there are `count`."""
    numbers: list[int] = []
    end = time.monotonic() + seconds
    while len(numbers) < count and time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            numbers.append(int(message.value()))
    return numbers


def until(condition, poll=lambda: None, seconds: float = SECONDS_MAX) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        poll()
        time.sleep(0.02)


def test_kafka_python_resumes_where_it_committed_after_a_restart(tmp_path):
    """GR-1: the commit is in the log, the group too."""
    with start(tmp_path / "data") as broker:
        port = broker.port
        produce(broker.bootstrap, "orders", 40)
        settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = kafka.KafkaConsumer("orders", bootstrap_servers=broker.bootstrap, **settings)
        seen = [int(record.value) for _, record in zip(range(40), consumer, strict=False)]
        assert sorted(seen) == list(range(40))
        consumer.commit()
        consumer.close()
    with start(tmp_path / "data", port) as broker:
        produce(broker.bootstrap, "orders", 10, first=40)
        consumer = kafka.KafkaConsumer("orders", bootstrap_servers=broker.bootstrap, **settings)
        seen = [int(record.value) for _, record in zip(range(10), consumer, strict=False)]
        assert sorted(seen) == list(range(40, 50))
        committed = [consumer.committed(kafka.TopicPartition("orders", p)) for p in range(PARTITIONS)]
        assert committed == [10] * PARTITIONS
        consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_librdkafka_members_share_and_one_takes_over(broker, strategy):
    """Eager and cooperative rebalancing."""
    produce(broker.bootstrap, "orders", 40)
    settings = {"partition.assignment.strategy": strategy}
    first = rdkafka(broker.bootstrap, "g", **settings)
    first.subscribe(["orders"])
    assert sorted(drain(first, 40)) == list(range(40))
    first.commit(asynchronous=False)
    second = rdkafka(broker.bootstrap, "g", **settings)
    second.subscribe(["orders"])
    heard: list[int] = []

    def poll() -> None:
        for consumer in (first, second):
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                heard.append(int(message.value()))

    until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, poll)
    produce(broker.bootstrap, "orders", 40, first=40)
    until(lambda: len(heard) >= 40, poll)
    assert sorted(heard) == list(range(40, 80))
    second.commit(asynchronous=False)
    second.close()
    until(lambda: len(first.assignment()) == PARTITIONS, lambda: first.poll(0.02))
    first.close()


def test_a_static_librdkafka_member_that_restarts_causes_no_rebalance(broker):
    produce(broker.bootstrap, "orders", 8)
    rebalances: list[str] = []
    settings = {"session.timeout.ms": 20_000}
    other = rdkafka(broker.bootstrap, "g", **{"group.instance.id": "a"}, **settings)
    other.subscribe(
        ["orders"],
        on_assign=lambda _, partitions: rebalances.append("assign"),
        on_revoke=lambda _, partitions: rebalances.append("revoke"),
    )
    restarting = rdkafka(broker.bootstrap, "g", **{"group.instance.id": "b"}, **settings)
    restarting.subscribe(["orders"])

    def poll() -> None:
        other.poll(0.02)
        restarting.poll(0.02)

    until(lambda: len(other.assignment()) == len(restarting.assignment()) == 2, poll)
    before = {partition.partition for partition in restarting.assignment()}
    rebalances.clear()
    restarting.close()  # a static member does not leave
    restarting = rdkafka(broker.bootstrap, "g", **{"group.instance.id": "b"}, **settings)
    restarting.subscribe(["orders"])
    until(lambda: len(restarting.assignment()) == 2, poll)
    assert {partition.partition for partition in restarting.assignment()} == before
    assert rebalances == []
    other.close()
    restarting.close()


def test_two_aiokafka_members_share_and_one_takes_over(broker):
    produce(broker.bootstrap, "orders", 40)

    async def run() -> None:
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
        }
        first = aiokafka.AIOKafkaConsumer("orders", **settings)
        await first.start()
        seen: list[int] = []
        while len(seen) < 40:
            for records in (await first.getmany(timeout_ms=500)).values():
                seen += [int(record.value) for record in records]
        assert sorted(seen) == list(range(40))
        await first.commit()
        second = aiokafka.AIOKafkaConsumer("orders", **settings)
        await second.start()
        end = time.monotonic() + SECONDS_MAX
        while not len(first.assignment()) == len(second.assignment()) == 2:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        for consumer in (first, second):
            for partition in consumer.assignment():
                assert await consumer.committed(partition) == 10
        await first.stop()
        while len(second.assignment()) < PARTITIONS:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        await second.stop()

    asyncio.run(run())


def test_members_of_different_clients_are_one_group(broker):
    """kafka-python and librdkafka have the range strategy in common.  Each polls in a thread of its own: a poll of
    kafka-python that ends within a rebalance begins the join anew, and a leader that joins anew means one more."""
    produce(broker.bootstrap, "orders", 8)
    python = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id="g",
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
        heartbeat_interval_ms=300,
        session_timeout_ms=6_000,
    )
    python.subscribe(["orders"])
    librdkafka = rdkafka(broker.bootstrap, "g", **{"partition.assignment.strategy": "range"})
    librdkafka.subscribe(["orders"])

    shares: list[set[int]] = []
    stop = threading.Event()

    def poll_python() -> None:
        while not stop.is_set():
            python.poll(2_000)
            shares.append({partition.partition for partition in python.assignment()})

    thread = threading.Thread(target=poll_python)
    thread.start()
    try:

        def everything() -> bool:
            mine = {partition.partition for partition in librdkafka.assignment()}
            return len(mine) == 2 and bool(shares) and mine | shares[-1] == set(range(PARTITIONS))

        until(everything, lambda: librdkafka.poll(0.02))
    finally:
        stop.set()
        thread.join()
        python.close()
        librdkafka.close()


def test_a_consumer_goes_on_through_a_restart_of_the_broker(tmp_path):
    """The broker is killed in mid-flow, with a member in its group; no committed offset goes back (GR-1)."""
    broker = start(tmp_path / "data")
    port = broker.port
    try:
        produce(broker.bootstrap, "orders", 40)
        consumer = rdkafka(broker.bootstrap, "g", **{"reconnect.backoff.max.ms": 300})
        consumer.subscribe(["orders"])
        assert sorted(drain(consumer, 40)) == list(range(40))
        consumer.commit(asynchronous=False)
        broker.kill()
        broker = start(tmp_path / "data", port)
        produce(broker.bootstrap, "orders", 20, first=40)
        assert sorted(drain(consumer, 20)) == list(range(40, 60))
        consumer.commit(asynchronous=False)
        committed = consumer.committed([confluent_kafka.TopicPartition("orders", p) for p in range(PARTITIONS)], 10)
        assert [partition.offset for partition in committed] == [15] * PARTITIONS
        consumer.close()
    finally:
        broker.stop()


def test_a_full_disk_refuses_commits_and_serves_fetches(tmp_path):
    """D20 for the coordinator: what was committed stays readable, and commits work again when there is room."""
    import stratalog.testing

    wanted = [confluent_kafka.TopicPartition("orders", 0)]

    def offset(n: int) -> list:
        return [confluent_kafka.TopicPartition("orders", 0, n)]

    def commits(n: int) -> bool:
        try:
            consumer.commit(offsets=offset(n), asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return True

    def committed() -> int | None:
        try:
            return consumer.committed(wanted, 5)[0].offset
        except confluent_kafka.KafkaException:
            return None  # for a moment, while the group's shard is loaded again

    with stratalog.testing.broker(topics={"orders": 1}) as broker:
        consumer = rdkafka(broker.bootstrap, "g")
        until(lambda: commits(5))
        with broker.disk.full():
            assert not commits(6)
            until(lambda: committed() == 5)
        until(lambda: commits(7))
        until(lambda: committed() == 7)
        consumer.close()


def test_offsets_of_a_test_expire_when_its_clock_is_moved(tmp_path):
    """GR-2, with the clock of `stratalog.testing`: a name that nobody consumes under is forgotten after a week."""
    import stratalog.testing

    with stratalog.testing.broker(topics={"orders": 1}) as broker:
        consumer = rdkafka(broker.bootstrap, "g")
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 5)], asynchronous=False)
        wanted = [confluent_kafka.TopicPartition("orders", 0)]
        broker.clock.advance(days=6)
        assert consumer.committed(wanted, 10)[0].offset == 5
        broker.clock.advance(days=2)
        until(lambda: consumer.committed(wanted, 10)[0].offset == confluent_kafka.OFFSET_INVALID)
        consumer.close()


def test_an_automatic_commit_covers_the_previous_poll_only(broker):
    """G07: who dies with what it was given last leaves all of it to the next one; nothing unprocessed is skipped."""
    produce(broker.bootstrap, "jobs", 40)
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "workers",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 1,
        "max_poll_records": 5,
    }
    consumer = kafka.KafkaConsumer("jobs", **settings)
    processed: list[int] = []
    given: list[int] = []
    end = time.monotonic() + SECONDS_MAX
    while len(processed) < 15 and time.monotonic() < end:
        processed += given  # done with what the poll before brought
        time.sleep(0.01)
        given = [int(record.value) for rows in consumer.poll(500).values() for record in rows]
    assert len(processed) >= 15
    assert given, "the last poll was to bring what is never processed"
    consumer.close(autocommit=False)  # dies with `given` in its hands
    after = kafka.KafkaConsumer("jobs", **settings)
    rest = [int(record.value) for _, record in zip(range(40 - len(processed)), after, strict=False)]
    after.close()
    assert set(given) <= set(rest)
    assert sorted(processed + rest) == list(range(40))
