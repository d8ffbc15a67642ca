"""Run a broker.

Without any option it listens on 127.0.0.1:9092 and keeps its data in ./stratalog-data; any Kafka client since 0.9
connects.  Keys and defaults are Kafka's (server.properties); -o sets single ones:

    stratalog serve -o num.partitions=3 -o log.retention.hours=24

Ctrl-C, SIGTERM or a terminal that closes stops it cleanly: it answers what is under way, flushes, and marks the stop as
clean.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from stratalog.cli import CommandError, UsageError, at_least, one_line
from stratalog.cli.output import Progress

PROPERTIES_BYTES_MAX: Final = 1 << 20
METRICS_PORT: Final = "stratalog.metrics.port"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument("--data", metavar="DIR", help="where the data is (default ./stratalog-data, or log.dirs)")
    parser.add_argument("--port", type=at_least(0), help="listen on 127.0.0.1:PORT (0 takes a free one)")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="set a key, over the file"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="the log's lines: for people, or JSON objects"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens in detail")
    parser.add_argument("-q", "--quiet", action="store_true", help="log warnings only")


def run(args: argparse.Namespace) -> int:
    from stratalog.base.config import ConfigError
    from stratalog.node.config import BrokerConfig
    from stratalog.server import log_lines
    from stratalog.server.process import Broker, settle

    level = logging.DEBUG if args.verbose else logging.WARNING if args.quiet else logging.INFO
    log_lines.set_up(stream=sys.stderr, level=level, as_json=args.log_format == "json")
    text = properties(args.config) if args.config else ""
    for option in args.option:
        if not option.partition("=")[0].strip() or "=" not in option:
            raise UsageError(f"-o {option!r}: expected KEY=VALUE")
    options = list(args.option)
    if args.data:
        options.append(f"log.dirs={args.data}")
    if args.port is not None:
        options.append(f"listeners=PLAINTEXT://127.0.0.1:{args.port}")
    try:
        config = BrokerConfig.load(text, options)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    for warning in config.warnings:
        logging.getLogger("stratalog").warning("%s", warning)
    broker = Broker(config)
    serving = False

    def end(number: int, frame: object) -> None:
        if not serving:  # a long recovery is not worth waiting for: it begins again where the files are
            os.write(2, b"stopped before it was ready\n")
            os._exit(128 + number)
        broker.loop.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # `nohup` has it ignored
            signal.signal(number, end)
    bar = Progress("loading", unit=lambda logs: f"{logs:,.0f} logs")
    if not args.quiet:
        broker.on_loading = lambda loading: bar.update(loading.share, loading.total)
    try:
        with bar:
            broker.start()
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except BlockingIOError as error:
        raise CommandError(
            f"{error.filename}: another broker uses this directory; stop it, or choose another with --data"
        ) from error
    except OSError as error:
        raise CommandError(_why_not(error, config.log_dirs)) from error
    serving = True
    settle()
    where = ", ".join(config.log_dirs)
    print(f"stratalog serves on {broker.bootstrap}, data in {where} (Ctrl-C stops it)", flush=True)
    if broker.metrics_port is not None:
        print(f"metrics on http://{broker.bootstrap.rpartition(':')[0]}:{broker.metrics_port}/metrics", flush=True)
    while not broker.wait(3600.0):
        pass
    broker.stop()
    print("stopped cleanly" if broker.was_clean else "stopped; the next start looks through the logs", flush=True)
    return 0


def _why_not(error: OSError, directories: Sequence[str]) -> str:
    """What stopped the start, and what to do about it."""
    where = str(error.filename or "")
    what = error.strerror or str(error)
    how = "-o stratalog.metrics.port=PORT" if METRICS_PORT in where else "--port"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: another program listens there; stop it, or choose another port with {how}"
    if any(where == path or where.startswith(path.rstrip("/") + "/") for path in directories):
        return f"{where}: {what}: the broker's data cannot be kept there; choose another directory with --data"
    if error.errno == errno.EACCES and re.fullmatch(r"[^/]*:\d+\b[^/]*", where):
        return f"{where}: {what}: ports below 1024 are the system's; choose another with {how}"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{where}: {what}: the broker cannot listen there; listeners takes an address of this machine"
    return one_line(error)


def properties(path: str) -> str:
    """The text of a properties file: UTF-8, or Latin-1 as Java reads it."""
    with open(path, "rb") as file:
        data = file.read(PROPERTIES_BYTES_MAX + 1)
    if len(data) > PROPERTIES_BYTES_MAX or b"\0" in data:
        raise UsageError(f"{path}: not a properties file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
