"""The profile's numbers are the topic's, counted by the test itself; the page stands alone and shows them."""

import itertools
import json
import re
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from jobs_kit import PARTITIONS, Sent
from logs_kit import Kit

import stratalog.testing
from stratalog.client import Producer
from stratalog.spark import profile, reason
from stratalog.spark.errors import OptionError
from stratalog.spark.jobs.page import bars, short
from stratalog.spark.jobs.profile import Counts, shown

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
TWICE = 40


@pytest.fixture(scope="module")
def broker():
    with stratalog.testing.broker({"in": PARTITIONS}) as running:
        yield running


@pytest.fixture(scope="module")
def sent(broker):
    """2,000 records, the last 40 of the second codec sent again with other times."""
    made = Sent(broker, "in").send(1_200, codec="zstd").send(800, codec="none")
    with broker.client() as client, Producer(client, compression="lz4") as producer:
        for row in made.rows[-TWICE:]:
            producer.send("in", row.value, key=row.key, partition=row.partition, timestamp=row.timestamp + 5)
    return made


def data_of(broker):
    return str(broker.directory / "data")


@pytest.fixture(scope="module", params=["path", "wire"])
def report(request, spark, broker, sent):
    options = {"path": data_of(broker)} if request.param == "path" else {"bootstrap": broker.bootstrap}
    return profile("in", spark, top=5, **options)


def everything(sent):
    return [*sent.rows, *(row._replace(timestamp=row.timestamp + 5) for row in sent.rows[-TWICE:])]


def test_totals_are_what_was_sent(report, sent) -> None:
    rows, total = everything(sent), report.total
    assert total.records == len(rows) == sum(one.records for one in report.partitions.values())
    assert total.key_bytes == sum(len(row.key or b"") for row in rows)
    assert total.value_bytes == sum(len(row.value or b"") for row in rows)
    assert total.null_keys == sum(row.key is None for row in rows)
    assert total.null_values == sum(row.value is None for row in rows)
    sizes = [len(row.key or b"") + len(row.value or b"") for row in rows]
    assert (total.size_min, total.size_max) == (min(sizes), max(sizes))
    assert total.sizes == Counter(size.bit_length() for size in sizes)
    assert (total.first_ms, total.last_ms) == (min(r.timestamp for r in rows), max(r.timestamp for r in rows))
    assert (total.missing, total.gaps) == (0, 0)
    assert set(report.partitions) == {f"in-{p}" for p in range(PARTITIONS)}


