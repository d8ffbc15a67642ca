"""The tour, in about a minute: a broker, a stream, Spark over its log.  Works without a network.

    stratalog demo                     in a temporary directory, which is removed in the end
    stratalog demo --keep              the same, and it stays to look at
    stratalog demo --data ./tour       in a directory of yours, which stays
    stratalog demo --no-spark          the broker and its files only, for a machine without PySpark

It starts a broker inside this process, produces three days of a small shop (orders, clicks, customers), lets a
streaming query add up the orders, and runs the jobs of `stratalog spark` over the log: profile, export, compact,
verify.  Every step says what happened and where to look, and what the producer knows is compared with what came out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO

from stratalog.cli import UsageError
from stratalog.cli.output import Progress, bold, count, duration, size, table, width

if TYPE_CHECKING:
    from stratalog.cli._shop import Shop
    from stratalog.server.process import Broker

SEGMENT_BYTES: Final = 1 << 20
"""The smallest that Kafka allows, so that a small topic has several segments to compact."""
LATER_ORDERS: Final = 500
_BATCHES: Final = 3
"""Into which the streaming query cuts what it finds."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="where everything goes: a new or an empty directory; it stays")
    parser.add_argument("--keep", action="store_true", help="leave the temporary directory to look at")
    parser.add_argument("--no-spark", action="store_true", help="the broker and its files only")
    parser.add_argument("--orders", type=int, default=12_000, metavar="N", help="size of the shop (default 12000)")
    parser.add_argument("--port", type=int, default=0, help="the broker's port (default: a free one)")
    parser.add_argument("--master", default="local[2]", metavar="URL", help="where Spark runs (default local[2])")


def run(args: argparse.Namespace) -> int:
    if not 1_000 <= args.orders <= 10_000_000:
        raise UsageError(f"--orders {args.orders}: allowed is 1000 to 10000000")
    if not args.no_spark:
        from stratalog.cli.spark import what_is_missing

        missing = what_is_missing()
        if missing:
            raise UsageError(f"{missing}; stratalog demo --no-spark takes the tour without Spark")
    previous = signal.signal(signal.SIGTERM, _interrupted) if _in_main_thread() else None
    try:
        with _place(args.data, keep=args.keep) as (place, stays):
            return Tour(place, args, stays=stays).take()
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _place(given: str | None, *, keep: bool) -> Iterator[tuple[str, bool]]:
    """(directory, whether it stays)."""
    if given is not None:
        place = os.path.abspath(given)
        if os.path.exists(place) and (not os.path.isdir(place) or os.listdir(place)):
            raise UsageError(f"--data {given}: not a new or an empty directory; choose another")
        os.makedirs(place, exist_ok=True)
        yield place, True
        return
    place = tempfile.mkdtemp(prefix="stratalog-demo-")
    try:
        yield place, keep
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


