"""A profile as one HTML page: tables, and plots drawn as SVG.  It loads nothing and runs no script.

Pure: a report in, text out.  Everything that comes from a log (topic, keys) is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stratalog.spark.jobs.profile import Counts, ProfileReport

WIDTH: Final = 760
HEIGHT: Final = 200
BARS_MAX: Final = 120
"""Bars in a plot of time: six pixels each."""
_LEFT: Final = 70
_BOTTOM: Final = 24
_STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1c2430, #e4e8ee); --soft: light-dark(#667083, #97a1b2);
  --line: light-dark(#d9dee6, #39424f); --bar: light-dark(#2f6fb5, #6ba6e6); --back: light-dark(#fff, #14181e); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
p, caption { color: var(--soft); } caption { text-align: left; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; } th, td { text-align: right; padding: .2rem .6rem;
  border-bottom: 1px solid var(--line); } th:first-child, td:first-child { text-align: left; padding-left: 0;
  overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem; margin: 1.5rem 0; }
.facts b { display: block; font-size: 1.25rem; } .facts span { color: var(--soft); }
svg { width: 100%; height: auto; } svg rect { fill: var(--bar); }
svg text { fill: var(--soft); font-size: 11px; } svg line { stroke: var(--line); }
"""


def profile_page(report: ProfileReport) -> str:
    """The page."""
    total = report.total
    parts = [
        f"<h1>{escape(report.topic)}</h1><p>{escape(report.place)}</p>",
        _facts(report),
        "<h2>Rate over time</h2>" + _rate(total),
        "<h2>Sizes of records</h2>"
        + bars([(f"{_size(1 << (b - 1) if b else 0)}+", total.sizes.get(b, 0)) for b in _span(total.sizes)], "records")
        + f"<p>Key and value together; the smallest {_size(total.size_min if total.records else 0)}, the largest "
        f"{_size(total.size_max)}.</p>",
        "<h2>Partitions</h2>" + _partitions(report),
        "<h2>Keys</h2>" + _keys(report),
        "<h2>Codecs</h2>" + _codecs(total),
        "<h2>Gaps</h2>" + _gaps(total),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.topic)}: profile</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<p>Made by stratalog in {report.seconds:.1f} s.</p>\n</body></html>\n"
    )


def _facts(report: ProfileReport) -> str:
    total = report.total
    stored = sum(size for _, size in total.codecs.values())
    raw = total.key_bytes + total.value_bytes
    facts = [
        (f"{total.records:,}", "records"),
        (_size(raw), "keys and values"),
        (_size(stored), f"as stored ({raw / stored:.1f} : 1)" if stored else "as stored"),
        (f"{report.distinct_keys:,}", "different keys"),
        (f"{total.null_keys:,}", "without a key"),
        (f"{total.null_values:,}", "without a value"),
        ("not asked for" if report.duplicates is None else f"{report.duplicates:,}", "repeat an earlier record"),
        (f"{total.missing:,}", f"offsets missing in {total.gaps:,} gaps"),
        (f"{total.late:,}", "earlier than the one before"),
    ]
    if total.last_ms >= 0:
        facts += [(_time(total.first_ms), "first time (UTC)"), (_time(total.last_ms), "last time (UTC)")]
    return (
        '<div class="facts">'
        + "".join(f"<div><b>{value}</b><span>{what}</span></div>" for value, what in facts)
        + ("</div>")
    )


