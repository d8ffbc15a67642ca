"""The history as tables: `python -m bench.figures` writes docs/FIGURES.md whole and the table in the README.

Of each bench the newest line of `history.jsonl` counts.  Nothing is typed by hand, so a figure in a document is one
that was measured; `--check` says whether the documents are what the history gives (a test asks).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench._run import HISTORY

ROOT = HISTORY.parent.parent
BEGIN, END = "<!-- figures: written by python -m bench.figures -->", "<!-- end of figures -->"
PEERS = ("kafka", "kafka-python", "kio")
SPARK_TARGET = ">= {:g} x"

# What the README shows: bench, start of the row's name, what it is called there.
README = (
    ("produce_raw", "16 KiB, 1 connection · requests/s", "produce, 16 KiB batches, 1 connection, requests a second"),
    ("produce_raw", "16 KiB, 1 connection · CPU us/request", "the same, broker CPU for a request, microseconds"),
    ("produce_raw", "16 KiB, 8 connections · requests/s", "the same, 8 connections, requests a second"),
    ("produce_raw", "100 B, 1 connection · requests/s", "produce, 100 bytes a request, requests a second"),
    ("java", "produce 1 KiB, 1 partition · MB/s", "Java producer, 1 KiB records, MB/s"),
    ("java", "produce 1 KiB, 1 partition · CPU s/GB", "the same, broker CPU seconds a GB"),
    ("java", "consume 1 KiB, 1 partition · fetch MB/s", "Java consumer, 1 KiB records, MB/s"),
    ("java", "consume 1 KiB, 1 partition · CPU s/GB", "the same, broker CPU seconds a GB"),
    ("fetch_raw", "end to end round trip · p50 us", "end to end, median, microseconds"),
    ("fetch_raw", "end to end round trip · p99 us", "end to end, 99th percentile, microseconds"),
    ("start", "start, new directory · s", "start on a new directory, seconds"),
    ("start", "embedded broker, ready · s", "a broker inside a test, ready after seconds"),
    ("start", "idle · RSS MiB", "memory of an idle broker, MiB"),
    ("recovery", "many: 1,000 partitions of 2 MiB · MB/s", "recovery after a kill, 1,000 partitions of 2 MiB, MB/s"),
    ("compaction", "1 KiB values, 200 k keys", "compaction, 1 KiB values and 200 k keys, MB/s"),
    ("compaction", "100 B values, 2 M keys", "compaction, 100-byte values and 2 M keys, MB/s"),
    ("spark_read", "100 B · count", "Spark, count of 1 GiB of 100-byte records, seconds (its own Kafka source)"),
    ("spark_read", "100 B · count, option `columns`", "the same with only the columns asked for"),
    (
        "spark_read",
        "100 B · group by key, option `columns`",
        "Spark, group by key, only the columns asked for, seconds",
    ),
)


class Figure(NamedTuple):
    """One row, whichever bench it comes from."""

    name: str
    ours: float | None
    unit: str = ""
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    target: str = ""
    holds: bool | None = None


def newest() -> dict[str, dict[str, Any]]:
    """The last record of each bench."""
    return {record["bench"]: record for record in map(json.loads, HISTORY.read_text().splitlines())}


def figures(record: dict[str, Any]) -> Iterator[Figure]:
    rows = record["rows"]
    if record["bench"] == "compaction":
        yield from _compaction(rows)
        return
    ours: dict[str, Any] = {}
    for position, row in enumerate(rows):
        judged = {"ratio": row.get("ratio"), "target": row.get("target", ""), "holds": row.get("holds")}
        if "query" in row:
            if row["target"] is not None:
                judged["target"] = SPARK_TARGET.format(row["target"])
            name = f"{row['records']} · {row['query']}"
            if "columns" in row:
                best = min(row["files"], row["columns"])
                yield Figure(f"{name}, option `columns`", best, "s", row["kafka"], "Spark's Kafka source", **judged)
                judged = {"ratio": row["ratio all columns"]}  # the target is judged with the option
            yield Figure(name, row["files"], "s", row["kafka"], "Spark's Kafka source", **judged)
        elif "case" in row:
            name = f"{row['case']} · {row['figure']}"
            yield Figure(name, row.get("stratalog"), "", row.get("kafka"), "Kafka", **judged)
        else:
            name, _, label = row["name"].rpartition(" · ")
            if label in PEERS and ours.get("name", "").startswith(f"{name} · "):
                yield Figure(name, ours["value"], row["unit"], row["value"], label, **judged)
            else:
                ours = row
                following = rows[position + 1]["name"] if position + 1 < len(rows) else ""
                if following not in [f"{name} · {peer}" for peer in PEERS]:  # else it stands in the peer's line
                    yield Figure(row["name"], row["value"], row["unit"], **judged)


def _compaction(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """This bench has each broker's figure and their ratio in rows of their own."""
    by_name = {row["name"]: row for row in rows}
    for case in dict.fromkeys(name.rpartition(": ")[0] for name in by_name):
        for suffix, ratio in (("", "times Kafka's rate"), (", CPU", "times Kafka's CPU")):
            mine = by_name[f"{case}: ours{suffix}"]
            theirs = by_name.get(f"{case}: Kafka{suffix}", {})
            judged = by_name.get(f"{case}: {ratio}", {})
            yield Figure(
                f"{case}{suffix}",
                mine["value"],
                mine["unit"],
                theirs.get("value"),
                "Kafka",
                judged.get("value"),
                judged.get("target", ""),
                judged.get("holds"),
            )


def number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def document() -> str:
    """docs/FIGURES.md."""
    lines = [
        "# Figures",
        "",
        "Written by `make figures` from `bench/history.jsonl`: the newest run of each bench, side by side with its",
        "peer in that run, medians. The machines are shared and noisy, so ratios count. A ratio is ours over the",
        "peer's; in the comparisons of single calls and for Spark it says how many times our time the peer takes.",
        "Run one yourself: `make bench ARGS=java`.",
    ]
    for name, record in newest().items():
        when = time.strftime("%Y-%m-%d", time.gmtime(record["when"])) if "when" in record else ""
        told = ", ".join(part for part in (record.get("machine", ""), when, f"commit {record['commit']}") if part)
        lines += [
            "",
            f"## {name}",
            "",
            told,
            "",
            "| what | Stratalog | peer | ratio | target | |",
            "|---|---|---|---|---|---|",
        ]
        for figure in figures(record):
            peer = f"{number(figure.peer)} ({figure.peer_name})" if figure.peer is not None else ""
            ratio = f"{number(figure.ratio)} x" if figure.ratio is not None else ""
            verdict = {True: "holds", False: "**missed**", None: ""}[figure.holds]
            cells = (figure.name, f"{number(figure.ours)} {figure.unit}".strip(), peer, ratio, figure.target, verdict)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table() -> str:
    """The README's."""
    records = newest()
    lines = ["| | Stratalog | Apache Kafka 4.3.1 |", "|---|---|---|"]
    for bench, start, label in README:
        found = figures(records[bench]) if bench in records else ()
        lines += [f"| {label} | {number(one.ours)} | {number(one.peer)} |" for one in found if one.name == start]
    return "\n".join(lines)


def readme(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main(argv: list[str]) -> int:
    page = ROOT / "README.md"
    wanted = {ROOT / "docs" / "FIGURES.md": document(), page: readme(page.read_text(encoding="utf-8"))}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the history gives: python -m bench.figures", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