def test_rates_over_time_add_up_to_all_records(report, sent) -> None:
    times = Counter(row.timestamp // report.total.width_ms for row in everything(sent))
    assert {bucket: number for bucket, (number, _) in report.total.times.items()} == times


def test_late_records_are_those_behind_an_earlier_one(report, sent) -> None:
    late = 0
    for partition in range(PARTITIONS):
        stamps = [row.timestamp for row in sent.rows if row.partition == partition]
        stamps += [row.timestamp + 5 for row in sent.rows[-TWICE:] if row.partition == partition]
        late += sum(after < before for before, after in itertools.pairwise(stamps))
    assert report.total.late == late > 0


def test_keys_and_their_skew_are_exact(report, sent) -> None:
    counts = Counter(row.key for row in everything(sent))
    assert report.distinct_keys == len(counts) - 1, "records without a key have none"
    top = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert [one.records for one in report.top_keys] == [number for _, number in top]
    for one in report.top_keys:
        key = None if one.text is None else one.text.encode()
        assert one.records == counts[key]
        assert one.bytes == sum(len(r.key or b"") + len(r.value or b"") for r in everything(sent) if r.key == key)
    steps = Counter(number.bit_length() for key, number in counts.items() if key is not None)
    assert {step: keys for step, keys, _ in report.key_steps} == steps


def test_duplicates_have_the_key_and_value_of_an_earlier_record(report, sent) -> None:
    contents = Counter((row.key, row.value) for row in everything(sent))
    assert report.duplicates == sum(number - 1 for number in contents.values()) >= TWICE


def test_codecs_and_batches_are_those_of_the_log(report, broker) -> None:
    from stratalog.records.batch import batches

    seen: dict[str, list[int]] = {}
    for partition in range(PARTITIONS):
        for path in sorted((broker.directory / "data" / f"in-{partition}").glob("*.log")):
            for header in batches(path.read_bytes()):
                name = ("none", "gzip", "snappy", "lz4", "zstd")[header.attributes & 7]
                one = seen.setdefault(name, [0, 0])
                one[0] += 1
                one[1] += header.end - header.position
    assert set(seen) == {"zstd", "none", "lz4"}
    assert {name: list(found) for name, found in report.total.codecs.items()} == seen
    assert report.total.formats == Counter({2: sum(number for number, _ in seen.values())})


def test_gaps_of_a_compacted_log_and_of_transactions(spark, tmp_path) -> None:
    """What the cleaner removed and what was aborted are gaps; their sum is the offsets less the records."""
    kit = Kit(tmp_path / "data" / "t-0")
    for i in range(80):
        kit.put(*[(b"k%d" % ((i * 7 + j) % 30), b"v%d" % i) for j in range(5)])
    kit.put((b"x", b"aborted"), (b"y", b"aborted"), pid=3, txn=True)
    kit.marker(3, commit=False)
    kit.put((b"last", b"one"))
    kit.roll()
    kit.clean(map_bytes=24 << 20)
    kit.put((b"after", b"it"))
    kit.log.close()
    report = profile("t", spark, path=str(tmp_path / "data"))
    start, stop = report.offsets["t-0"]
    assert report.total.missing == stop - start - report.total.records > 300
    assert report.total.largest_gaps[0][0] == max(gap[0] for gap in report.total.largest_gaps)
    assert sum(gap[0] for gap in report.total.largest_gaps) <= report.total.missing
    assert report.total.control_batches == 1


class Page(HTMLParser):
    """Tags that stay open, and everything that would load something."""

    VOID = {"meta", "br", "link", "img", "input", "hr"}

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.text, self.titles = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe") or any(name in ("src", "href") for name, _ in attributes):
            self.loads.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


def test_the_page_stands_alone_and_its_plots_are_drawn(report, sent) -> None:
    """Well-formed, loads nothing; each plot is SVG whose bars are inside of the picture, the highest at the top."""
    text = report.html()
    page = Page()
    page.feed(text)
    assert page.open == [] and page.loads == []
    assert page.titles == ["Rate over time", "Sizes of records", "Partitions", "Keys", "Codecs", "Gaps"]
    everything_said = " ".join(page.text)
    for wanted in (f"{report.total.records:,}", f"{report.distinct_keys:,}", "zstd", "in-2", report.top_keys[0].text):
        assert (wanted or "(no key)") in everything_said
    plots = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(plots) >= 5
    for plot in plots:
        root = ElementTree.fromstring(plot)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        rectangles = [{k: float(v) for k, v in one.attrib.items()} for one in root.iter("rect")]
        assert rectangles
        for one in rectangles:
            assert one["x"] >= 0 and one["x"] + one["width"] <= width + 0.1
            assert one["y"] >= 0 and one["y"] + one["height"] <= height
        assert max(one["height"] for one in rectangles) == pytest.approx(height - 24 - 10, abs=0.1)


def test_what_comes_from_a_log_cannot_become_markup(spark, tmp_path) -> None:
    kit = Kit(tmp_path / "data" / "t-0")
    kit.put((b"<script>alert(1)</script>", b"v"), (b"\xff\x00", b"v"), (b"long" * 99, b"v"))
    kit.log.close()
    page = tmp_path / "page.html"
    report = profile("t", spark, path=str(tmp_path / "data"), page=page)
    text = page.read_text(encoding="utf-8")
    assert "<script>" not in text and "&lt;script&gt;alert(1)" in text and "0xff00" in text
    total = json.loads(json.dumps(report.as_dict()))["total"]
    assert (total["records"], total["formats"], sum(total["sizes"].values())) == (3, {"2": 1}, 3)


def test_an_empty_topic_has_a_profile(spark, broker, tmp_path) -> None:
    broker.create_topic("empty", 2)
    report = profile("empty", spark, bootstrap=broker.bootstrap, page=tmp_path / "p.html")
    assert (report.total.records, report.duplicates, report.top_keys) == (0, 0, [])
    page = Page()
    page.feed((tmp_path / "p.html").read_text(encoding="utf-8"))
    assert page.open == []


def test_times_that_are_far_apart_are_counted_in_few_buckets() -> None:
    """Two counts of other widths become one; nothing is lost."""
    one, two = Counts(), Counts()
    for second in range(5_000):
        one.count_time(second * 1000 // one.width_ms, 1, 10)
    two.count_time(4_999, 1, 10)
    one.add(two)
    assert len(one.times) <= 2048 and one.width_ms == 4000
    assert sum(number for number, _ in one.times.values()) == 5_001
    assert one.times[4_999_000 // 4000][0] >= 2


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"plain", "plain"), (b"", ""), (b"\x00\x01", "0x0001"), ("ü".encode(), "ü"), (b"a" * 97, "a" * 96 + "...")],
)
def test_keys_are_shown_as_people_read_them(key, text) -> None:
    assert shown(key) == text


def test_a_key_that_is_cut_in_a_character_is_still_text() -> None:
    assert shown("ü".encode() * 60 + b"").startswith("ü")
    assert shown(b"x" + "ü".encode() * 60).startswith("xü")


def test_scales_say_what_they_show() -> None:
    assert [short(value) for value in (0, 0.25, 5, 12.5, 999, 1_234_567)] == ["0", "0.2", "5", "12.5", "999", "1.2M"]
    assert "0.25 records/s" in bars([("a", 0.25), ("b", 1)], "records/s")


@pytest.mark.parametrize("top", [0, 10_001])
def test_a_wrong_top_is_one_line(spark, top) -> None:
    with pytest.raises(OptionError, match="1 to 10000"):
        profile("in", spark, path="x", top=top)


def test_a_missing_topic_is_one_line(spark, broker) -> None:
    with pytest.raises(Exception, match="nowhere") as raised:
        profile("nowhere", spark, path=data_of(broker))
    assert "\n" not in reason(raised.value)
