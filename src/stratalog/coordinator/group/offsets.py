"""Committed offsets of the groups on one partition, and those that wait for the end of a transaction.

Pure data, changed by replay only.  A commit with a newer place in the log wins over one with an older (G04): the end of
a transaction may come after a plain commit for the same partition that was written later than the transaction's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from stratalog.coordinator.group.events import Commit

Partition = tuple[str, int]
_NOTHING: Mapping[Partition, Commit] = {}


class Offsets:
    __slots__ = ("_by_group", "_open", "_pending", "count")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[Partition, Commit]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], Commit]] = {}  # by producer id
        self._open: dict[str, dict[Partition, dict[int, None]]] = {}  # the producers with a pending commit
        self.count = 0

    def groups(self) -> Iterator[str]:
        """Groups with a committed or a pending offset."""
        yield from self._by_group
        for group_id in self._open:
            if group_id not in self._by_group:
                yield group_id

    def of(self, group_id: str) -> Mapping[Partition, Commit]:
        return self._by_group.get(group_id, _NOTHING)

    def all(self) -> Iterator[tuple[str, str, int, Commit]]:
        """Copies as it goes, so that metrics may read from their own thread."""
        for group_id, table in list(self._by_group.items()):
            for (topic, partition), commit in list(table.items()):
                yield group_id, topic, partition, commit

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Committed, or on the way in a transaction."""
        key = (topic, partition)
        return key in self._by_group.get(group_id, _NOTHING) or key in self._open.get(group_id, _NOTHING)

    def keys(self, group_id: str) -> list[Partition]:
        """Every partition for which `has` is true."""
        keys = list(self._by_group.get(group_id, _NOTHING))
        keys += [key for key in self._open.get(group_id, {}) if key not in self._by_group.get(group_id, _NOTHING)]
        return keys

    def open_partitions(self, group_id: str) -> Set[Partition]:
        """Partitions with a commit in a transaction that has not ended."""
        return self._open.get(group_id, {}).keys()

    def put(self, group_id: str, topic: str, partition: int, commit: Commit, producer_id: int = -1) -> None:
        if producer_id < 0:
            self._set(group_id, (topic, partition), commit)
            return
        self._pending.setdefault(producer_id, {})[group_id, topic, partition] = commit
        self._open.setdefault(group_id, {}).setdefault((topic, partition), {})[producer_id] = None

    def _set(self, group_id: str, key: Partition, commit: Commit) -> None:
        table = self._by_group.setdefault(group_id, {})
        known = table.get(key)
        if known is None:
            self.count += 1
        elif known.record_offset > commit.record_offset:
            return
        table[key] = commit

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """A tombstone; nothing there is fine, tombstones of one group may come in any order (G08)."""
        key = (topic, partition)
        table = self._by_group.get(group_id)
        if table is not None and table.pop(key, None) is not None:
            self.count -= 1
            if not table:
                del self._by_group[group_id]
        producers = self._open.get(group_id, {}).get(key)
        if producers is not None:
            for producer_id in list(producers):
                self._pending.get(producer_id, {}).pop((group_id, topic, partition), None)
            self._close(group_id, key)

    def _close(self, group_id: str, key: Partition, producer_id: int | None = None) -> None:
        partitions = self._open.get(group_id)
        if partitions is None or key not in partitions:
            return
        if producer_id is not None:
            partitions[key].pop(producer_id, None)
        if producer_id is None or not partitions[key]:
            del partitions[key]
            if not partitions:
                del self._open[group_id]

    def end_of_transaction(self, producer_id: int, committed: bool) -> None:
        """What the producer's transaction committed counts now, or is forgotten."""
        for (group_id, topic, partition), commit in self._pending.pop(producer_id, {}).items():
            key = (topic, partition)
            self._close(group_id, key, producer_id)
            if committed:
                self._set(group_id, key, commit)
