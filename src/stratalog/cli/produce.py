"""Write records: a line each from standard input or files.

    echo hello | stratalog produce greetings
    stratalog produce orders --key-separator : < orders.txt
    stratalog produce orders --json-lines < export.jsonl        what `consume --json` prints

The topic is made when it is missing (and the broker allows it).  Records are acknowledged by all in-sync replicas, and
a retry never doubles one.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from typing import BinaryIO

from stratalog.cli import UsageError
from stratalog.cli.output import Progress, add_bootstrap, count
from stratalog.cli.topic import pairs

LINE_BYTES_MAX = 16 << 20
"""One line is one record; more than the largest record that a broker takes is not read into memory."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("file", nargs="*", help="default: standard input")
    parser.add_argument("-p", "--partition", type=int, help="default: by the key, else in turn")
    parser.add_argument("-k", "--key", help="one key for all records")
    parser.add_argument("-K", "--key-separator", metavar="SEP", help="a line is KEY SEP VALUE")
    parser.add_argument("-H", "--header", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("-Z", "--null-empty", action="store_true", help="an empty value is null (a tombstone)")
    parser.add_argument("-z", "--compression", default="none", help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--acks", default="all", help="all (default), 1 or 0")
    parser.add_argument("--json-lines", action="store_true", help="lines are JSON as `consume --json` prints them")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing at the end")
    add_bootstrap(parser)


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client, Producer
    from stratalog.client.producer import CODECS

    if args.compression not in CODECS:
        raise UsageError(f"--compression {args.compression}: allowed are {', '.join(CODECS)}")
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(args.acks)
    if acks is None:
        raise UsageError(f"--acks {args.acks}: allowed are all, 1 and 0")
    headers: list[tuple[str, bytes | None]] = [(key, value.encode()) for key, value in pairs(args.header).items()]
    written = 0
    with Client(args.bootstrap) as client, Progress("produce", unit=count) as progress:
        with Producer(client, acks=acks, compression=args.compression) as producer:
            for name, line in _lines(args.file):
                if args.json_lines:
                    key, value, partition, own, timestamp = _from_json(line, name)
                    producer.send(
                        args.topic,
                        value,
                        key=key,
                        partition=partition if args.partition is None else args.partition,
                        headers=own + headers,
                        timestamp=timestamp,
                    )
                else:
                    key, value = _split(line, args)
                    producer.send(args.topic, value, key=key, partition=args.partition, headers=headers)
                written += 1
                progress.add(1)
                if written % 1000 == 0 and sys.stdin.isatty():
                    producer.flush()
        if not args.quiet:
            print(f"{written:,} record{'s' if written != 1 else ''} written to {args.topic}", file=sys.stderr)
    return 0


def _lines(files: list[str]) -> Iterator[tuple[str, bytes]]:
    if not files:
        yield from _lines_of(sys.stdin.buffer, "standard input")
    for file in files:
        with open(file, "rb") as stream:
            yield from _lines_of(stream, file)


def _lines_of(stream: BinaryIO, name: str) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise UsageError(f"{name}, line {number}: longer than {LINE_BYTES_MAX} bytes")
        yield f"{name}, line {number}", line.rstrip(b"\r\n")


def _split(line: bytes, args: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    key = args.key.encode() if args.key is not None else None
    value: bytes | None = line
    if args.key_separator:
        left, found, right = line.partition(args.key_separator.encode())
        if found:
            key, value = left, right
    if args.null_empty and not value:
        value = None
    return key, value


def _from_json(
    line: bytes, name: str
) -> tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]], int | None]:
    try:
        row = json.loads(line)
        headers = [(h["key"], _bytes(h, "value")) for h in row.get("headers") or []]
        return _bytes(row, "key"), _bytes(row, "value"), row.get("partition"), headers, row.get("timestamp")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{name}: not a record in JSON: {error}") from error


def _bytes(row: dict[str, str | None], field: str) -> bytes | None:
    text = row.get(field)
    if text is not None:
        return text.encode()
    encoded = row.get(field + "_base64")
    return None if encoded is None else base64.b64decode(encoded, validate=True)
