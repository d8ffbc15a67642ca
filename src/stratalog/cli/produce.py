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
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from stratalog.cli import UsageError, at_least
from stratalog.cli.output import Progress, add_bootstrap, count
from stratalog.cli.topic import pairs

_READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 16 << 20
"""One line is one record; more than the largest record that a broker takes is not read into memory."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("file", nargs="*", default=[], help="default: standard input")
    parser.add_argument("-p", "--partition", type=at_least(0), help="default: by the key, else in turn")
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
            for name, line in _lines(args.file, producer.flush):
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
        if not args.quiet:
            print(f"{written:,} record{'s' if written != 1 else ''} written to {args.topic}", file=sys.stderr)
    return 0


def _lines(files: list[str], pause: Callable[[], None]) -> Iterator[tuple[str, bytes]]:
    """Each line with its place; `pause` is called when the next one is not there yet."""
    if not files:
        yield from _lines_of(sys.stdin.buffer, "standard input", pause)
    for file in files:
        with open(file, "rb") as stream:
            yield from _lines_of(stream, file, pause)


def _lines_of(stream: BinaryIO, name: str, pause: Callable[[], None]) -> Iterator[tuple[str, bytes]]:
    number = 0
    rest = b""
    for chunk in _chunks(stream, pause):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines.append(rest)
        for line in lines:
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise UsageError(f"{name}, line {number}: longer than {LINE_BYTES_MAX} bytes")
            yield f"{name}, line {number}", line.rstrip(b"\r")
    if rest:
        yield f"{name}, line {number + 1}", rest.rstrip(b"\r")


def _chunks(stream: BinaryIO, pause: Callable[[], None]) -> Iterator[bytes]:
    """What has come, as it comes: lines of `tail -f` are written while it waits for the next one."""
    try:
        descriptor = stream.fileno()
    except OSError:  # no file of the system's
        yield stream.read()
        return
    while True:
        if not select.select((descriptor,), (), (), 0)[0]:
            pause()
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            return
        yield chunk


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
        if not isinstance(row, dict):
            raise ValueError('expected an object such as {"key": "a", "value": "b"}')
        headers = [(h["key"], _bytes(h, "value")) for h in row.get("headers") or []]
        partition, timestamp = _number(row, "partition"), _number(row, "timestamp")
        return _bytes(row, "key"), _bytes(row, "value"), partition, headers, timestamp
    except KeyError as error:
        raise UsageError(f"{name}: not a record in JSON: a header without {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{name}: not a record in JSON: {error}") from error


def _bytes(row: dict[str, Any], field: str) -> bytes | None:
    for name in (field, field + "_base64"):
        text = row.get(name)
        if text is not None:
            if not isinstance(text, str):
                raise ValueError(f"{name} is {json.dumps(text)}, expected text")
            return text.encode() if name == field else base64.b64decode(text, validate=True)
    return None


def _number(row: dict[str, Any], field: str) -> int | None:
    value = row.get(field)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{field} is {json.dumps(value)}, expected a whole number")
    return value
