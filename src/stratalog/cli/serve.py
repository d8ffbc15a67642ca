"""Run a broker.

Without any option it listens on 127.0.0.1:9092 and keeps its data in ./stratalog-data; any Kafka client since 0.9
connects.  Keys and defaults are Kafka's (server.properties); -o sets single ones:

    stratalog serve -o num.partitions=3 -o log.retention.hours=24

Ctrl-C or SIGTERM stops it cleanly: it answers what is under way, flushes, and marks the stop as clean.
"""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys

from stratalog.cli import UsageError
from stratalog.cli.output import Progress


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument("--data", metavar="DIR", help="where the data is (default ./stratalog-data, or log.dirs)")
    parser.add_argument("--port", type=int, help="listen on 127.0.0.1:PORT (0 takes a free one)")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="set a key, over the file"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens in detail")
    parser.add_argument("-q", "--quiet", action="store_true", help="log warnings only")


def run(args: argparse.Namespace) -> int:
    from stratalog.base.config import ConfigError
    from stratalog.node.config import BrokerConfig
    from stratalog.server.process import Broker

    level = logging.DEBUG if args.verbose else logging.WARNING if args.quiet else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s  %(message)s")
    text = ""
    if args.config:
        with open(args.config, encoding="utf-8") as file:
            text = file.read(1 << 20)
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: broker.loop.stop())
    bar = Progress("loading", unit=lambda logs: f"{logs:,.0f} logs")
    broker.on_loading = lambda loading: bar.update(loading.share, loading.total)
    try:
        with bar:
            broker.start()
    except BlockingIOError as error:
        raise UsageError(
            f"{error.filename}: another broker uses this directory; stop it, or choose another with --data"
        ) from error
    # What is there after the start stays; new garbage is young.  A full collection would stop the loop for
    # milliseconds.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    where = ", ".join(config.log_dirs)
    print(f"stratalog serves on {broker.bootstrap}, data in {where} (Ctrl-C stops it)", flush=True)
    if broker.metrics_port is not None:
        print(f"metrics on http://{broker.bootstrap.rpartition(':')[0]}:{broker.metrics_port}/metrics", flush=True)
    while not broker.wait(3600.0):
        pass
    broker.stop()
    print("stopped cleanly", flush=True)
    return 0
