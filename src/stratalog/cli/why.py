"""Say why a segment is still here, why a log is or is not cleaned, and why the last stable offset stands.

    stratalog why orders            every partition of the topic in the data directory
    stratalog why orders-0 --json   one partition, for programs

Reads the files of a data directory, with or without a broker running on it, and changes nothing.  The topic's
configuration comes from the metadata log in the directory; --config gives the broker's own server.properties.
"""

from __future__ import annotations

import argparse
import datetime
import time
from typing import Any

from stratalog.base.types import MAX_INT64
from stratalog.cli import UsageError
from stratalog.cli.output import add_json, bold, duration, print_json, printable, size, table

_LOOKS_MAX = 5
"""A running broker deletes and exchanges segments; whoever loses against it so often has other trouble."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC[-PARTITION]")
    parser.add_argument("--data", metavar="DIR", default="stratalog-data", help="default ./stratalog-data")
    parser.add_argument("--config", metavar="FILE", help="the broker's server.properties")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="a topic key, over what is configured"
    )
    parser.add_argument("--now", type=int, metavar="MS", help="as if it were then (milliseconds since 1970)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from stratalog.cli._data import Configurations, parse_name, partitions_in
    from stratalog.logs.status import entry_of, read_status
    from stratalog.logs.view import look
    from stratalog.server.disk import RealDisk

    disk = RealDisk()
    data = args.data.rstrip("/") or "/"
    there = partitions_in(disk, data)
    topic, partition = parse_name(args.name)
    keys = [key for key in there if key[0] == args.name]
    if not keys and partition is not None:
        keys = [key for key in there if key == (topic, partition)]
    if not keys:
        known = ", ".join(sorted({key[0] for key in there})[:10]) or "none"
        raise UsageError(f"{args.name} is not in {data}; topics there: {known}")
    configs = Configurations(disk, data, file=args.config, options=args.option)
    config = configs.of(keys[0][0])
    cap = configs.broker.get("stratalog.retention.future.timestamp.cap.ms")
    now = args.now if args.now is not None else int(time.time() * 1000)
    status = read_status(disk, data)

    def answer_for(key: tuple[str, int]) -> dict[str, Any]:
        for turn in range(_LOOKS_MAX):
            try:
                view = look(disk, data, *key, config)
                return explain(view, now, -1 if cap is None else cap, entry_of(status, f"{key[0]}-{key[1]}"))
            except FileNotFoundError:  # retention or the cleaner was quicker
                if turn + 1 == _LOOKS_MAX:
                    raise
        raise AssertionError("unreachable")

    answers = [answer_for(key) for key in keys]
    if args.json:
        print_json(answers)
        return 0
    for number, answer in enumerate(answers):
        if number:
            print()
        _print(answer, now)
    return 0


def explain(view: Any, now: int, cap: int, status: dict[str, Any]) -> dict[str, Any]:
    """Everything about one partition, as plain values."""
    from stratalog.logs import retention

    config = view.config
    facts = retention.LogFacts(view.segments, view.log_start_offset, view.high_watermark, view.log_end_offset, config)
    segments = []
    if view.segments:
        for kept, segment in zip(retention.explain(facts, now, cap), view.segments, strict=True):
            segments.append(
                {
                    "base_offset": kept.base_offset,
                    "bytes": kept.size,
                    "newest_ms": segment.largest_timestamp,
                    "rule": kept.rule,
                    "why": kept.text,
                    "until_ms": kept.until_ms,
                }
            )
    return {
        "partition": f"{view.topic}-{view.partition}",
        "directory": view.directory,
        "bytes": view.size,
        "cleanup_policy": list(config.cleanup_policy),
        "log_start_offset": view.log_start_offset,
        "last_stable_offset": view.last_stable_offset,
        "high_watermark": view.high_watermark,
        "log_end_offset": view.log_end_offset,
        "recovery_point": view.recovery_point,
        "last_stable_why": _stable(view),
        "transactions": [
            {"producer_id": t.producer_id, "first_offset": t.first_offset, "last_ms": t.last_timestamp}
            for t in view.transactions
        ],
        "segments": segments,
        "cleaning": _cleaning(view, now, status) if config.compact and view.segments else None,
        "recovered": status.get("recovered", []),
    }


def _stable(view: Any) -> str:
    if view.transactions and view.transactions[0].first_offset <= view.high_watermark:
        oldest = view.transactions[0]
        return f"the transaction of producer {oldest.producer_id} is open since offset {oldest.first_offset}"
    if view.high_watermark < view.log_end_offset:
        return "it is the high watermark: what comes after is not replicated (or not checkpointed) yet"
    return "it is the log end: no transaction is open"


def _cleaning(view: Any, now: int, status: dict[str, Any]) -> dict[str, Any]:
    from stratalog.logs.cleaner import choice

    config = view.config
    facts = choice.LogFacts(view.segments, view.log_start_offset, view.last_stable_offset, view.log_end_offset, config)
    found = choice.candidate(facts, view.cleaner_checkpoint, now)
    failed = status.get("cleaning_failed")
    bound = {
        choice.ACTIVE: "the active segment, which is never cleaned",
        choice.LAST_STABLE: "the last stable offset: what comes after is not decided",
        choice.LAG: f"min.compaction.lag.ms of {config.min_compaction_lag_ms}",
    }[found.range.bound]
    if failed is not None:
        text = f"its last cleaning failed: {failed['error']}"
    elif found.is_due(config):
        text = (
            "due: its oldest dirty record has waited longer than max.compaction.lag.ms"
            if found.overdue_ms
            else f"due: its dirty share {found.ratio:.2f} is above {config.min_cleanable_dirty_ratio}"
        )
    elif not found.cleanable_bytes:
        text = f"nothing to clean: {bound}"
    else:
        text = f"not due: its dirty share {found.ratio:.2f} is not above {config.min_cleanable_dirty_ratio}"
        if config.max_compaction_lag_ms >= MAX_INT64:
            text += ", and max.compaction.lag.ms is not set"
    return {
        "why": text,
        "is_due": found.is_due(config),
        "dirty_share": found.ratio,
        "first_dirty_offset": found.range.first_dirty,
        "first_uncleanable_offset": found.range.first_uncleanable,
        "bound": found.range.bound,
        "bound_why": bound,
        "bound_until_ms": found.range.until_ms,
        "checkpoint_mended": found.range.mended,
        "clean_bytes": found.clean_bytes,
        "cleanable_bytes": found.cleanable_bytes,
        "overdue_ms": found.overdue_ms,
        "failed": failed,
    }


def _when(ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _print(answer: dict[str, Any], now: int) -> None:
    from stratalog.cli._data import print_findings

    policy = ",".join(answer["cleanup_policy"])
    print(f"{bold(printable(answer['partition']))}  {size(answer['bytes'])}, cleanup.policy={policy}")
    print(
        f"  log start {answer['log_start_offset']}, last stable {answer['last_stable_offset']}, "
        f"high watermark {answer['high_watermark']}, log end {answer['log_end_offset']}"
    )
    print(f"  last stable offset: {answer['last_stable_why']}")
    cleaning = answer["cleaning"]
    if cleaning is not None:
        print(f"  cleaning: {printable(cleaning['why'])}")
        print(
            f"    dirty from {cleaning['first_dirty_offset']} to {cleaning['first_uncleanable_offset']}: "
            f"{size(cleaning['cleanable_bytes'])} beside {size(cleaning['clean_bytes'])} clean; "
            f"it ends there by {cleaning['bound_why']}"
        )
        if cleaning["bound_until_ms"] is not None:
            print(f"    until {_when(cleaning['bound_until_ms'])}")
        if cleaning["checkpoint_mended"]:
            print(f"    the cleaner's checkpoint is not taken: {cleaning['checkpoint_mended']}")
        failed = cleaning["failed"]
        if failed is not None:
            print(f"    {failed['attempts']} attempts, the next one {_when(failed['next_ms'])}")
    print_findings(answer["recovered"])
    print()
    rows = []
    for segment in answer["segments"]:
        left = "" if segment["until_ms"] is None else f" ({duration((segment['until_ms'] - now) / 1000)} left)"
        rows.append((segment["base_offset"], size(segment["bytes"]), segment["rule"], segment["why"] + left))
    table(rows, ("offset", "size", "rule", "why it is here"), right=(0, 1))
