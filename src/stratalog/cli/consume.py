"""Read records of a topic.

    stratalog consume orders                        everything up to now
    stratalog consume orders --follow               and what comes after, until Ctrl-C
    stratalog consume orders --since 2h             by time: 15m, 2h, 3d, or 2026-11-18T12:00
    stratalog consume orders --from 1000 --limit 10 --headers
    stratalog consume orders --json | jq .value

Without --follow it ends at the end that the topic had at the start.  Aborted transactions are left out (--uncommitted
shows them).
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stratalog.cli import UsageError, at_least, one_line
from stratalog.cli.output import Progress, add_bootstrap, count, printable

if TYPE_CHECKING:
    from stratalog.client import Client, FetchedPartition
    from stratalog.records.batch import Record

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("-p", "--partition", type=at_least(0), help="default: every partition")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument(
        "--from", dest="start", default=None, metavar="OFFSET", help="an offset, start, end, or -N from the end"
    )
    parser.add_argument("--to", type=at_least(0), metavar="OFFSET", help="stop before this offset")
    parser.add_argument("--since", metavar="TIME", help="from this time on: 15m, 2h, 3d ago, or an ISO time")
    parser.add_argument("--until", metavar="TIME", help="only records before this time")
    parser.add_argument("-n", "--limit", type=at_least(0), help="at most so many records")
    parser.add_argument("-k", "--keys", action="store_true", help="print keys")
    parser.add_argument("--headers", action="store_true", help="print headers")
    parser.add_argument("--meta", action="store_true", help="print partition, offset and time")
    parser.add_argument("--uncommitted", action="store_true", help="records of open and aborted transactions too")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_bootstrap(parser)


def parse_time(text: str, now_ms: int) -> int:
    """`2h` is two hours ago; an ISO time is local unless it says otherwise; a plain number is milliseconds."""
    match = _SPAN.fullmatch(text.strip())
    if match:
        return int(now_ms - float(match[1]) * _UNIT_MS[match[2]])
    if text.strip().isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except ValueError as error:
        raise UsageError(f"time {text!r}: expected 15m, 2h, 3d, 2026-11-18T12:00 or milliseconds") from error


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client

    with Client(args.bootstrap) as client:
        return _consume(client, args)


def _consume(client: Client, args: argparse.Namespace) -> int:
    from stratalog.client.client import LATEST

    if args.follow and args.to is not None:
        raise UsageError("--follow goes on and --to ends: give one of them")
    if args.limit == 0:
        return 0
    committed = not args.uncommitted
    now = time.time_ns() // 1_000_000
    partitions = sorted(client.topic(args.topic).partitions)
    if args.partition is not None:
        if args.partition not in partitions:
            raise UsageError(f"--partition {args.partition}: {args.topic} has partitions 0 to {partitions[-1]}")
        partitions = [args.partition]
    starts = _starts(client, args, partitions, now)
    ends = {
        p: end
        for p, (end, _) in client.offsets(args.topic, dict.fromkeys(partitions, LATEST), committed=committed).items()
    }
    if args.to is not None:
        ends = {p: min(end, args.to) for p, end in ends.items()}
    until = parse_time(args.until, now) if args.until else None
    printed = 0
    total = None if args.follow else sum(max(ends[p] - starts[p], 0) for p in partitions)
    out = sys.stdout
    with Progress("consume", total, unit=count) as progress:
        for partition, record in _records(client, args, starts, None if args.follow else ends, committed):
            if not out.isatty():
                progress.add(1)
            if until is not None and record.timestamp >= until:
                continue
            out.write(_format(args, partition, record) + "\n")
            printed += 1
            if args.follow:
                out.flush()
            if args.limit is not None and printed >= args.limit:
                break
    return 0


def _starts(client: Client, args: argparse.Namespace, partitions: list[int], now: int) -> dict[int, int]:
    from stratalog.client.client import EARLIEST, LATEST

    earliest = {p: o for p, (o, _) in client.offsets(args.topic, dict.fromkeys(partitions, EARLIEST)).items()}
    latest = {p: o for p, (o, _) in client.offsets(args.topic, dict.fromkeys(partitions, LATEST)).items()}
    if args.since:
        if args.start is not None:
            raise UsageError("--from and --since both say where to begin: give one of them")
        since = parse_time(args.since, now)
        found = client.offsets(args.topic, dict.fromkeys(partitions, since))
        return {p: o if o >= 0 else latest[p] for p, (o, _) in found.items()}
    text = "start" if args.start is None else str(args.start)
    if text == "start":
        return earliest
    if text == "end":
        return latest
    try:
        offset = int(text)
    except ValueError as error:
        raise UsageError(f"--from {text}: expected an offset, start, end, or -N from the end") from error
    if offset < 0:
        return {p: max(latest[p] + offset, earliest[p]) for p in partitions}
    return {p: min(max(offset, earliest[p]), latest[p]) for p in partitions}


def _records(
    client: Client, args: argparse.Namespace, starts: dict[int, int], ends: dict[int, int] | None, committed: bool
) -> Any:
    """(partition, record), partition after partition up to the ends, or all together when following."""
    from stratalog.client.consumer import records_between, visible_batches
    from stratalog.records.batch import records_of

    if ends is not None:
        for partition, start in starts.items():
            for record in records_between(
                client, args.topic, partition, start, ends[partition], committed=committed, max_wait_ms=100
            ):
                yield partition, record
        return
    positions = dict(starts)
    while True:
        for part in _fetch_patiently(client, args.topic, positions, committed):
            for header, visible in visible_batches(part.records, part.aborted, committed=committed):
                if visible:
                    for record in records_of(part.records, header):
                        if record.offset >= positions[part.partition]:
                            yield part.partition, record
                positions[part.partition] = max(positions[part.partition], header.next_offset)


def _fetch_patiently(client: Client, topic: str, positions: dict[int, int], committed: bool) -> list[FetchedPartition]:
    """A fetch for someone who follows: a broker that is away comes back, and where records were deleted before they
    were read it goes on with the oldest that are there.  Both are told on standard error."""
    from stratalog.base.errors import ErrorCode
    from stratalog.client import ConnectionLost, Refused, Unreachable
    from stratalog.client.client import EARLIEST, LATEST

    attempt = 0
    while True:
        try:
            found = client.fetch(topic, positions, committed=committed)
        except (ConnectionLost, Unreachable) as error:
            if not attempt:
                print(f"stratalog: {one_line(error)} Waiting for it (Ctrl-C ends).", file=sys.stderr, flush=True)
            time.sleep(min(0.1 * 2**attempt, 2.0))
            attempt = min(attempt + 1, 10)
            continue
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            starts = client.offsets(topic, dict.fromkeys(positions, EARLIEST))
            ends = client.offsets(topic, dict.fromkeys(positions, LATEST))
            moved = {p: min(max(at, starts[p][0]), ends[p][0]) for p, at in positions.items()}
            if moved == positions:
                raise
            for p, at in moved.items():
                if at != positions[p]:
                    print(f"stratalog: {topic}-{p}: {positions[p]} is gone, goes on at {at}", file=sys.stderr)
            positions.update(moved)
            continue
        if attempt:
            print("stratalog: it is back", file=sys.stderr, flush=True)
        return found


def _format(args: argparse.Namespace, partition: int, record: Record) -> str:
    if args.json:
        row: dict[str, Any] = {"topic": args.topic, "partition": partition, "offset": record.offset}
        row["timestamp"] = record.timestamp
        _put(row, "key", record.key)
        _put(row, "value", record.value)
        if record.headers:
            row["headers"] = []
            for name, value in record.headers:
                header: dict[str, Any] = {"key": name}
                _put(header, "value", value)
                row["headers"].append(header)
        return json.dumps(row, ensure_ascii=False)
    parts = []
    if args.meta:
        stamp = datetime.fromtimestamp(record.timestamp / 1000).astimezone().isoformat(timespec="milliseconds")
        parts.append(f"{partition}:{record.offset} {stamp}")
    if args.headers:
        parts.append(",".join(f"{printable(name)}={_text(value)}" for name, value in record.headers))
    if args.keys:
        parts.append(_text(record.key))
    parts.append(_text(record.value))
    return "\t".join(parts)


def _text(data: Any) -> str:
    if data is None:
        return "(null)"
    text = bytes(data).decode("utf-8", "backslashreplace")
    return printable(text) if sys.stdout.isatty() else text


def _put(row: dict[str, Any], field: str, data: Any) -> None:
    """Text where it is text, else base64 under another name, so that nothing is lost."""
    if data is None:
        row[field] = None
        return
    try:
        row[field] = bytes(data).decode()
    except UnicodeDecodeError:
        row[field + "_base64"] = base64.b64encode(data).decode()
