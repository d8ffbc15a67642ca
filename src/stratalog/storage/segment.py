"""One segment: a file of batches and its indexes.  Skeleton, body follows."""


class Segment:
    base_offset: int
    size: int
