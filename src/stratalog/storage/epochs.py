"""Leader epochs: from which offset on each leader wrote, kept in `leader-epoch-checkpoint`.

Owned by the log's writer.  Epochs and start offsets are strictly increasing and non-decreasing, an assigned start is
never moved (ST-9).  Reads from other threads see one list object, replaced as a whole.  The checkpoint is written
through `checkpoints.write_epochs`, synced, whenever an epoch is assigned: an empty or torn file after a crash would
make a replica truncate by guess (D03).
"""

from __future__ import annotations

from bisect import bisect_right

from stratalog.base.ports import Disk
from stratalog.storage import checkpoints, layout

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The cache and its checkpoint file."""

    __slots__ = ("_rows", "directory", "disk", "is_written")

    def __init__(self, disk: Disk, directory: str, rows: list[tuple[int, int]]) -> None:
        self.disk = disk
        self.directory = directory
        self._rows: list[tuple[int, int]] = []
        self.is_written = True
        """Whether the checkpoint says what the rows say."""
        for epoch, start in rows:
            self._rows = _with(self._rows, epoch, start)

    @property
    def path(self) -> str:
        return f"{self.directory}/{layout.LEADER_EPOCHS}"

    @property
    def rows(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first; not to be changed."""
        return self._rows

    @property
    def latest(self) -> int | None:
        return self._rows[-1][0] if self._rows else None

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> bool:
        """Note that `epoch` begins at `start_offset`; False when it is known or older."""
        assert epoch >= 0 and start_offset >= 0
        rows = self._rows
        if rows and epoch <= rows[-1][0]:
            return False
        self._rows = _with(rows, epoch, start_offset)
        self.is_written = False
        if write:
            self.write()
        return True

    def write(self) -> None:
        checkpoints.write_epochs(self.disk, self.path, self._rows)
        self.is_written = True

    def truncate_from_end(self, end_offset: int, *, write: bool = True) -> bool:
        """Forget epochs that begin at or after `end_offset`."""
        rows = [row for row in self._rows if row[1] < end_offset]
        if len(rows) == len(self._rows):
            return False
        self._rows = rows
        self.is_written = False
        if write:
            self.write()
        return True

    def truncate_from_start(self, start_offset: int, *, write: bool = True) -> bool:
        """Epochs that end at or before `start_offset` go; the one that holds it begins there now."""
        rows = self._rows
        index = bisect_right([row[1] for row in rows], start_offset) - 1
        if index < 0 or (index == 0 and rows[0][1] == start_offset):
            return False
        self._rows = [(rows[index][0], start_offset), *rows[index + 1 :]]
        self.is_written = False
        if write:
            self.write()
        return True

    def clear(self, *, write: bool = True) -> None:
        self._rows = []
        self.is_written = False
        if write:
            self.write()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest known epoch at or below `epoch`: where the next one begins, or the log's
        end for the latest.  A request for an epoch before all known ones gets itself and the first start offset;
        one after the latest, or no epoch at all, is (-1, -1)."""
        rows = self._rows
        if epoch < 0 or not rows:
            return UNDEFINED
        latest = rows[-1][0]
        if epoch == latest:
            return epoch, log_end_offset
        if epoch > latest:
            return UNDEFINED
        index = bisect_right([row[0] for row in rows], epoch)
        if index == 0:
            return epoch, rows[0][1]
        return rows[index - 1][0], rows[index][1]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was written."""
        index = bisect_right([row[1] for row in self._rows], offset) - 1
        return self._rows[index][0] if index >= 0 else None

    def previous(self, epoch: int) -> int | None:
        index = bisect_right([row[0] for row in self._rows], epoch - 1) - 1
        return self._rows[index][0] if index >= 0 else None


def _with(rows: list[tuple[int, int]], epoch: int, start: int) -> list[tuple[int, int]]:
    """The rows with one more; entries that contradict it (a later epoch, or a later start) give way."""
    kept = [row for row in rows if row[0] < epoch and row[1] < start]
    return [*kept, (epoch, start)]
