"""`python -m stratalog.server [key=value ...]`: a broker in the foreground, for development; `stratalog serve` is the
command for everybody."""

from __future__ import annotations

import logging
import signal
import sys

from stratalog.node.config import BrokerConfig
from stratalog.server import log_lines
from stratalog.server.process import Broker, settle


def main() -> int:
    log_lines.set_up(stream=sys.stderr, level=logging.INFO, as_json=False)
    broker = Broker(BrokerConfig.load("", sys.argv[1:]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: broker.loop.stop())
    broker.start()
    settle()
    print(f"listening on {broker.bootstrap}", flush=True)
    while not broker.wait(3600.0):
        pass
    broker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
