"""Print any file of a data directory.

    stratalog dump data/orders-0/00000000000000000000.log             the batches
    stratalog dump --records --offsets 100-120 data/orders-0          records 100 to 120, and what the indexes say
    stratalog dump --json data/__consumer_offsets-7 | jq .value       committed offsets and groups as JSON lines
    stratalog dump data                                               everything

Batches, indexes, transaction indexes, producer snapshots, leader epochs, checkpoints, quorum state, snapshots of the
cluster's metadata; the records of the internal topics are decoded.  What is damaged is named with file and byte; the
exit code is then 1, and the dump goes on behind it.  Nothing is changed; a running broker's files are fine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from typing import Any

from stratalog.cli import UsageError
from stratalog.cli.output import bold, printable, size


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="+", metavar="PATH", help="files and directories")
    parser.add_argument("--records", action="store_true", help="keys, values and headers of the records, too")
    parser.add_argument("--offsets", metavar="N-M", help="only these offsets: 100-120, 100-, -120, or one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    from stratalog.server.disk import RealDisk
    from stratalog.storage.dump import dump

    first, last = _span(args.offsets)
    disk = RealDisk()
    for path in args.path:
        if not disk.exists(path):
            raise UsageError(f"{path}: no such file or directory")
    problems = 0
    current = ""
    for path in args.path:
        for row in dump(disk, path, records=args.records, first=first, last=last):
            if row["kind"] == "problem":
                problems += 1
            if row["kind"] == "file":
                current = row["file"]
            if args.json:
                print(json.dumps({"file": current, **row}, ensure_ascii=False))
            else:
                for line in _lines(row):
                    print(line)
    if problems and not args.json:
        print(f"{problems} problems", file=sys.stderr)
    return 1 if problems else 0


def _span(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    if not (first or last) or not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)):
        raise UsageError(f"--offsets {text}: give N-M, N-, -M or N, for example 100-120")
    return int(first) if first else None, int(last) if last else None


def when(timestamp: int) -> str:
    """Milliseconds since 1970 as people read them, in UTC."""
    if timestamp < 0:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp / 1000, tz=datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def _lines(row: dict[str, Any]) -> Iterator[str]:
    kind = row["kind"]
    if kind == "file":
        yield bold(f"{printable(row['file'])}  {row['type']}, {size(row['size'])}")
    elif kind == "problem":
        where = f" at byte {row['position']}" if row["position"] >= 0 else ""
        yield f"  PROBLEM{where}: {printable(row['text'])}"
    elif kind == "note":
        yield f"  ({row['text']})"
    elif kind == "batch":
        yield "  " + _batch(row)
    elif kind == "record":
        yield f"    {row['offset']:>8}  {when(row['timestamp'])}  {_record(row)}"
    else:
        rest = {name: value for name, value in row.items() if name not in ("kind", "slot")}
        yield "  " + "  ".join(f"{name} {_text(value, name)}" for name, value in rest.items())


def _batch(row: dict[str, Any]) -> str:
    parts = [
        f"offsets {row['baseOffset']}..{row['lastOffset']}",
        f"{row['count']} records" if row["count"] >= 0 else "wrapped records",
        f"byte {row['position']}",
        f"{row['size']} bytes",
        row["codec"],
        f"{row['timestampType']} {when(row['maxTimestamp'])}",
    ]
    if row["magic"] == 2:
        parts.append(f"epoch {row['leaderEpoch']}")
    else:
        parts.append(f"magic {row['magic']}")
    if "producerId" in row:
        parts.append(f"producer {row['producerId']}:{row['producerEpoch']}")
        if row["baseSequence"] >= 0:
            parts.append(f"sequences {row['baseSequence']}..{row['lastSequence']}")
    parts += [word for word in ("transactional", "control") if row.get(word)]
    if "deleteHorizonMs" in row:
        parts.append(f"deleted from {when(row['deleteHorizonMs'])} on")
    return "  ".join(parts)


def _record(row: dict[str, Any]) -> str:
    if "control" in row:
        more = {name: row[name] for name in ("coordinatorEpoch", "value") if name in row}
        return f"{row['control']}  " + "  ".join(f"{name} {_text(value, name)}" for name, value in more.items())
    parts = [row["type"]] if "type" in row else []
    parts += [f"{name}={_text(row[name], name)}" for name in ("key", "value") if name in row]
    if row.get("headers"):
        parts.append("headers=" + ",".join(f"{name}:{_text(value, '')}" for name, value in row["headers"]))
    return "  ".join(parts)


def _text(value: Any, name: str) -> str:
    if name == "timestamp" and isinstance(value, int):
        return when(value)
    if value is None:
        return "null"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict) and set(value) == {"base64"}:
        return f"base64:{value['base64']}"
    return printable(json.dumps(value, ensure_ascii=False))
