"""The compaction job against the broker's cleaner: same input, same files, to the byte."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from logs_kit import NOW, Kit

import kafka_peer
from stratalog.spark.jobs import job
from stratalog.spark.jobs.compact import compact as compact_function
from stratalog.storage import layout

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DAY = 86_400_000
CONFIG = {
    "internal.segment.bytes": "4096",
    "segment.index.bytes": "4096",
    "index.interval.bytes": "200",
    "max.message.bytes": str(1 << 20),
}


def log_files(directory):
    """Names and bytes of everything that is a segment's; names alone of the rest."""
    found = {}
    for name in sorted(os.listdir(directory)):
        kind = os.path.splitext(name)[1]
        if kind in (".log", ".index", ".timeindex", ".txnindex"):
            with open(os.path.join(directory, name), "rb") as file:
                found[name] = file.read()
        else:
            assert kind in ("", ".snapshot"), f"{name} is left over"
    return found


def cleaned_by_the_cleaner(directory, *, now, first=None, retention=DAY):
    kit = Kit(directory, delete_retention_ms=retention, file_delete_delay_ms=0)
    kit.log.close()
    kit.now = now
    kit.open(had_clean_shutdown=True)
    job = kit.clean(first, map_bytes=24 << 20)
    kit.log.close()
    return job


def both(spark, tmp_path, kit, *, now=NOW, first=None, retention=DAY, **options):
    """The same log cleaned by both; returns the job's report of the partition."""
    kit.log.close()
    for name in ("a", "b"):
        shutil.copytree(kit.directory, tmp_path / name / "t-0")
        for entry in os.scandir(kit.directory):  # times of files decide about tombstones of old formats
            os.utime(tmp_path / name / "t-0" / entry.name, ns=(entry.stat().st_mtime_ns,) * 2)
    by_cleaner = cleaned_by_the_cleaner(tmp_path / "a" / "t-0", now=now, first=first, retention=retention)
    report = compact_function(
        tmp_path / "b" / "t-0",
        spark,
        config={**CONFIG, "delete.retention.ms": str(retention)},
        now_ms=now,
        **options,
    )
    assert log_files(tmp_path / "b" / "t-0") == log_files(tmp_path / "a" / "t-0")
    done = report.partitions[0]
    assert done.end == by_cleaner.end_offset
    assert done.records_before == by_cleaner.stats.records_read
    assert done.records_after == by_cleaner.stats.records_written
    return done


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path / "source" / "t-0")


def test_the_job_writes_what_the_cleaner_writes(spark, tmp_path, kit) -> None:
    """Batches with and without a codec, tombstones, records without a key's survivor, several segments a task."""
    rng = random.Random(5)
    for i in range(300):
        kit.put(
            *[(b"k%d" % rng.randrange(150), None if rng.random() < 0.1 else rng.randbytes(40)) for _ in range(5)],
            codec=rng.randrange(5) if i % 3 == 0 else 0,
            headers=[("h", b"x")] if i % 7 == 0 else (),
        )
    done = both(spark, tmp_path, kit, task_bytes=10_000)
    assert done.segments_before > 20
    assert done.records_after == 150 and done.bytes_after < done.bytes_before // 5


def test_transactions_and_markers_end_as_in_the_cleaner(spark, tmp_path, kit) -> None:
    """C02, C03, LM-8: aborted data goes, markers stay as long as the cleaner keeps them, over the borders of groups."""
    rng = random.Random(6)
    for i in range(120):
        pid = rng.randrange(4)
        open_for = rng.randrange(1, 8)
        for _ in range(open_for):
            kit.put(*[(b"k%d" % rng.randrange(60), rng.randbytes(50)) for _ in range(4)], pid=pid, txn=True)
            kit.put((b"plain%d" % rng.randrange(30), rng.randbytes(60)))
        kit.marker(pid, commit=bool(i % 3))
        if i % 5 == 0:
            kit.put((b"old%d" % i, None), pid=9)
    kit.roll()
    both(spark, tmp_path, kit, task_bytes=20_000)


