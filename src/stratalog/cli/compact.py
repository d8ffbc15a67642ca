"""Clean a compacted partition offline: keep the last record of each key, as the broker's cleaner would.

    stratalog compact ./stratalog-data/users-0

The broker must not be running on the directory.  Offsets of the survivors stay as they are; the active segment is left
alone unless --roll begins a new one first.  A map that is too small for all keys means several passes.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

from stratalog.base.failures import Malformed
from stratalog.cli import UsageError
from stratalog.cli.output import Progress, add_json, count, duration, print_json, size

if TYPE_CHECKING:
    from stratalog.server.disk import RealDisk
    from stratalog.storage.config import LogConfig


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the partition's directory, for example ./data/users-0")
    parser.add_argument("--config", metavar="FILE", help="the broker's server.properties")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="a topic key")
    parser.add_argument("--roll", action="store_true", help="begin a new segment first: all records are cleaned")
    parser.add_argument("--map-mib", type=int, default=128, metavar="N", help="the map of keys (default 128)")
    parser.add_argument("--force", action="store_true", help="also when cleanup.policy does not say compact")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from stratalog.cli._data import Configurations, print_findings
    from stratalog.server.disk import RealDisk
    from stratalog.storage import layout

    disk = RealDisk()
    directory = os.path.normpath(args.directory)
    data, name = os.path.split(os.path.abspath(directory))
    key = layout.parse_directory(name)
    if key is None or not disk.is_dir(directory):
        raise UsageError(f"{directory}: not a partition's directory (TOPIC-PARTITION)")
    if args.map_mib < 1:
        raise UsageError(f"--map-mib {args.map_mib}: at least 1")
    config = Configurations(disk, data, file=args.config, options=args.option).of(key[0])
    if not config.compact and not args.force:
        raise UsageError(
            f"{name}: its cleanup.policy is {','.join(config.cleanup_policy)}; --force (or -o cleanup.policy=compact) "
            "cleans it all the same"
        )
    try:
        lock = disk.lock(f"{data}/{layout.LOCK}")
    except BlockingIOError as error:
        raise UsageError(f"{data}: a broker is running on it; stop it first") from error
    with lock:
        answer = _clean(disk, data, key, config, args)
    if args.json:
        print_json(answer)
        return 0
    before, after = answer["bytes_before"], answer["bytes_after"]
    print(
        f"{name}: {size(before)} became {size(after)}, {count(answer['records_read'])} records "
        f"became {count(answer['records_kept'])}, passes: {answer['passes']}, {duration(answer['seconds'])}; "
        f"clean up to offset {answer['end_offset']}"
    )
    if answer["keyless"]:
        print(f"{count(answer['keyless'])} records without a key were dropped")
    print_findings(answer["recovered"])
    return 0


def _clean(
    disk: RealDisk, data: str, key: tuple[str, int], config: LogConfig, args: argparse.Namespace
) -> dict[str, Any]:
    from stratalog.logs.cleaner import choice
    from stratalog.logs.cleaner.cleaning import Cleaning
    from stratalog.logs.cleaner.manager import facts_of
    from stratalog.logs.status import findings_of
    from stratalog.logs.view import offsets_of
    from stratalog.records.kernels import load_kernels
    from stratalog.records.offset_map import OffsetMap
    from stratalog.storage import checkpoints, layout
    from stratalog.storage.log import Log

    started = time.monotonic()
    now = int(time.time() * 1000)
    log = Log.open(
        disk,
        f"{data}/{key[0]}-{key[1]}",
        topic=key[0],
        partition=key[1],
        config=config,
        now_ms=now,
        log_start_offset=offsets_of(disk, data, layout.LOG_STARTS, key) or 0,
        recovery_point=offsets_of(disk, data, layout.RECOVERY_POINTS, key) or 0,
        had_clean_shutdown=disk.exists(f"{data}/{layout.CLEAN_SHUTDOWN}"),
    )
    high = offsets_of(disk, data, layout.HIGH_WATERMARKS, key)
    log.update_high_watermark(log.log_end_offset if high is None else high)
    if args.roll and log.active_segment.size:
        log.roll(now)
    if log.size > 1 << 20:
        load_kernels()
    first = offsets_of(disk, data, layout.CLEANER_OFFSETS, key)
    answer: dict[str, Any] = {"bytes_before": log.size, "records_read": 0, "records_kept": 0, "keyless": 0, "passes": 0}
    offsets = OffsetMap(args.map_mib << 20, secret=secrets.token_bytes(16))
    deletions = []
    end = first if first is not None else log.log_start_offset
    try:
        with Progress(f"compact {key[0]}-{key[1]}") as bar:
            while True:
                target = choice.cleanable(facts_of(log), first, now)
                if target.first_dirty >= target.first_uncleanable:
                    break
                job = Cleaning(log, target, lambda: offsets, now_ms=now)
                try:
                    while not job.done:
                        job.advance(16 << 20)
                        bar.update(job.stats.map_bytes_read + job.stats.bytes_read, job.bytes_total)
                        if job.ready is not None:
                            deletions.append(job.swap())
                finally:
                    job.discard()  # also what a damaged batch or a full disk left half written
                first = end = job.end_offset
                answer["passes"] += 1
                answer["records_read"] += job.stats.records_read
                answer["records_kept"] = job.stats.records_written
                answer["keyless"] += job.stats.invalid
    finally:
        log.close(clean=log.fenced is None)
        for deletion in deletions:
            if deletion is not None:
                log.finish_deletion(deletion)
    path = f"{data}/{layout.CLEANER_OFFSETS}"
    try:
        entries = {(entry[0], entry[1]): offset for entry, offset in checkpoints.read_offsets(disk, path).items()}
    except Malformed:
        entries = {}  # as a broker does: the logs whose entries are lost are cleaned from their start once more
    checkpoints.write_offsets(disk, path, {**entries, key: end})
    return {
        **answer,
        "bytes_after": log.size,
        "end_offset": end,
        "seconds": time.monotonic() - started,
        "recovered": findings_of(log.report),
    }
