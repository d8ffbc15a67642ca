"""Jobs over whole logs with Spark, on this machine or a cluster.

stratalog spark compact ./stratalog-data --topic users          clean compacted partitions, the keys by a shuffle
stratalog spark export orders ./lake --path ./stratalog-data    to Parquet, Iceberg or Delta, each record once
stratalog spark profile orders --path ./stratalog-data          sizes, rates, keys, gaps, codecs; a page with plots
stratalog spark verify ./stratalog-data                         the audit of `stratalog verify`, in parallel
stratalog spark replay orders orders-again -b HOST:PORT         a range into another topic or broker

Each shows a bar while it works and a table at its end.  `-o NAME=VALUE` gives an option of the data source, such as
startingTimestamp=1700000000000.  What Spark itself has to say goes to the file that --spark-log names.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stratalog.cli import UsageError
from stratalog.cli.output import Progress, add_json, bold, count, duration, print_json, printable, size, table

if TYPE_CHECKING:
    from stratalog.storage.config import LogConfig


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="compact|export|profile|verify|replay")

    compact = commands.add_parser("compact", help="clean compacted partitions; the broker must be stopped")
    compact.add_argument("path", metavar="DIR", help="a data directory, or a partition's directory")
    compact.add_argument("--topic", action="append", metavar="NAME", help="which, in a data directory; may come again")
    compact.add_argument("--config", metavar="FILE", help="the broker's server.properties")
    compact.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="a topic key")
    compact.add_argument("--force", action="store_true", help="also when cleanup.policy does not say compact")
    compact.add_argument(
        "--map-mib", type=int, default=64, metavar="N", help="the map of keys in one task (default 64)"
    )
    compact.add_argument("--from-start", action="store_true", help="as if it had never been cleaned")

    export = commands.add_parser("export", help="what is new in a topic, into a table")
    export.add_argument("topic")
    export.add_argument("target", metavar="DIR", help="the table's directory, or that of its catalog")
    _add_source(export)
    export.add_argument("--format", default="parquet", choices=("parquet", "iceberg", "delta"))
    export.add_argument("--by", default="date", choices=("date", "offset", "none"), help="partitions of the table")
    export.add_argument("--span", type=int, default=1_000_000, metavar="N", help="offsets in a partition by offset")
    export.add_argument(
        "--values", default="raw", choices=("raw", "json", "avro", "confluent-avro", "protobuf"), help="what values are"
    )
    export.add_argument(
        "--schema",
        metavar="TEXT|@FILE",
        help="of values: columns (json), a schema (avro), DESCRIPTORS:MESSAGE (protobuf)",
    )
    export.add_argument("--bad-values", default="fail", choices=("fail", "null"), help="values that do not fit")
    export.add_argument("--headers", action="store_true", help="the records' headers as a column")
    export.add_argument("--table", metavar="NAME", help="the name of an Iceberg table (default stratalog.TOPIC)")
    export.add_argument("--catalog", action="append", default=[], metavar="KEY=VALUE", help="of pyiceberg")

    profile = commands.add_parser("profile", help="what is in a topic, as a table and a page with plots")
    profile.add_argument("topic")
    _add_source(profile)
    profile.add_argument("--page", metavar="FILE", help="where the page goes (default TOPIC-profile.html)")
    profile.add_argument("--top", type=int, default=20, metavar="N", help="keys to list (default 20)")
    profile.add_argument("--no-duplicates", action="store_true", help="do not look for records that come again")

    verify = commands.add_parser("verify", help="audit a data directory; a running broker's is fine")
    verify.add_argument("path", metavar="DIR")
    verify.add_argument("--no-holes", action="store_true", help="missing offsets are findings, too")

    replay = commands.add_parser("replay", help="a range of a topic into another topic or broker")
    replay.add_argument("topic")
    replay.add_argument("target", help="the topic to write to; it exists already")
    _add_source(replay)
    replay.add_argument("--to", metavar="HOST:PORT", help="the broker to write to (default: the one that is read)")
    replay.add_argument("--partitions", default="keep", choices=("keep", "key"), help="as they were, or by key")
    replay.add_argument("--write-id", metavar="ID", help="the same ID again goes on where the last run stopped")
    replay.add_argument("-w", "--write-option", action="append", default=[], metavar="NAME=VALUE", help="of the sink")

    for sub in (compact, export, profile, verify, replay):
        sub.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs (default local[*])")
        sub.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
        sub.add_argument("--spark-log", metavar="FILE", help="Spark's own log (default: a temporary file)")
        add_json(sub)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", metavar="DIR", help="the data directory to read")
    parser.add_argument("-b", "--bootstrap", metavar="HOST:PORT", help="the broker to read from; with --path, the rest")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="of the data source, may come again"
    )


def run(args: argparse.Namespace) -> int:
    if getattr(args, "topic", None) and args.what not in ("compact", "verify") and not (args.path or args.bootstrap):
        raise UsageError("--path or --bootstrap is missing: a data directory, a broker, or both")
    missing = what_is_missing()
    if missing:
        raise UsageError(missing)
    with (
        session(args.master, config=_pairs("--conf", args.conf), log=args.spark_log) as spark,
        Bar() as bar,
        one_line_errors(),
    ):
        return int(globals()[f"_{args.what}"](spark, bar, args))


# --- the jobs ---------------------------------------------------------------------------------------------------------
def _settings(args: argparse.Namespace) -> Callable[[str], LogConfig]:
    """A topic's configuration as its directory's metadata, the broker's file and the options have it."""
    from stratalog.cli._data import Configurations
    from stratalog.server.disk import RealDisk
    from stratalog.storage import layout

    path = os.path.abspath(args.path)
    one = layout.parse_directory(os.path.basename(path)) is not None
    data = os.path.dirname(path) if one else path
    configs = Configurations(RealDisk(), data, file=args.config, options=args.option)

    def settings(topic: str) -> LogConfig:
        config = configs.of(topic)
        if not config.compact and not args.force:
            raise UsageError(
                f"{topic}: its cleanup.policy is {','.join(config.cleanup_policy)}; --force (or -o "
                "cleanup.policy=compact) cleans it all the same"
            )
        return config

    return settings


