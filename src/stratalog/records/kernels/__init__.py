"""The dispatcher of the kernels: the plain twin serves until the compiled one is there.

Owns the error codes that both twins return, the layout of a batch table, and the one decision which twin answers.
`best()` is cheap and may be called from any thread at any time; `load_kernels()` imports Numba, compiles or loads what
is cached, and takes up to a minute the first time: call it on a pool thread, never on the loop.  Nothing here imports
NumPy or Numba before `load_kernels()`.

Both twins (`plain` and `kernels.compiled`) have `walk`, `crc32c`, `scan_batches`, `hash_key`, `OffsetSlots` and
`filter_run`; for Arrow the one has `read_columns`, the other writes into Arrow's own memory (`fill`).  Property tests
hold them equal, errors included.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
from array import array
from typing import Any, Final, NamedTuple

from stratalog.base.limits import RECORD_DECOMPRESSED_BYTES_MAX
from stratalog.base.types import Buffer

# --- what a twin answers ------------------------------------------------------------------------------------------
OK: Final = 0
RECORD_PAST_END: Final = 1
VARINT_TOO_LONG: Final = 2
RECORD_BODY: Final = 3
HEADER_COUNT: Final = 4
HEADER_KEY: Final = 5
TRAILING_BYTES: Final = 6
BATCH_TRUNCATED: Final = 7
BATCH_SIZE: Final = 8
BATCH_MAGIC: Final = 9
BATCH_CRC: Final = 10
BATCH_HEADER: Final = 11
TABLE_FULL: Final = 12
"""Not damage: the table has no room for a further batch, go on at the position."""
OUTPUT_FULL: Final = 13
"""Not damage: the output has no room, write it out and go on at the row."""
NEEDS_PYTHON: Final = 14
"""Not damage: the batch at the row is compressed or of an old format."""
MAP_FULL: Final = 15
"""Not damage: the offset map is at its load factor."""
NEEDS_MEASURE: Final = 16
"""Not damage: there are headers, and room has to be made for them."""
TIMESTAMP: Final = 17
RECORD_TOO_LARGE: Final = 18

TEXTS: Final = {
    RECORD_PAST_END: "a record runs past the end of its batch",
    VARINT_TOO_LONG: "a varint is too long",
    RECORD_BODY: "a record's fields do not fill its declared length",
    HEADER_COUNT: "a record has an impossible number of headers",
    HEADER_KEY: "a record header has no key",
    TRAILING_BYTES: "bytes are left over after the last record of a batch",
    BATCH_TRUNCATED: "a batch is cut off",
    BATCH_SIZE: "a batch has an impossible size",
    BATCH_MAGIC: "a batch has an unknown magic",
    BATCH_CRC: "a batch does not match its checksum",
    BATCH_HEADER: "a batch header has impossible fields",
    TIMESTAMP: "a record's timestamp overflows",
    RECORD_TOO_LARGE: f"a record has more than {RECORD_DECOMPRESSED_BYTES_MAX} bytes",
}

# --- a batch table: one row of sixteen 64-bit integers for each batch -----------------------------------------------
POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
LEADER_EPOCH: Final = 4
MAGIC: Final = 5
ATTRIBUTES: Final = 6
CRC: Final = 7
BASE_TIMESTAMP: Final = 8
MAX_TIMESTAMP: Final = 9
PRODUCER_ID: Final = 10
PRODUCER_EPOCH: Final = 11
BASE_SEQUENCE: Final = 12
COUNT: Final = 13
"""-1 for message sets of the old formats, whose wrapper does not say."""
ADDRESS: Final = 14
"""Used between `arrow` and the kernels: where the uncompressed records are, and `RECORDS_SIZE` of them."""
RECORDS_SIZE: Final = 15
ROW: Final = 16

BATCH_OVERHEAD: Final = 61
"""Bytes of a v2 batch before its records: offset 8, size 4, epoch 4, magic 1, CRC 4, attributes 2, last offset delta 4,
two timestamps 16, producer 8 + 2 + 4, count 4."""
LOG_OVERHEAD: Final = 12
"""Offset and size: what every batch and message begins with, and what the size does not count."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
NO_TIMESTAMP_TYPE: Final = -1
"""What the records of magic 0 have: they have no time."""

# --- a verdict for one batch of `filter_run` ------------------------------------------------------------------------
DISCARD: Final = 1
"""Drop the records: an aborted transaction's, or a marker whose time is over."""
EMPTY_TRANSACTION: Final = 2
"""A marker whose transaction has no records left: it gets a delete horizon."""
RETAIN_EMPTY: Final = 4
"""Keep the batch header even when no record survives."""

