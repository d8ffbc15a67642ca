"""Snapshot files: the records of an image between a header and a footer, as batches.

    OFFSET-EPOCH.checkpoint   offset: 20 digits, the first offset that is *not* in it; epoch: 10 digits, of the last
    snapshot  =  header batch (control: SnapshotHeader [KRaftVersion [KRaftVoters]])
                 record batch *
                 footer batch (control: SnapshotFooter)

Offsets in the file run from 0.  `bootstrap.checkpoint` is the same, with what a new cluster starts from.  A file
without its footer, or with a batch that is damaged, is `Malformed`.  Any thread; written whole, then renamed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk
from stratalog.base.types import Millis, Uuid
from stratalog.protocol.disk import control as schema
from stratalog.protocol.schema import Message
from stratalog.records import control
from stratalog.records.batch import BatchBuilder, batches, check, records_of

SUFFIX: Final = ".checkpoint"
BOOTSTRAP: Final = "bootstrap.checkpoint"
BATCH_BYTES: Final = 512 << 10
"""A batch of a snapshot is closed at this size: small enough for any reader's buffer."""
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""A gigabyte of metadata would be ten million partitions; it bounds what a start reads into memory."""
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_VERSION: Final = struct.Struct(">h")


class SnapshotId(NamedTuple):
    """The log up to, and without, `end_offset`; `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match.group(1)), int(match.group(2)))


class Voter(NamedTuple):
    """A voter of a dynamic quorum, as its control record says."""

    id: int
    directory_id: Uuid
    endpoints: tuple[tuple[str, str, int], ...]


class Contents(NamedTuple):
    """What a snapshot holds."""

    values: list[bytes]
    kraft_version: int
    voters: tuple[Voter, ...] | None
    last_timestamp: Millis


def control_value(message: Message) -> bytes:
    """The value of a control record of the quorum: the message in version 0, which begins with its own version."""
    return message.encode_bytes(0)


def voters_record(voters: Sequence[Voter]) -> schema.VotersRecord:
    return schema.VotersRecord(
        version=0,
        voters=[
            schema.VotersVoter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[schema.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
                k_raft_version_feature=schema.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
            for voter in voters
        ],
    )


def read_voters(value: bytes) -> tuple[Voter, ...]:
    record = schema.VotersRecord.decode(value, 0)
    return tuple(
        Voter(v.voter_id, v.voter_directory_id, tuple((e.name, e.host, e.port) for e in v.endpoints))
        for v in record.voters
    )


def encode(
    values: Iterable[bytes],
    *,
    now: Millis,
    last_timestamp: Millis,
    epoch: int,
    kraft_version: int | None = None,
    voters: Sequence[Voter] | None = None,
) -> bytearray:
    """The bytes of a snapshot file.  The quorum's version and voters are in it from kraft.version 1 on."""
    header = BatchBuilder(base_offset=0, leader_epoch=epoch, control=True)
    header.append(
        now,
        control.key(control.SNAPSHOT_HEADER),
        control_value(schema.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp)),
    )
    if kraft_version:
        header.append(
            now,
            control.key(control.KRAFT_VERSION),
            control_value(schema.KRaftVersionRecord(version=0, k_raft_version=kraft_version)),
        )
        if voters is not None:
            header.append(now, control.key(control.KRAFT_VOTERS), control_value(voters_record(voters)))
    data = header.build()
    offset = header.next_offset
    builder = BatchBuilder(base_offset=offset, leader_epoch=epoch)
    for value in values:
        if builder.append(now, None, value) >= BATCH_BYTES:
            data += builder.build()
            builder = BatchBuilder(base_offset=builder.next_offset, leader_epoch=epoch)
    offset = builder.next_offset
    if builder.count:
        data += builder.build()
    footer = BatchBuilder(base_offset=offset, leader_epoch=epoch, control=True)
    footer.append(now, control.key(control.SNAPSHOT_FOOTER), control_value(schema.SnapshotFooterRecord(version=0)))
    data += footer.build()
    return data


def decode(data: bytes, path: str) -> Contents:
    """Everything in a snapshot file."""
    values: list[bytes] = []
    kraft_version = 0
    voters: tuple[Voter, ...] | None = None
    last_timestamp = Millis(-1)
    seen_header = seen_footer = False
    end = 0
    for header in batches(data):
        check(data, header)
        end = header.end
        if seen_footer:
            raise Malformed(f"{path}: a batch behind the footer", position=header.position)
        for record in records_of(data, header):
            if not header.is_control:
                if not seen_header or record.value is None:
                    raise Malformed(f"{path}: a record before the header or without a value", position=header.position)
                values.append(record.value)
                continue
            kind = control.read_type(record.key)
            value = record.value or b""
            if kind == control.SNAPSHOT_HEADER:
                seen_header = True
                last_timestamp = Millis(schema.SnapshotHeaderRecord.decode(value, 0).last_contained_log_timestamp)
            elif kind == control.SNAPSHOT_FOOTER:
                seen_footer = True
            elif kind == control.KRAFT_VERSION:
                kraft_version = schema.KRaftVersionRecord.decode(value, 0).k_raft_version
            elif kind == control.KRAFT_VOTERS:
                voters = read_voters(value)
    if not seen_footer or end != len(data):
        raise Malformed(f"{path}: the snapshot is cut off", position=end)
    return Contents(values, kraft_version, voters, last_timestamp)


def read(disk: Disk, path: str) -> Contents:
    return decode(disk.read(path, limit=SNAPSHOT_BYTES_MAX), path)


def find(disk: Disk, directory: str) -> list[SnapshotId]:
    """The snapshots of a metadata log, oldest first."""
    found: Iterator[SnapshotId | None] = map(parse_name, disk.listdir(directory))
    return sorted(id for id in found if id is not None)
