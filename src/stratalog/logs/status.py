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
from stratalog.storage.values import LoadReport

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
            entry["recovered"] = findings_of(report)
        if entry:
            partitions[f"{key[0]}-{key[1]}"] = entry
    return {"written_ms": now_ms, "settings": dict(settings), "partitions": partitions}


def findings_of(report: LoadReport) -> list[dict[str, str]]:
    """What a load found, as plain values."""
    return [
        {"kind": finding.kind, "path": finding.path, "text": finding.text}
        for finding in report.findings[:_FINDINGS_MAX]
    ]


def entry_of(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a status says of one partition; what has not the shape that `status_of` gives it is left out."""
    partitions = status.get("partitions")
    entry = partitions.get(name) if isinstance(partitions, dict) else None
    if not isinstance(entry, dict):
        return {}
    found: dict[str, Any] = {}
    failed = entry.get("cleaning_failed")
    if _has(failed, error=str, at_ms=int, attempts=int, next_ms=int):
        found["cleaning_failed"] = failed
    recovered = entry.get("recovered")
    if isinstance(recovered, list):
        found["recovered"] = [finding for finding in recovered if _has(finding, kind=str, path=str, text=str)]
    return found


def _has(value: Any, **types: type) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), type_) for name, type_ in types.items())


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