def _rate(total: Counts) -> str:
    if not total.times:
        return "<p>No record has a time.</p>"
    width, first, last = total.width_ms, min(total.times), max(total.times)
    while last - first + 1 > BARS_MAX:
        width, first, last = width * 2, first // 2, last // 2
    factor = width // total.width_ms
    rows = [[0, 0] for _ in range(last - first + 1)]
    for bucket, (records, size) in total.times.items():
        rows[bucket // factor - first][0] += records
        rows[bucket // factor - first][1] += size
    seconds = width / 1000
    labels = [_time((first + index) * width) for index in range(len(rows))]
    records_ = [(label, row[0] / seconds) for label, row in zip(labels, rows, strict=True)]
    bytes_ = [(label, row[1] / seconds) for label, row in zip(labels, rows, strict=True)]
    return (
        bars(records_, "records/s", few_labels=True)
        + bars(bytes_, "bytes/s", few_labels=True)
        + f"<p>Each bar is {_duration(seconds)}.</p>"
    )


def _partitions(report: ProfileReport) -> str:
    rows = [
        (
            name,
            f"{report.offsets[name][0]:,}",
            f"{report.offsets[name][1]:,}",
            f"{one.records:,}",
            _size(one.key_bytes + one.value_bytes),
            f"{one.missing:,}",
        )
        for name, one in report.partitions.items()
    ]
    plot = bars([(name.rpartition("-")[2], one.records) for name, one in report.partitions.items()], "records")
    return plot + table(("partition", "from", "to", "records", "size", "missing"), rows)


def _keys(report: ProfileReport) -> str:
    total = report.total
    rows = [
        (
            "(no key)" if key.text is None else key.text,
            f"{key.records:,}",
            f"{key.records / max(total.records, 1):.1%}",
            _size(key.bytes),
        )
        for key in report.top_keys
    ]
    steps = [(f"{1 << (step - 1):,}+", records) for step, _, records in report.key_steps]
    return (
        bars(steps, "records")
        + "<p>Records by how often their key comes: the further right the weight, the more skewed the topic.</p>"
        + table(("key", "records", "share", "size"), rows)
    )


def _codecs(total: Counts) -> str:
    rows = [
        (name, f"{batches:,}", _size(size), _size(size / batches))
        for name, (batches, size) in sorted(total.codecs.items())
    ]
    formats = ", ".join(f"v{magic}: {number:,}" for magic, number in sorted(total.formats.items()))
    return (
        bars([(name, size) for name, (_, size) in sorted(total.codecs.items())], "bytes stored")
        + table(("codec", "batches", "stored", "each"), rows)
        + f"<p>Batches by format: {formats or 'none'}; {total.control_batches:,} of them are control batches.</p>"
    )


def _gaps(total: Counts) -> str:
    rows = [(name, f"{first:,}", f"{missing:,}") for missing, name, first in total.largest_gaps]
    return (
        "<p>Offsets without a record: what compaction removed, markers of transactions, aborted records, and what was "
        f"lost. {total.missing:,} in {total.gaps:,} gaps.</p>"
    ) + (table(("the largest", "first missing", "missing"), rows) if rows else "")


# --- tables and plots ------------------------------------------------------------------------------------------------
def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are escaped."""
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def bars(points: Sequence[tuple[str, float]], unit: str, *, few_labels: bool = False) -> str:
    """Bars with a scale on the left and a label below each, or below the first and the last."""
    if not points:
        return ""
    top = max(max(value for _, value in points), 1e-9)
    step = (WIDTH - _LEFT) / len(points)
    drawn = []
    every = max(len(points) // 12, 1)
    for index, (label, value) in enumerate(points):
        height = value / top * (HEIGHT - 10)
        x = _LEFT + index * step
        drawn.append(
            f'<rect x="{x:.1f}" y="{HEIGHT - height:.1f}" width="{max(step - 1.5, 0.8):.1f}" height="{height:.1f}">'
            f"<title>{escape(label)}: {_number(value)} {unit}</title></rect>"
        )
        if not few_labels and index % every == 0:
            drawn.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{escape(label)}</text>')
    if few_labels:
        drawn.append(f'<text x="{_LEFT}" y="{HEIGHT + 16}">{escape(points[0][0])}</text>')
        drawn.append(f'<text x="{WIDTH}" y="{HEIGHT + 16}" text-anchor="end">{escape(points[-1][0])}</text>')
    for part in (0.0, 0.5, 1.0):
        y = HEIGHT - part * (HEIGHT - 10)
        drawn.append(f'<line x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(top * part)}</text>')
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT + _BOTTOM}" role="img" aria-label="{escape(unit)}">'
        + "".join(drawn)
        + f"</svg><figcaption>{escape(unit)}</figcaption></figure>"
    )


def _number(value: float) -> str:
    """All digits of what is counted; rates below 100 with two places."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def short(value: float) -> str:
    """1234567 is `1.2M`."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or unit == "T":
            return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")


def _span(counts: dict[int, int]) -> range:
    return range(min(counts), max(counts) + 1) if counts else range(0)


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"  # a time that no calendar has


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