OUT_ROW: Final = 8
"""Integers of one row about a batch that `filter_run` wrote: position in the output, size, base offset, last offset,
max timestamp, records, row of the source, whether it was rewritten (1) or copied (0)."""


class BatchTable:
    """What `scan_batches` found: a row for each batch, in one array that is used again and again.

    Bounded by `capacity`; belongs to one thread at a time.
    """

    __slots__ = ("capacity", "count", "end", "error", "rows")

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.rows = array("q", bytes(capacity * ROW * 8))
        self.count = 0
        self.end = 0
        """Where the scan stopped: behind the last whole and sound batch."""
        self.error = OK
        """Why it stopped: `OK` at the end of the data."""

    def row(self, index: int) -> array[int]:
        if not 0 <= index < self.count:
            raise IndexError(f"row {index} of {self.count}")
        return self.rows[index * ROW : (index + 1) * ROW]

    def column(self, number: int) -> array[int]:
        """One field of all batches: `table.column(MAX_TIMESTAMP)`."""
        return self.rows[number : self.count * ROW : ROW]

    def __len__(self) -> int:
        return self.count


class FilterRules(NamedTuple):
    """What the cleaner decided for one run; the rest is in the verdicts and the map."""

    latest_offset: int
    """Records past it are kept unseen: the map knows nothing of them."""
    now_ms: int
    delete_retention_ms: int
    bitmap: Buffer | None = None
    """A bit for each offset of [bitmap_start, bitmap_stop): the record is the last of its key."""
    bitmap_start: int = 0
    bitmap_stop: int = 0


class FilterRun(NamedTuple):
    """What one call of `filter_run` did."""

    code: int
    """`OK` when all rows are done, else why it stopped at `next_row`."""
    next_row: int
    output_size: int
    records_read: int
    bytes_read: int
    records_kept: int
    bytes_kept: int
    keyless: int
    """Records without a key that were dropped (only those in batches that had to be looked into)."""
    highest_kept_offset: int
    error_position: int
    """Within the records of the batch at `next_row`."""
    written: array[int]
    """`OUT_ROW` integers for each batch in the output."""


PLAIN_RECORDS_MAX: Final = 10_000
"""Records that a process walks with the plain twin before the compiled one is worth its import: half a second of CPU
and 60 MiB, and these took some 20 milliseconds."""

_lock = threading.Lock()
_compiled: Any = None
_plain_records = 0


def kernels_ready() -> bool:
    """Whether `best()` is the compiled twin by now."""
    return _compiled is not None


def note_plain(records: int) -> None:
    """So many records were walked by the plain twin."""
    global _plain_records
    _plain_records += records


def kernels_wanted() -> bool:
    """Whether somebody should call `load_kernels`, off the loop."""
    return _compiled is None and _plain_records >= PLAIN_RECORDS_MAX


def best() -> Any:
    """The compiled twin where it is loaded, else the plain one."""
    if _compiled is not None:
        return _compiled
    from stratalog.records import plain

    return plain


def load_kernels() -> Any:
    """Import Numba, compile what is not cached, and make the compiled twin the one that `best()` gives.

    Blocks; any thread may call it, the second caller waits for the first.  With `NUMBA_DISABLE_JIT` set, which
    debuggers do, the plain twin stays.  The answer is what `best()` gives from now on.
    """
    global _compiled
    with _lock:
        if _compiled is None:
            if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
                return best()
            _prepare_cache_directory()
            _compiled = importlib.import_module("stratalog.records.kernels.compiled")
    return _compiled


def _prepare_cache_directory() -> None:
    """Give Numba a place for its cache where it finds none by itself.

    Numba writes beside the source, else below the user's cache directory, else it refuses to start.  Read-only
    site-packages and no home directory are what a container has.
    """
    if os.environ.get("NUMBA_CACHE_DIR") or "numba" in sys.modules:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "__pycache__")
    if os.access(beside if os.path.isdir(beside) else here, os.W_OK):
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for base in (home, os.path.join(tempfile.gettempdir(), f"stratalog-{os.getuid()}")):
        place = os.path.join(base, "stratalog", "numba")
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
        except OSError:
            continue
        # Code is loaded from here: never from a directory that somebody else could have prepared.
        if os.stat(place).st_uid == os.getuid() and os.access(place, os.W_OK):
            os.environ["NUMBA_CACHE_DIR"] = place
            return