def test_a_second_cleaning_long_after_equals_the_cleaners(spark, tmp_path, kit) -> None:
    """LM-5: the clean head is compared with the new keys; tombstones and markers past their horizon go."""
    rng = random.Random(7)
    for i in range(60):
        kit.put(*[(b"k%d" % rng.randrange(200), rng.choice([None, rng.randbytes(30)])) for _ in range(5)])
        kit.put((b"t%d" % rng.randrange(40), b"v"), pid=1, txn=True)
        kit.marker(1, commit=bool(i % 2))
    kit.roll()
    first = kit.clean(map_bytes=24 << 20)
    for _ in range(60):
        kit.put(*[(b"k%d" % rng.randrange(200), rng.choice([None, rng.randbytes(30)])) for _ in range(5)])
    kit.roll()
    directory = kit.directory
    root = os.path.dirname(directory)
    with open(f"{root}/cleaner-offset-checkpoint", "w") as file:
        file.write(f"0\n1\nt 0 {first.end_offset}\n")
    kit.log.close()
    for name in ("a", "b"):
        shutil.copytree(root, tmp_path / name)
    later = NOW + 10 * DAY
    cleaned_by_the_cleaner(tmp_path / "a" / "t-0", now=later, first=first.end_offset)
    report = compact_function(
        tmp_path / "b" / "t-0", spark, config={**CONFIG, "delete.retention.ms": str(DAY)}, now_ms=later
    )
    assert report.partitions[0].first_dirty == first.end_offset > 0
    assert log_files(tmp_path / "b" / "t-0") == log_files(tmp_path / "a" / "t-0")


def test_keys_that_do_not_fit_into_a_map_still_count_once(spark, tmp_path, kit) -> None:
    """A task's map of 42 slots against 3,000 keys, far more than ten times as many: it is sent on again and again, the
    shuffle has the last word."""
    rng = random.Random(8)
    for _ in range(400):
        kit.put(*[(b"key%d" % rng.randrange(3000), rng.randbytes(20)) for _ in range(10)])
    done = both(spark, tmp_path, kit, map_bytes=1024)
    assert done.records_after > 1500


def test_an_end_before_the_commit_leaves_the_old_log(spark, tmp_path, kit, monkeypatch) -> None:
    """Everything is written and then the driver dies: the files of the log are what they were, also for who loads it,
    and the next run removes the rest and succeeds."""
    module = sys.modules["stratalog.spark.jobs.compact"]
    for i in range(200):
        kit.put(*[(b"k%d" % (i * j % 50), b"v" * 30) for j in range(5)])
    kit.log.close()
    before = log_files(kit.directory)

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "_commit", killed)
        patch.setattr(module, "_remove_work", lambda *_: None)
        with pytest.raises(Killed):
            compact_function(kit.directory, spark, config=CONFIG, now_ms=NOW)
    left = [name for name in os.listdir(kit.directory) if name.startswith(".compact-")]
    assert len(left) == 1 and os.listdir(os.path.join(kit.directory, left[0]))
    os.rename(os.path.join(kit.directory, left[0]), tmp_path / "aside")
    assert log_files(kit.directory) == before
    os.rename(tmp_path / "aside", os.path.join(kit.directory, left[0]))
    kit.open(had_clean_shutdown=True)
    assert len(kit.records()) == 1000
    done = both(spark, tmp_path, kit).records_after
    assert done < 200


def test_an_end_in_the_middle_of_the_swap_is_finished_by_the_next_load(spark, tmp_path, kit, monkeypatch) -> None:
    """ST-10: after the first `.swap` name the log loads as the old one or the new one, never a mixture."""
    for i in range(200):
        kit.put(*[(b"k%d" % (i * j % 50), b"v" * 30) for j in range(5)])
    kit.log.close()
    pristine = tmp_path / "pristine"
    shutil.copytree(kit.directory, pristine)
    old = [(r.offset, r.value) for r in _records(pristine)]
    module = sys.modules["stratalog.spark.jobs.compact"]
    tasks_once = _Once(module._run, tmp_path / "written")
    monkeypatch.setattr(module, "_run", tasks_once)
    compact_function(kit.directory, spark, config=CONFIG, now_ms=NOW)
    new = [(r.offset, r.value) for r in _records(kit.directory)]
    assert len(new) < len(old)
    from stratalog.server.disk import RealDisk

    rename = RealDisk.rename
    seen = set()
    for stop in range(1, 400, 9):
        shutil.rmtree(kit.directory)
        shutil.copytree(pristine, kit.directory)
        count = 0

        def failing(self, source, target, stop=stop):
            nonlocal count
            count += 1
            if count >= stop:
                raise KeyboardInterrupt
            return rename(self, source, target)

        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "rename", failing)
            patch.setattr(job("compact").__globals__["Log"], "close", lambda self, **_: None)
            try:
                compact_function(kit.directory, spark, config=CONFIG, now_ms=NOW)
            except KeyboardInterrupt:
                pass
        kit.open()
        now = [(r.offset, r.value) for r in _records(kit.directory)]
        assert now in (old, new), f"a mixture after {stop} renames"
        seen.add(len(now))
        kit.log.close()
        if count < stop:
            break
    assert seen == {len(old), len(new)}


