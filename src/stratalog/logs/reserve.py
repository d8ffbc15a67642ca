"""A start never needs free space: each data directory keeps `stratalog-reserve`, a file of zeros.

A start on a full disk writes a little all the same: the quorum's state, the records that say that this broker is back,
checkpoints.  Where there is no room for them, the start removes the file and has it; before anybody is served, what is
left of the room is taken again, so that producers do not get it and the next start on the full disk goes well too.
Every minute the broker tries to have the whole of it again.
"""

from __future__ import annotations

import logging
from typing import Final

from stratalog.base.ports import Disk

log = logging.getLogger("stratalog.logs")

RESERVE_FILE: Final = "stratalog-reserve"
RESERVE_BYTES: Final = 512 << 10
"""A start takes some blocks of 4 KiB: enough for a dozen of them on a disk that stays full."""
_BLOCK: Final = 32 << 10


def release(disk: Disk, directory: str) -> bool:
    """At the start: give the room back where there is no other."""
    if disk.free_bytes(directory) >= RESERVE_BYTES or not disk.exists(f"{directory}/{RESERVE_FILE}"):
        return False
    log.warning("%s is full: the start uses what was kept in %s for it", directory, RESERVE_FILE)
    give_back(disk, directory)
    return True


def give_back(disk: Disk, directory: str) -> None:
    """Make room at once, for what cannot wait."""
    disk.unlink(f"{directory}/{RESERVE_FILE}", missing_ok=True)


def hold(disk: Disk, directory: str) -> int:
    """Take the room, as much as there is of it; how many bytes are held.  Nothing that fails here is worth more than a
    line: whoever needs the disk for real will say so."""
    path = f"{directory}/{RESERVE_FILE}"
    try:
        file = disk.open(path, create=True)
    except OSError as error:
        log.debug("%s: %s", path, error)
        return 0
    size = 0
    try:
        size = file.size()
        while size < RESERVE_BYTES:
            size += file.pwritev([bytes(_BLOCK)], size)
    except OSError as error:
        log.debug("%s: only %d bytes are held: %s", path, size, error)
    finally:
        file.close()
    return size
