"""Audit a partition's directory or a whole data directory, without changing it.

    stratalog verify ./stratalog-data           every log and every small file of a data directory
    stratalog verify ./stratalog-data/orders-0  one partition

Checks the CRC of each batch, offsets, indexes, time indexes and transaction indexes against the log, producer snapshots
against a replay, leader epochs, checkpoints, topic ids, and files that do not belong there.  A running broker's
directory is fine.  Prints one line for each finding: where, what, and what to do; the exit code is 1 when there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os

from stratalog.cli import UsageError
from stratalog.cli.output import Progress, count, printable, size


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="+", metavar="PATH", help="a partition's directory or a data directory")
    parser.add_argument("--json", action="store_true", help="one JSON object a line for each finding")
    parser.add_argument(
        "--no-holes",
        action="store_true",
        help="offsets that are missing are findings too: for topics that were never compacted",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print findings only")


def run(args: argparse.Namespace) -> int:
    from stratalog.records import kernels
    from stratalog.server.disk import RealDisk
    from stratalog.storage.audit import Summary, audit

    disk = RealDisk()
    for path in args.path:
        if not disk.is_dir(path):
            raise UsageError(f"{path}: no directory (stratalog dump shows single files)")
    if importlib.util.find_spec("numba") is not None and _is_large(args.path):
        kernels.load_kernels()
    found = 0
    summary = Summary()
    with Progress("verify") as progress:
        done = 0
        for path in args.path:
            base = done

            def show(so_far: int, total: int, base: int = base) -> None:
                nonlocal done
                done = base + so_far
                progress.update(done, base + total)

            for finding in audit(
                disk, path, progress=show, compacted=False if args.no_holes else None, summary=summary
            ):
                found += 1
                print(json.dumps(finding._asdict()) if args.json else printable(str(finding)), flush=True)
    if not args.quiet and not args.json:
        holes = f", {count(summary.holes)} holes as compaction leaves them" if summary.holes else ""
        print(
            f"{count(found)} findings: {count(summary.partitions)} partitions, {count(summary.segments)} segments, "
            f"{count(summary.batches)} batches, {size(summary.bytes)}{holes}"
        )
    return 1 if found else 0


def _is_large(paths: list[str], limit: int = 64 << 20) -> bool:
    """Whether the log files are worth the seconds that loading the kernels may take."""
    total = 0
    for path in paths:
        for directory, _, names in os.walk(path):
            for name in names:
                if name.endswith(".log"):
                    with contextlib.suppress(OSError):  # deleted meanwhile, or told later
                        total += os.path.getsize(f"{directory}/{name}")
            if total > limit:
                return True
    return False
