"""The names of a partition's files: what each suffix means, and a name taken apart.

    orders-2/                                 the partition's directory: topic, '-', partition
      00000000000000147001.log                a segment: batches; its name is the lowest offset that it can hold
      00000000000000147001.index              sparse offsets        (index_file.py, offset_index.py)
      00000000000000147001.timeindex          sparse timestamps     (time_index.py)
      00000000000000147001.txnindex           aborted transactions, made only when there is one (txn_index.py)
      00000000000000147001.snapshot           the producers as they were just before that offset (producers.py)
      leader-epoch-checkpoint                 (epochs.py)
      partition.metadata                      the topic's id (checkpoints.py)

Passing suffixes: `.deleted` leaves soon; `.cleaned` is being written by the cleaner or a split; `.swap` is complete
and replaces what it covers; `.damaged` is ours: evidence that recovery kept aside (recovery.py).  Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stratalog.base.types import Offset

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DAMAGED: Final = ".damaged"
TEMPORARY: Final = ".tmp"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
INDEX_SUFFIXES: Final = (INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LOCK: Final = ".lock"

OFFSET_DIGITS: Final = 20
DIRECTORY_DELETE_SUFFIX: Final = "-delete"
DIRECTORY_FUTURE_SUFFIX: Final = "-future"
DIRECTORY_STRAY_SUFFIX: Final = "-stray"
DIRECTORY_NAME_MAX: Final = 255
"""A name that file systems take; Kafka cuts the topic to fit."""


class FileName(NamedTuple):
    """A segment's or snapshot's file name taken apart: offset, kind (`.log` ...), and the passing suffix or ''."""

    offset: Offset
    kind: str
    state: str


def file_name(offset: int, kind: str, state: str = "") -> str:
    """`147001, '.log'` gives `00000000000000147001.log`."""
    return f"{offset:020d}{kind}{state}"


def path_of(directory: str, offset: int, kind: str, state: str = "") -> str:
    return f"{directory}/{offset:020d}{kind}{state}"


def parse(name: str) -> FileName | None:
    """What a file of a partition's directory is, None for one that is no segment's and no snapshot's."""
    digits, dot, rest = name.partition(".")
    if not dot or not digits.isascii() or not digits.isdigit() or len(digits) > OFFSET_DIGITS:
        return None
    kind, _, state = rest.partition(".")
    kind = "." + kind
    if kind not in SEGMENT_SUFFIXES and kind != SNAPSHOT:
        return None
    offset = int(digits)
    if offset >= 1 << 63:
        return None
    return FileName(Offset(offset), kind, "." + state if state else "")


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory(name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory's name, None for one that is not a live partition's."""
    if name.endswith((DIRECTORY_DELETE_SUFFIX, DIRECTORY_STRAY_SUFFIX, DIRECTORY_FUTURE_SUFFIX)) and "." in name:
        return None
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    return topic, int(digits)


def renamed_directory(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name under which a directory waits for its deletion, move or inspection: `orders-2.<unique>-delete`."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: DIRECTORY_NAME_MAX - len(tail)] + tail
