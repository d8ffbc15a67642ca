"""The ordered set of a log's segments.

The writer replaces the whole tuple; a reader takes it once and works on what it took: a segment that retention removes
meanwhile stays readable for as long as somebody holds it.  Never empty while its log is open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from stratalog.storage.segment import Segment

View = tuple[tuple[int, ...], tuple[Segment, ...]]


class Segments:
    """`view` is (base offsets, segments), both in order; everything else is derived from it."""

    __slots__ = ("active", "view")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.view: View = ((), ())
        self.replace((), segments)

    def replace(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        """Take some out and others in, in one step for every reader."""
        gone = {id(segment) for segment in old}
        rest = [segment for segment in self.view[1] if id(segment) not in gone]
        rest.extend(new)
        rest.sort(key=_base)
        bases = tuple(segment.base_offset for segment in rest)
        assert len(set(bases)) == len(bases), f"two segments with one base offset: {bases}"
        self.view = (bases, tuple(rest))
        if rest:
            self.active = rest[-1]

    def add(self, segment: Segment) -> None:
        bases, segments = self.view
        assert not bases or segment.base_offset > bases[-1]
        self.view = ((*bases, segment.base_offset), (*segments, segment))
        self.active = segment

    def floor_index(self, offset: int) -> int:
        """The index of the segment that may hold `offset`, -1 when it is before all."""
        return bisect_right(self.view[0], offset) - 1

    @property
    def all(self) -> tuple[Segment, ...]:
        return self.view[1]

    @property
    def first(self) -> Segment:
        return self.view[1][0]

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """The segments from the one that may hold `offset` on."""
        bases, segments = self.view
        return segments[max(bisect_right(bases, offset) - 1, 0) :]

    def __len__(self) -> int:
        return len(self.view[1])


def _base(segment: Segment) -> int:
    return segment.base_offset
