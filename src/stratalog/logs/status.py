"""`stratalog-status.json`: what a running broker knows of its logs and the files do not say, for `stratalog why`.

    {"written_ms": N, "settings": {"log.retention.ms": "1000"}, "partitions": {"orders-0": {"cleaning_failed": {...},
     "recovered": [...]}}}

`settings` are those of the broker's own keys (its file, `-o`) that decide about logs.  Written beside the checkpoints
at the start and when a cleaning fails or works again; only people read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stratalog.base.ports import Disk

if TYPE_CHECKING:
    from stratalog.logs.registry import Directory, LogRegistry

STATUS_FILE: Final = "stratalog-status.json"
_PARTITIONS_MAX: Final = 10_000
_FINDINGS_MAX: Final = 100


def status_of(logs: LogRegistry, directory: Directory, now_ms: int, settings: Mapping[str, str]) -> dict[str, Any]:
    partitions: dict[str, dict[str, Any]] = {}
    failures = {} if logs.cleaner is None else logs.cleaner.failures
    for key in list(directory.logs)[:_PARTITIONS_MAX]:
        entry: dict[str, Any] = {}
        failure = failures.get(key)
        if failure is not None:
            entry["cleaning_failed"] = {
                "error": failure.text,
                "at_ms": failure.at_ms,
                "attempts": failure.attempts,
                "next_ms": failure.next_ms,
            }
        report = logs.reports.get(key)
        if report is not None:
            entry["recovered"] = [
                {"kind": finding.kind, "path": finding.path, "text": finding.text}
                for finding in report.findings[:_FINDINGS_MAX]
            ]
        if entry:
            partitions[f"{key[0]}-{key[1]}"] = entry
    return {"written_ms": now_ms, "settings": dict(settings), "partitions": partitions}


def read_status(disk: Disk, directory: str) -> dict[str, Any]:
    """The file's content; empty where there is none or it cannot be read as one."""
    path = f"{directory}/{STATUS_FILE}"
    if not disk.exists(path):
        return {}
    try:
        found = json.loads(disk.read(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