def _compact(spark: Any, bar: Bar, args: argparse.Namespace) -> int:
    from stratalog.spark.jobs import job

    report = job("compact")(
        args.path,
        spark,
        topics=args.topic,
        config=_settings(args),
        map_bytes=args.map_mib << 20,
        from_start=args.from_start,
        progress=bar,
    )
    bar.close()
    if args.json:
        print_json(report.as_dict())
        return 0
    table(
        [
            (
                one.partition,
                f"{one.first_dirty:,}",
                f"{one.end:,}",
                count(one.records_before),
                count(one.records_after),
                size(one.bytes_before),
                size(one.bytes_after),
                one.note or None,
            )
            for one in report.partitions
        ],
        ("partition", "dirty from", "to", "records", "became", "size", "became", "note"),
        right=range(1, 7),
    )
    cleaned = [one for one in report.partitions if one.bytes_before]
    if cleaned:
        print()
        plot([(one.partition, one.bytes_before, one.bytes_after) for one in cleaned], size)
    print(f"\n{len(report.partitions)} partitions in {duration(report.seconds)}")
    return 0


def _export(spark: Any, bar: Bar, args: argparse.Namespace) -> int:
    from stratalog.spark.jobs import job

    report = job("export")(
        args.topic,
        args.target,
        spark,
        format=args.format,
        path=args.path,
        bootstrap=args.bootstrap,
        by=None if args.by == "none" else args.by,
        span=args.span,
        values=args.values,
        value_schema_text=_text(args.schema),
        bad_values=args.bad_values,
        headers=args.headers,
        table=args.table,
        catalog=_pairs("--catalog", args.catalog) or None,
        options=_pairs("--option", args.option),
        progress=bar,
    )
    bar.close()
    if args.json:
        print_json(report.as_dict())
        return 0
    table(
        [(name, f"{start:,}", f"{stop:,}") for name, (start, stop) in report.offsets.items()],
        ("partition", "from", "to"),
        right=(1, 2),
    )
    nulled = f", {count(report.nulled)} values did not fit and became null" if report.nulled else ""
    print(
        f"\n{count(report.records)} records in {report.files} files, {size(report.bytes)}, in "
        f"{duration(report.seconds)}{nulled}: {report.format} table {report.table}"
    )
    return 0


