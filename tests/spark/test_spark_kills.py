"""kill -9 of Python workers and of the driver in mid-batch, then counting: nothing lost, nothing doubled (issue 7).

A few kills here; `STRATALOG_KILLS=50` makes it fifty of each (about fifteen minutes), which is what the issue asks for.
A life of the driver costs the start of a JVM, so several things are done in each: the first lives are killed in a
streaming query, the next in a batch job, and in the last one only workers are.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stratalog.testing

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]
KILLS = int(os.environ.get("STRATALOG_KILLS", "0"))
DRIVER = Path(__file__).parent / "kill_driver.py"


class Life:
    """One life of the driver's program."""

    def __init__(self, broker, place):
        self.log = place / "driver.log"
        data = str(broker.directory / "data")
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), broker.bootstrap, data, str(place / "checkpoint")],
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        """The driver and its JVM at once; the workers find out by themselves."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self):
        """Python processes that a daemon of this driver's JVM has forked."""
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    status = Path("/proc", entry, "stat").read_text()
                    line = Path("/proc", entry, "cmdline").read_bytes()
                except OSError:
                    continue
                parents[int(entry)] = (int(status.rpartition(")")[2].split()[1]), line)
        named = {pid for pid, (_, line) in parents.items() if b"-m\0stratalog.spark.daemon" in line}
        daemons = {pid for pid in named if parents[pid][0] not in named and self.is_below(pid, parents)}
        return [pid for pid, (parent, _) in parents.items() if parent in daemons]

    def is_below(self, pid, parents):
        while pid in parents and pid != self.process.pid:
            pid = parents[pid][0]
        return pid == self.process.pid


def written(broker, topic):
    with broker.client() as client:
        partitions = client.topic(topic, refresh=True).partitions
        return sum(offset for offset, *_ in client.offsets(topic, dict.fromkeys(partitions, -1)).values())


def wait(life, until, what):
    deadline = time.monotonic() + 500
    while not until():
        assert time.monotonic() < deadline, f"{what}: {life.log.read_text()[-2000:]}"
        if life.ended:
            break
        time.sleep(0.02)


def kill_workers(life, rng, kills, until):
    """Kill workers at random moments, up to `kills` of them; how many there were."""
    killed = 0
    deadline = time.monotonic() + 60 + 5 * kills
    while killed < kills and not life.ended and not until() and time.monotonic() < deadline:
        workers = life.workers()
        if workers:
            try:
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        time.sleep(rng.uniform(0.1, 0.4))
    return killed


@pytest.mark.timeout(7200 if KILLS else 900)
def test_nothing_is_lost_or_doubled_when_workers_and_drivers_are_killed(tmp_path):
    rng = random.Random(KILLS)
    drivers = KILLS or 2
    workers = KILLS or 6
    killed = {"out": 0, "copy": 0, "workers": 0}
    count = 30 * drivers + 60 * workers + 600
    values = sorted(b"%d" % i for i in range(count))
    with stratalog.testing.broker({"in": 3, "out": 2, "copy": 4}) as broker:
        broker.produce("in", [(b"k%d" % (i % 37), value) for i, value in enumerate(values)])
        life = None
        try:
            for topic, kills in (("out", drivers - drivers // 2), ("copy", drivers // 2)):
                while killed[topic] < kills:
                    life = life or Life(broker, tmp_path)
                    goal = min(written(broker, topic) + rng.randrange(1, 60), count - 1)
                    wait(life, lambda topic=topic, goal=goal: written(broker, topic) >= goal, topic)
                    assert not life.ended, life.log.read_text()[-2000:]
                    assert written(broker, topic) < count, f"{topic}: the kill came too late, {killed}"
                    life.kill()
                    life = None
                    killed[topic] += 1
                    print(killed, flush=True)
                # The next life is not killed in this topic: its workers are.
                life = Life(broker, tmp_path)
                whole = lambda topic=topic: written(broker, topic) >= count  # noqa: E731
                killed["workers"] += kill_workers(life, rng, workers // 2, whole)
            wait(life, lambda: life.ended, "the last life")
            assert life.process.returncode == 0, life.log.read_text()[-4000:]
        finally:
            if life is not None and not life.ended:
                life.kill()
        print(killed, life.log.read_text().count("again:"), "queries begun again")
        assert killed["workers"] >= workers // 2, f"{killed}: too few to prove anything"
        for topic in ("out", "copy"):
            found = sorted(r.value for r in broker.records(topic))
            assert len(found) == len(set(found)), f"{topic}: {len(found) - len(set(found))} records twice, {killed}"
            assert found == values, f"{topic}: {len(values) - len(found)} records lost, {killed}"
