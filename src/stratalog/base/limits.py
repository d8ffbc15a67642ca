"""Every limit in one file, each with the reason for its number.  What an operator may change is a configuration key
that takes its default from here."""

from __future__ import annotations

from typing import Final

# --- decoding -----------------------------------------------------------------------------------------------------
ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""Elements of one array in a message.  Kafka 4.4 refuses more; a million is past any real request."""
TAGGED_FIELDS_MAX: Final = 10_000
"""Tagged fields of one struct, the same rule of Kafka 4.4."""
REQUEST_UNCOUNTED_BYTES: Final = 4 << 20
"""Requests up to this size are decoded as they come: 700,000 of the smallest partitions, 200 MiB of objects."""
REQUEST_ELEMENTS_MAX: Final = 500_000
"""Elements of all arrays of one larger request together, integers apart.  An element takes 200 to 300 bytes here and
may take six on the wire: a frame of 100 MiB would become 4 GiB.  A request for 100,000 partitions has a fifth."""
FRAME_BYTES_MAX: Final = 100 << 20
"""`socket.request.max.bytes`, Kafka's default."""

# --- records ------------------------------------------------------------------------------------------------------
BATCH_DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""What one compressed batch may unfold to.  Well above message.max.bytes (1 MiB) at any honest ratio, well below
what would hurt a broker."""
RECORD_DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""What one record inside a compressed batch may claim."""
COMPRESSION_RATIO_MAX: Final = 2_000
"""Output bytes per input byte, counted past `COMPRESSION_FREE_BYTES` of output: zeros reach about 1,000 with gzip and
30,000 with zstd, data does not; it ends a bomb early."""
COMPRESSION_FREE_BYTES: Final = 16 << 20
"""Output of one batch that the ratio does not bound: five MiB of one letter, as tests and padding have it, are 179
bytes of zstd.  Larger than any usual request, and unfolded in some milliseconds."""
HEADERS_PER_RECORD_MAX: Final = 100_000
"""Headers of one record; the bytes bound it too, this one bounds the objects."""
RECORDS_OPENED_MAX: Final = 1_000_000
"""Records of one batch that may be looked at one by one, which takes seconds at this number: for a client that speaks
an old format, or to name refused records.  Batches of a MiB hold some ten thousands; only a bomb holds more."""

# --- storage ------------------------------------------------------------------------------------------------------
WARM_INDEX_BYTES: Final = 8_192
"""The tail of an index that appends and tailing readers touch: three pages at 4 KiB, see `storage.offset_index`."""
PRODUCER_BATCHES_KEPT: Final = 5
"""Batches remembered for each producer: the most that an idempotent client has in flight."""
PRODUCERS_MAX: Final = 200_000
"""Producers remembered in one partition, some 100 MiB of them: more in one `producer.id.expiration.ms` (a day) is a
client that takes a new id for each record.  Beyond it the idlest are forgotten early, as if they had expired."""

# --- fetch sessions -----------------------------------------------------------------------------------------------
FETCH_SESSION_PARTITIONS_MAX: Final = 300_000
"""Partitions that all fetch sessions remember together, some 100 MiB of them: a thousand clients of 300 partitions
each.  One request can name a hundred thousand that do not exist, and there may be a thousand sessions."""

# --- sockets (reference/security.md 7.2) --------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 20_000
"""Connections of one broker.  Ten thousand idle ones fit in 500 MiB; twice that is past any real client estate."""
CONNECTIONS_OF_FILES: Final = 0.75
"""And no more than this share of the files that the system lets the process open: what connections have taken, the
next segment of a log cannot have."""
CONNECTIONS_PER_IP_MAX: Final = 15_000
"""Connections from one address: a gateway in front of many clients passes, one runaway host does not take all."""
CONNECTION_RATE_MAX: Final = 2_000
"""New connections a second, above which accepting waits (the kernel's backlog holds them)."""
CONNECTION_BURST_MAX: Final = 10_000
"""New connections that may come at once after a quiet time: a whole estate that reconnects."""
CONNECTION_IDLE_MS: Final = 600_000
"""`connections.max.idle.ms`, Kafka's default."""
FRAME_GRACE_MS: Final = 5_000
"""How long a frame may take before its progress is looked at."""
FRAME_BYTES_PER_SECOND_MIN: Final = 1_024
"""The least progress of a frame after the grace: a byte a second would hold a buffer for ever."""
RESPONSE_STALL_MS: Final = 30_000
"""A reader that takes nothing for this long is dropped when its answers hold memory.  File regions hold none; they
wait as long as an idle connection may."""
RESPONSE_BYTES_HIGH: Final = 1 << 20
"""Bytes of answers in memory above which a stalled reader is dropped."""
ANSWER_BYTES_MAX: Final = 256 << 20
"""Answers in memory that sockets have not taken, of all connections together; above it, whoever holds most of them is
dropped.  Only what is no file region counts: converted batches, and long lists."""
ANSWERS_PER_TURN_MAX: Final = 64
"""Answers that are ready before they are sent in the middle of a turn, so that they do not pile up to its end."""
RECEIVE_BUFFER_BYTES: Final = 128 << 10
"""What one `recv` may bring: several requests of a batching producer."""
RECEIVE_REST_BYTES: Final = 2 << 10
"""The beginning of a frame, up to this size, is kept by itself between turns: a connection that says four bytes and
then nothing holds those, not a receive buffer."""
RECEIVE_BYTES_MAX: Final = 512 << 20
"""Receive buffers of all connections together; above it, connections with large frames wait."""
SEND_BYTES_PER_TURN: Final = 4 << 20
"""Bytes that one connection may send before the others get their turn."""