def _profile(spark: Any, bar: Bar, args: argparse.Namespace) -> int:
    from stratalog.spark.jobs import job

    page = args.page or f"{args.topic}-profile.html"
    report = job("profile")(
        args.topic,
        spark,
        path=args.path,
        bootstrap=args.bootstrap,
        options=_pairs("--option", args.option),
        top=args.top,
        duplicates=not args.no_duplicates,
        page=page,
        progress=bar,
    )
    bar.close()
    if args.json:
        print_json({**report.as_dict(), "page": os.path.abspath(page)})
        return 0
    table(
        [
            (
                name,
                f"{report.offsets[name][0]:,}",
                f"{report.offsets[name][1]:,}",
                count(one.records),
                size(one.key_bytes + one.value_bytes),
                count(one.missing),
                ", ".join(sorted(one.codecs)) or None,
            )
            for name, one in report.partitions.items()
        ],
        ("partition", "from", "to", "records", "size", "missing", "codecs"),
        right=range(1, 6),
    )
    total = report.total
    if report.top_keys:
        print()
        shown = report.top_keys[:10]
        table(
            [
                (
                    "(no key)" if key.text is None else key.text,
                    count(key.records),
                    f"{key.records / total.records:.1%}",
                )
                for key in shown
            ],
            ("key", "records", "share"),
            right=(1, 2),
        )
    print(f"\nrecords over time: {spark_line(total)}")
    again = "" if report.duplicates is None else f", {count(report.duplicates)} repeat an earlier one"
    print(
        f"\n{count(total.records)} records, {count(report.distinct_keys)} keys, {count(total.null_values)} without a "
        f"value{again}; {count(total.missing)} offsets missing in {count(total.gaps)} gaps; "
        f"{duration(report.seconds)}\nthe page: {os.path.abspath(page)}"
    )
    return 0


def _verify(spark: Any, bar: Bar, args: argparse.Namespace) -> int:
    from stratalog.spark.jobs import job

    report = job("verify")(args.path, spark, no_holes=args.no_holes, progress=bar)
    bar.close()
    if args.json:
        print_json(report.as_dict())
        return 1 if report.findings else 0
    for finding in report.findings:
        print(printable(str(finding)))
    summary = report.summary
    table(
        [(name, count(getattr(summary, name))) for name in ("partitions", "segments", "batches", "holes")]
        + [("bytes", size(summary.bytes)), ("findings", count(len(report.findings)))],
        ("looked at", ""),
        right=(1,),
    )
    print(f"\n{count(len(report.findings))} findings in {duration(report.seconds)}")
    return 1 if report.findings else 0


def _replay(spark: Any, bar: Bar, args: argparse.Namespace) -> int:
    from stratalog.spark.jobs import job

    report = job("replay")(
        args.topic,
        args.target,
        spark,
        path=args.path,
        bootstrap=args.bootstrap,
        to_bootstrap=args.to,
        partitions=args.partitions,
        options=_pairs("--option", args.option),
        write_options_=_pairs("--write-option", args.write_option),
        write_id=args.write_id,
        progress=bar,
    )
    bar.close()
    if args.json:
        print_json(report.as_dict())
        return 0
    table(
        [
            (one.partition, f"{one.start:,}", f"{one.stop:,}", count(one.records), count(one.repeated), size(one.bytes))
            for one in report.partitions
        ],
        ("partition", "from", "to", "records", "there already", "size"),
        right=range(1, 6),
    )
    print(f"\n{count(report.records)} records to {report.target} in {duration(report.seconds)}")
    return 0


