"""Log lines: one event, one line."""

from __future__ import annotations

import io
import json
import logging

import pytest

from stratalog.server.log_lines import JsonLines, TextLines

EVIL = "x\nINJECTED\r\x1b[2J\u2028end \u00e9"


def lines(formatter: logging.Formatter) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log = logging.Logger("stratalog.test")
    log.addHandler(handler)
    log.warning("client %s came", EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("a request failed")
    return stream.getvalue()


def test_a_peers_text_begins_no_line_and_moves_no_cursor() -> None:
    text = lines(TextLines())
    first, second, *trace = text.splitlines()
    assert "client x\\nINJECTED\\r\\x1b[2J\\u2028end \u00e9 came" in first and "WARNING stratalog.test" in first
    assert second.endswith("a request failed") and trace
    assert all(line.startswith("    ") for line in trace)


def test_json_has_time_level_logger_message_and_exception() -> None:
    rows = [json.loads(line) for line in lines(JsonLines()).splitlines()]
    assert [row["level"] for row in rows] == ["WARNING", "ERROR"]
    assert rows[0]["message"] == f"client {EVIL} came" and rows[0]["logger"] == "stratalog.test"
    assert rows[0]["time"].endswith("Z") and "ValueError" in rows[1]["exception"]


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_every_line_of_a_broker_is_written_by_it(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "plain %d", (5,), None)
    assert "plain 5" in formatter.format(record)
