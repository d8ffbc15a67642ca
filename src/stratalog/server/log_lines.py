"""Lines of the log, for people and for programs: one event is one line, whatever a peer has said about itself.

2026-11-19 06:48:26,104 INFO    stratalog.server  node 1 serves on 127.0.0.1:9092
{"time": "2026-11-19T06:48:26.104Z", "level": "INFO", "logger": "stratalog.server", "message": "node 1 serves ..."}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO


class TextLines(logging.Formatter):
    """Control characters of a message are escaped; a stack trace follows in lines that are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join("    " + line for line in text.splitlines())


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=True)


def printable(text: str) -> str:
    """Without characters that begin a new line or move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def set_up(*, stream: TextIO, level: int, as_json: bool) -> None:
    """The log of a process that is a broker."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=level, handlers=[handler])