# --- what they share --------------------------------------------------------------------------------------------------
class Bar:
    """Progress of a job's tasks: one bar for each thing that the job does."""

    def __init__(self) -> None:
        self._what = ""
        self._bar: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bar is None or what != self._what:
            self.close()
            self._what, self._bar = what, Progress(what, unit=lambda number: f"{number:.0f} tasks")
        self._bar.update(done, total or None)

    def close(self) -> None:
        """Take the bar away; what follows is output."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


def what_is_missing() -> str | None:
    """One line about what Spark needs and this machine has not, None where everything is there."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            return f"Spark is not installed (no {package}): pip install 'stratalog[spark]'"
    from stratalog.spark.errors import SparkSourceError
    from stratalog.spark.local import ensure_java

    try:
        ensure_java()
    except SparkSourceError as error:
        return str(error)
    return None


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """What Spark raises becomes one line, without its stacks of Python and Java."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        if os.environ.get("STRATALOG_TRACE"):
            raise
        from stratalog.spark.errors import SparkSourceError, reason

        text = reason(error)
        if isinstance(error, Py4JJavaError) and text.startswith("An error occurred while calling"):
            text = str(error.java_exception.toString()).partition("\n")[0]
        raise SparkSourceError(text) from error


@contextlib.contextmanager
def session(master: str, *, config: dict[str, str] | None = None, log: str | None = None) -> Iterator[Any]:
    """A Spark session for a command: Java's start and Spark's log go to a file, not between the command's lines."""
    from stratalog.spark.errors import SparkSourceError
    from stratalog.spark.local import session as make

    path = log or os.path.join(tempfile.gettempdir(), f"stratalog-spark-{os.getpid()}.log")
    keep = log is not None
    with tempfile.TemporaryDirectory(prefix="stratalog-warehouse-") as warehouse:
        try:
            # PySpark warns of a pandas newer than the ones it was tried with; nothing here goes through pandas.
            warnings.filterwarnings(
                "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
            )
            settings = {"spark.sql.session.timeZone": "UTC", **(config or {})}
            try:
                with _stderr_to(path), one_line_errors():
                    spark = make(master, config=settings, warehouse=warehouse)
            except SparkSourceError as error:
                keep = True
                raise SparkSourceError(f"Spark does not start: {_why(path) or error} (its log: {path})") from error
            spark.sparkContext.setLogLevel("ERROR")
            try:
                yield spark
            except BaseException:
                keep = True
                raise
            finally:
                with _stderr_to(path):
                    spark.stop()
        finally:
            if not keep and os.path.exists(path):
                os.unlink(path)


def _why(log: str) -> str | None:
    """The first line of a log that names an error: what comes behind it are its consequences."""
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if re.match(r"(Error|Exception in thread|[\w.]+(Error|Exception)\b)", line):
                return line.strip()
    return None


@contextlib.contextmanager
def _stderr_to(path: str) -> Iterator[None]:
    """Children that are started meanwhile write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {text}: not of the form NAME=VALUE")
        found[name.strip()] = value
    return found


def _text(given: str | None) -> str | None:
    """A text as it is, or what is in the file behind an @."""
    if given is None or not given.startswith("@"):
        return given
    with open(given[1:], encoding="utf-8") as file:
        return file.read(1 << 20)


def plot(rows: Sequence[tuple[str, float, float]], unit: Any, width: int = 40) -> None:
    """Before and after as bars: what is left is full, what has gone is light."""
    most = max(before for _, before, _ in rows) or 1
    label = max(len(name) for name, _, _ in rows)
    for name, before, after in rows:
        left = round(after / most * width)
        gone = max(round(before / most * width) - left, 0)
        share = f"{after / before:.0%}" if before else ""
        print(f"{name:<{label}}  {bold('#' * left)}{'.' * gone}  {unit(after)} of {unit(before)}  {share}")


_LEVELS = "▁▂▃▄▅▆▇█"


def spark_line(total: Any, width: int = 48) -> str:
    """Records over time in one line: `Counts.times` in `width` steps, the highest of them full."""
    if not total.times:
        return "no record has a time"
    first, last = min(total.times), max(total.times)
    steps = [0] * min(width, last - first + 1)
    for bucket, (records, _) in total.times.items():
        steps[(bucket - first) * len(steps) // (last - first + 1)] += records
    most = max(steps)
    return "".join(_LEVELS[-(-number * (len(_LEVELS) - 1) // most)] for number in steps)
