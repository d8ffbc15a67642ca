"""Spark's own Kafka source beside ours: the jars that make `format("kafka")` work in a test or a bench.

They are not part of this repository.  They are looked for in `.cache/spark-kafka` below it, which is filled once from
Maven Central; no complete set of one version is there, so these are the ones that were found to work together with
PySpark 4.3.  `jars()` is None where they cannot be had, and `why_missing()` says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "spark-kafka"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_reasons: list[str] = []


@functools.cache
def jars() -> list[Path] | None:
    """The jars for `spark.jars`, brought here when that is possible."""
    wanted = [CACHE / f"{name}-{version}.jar" for _, name, version in ARTIFACTS]
    if all(jar.exists() for jar in wanted):
        return wanted
    if shutil.which("mvn") is None:
        _reasons.append("no jars of Spark's Kafka source in .cache/spark-kafka, and no Maven to bring them")
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context((CACHE.parent / "spark-kafka.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar, (group, name, version) in zip(wanted, ARTIFACTS, strict=True):
            if jar.exists():
                continue
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={group}:{name}:{version}"]
            try:
                done = subprocess.run(
                    [*command, f"-DoutputDirectory={CACHE}"], capture_output=True, text=True, timeout=300, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                _reasons.append(f"{name} could not be brought from Maven Central: {error}")
                return None
            if not jar.exists():
                text = (done.stderr or done.stdout).strip().splitlines()
                _reasons.append(f"{name} could not be brought from Maven Central: {text[0] if text else ''}")
                return None
    return wanted


def why_missing() -> str:
    """One line for a skipped test; empty when the jars are there."""
    return "" if jars() is not None else _reasons[-1]


if __name__ == "__main__":
    found = jars()
    print(",".join(map(str, found)) if found else why_missing())
    sys.exit(0 if found else 1)
