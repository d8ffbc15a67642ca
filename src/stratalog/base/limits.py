"""Every limit in one file, each with the reason for its number.  What an operator may change is a configuration key
that takes its default from here."""

from __future__ import annotations

from typing import Final

# --- decoding -----------------------------------------------------------------------------------------------------
ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""Elements of one array in a message.  Kafka 4.4 refuses more; a million is past any real request."""
TAGGED_FIELDS_MAX: Final = 10_000
"""Tagged fields of one struct, the same rule of Kafka 4.4."""
FRAME_BYTES_MAX: Final = 100 << 20
"""`socket.request.max.bytes`, Kafka's default."""

# --- records ------------------------------------------------------------------------------------------------------
BATCH_DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""What one compressed batch may unfold to.  Well above message.max.bytes (1 MiB) at any honest ratio, well below
what would hurt a broker."""
RECORD_DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""What one record inside a compressed batch may claim."""
COMPRESSION_RATIO_MAX: Final = 2_000
"""Output bytes per input byte, counted past the first MiB of output: zeros reach about 1,000 with gzip and more with
zstd, data does not; it ends a bomb early."""
HEADERS_PER_RECORD_MAX: Final = 100_000
"""Headers of one record; the bytes bound it too, this one bounds the objects."""

# --- storage ------------------------------------------------------------------------------------------------------
WARM_INDEX_BYTES: Final = 8_192
"""The tail of an index that appends and tailing readers touch: three pages at 4 KiB, see `storage.offset_index`."""
PRODUCER_BATCHES_KEPT: Final = 5
"""Batches remembered for each producer: the most that an idempotent client has in flight."""