class _Once:
    """What the tasks write, written once and copied from then on: the test is about what comes behind it."""

    def __init__(self, run, place):
        self._run, self._place, self._results = run, place, None

    def __call__(self, spark, plan, *rest):
        if self._results is None:
            self._results = self._run(spark, plan, *rest)
            shutil.copytree(plan.work, self._place)
        else:
            shutil.copytree(self._place, plan.work, dirs_exist_ok=True)
        return [
            {**one, "directory": os.path.join(plan.work, os.path.basename(one["directory"]))} for one in self._results
        ]


def _records(directory):
    from stratalog.reader import open_log

    found = []

    class Row:
        def __init__(self, offset, value):
            self.offset, self.value = offset, value

    for batch in open_log(directory).scan(columns=("offset", "value")):
        found += [Row(*pair) for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)]
    return found


@pytest.mark.java
@pytest.mark.skipif(kafka_peer.kafka_home() is None, reason=kafka_peer.why_missing() or "no Kafka")
def test_survivors_are_those_of_kafkas_own_cleaner(spark, tmp_path) -> None:
    """Kafka 4.3.1 and the job clean copies of the same logs, twice, the second time after the horizon: the same
    records, batch fields, retained empty batches, delete horizons, segments and rows of aborted transactions."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
    from test_kafka_compaction import kafkas, surviving, workload

    pairs = []
    for seed in (0, 3):
        source = tmp_path / str(seed) / "t-0"
        kit = Kit(source, segment_bytes=6000)
        workload(kit, seed, "all")
        kit.log.close()
        # As after a clean stop: else the job recovers the log, which finds later beginnings of transactions that the
        # first cleaning has thinned out.
        (tmp_path / f"{seed}-job").mkdir()
        (tmp_path / f"{seed}-job" / layout.CLEAN_SHUTDOWN).touch()
        pairs.append((source, shutil.copytree(source, tmp_path / f"{seed}-job" / "t-0")))
    config = {**CONFIG, "internal.segment.bytes": "6000", "delete.retention.ms": str(DAY)}
    for now in (NOW + 1000, NOW + 2000 + 2 * DAY):
        ends = kafkas(*[(kafka, now, 24 << 12, DAY, 6000, 0, 0) for kafka, _ in pairs])
        for (kafka, home), end in zip(pairs, ends, strict=True):
            done = compact_function(home, spark, config=config, now_ms=now).partitions[0]
            assert done.end == end
            assert surviving(home) == surviving(kafka)


def test_numbers_are_spread_as_spark_hashes_them(spark) -> None:
    """`repartition` puts the i-th number into partition i modulo the partitions."""
    from stratalog.spark.jobs.running import spread

    numbers = spread(20, 7)
    assert numbers == sorted(set(numbers))
    chosen = ",".join(map(str, numbers))
    rows = spark.range(numbers[-1] + 1).where(f"id IN ({chosen})").selectExpr("id", "pmod(hash(id), 7)").collect()
    assert sorted(map(tuple, rows)) == [(number, index % 7) for index, number in enumerate(numbers)]


def test_wrong_arguments_are_one_clear_line(spark, tmp_path, kit) -> None:
    """A missing topic names the path and what is there; a broker's data directory in use is refused."""
    from stratalog.server.disk import RealDisk
    from stratalog.spark.errors import SparkSourceError

    kit.put((b"k", b"v"))
    kit.log.close()
    root = os.path.dirname(kit.directory)
    with pytest.raises(SparkSourceError, match=r"no partition of nope; there are t"):
        compact_function(root, spark, topics=["nope"])
    with pytest.raises(SparkSourceError, match="name the topics"):
        compact_function(root, spark)
    with pytest.raises(SparkSourceError, match="no such directory"):
        compact_function(os.path.join(root, "nothing"), spark)
    with open(f"{root}/meta.properties", "w") as file:
        file.write("version=1\ncluster.id=abc\nnode.id=1\n")
    with RealDisk().lock(f"{root}/.lock"), pytest.raises(SparkSourceError, match="stop the broker first"):
        compact_function(kit.directory, spark)
