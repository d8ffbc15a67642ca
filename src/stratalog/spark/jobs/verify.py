"""The audit on Spark: a task for each partition of a data directory, the largest first; findings of `storage.audit`.

The driver audits what is between the partitions (checkpoints, small files, topic ids) once the tasks have told what
is in them, so that the findings are those of `stratalog verify`, in the same order.  Nothing is written.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from stratalog.records.kernels import load_kernels
from stratalog.server.disk import RealDisk
from stratalog.spark.errors import NotThere
from stratalog.spark.jobs.running import Progress, Watch, session_of, tasks
from stratalog.storage import layout
from stratalog.storage.audit import Finding, Summary, audit, audit_partition


@dataclass(slots=True)
class VerifyReport:
    """What was found, and what was looked at."""

    findings: list[Finding] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding._asdict() for finding in self.findings],
            **asdict(self.summary),
            "seconds": self.seconds,
        }


def verify(
    path: str | os.PathLike[str], spark: Any = None, *, no_holes: bool = False, progress: Progress | None = None
) -> VerifyReport:
    """Audit a data directory, or one partition's directory; a running broker's is fine.

    `no_holes`: missing offsets are findings, for topics that were never compacted.
    """
    begun = time.monotonic()
    root = os.path.abspath(os.fspath(path))
    if not os.path.isdir(root):
        raise NotThere(f"{root}: there is no such directory")
    compacted = False if no_holes else None
    report = VerifyReport()
    partitions = [
        entry.name for entry in os.scandir(root) if entry.is_dir() and layout.parse_directory(entry.name) is not None
    ]
    partitions.sort(key=lambda name: (-_size(f"{root}/{name}"), name))
    audited: dict[str, tuple[int, list[Finding]]] = {}
    if partitions:
        running = session_of(spark)
        work = _Audit(root, partitions, compacted)
        with Watch(running, "verify", progress):
            rows = tasks(running, len(partitions), work, "result binary").collect()
        for row in rows:
            name, end, findings, summary = pickle.loads(bytes(row[0]))
            audited[name] = (end, findings)
            for one in fields(Summary):
                setattr(report.summary, one.name, getattr(report.summary, one.name) + getattr(summary, one.name))
    report.findings.extend(audit(RealDisk(), root, compacted=compacted, summary=report.summary, audited=audited))
    report.seconds = time.monotonic() - begun
    return report


def _size(directory: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(directory) if entry.name.endswith(layout.LOG))


class _Audit:
    """In a task: one partition."""

    def __init__(self, root: str, partitions: list[str], compacted: bool | None) -> None:
        self._root = root
        self._partitions = partitions
        self._compacted = compacted

    def __call__(self, number: int) -> Iterator[Any]:
        import pyarrow as pa

        load_kernels()
        name = self._partitions[number]
        end, findings, summary = audit_partition(RealDisk(), f"{self._root}/{name}", compacted=self._compacted)
        result = pickle.dumps((name, end, findings, summary))
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])