class Tour:
    """The steps, one after the other."""

    def __init__(self, place: str, args: argparse.Namespace, *, stays: bool) -> None:
        self.place = place
        self.data = f"{place}/data"
        self._args = args
        self._stays = stays
        self._begun = time.monotonic()
        self._step = 0
        self._broker: Broker | None = None
        self._port = args.port
        self._shop: Shop

    def take(self) -> int:
        """The whole tour."""
        try:
            self._start_broker()
            self._open_shop()
            if self._args.no_spark:
                self._look_at_files()
            else:
                from stratalog.cli.spark import Bar, one_line_errors, session

                self._say("Spark starts, on this machine")
                with contextlib.ExitStack() as stack:
                    with Waiting("Java and Spark start"):
                        log = f"{self.place}/spark.log"
                        spark = stack.enter_context(session(self._args.master, log=log))
                    stack.enter_context(one_line_errors())
                    self._tell(f"Spark {spark.version}, {self._args.master}; what it has to say is in {log}")
                    bar = stack.enter_context(Bar())
                    self._stream(spark)
                    self._profile(spark, bar)
                    self._export(spark, bar)
                    self._compact(spark, bar)
                    self._verify(spark, bar)
            self._say(f"That was the tour, in {duration(time.monotonic() - self._begun)}")
            self._end()
        finally:
            self._stop_broker()
        return 0

    # --- what is printed ------------------------------------------------------------------------------------------
    def _say(self, what: str) -> None:
        self._step += 1
        print(f"\n{bold(f'{self._step}. {what}')}", flush=True)

    def _tell(self, text: str) -> None:
        for line in text.splitlines():
            print(f"   {line}", flush=True)

    def _check(self, what: str, found: object, wanted: object) -> None:
        """The tour says only what is so."""
        if found != wanted:
            raise RuntimeError(f"{what}: {found}, and the producer says {wanted}; this is a bug in stratalog")
        self._tell(f"checked: {what}")

    # --- the broker and the shop -----------------------------------------------------------------------------------
    def _start_broker(self) -> None:
        from stratalog.node.config import BrokerConfig
        from stratalog.server.process import Broker

        self._say("A broker starts in this process")
        begun = time.monotonic()
        self._open_broker(Broker, BrokerConfig)
        assert self._broker is not None
        self._tell(
            f"on {self._broker.bootstrap} in {duration(time.monotonic() - begun)}, any Kafka client may connect; "
            f"its data is in {self.data}"
        )

    def _open_broker(self, broker: type[Broker], config: Any) -> None:
        options = [f"log.dirs={self.data}", f"listeners=PLAINTEXT://127.0.0.1:{self._port}"]
        self._broker = broker(config.load("", options)).start()
        self._port = self._broker.port

    def _stop_broker(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop()

    def _open_shop(self) -> None:
        from stratalog.cli._shop import Shop
        from stratalog.client import Client, Producer, admin

        assert self._broker is not None
        self._say("A shop opens: three days of orders, clicks and customers")
        self._shop = shop = Shop(self._args.orders)
        topics = {
            "orders": (3, {}),
            "clicks": (3, {}),
            "revenue": (1, {}),
            # The ratio is never exceeded: the broker leaves this topic to the job.
            "customers": (
                1,
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(SEGMENT_BYTES),
                    "min.cleanable.dirty.ratio": "1.0",
                },
            ),
        }
        begun = time.monotonic()
        sent = dict.fromkeys(("orders", "clicks", "customers"), 0)
        with Client(self._broker.bootstrap, client_id="stratalog-demo") as client:
            for name, (partitions, configs) in topics.items():
                admin.create_topic(client, name, partitions=partitions, replication_factor=1, configs=configs)
            with (
                Progress("produce", shop.total, unit=count) as bar,
                Producer(client, compression="lz4") as compressed,
                Producer(client) as plain,
            ):
                for event in shop.events():
                    producer = plain if event.topic == "customers" else compressed
                    producer.send(
                        event.topic, event.value, key=event.key, timestamp=event.timestamp, headers=event.headers
                    )
                    sent[event.topic] += 1
                    if not sent[event.topic] % 500:
                        bar.update(sum(sent.values()))
        took = time.monotonic() - begun
        table(
            [(f"   {name}", count(number), topics[name][0], shop.about[name]) for name, number in sent.items()],
            ("   topic", "records", "partitions", "what is in it"),
            right=(1, 2),
        )
        self._tell(f"{count(sum(sent.values()))} records in {duration(took)}, all acknowledged")
        self._tell(f"look: stratalog consume orders -b {self._broker.bootstrap} --keys --meta")

    def _more_orders(self) -> None:
        from stratalog.client import Client, Producer

        assert self._broker is not None
        with (
            Client(self._broker.bootstrap, client_id="stratalog-demo") as client,
            Producer(client, compression="lz4") as producer,
        ):
            for event in self._shop.later(LATER_ORDERS):
                producer.send("orders", event.value, key=event.key, timestamp=event.timestamp, headers=event.headers)

    # --- Spark -----------------------------------------------------------------------------------------------------
    def _stream(self, spark: Any) -> None:
        self._say("A streaming query adds up the orders by item")
        orders = self._args.orders
        with Waiting("the query reads files and broker, and writes to the topic revenue"):
            progress = self._query(spark, -(-orders // _BATCHES))
        batches = [one for one in progress if one.numInputRows]
        self._tell(
            f"history from the segments in {self.data}, the rest from the broker; "
            f"{count(sum(one.numInputRows for one in batches))} records in {len(batches)} batches"
        )
        self._check("the query has read every order once", sum(one.numInputRows for one in batches), orders)
        with Waiting(f"{LATER_ORDERS} more orders, and the query goes on from its checkpoint"):
            self._more_orders()
            progress = self._query(spark, orders)
        read = sum(one.numInputRows for one in progress)
        self._tell(f"started again after {LATER_ORDERS} more orders, it read {count(read)} records: the new ones only")
        revenue = self._revenue()
        table(
            [(f"   {item}", f"{cents / 100:,.2f}") for item, cents in sorted(revenue.items(), key=_second)[:5]],
            ("   item", "revenue"),
            right=(1,),
        )
        self._check("the topic revenue has the sums that the producer made", revenue, dict(self._shop.revenue))
        self._tell(f"look: {self.place}/checkpoint, the query's offsets")

    def _query(self, spark: Any, batch: int) -> list[Any]:
        from pyspark.sql import functions as f

        assert self._broker is not None
        value = "struct<item: string, cents: bigint, quantity: bigint>"
        sums = (
            spark.readStream.format("stratalog")
            .option("path", self.data)
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(batch))
            .load()
            .selectExpr(f"from_json(cast(value AS string), '{value}') AS o")
            .groupBy("o.item")
            .agg(f.expr("sum(o.cents)").alias("cents"))
            .selectExpr("item AS key", "to_json(struct(item, cents)) AS value")
        )
        target = {"kafka.bootstrap.servers": self._broker.bootstrap, "topic": "revenue", "writeId": "revenue"}

        def write(changed: Any, number: int) -> None:
            # Spark lets a Python sink have no update mode of its own; a batch that is written again adds nothing.
            writer = changed.write.format("stratalog").mode("append")
            writer.options(**target, writeVersion=str(number)).save()

        query = (
            sums.writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", f"{self.place}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return list(query.recentProgress)

    def _revenue(self) -> dict[str, int]:
        """The last sum of each item, as any consumer sees it."""
        import json

        from stratalog.client import Client, records_between
        from stratalog.client.client import LATEST

        assert self._broker is not None
        found: dict[str, int] = {}
        with Client(self._broker.bootstrap, client_id="stratalog-demo") as client:
            end = client.offsets("revenue", {0: LATEST})[0][0]
            for record in records_between(client, "revenue", 0, 0, end):
                row = json.loads(bytes(record.value or b"{}"))
                found[row["item"]] = row["cents"]
        return found

    def _profile(self, spark: Any, bar: Any) -> None:
        from stratalog.cli.spark import spark_line
        from stratalog.spark.jobs import job

        self._say("What is in the clicks?")
        page = f"{self.place}/clicks.html"
        report = job("profile")("clicks", spark, path=self.data, top=3, page=page, progress=bar)
        bar.close()
        total = report.total
        self._tell(
            f"{count(total.records)} records, {size(total.key_bytes + total.value_bytes)} in "
            f"{size(sum(stored for _, stored in total.codecs.values()))} of {', '.join(sorted(total.codecs))}, "
            f"{count(report.distinct_keys)} visitors"
        )
        top = report.top_keys[0]
        self._tell(
            f"skew: {top.text} alone has {top.records / total.records:.1%}; "
            f"{count(report.duplicates)} clicks came twice"
        )
        self._tell(f"records over time: {spark_line(total)}")
        self._check("each repeated click was found", report.duplicates, self._shop.repeated)
        self._tell(f"look: {page}, in a browser")

    def _export(self, spark: Any, bar: Any) -> None:
        from stratalog.spark.jobs import job

        self._say("The orders as Parquet, a folder for each day")
        target = f"{self.place}/orders"
        options: dict[str, Any] = {
            "path": self.data,
            "values": "json",
            "value_schema_text": "order string, customer string, item string, cents bigint, quantity int",
            "progress": bar,
        }
        report = job("export")("orders", target, spark, **options)
        again = job("export")("orders", target, spark, **options)
        bar.close()
        self._tell(
            f"{count(report.records)} orders in {report.files} files, {size(report.bytes)}; run again, it found "
            f"{again.records} new ones, as the table's last commit says where it ended"
        )
        sums, engine = _sums_of_parquet(target)
        self._check(f"{engine} adds up the files to the producer's sums", sums, dict(self._shop.revenue))
        self._tell(f"look: {target}, with anything that reads Parquet")

    def _compact(self, spark: Any, bar: Any) -> None:
        from stratalog.cli._data import Configurations
        from stratalog.cli.spark import plot
        from stratalog.node.config import BrokerConfig
        from stratalog.server.disk import RealDisk
        from stratalog.server.process import Broker
        from stratalog.spark.jobs import job

        self._say("The customers, compacted: the last of each key stays")
        self._stop_broker()  # the job takes the directory's lock
        config = Configurations(RealDisk(), self.data, file=None, options=()).of("customers")
        report = job("compact")(self.data, spark, topics=["customers"], config=lambda _: config, progress=bar)
        bar.close()
        done = report.partitions[0]
        self._tell(
            f"{done.segments_before} segments with {count(done.records_before)} records became "
            f"{done.segments_after} with {count(done.records_after)}; the last segment is never touched"
        )
        plot([("   customers-0", done.bytes_before, done.bytes_after)], size)
        self._open_broker(Broker, BrokerConfig)
        assert self._broker is not None
        self._check("the broker is back, and each customer is the one written last", self._customers(), self._shop.last)
        self._tell(f"look: stratalog why customers-0 --data {self.data}")

    def _customers(self) -> dict[bytes, bytes]:
        from stratalog.client import Client, records_between
        from stratalog.client.client import LATEST

        assert self._broker is not None
        found: dict[bytes, bytes] = {}
        with Client(self._broker.bootstrap, client_id="stratalog-demo") as client:
            end = client.offsets("customers", {0: LATEST})[0][0]
            for record in records_between(client, "customers", 0, 0, end):
                if record.value is None:
                    found.pop(bytes(record.key or b""), None)
                else:
                    found[bytes(record.key or b"")] = bytes(record.value)
        return found

    def _verify(self, spark: Any, bar: Any) -> None:
        from stratalog.spark.jobs import job

        self._say("An audit of everything, while the broker runs")
        report = job("verify")(self.data, spark, progress=bar)
        bar.close()
        summary = report.summary
        self._tell(
            f"{count(summary.partitions)} partitions, {count(summary.segments)} segments, {count(summary.batches)} "
            f"batches, {size(summary.bytes)}"
        )
        self._check("nothing is wrong with any file", [str(finding) for finding in report.findings], [])
        self._tell(f"look: stratalog dump {_a_segment(self.data)}")

    # --- without Spark ---------------------------------------------------------------------------------------------
    def _look_at_files(self) -> None:
        from stratalog.server.disk import RealDisk
        from stratalog.storage.audit import Summary, audit

        self._say("The log, read back and audited")
        revenue: dict[str, int] = {}
        with Progress("read", self._args.orders, unit=count) as bar:
            for item, cents in self._orders():
                revenue[item] = revenue.get(item, 0) + cents
                bar.add(1)
        self._check("the orders in the log have the sums that the producer made", revenue, dict(self._shop.revenue))
        self._check("each customer is the one written last", self._customers(), self._shop.last)
        summary = Summary()
        with Waiting("audit"):
            findings = [str(finding) for finding in audit(RealDisk(), self.data, summary=summary)]
        self._check("nothing is wrong with any file", findings, [])
        self._tell(f"{count(summary.segments)} segments, {count(summary.batches)} batches, {size(summary.bytes)}")
        self._tell(f"look: stratalog dump {_a_segment(self.data)}")

    def _orders(self) -> Iterator[tuple[str, int]]:
        import json

        from stratalog.client import Client, records_between
        from stratalog.client.client import LATEST

        assert self._broker is not None
        with Client(self._broker.bootstrap, client_id="stratalog-demo") as client:
            for partition, (end, _) in client.offsets("orders", dict.fromkeys(range(3), LATEST)).items():
                for record in records_between(client, "orders", partition, 0, end):
                    row = json.loads(bytes(record.value or b"{}"))
                    yield row["item"], row["cents"]

    # --- the end ---------------------------------------------------------------------------------------------------
    def _end(self) -> None:
        if self._stays:
            self._tell(
                f"everything is in {self.place}; the broker ends now, and this brings it back:\n"
                f"stratalog serve --data {self.data}"
            )
        elif sys.stdin.isatty() and sys.stdout.isatty():
            assert self._broker is not None
            self._tell(f"the broker is on {self._broker.bootstrap}, the files are in {self.place}: look around")
            with contextlib.suppress(EOFError):
                input("   Enter ends the broker and removes the files (--keep leaves them) ")
        else:
            self._tell("the broker ends and the files go; stratalog demo --keep or --data DIR leaves them to look at")


def _second(pair: tuple[str, int]) -> int:
    return -pair[1]


def _a_segment(data: str) -> str:
    folder = f"{data}/orders-0"
    return f"{folder}/{min(name for name in os.listdir(folder) if name.endswith('.log'))}"


def _sums_of_parquet(target: str) -> tuple[dict[str, int], str]:
    """Cents by item, read by somebody else: DuckDB where it is there, else PyArrow."""
    if importlib.util.find_spec("duckdb") is not None:
        import duckdb

        with duckdb.connect() as connection:
            files = f"{target}/date=*/*.parquet".replace("'", "''")
            rows = connection.execute(f"SELECT value.item, sum(value.cents) FROM '{files}' GROUP BY ALL").fetchall()
        return {item: int(cents) for item, cents in rows}, "DuckDB"
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    values = ds.dataset(target, partitioning="hive", exclude_invalid_files=True).to_table(columns=["value"])["value"]
    columns = {name: pc.struct_field(values, name) for name in ("item", "cents")}
    import pyarrow as pa

    summed = pa.table(columns).group_by("item").aggregate([("cents", "sum")])
    return dict(zip(summed["item"].to_pylist(), summed["cents_sum"].to_pylist(), strict=True)), "PyArrow"


class Waiting:
    """Something that takes seconds and cannot say how far it is: on a terminal the seconds count, elsewhere one line
    says what is under way."""

    _TICK_S: Final = 0.2

    def __init__(self, what: str) -> None:
        self._what = what
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            # The terminal itself, also while standard error goes to Spark's log.
            terminal = open(os.dup(2), "w", closefd=True)
            self._thread = threading.Thread(target=self._count, args=(terminal,), name="stratalog-waiting", daemon=True)
            self._thread.start()
        else:
            print(f"   {self._what} ...", file=sys.stderr, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _count(self, terminal: TextIO) -> None:
        begun = time.monotonic()
        with terminal:
            while not self._end.wait(self._TICK_S):
                text = f"   {self._what} ... {time.monotonic() - begun:.0f} s"
                terminal.write("\r\033[K" + text[: width(terminal)])
                terminal.flush()
