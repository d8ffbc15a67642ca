"""Any file of a data directory, row by row, for people and programs.

`dump` yields one dict for each thing in a file: a batch, a record, an index entry, a line of a checkpoint.  `kind` says
what it is.  What cannot be read is a row of kind `problem` with the byte where it begins; reading goes on behind it
where something sound follows.  The type of a file comes from its name; what the records of the internal topics mean,
from the directory's name:

    __cluster_metadata-N  __consumer_offsets-N  __transaction_state-N  __remote_log_metadata-N  __share_group_state-N

Logs are read block by block; the small files are read whole.  Any thread; nothing is kept and nothing is changed.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk
from stratalog.base.types import Buffer, Uuid
from stratalog.protocol.disk import control as control_schema
from stratalog.protocol.disk import group, metadata, remote, share, share_group, streams_group, txn
from stratalog.protocol.schema import Message, Struct
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.records.kernels import POSITION, SIZE
from stratalog.storage import audit, checkpoints, layout
from stratalog.storage.producers import decode_snapshot
from stratalog.storage.scan import resync, why_invalid

Row = dict[str, Any]
Decoder = Callable[[bytes | None, bytes | None], Row]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_BYTES_MAX: Final = 1 << 30
"""Read whole: an index has 10 MiB unless somebody configured more."""
_INT16 = struct.Struct(">h")
_INDEX = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
_TXN = struct.Struct(">hqqqq")
_CONTROL_NAMES: Final = (
    "abort",
    "commit",
    "leaderChange",
    "snapshotHeader",
    "snapshotFooter",
    "kraftVersion",
    "kraftVoters",
)


def dump(
    disk: Disk, path: str, *, records: bool = False, first: int | None = None, last: int | None = None
) -> Iterator[Row]:
    """The rows of a file, or of all files in a directory.  `records`: those in the batches, too; `first` and `last`:
    only what has to do with these offsets.  `OSError` where the path cannot be read at all."""
    path = path.rstrip("/") or "/"
    if disk.is_dir(path):
        for name in disk.listdir(path):
            child = f"{path}/{name}"
            try:
                yield from dump(disk, child, records=records, first=first, last=last)
            except FileNotFoundError:
                yield {"kind": "note", "file": child, "text": "deleted meanwhile"}
            except OSError as error:
                yield _problem(error.filename or child, -1, f"cannot be read: {error.strerror or error}")
        return
    try:
        yield from _file(disk, path, records, (-1 if first is None else first, 1 << 63 if last is None else last))
    except Malformed as error:
        yield _problem(path, error.position, error.reason.removeprefix(f"{path}: "))


def file_type(path: str) -> str:
    """What a file is, by its name; 'unknown' for one that is not of a data directory."""
    name = path.rpartition("/")[2]
    parsed = layout.parse(name)
    if parsed is not None:
        return parsed.kind.removeprefix(".")
    for ending in (layout.TEMPORARY, ".part", layout.DELETED):
        name = name.removesuffix(ending)
    if name.endswith(".checkpoint"):
        return "metadata-snapshot"
    return {
        layout.LEADER_EPOCHS: "leader-epochs",
        layout.PARTITION_METADATA: "partition-metadata",
        layout.META_PROPERTIES: "meta-properties",
        layout.CLEAN_SHUTDOWN: "clean-shutdown",
        "quorum-state": "quorum-state",
        "stratalog-status.json": "status",
        layout.LOCK: "lock",
        **dict.fromkeys(audit.CHECKPOINTS, "offset-checkpoint"),
    }.get(name, "unknown")


def _problem(path: str, position: int, text: str) -> Row:
    return {"kind": "problem", "file": path, "position": position, "text": text}


def _file(disk: Disk, path: str, records: bool, span: tuple[int, int]) -> Iterator[Row]:
    kind = file_type(path)
    size = disk.size(path)
    yield {"kind": "file", "file": path, "type": kind, "size": size}
    if kind in ("log", "metadata-snapshot"):
        yield from _log(disk, path, size, records, span, decoder_for(path))
    elif kind in _SMALL:
        yield from _SMALL[kind](disk, path, span)
    elif kind == "unknown":
        yield {"kind": "note", "file": path, "text": "no file that a broker writes; its content is not shown"}


# --- logs -------------------------------------------------------------------------------------------------------------
def _log(
    disk: Disk, path: str, size: int, records: bool, span: tuple[int, int], decoder: Decoder | None
) -> Iterator[Row]:
    file = disk.open(path, write=False)
    position = 0
    last = -1
    while position < size:
        stopped = False
        for row, block in audit.walk(file, size, position):
            if row is None:
                stopped = True
                break
            header = batches.read_header(block)
            position = row[POSITION] + row[SIZE]
            last = header.last_offset
            if last < span[0]:
                continue
            if header.base_offset > span[1]:
                return
            yield _batch(header, row[POSITION])
            if records or (decoder is not None and not header.is_control) or header.is_control:
                yield from _records(path, block, header, row[POSITION], records, span, decoder)
        if not stopped:
            return
        reason = why_invalid(file, position, size, -1)
        sound = resync(file, position, size, last)
        more = "nothing sound follows" if sound < 0 else f"goes on at byte {sound}"
        yield _problem(path, position, f"{reason}; {more}")
        if sound < 0:
            return
        position = sound


def _batch(header: batches.BatchHeader, position: int) -> Row:
    row: Row = {
        "kind": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "position": position,
        "size": header.size,
        "magic": header.magic,
        "codec": CODECS[header.codec] if header.codec < len(CODECS) else f"unknown ({header.codec})",
        "timestampType": {0: "CreateTime", 1: "LogAppendTime"}.get(header.timestamp_type, "none"),
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
    }
    if header.magic == 2:
        row["leaderEpoch"] = header.leader_epoch
        if header.producer_id >= 0:
            row["producerId"] = header.producer_id
            row["producerEpoch"] = header.producer_epoch
            row["baseSequence"] = header.base_sequence
            row["lastSequence"] = header.last_sequence
        row["transactional"] = header.is_transactional
        row["control"] = header.is_control
        if header.delete_horizon_ms is not None:
            row["deleteHorizonMs"] = header.delete_horizon_ms
    return row


def _records(
    path: str,
    block: Buffer,
    header: batches.BatchHeader,
    position: int,
    verbatim: bool,
    span: tuple[int, int],
    decoder: Decoder | None,
) -> Iterator[Row]:
    try:
        for record in batches.records_of(block, header):
            if not span[0] <= record.offset <= span[1]:
                continue
            row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
            try:
                if header.is_control:
                    row.update(_control(record.key, record.value))
                elif decoder is not None:
                    row.update(decoder(record.key, record.value))
            except Malformed as error:
                yield _problem(path, position, f"the record at offset {record.offset} cannot be decoded: {error}")
                row.update(key=shown(record.key), value=shown(record.value))
            if decoder is None and not header.is_control:
                row.update(key=shown(record.key), value=shown(record.value))
            if verbatim and record.headers:
                row["headers"] = [[name, shown(value)] for name, value in record.headers]
            if record.sequence >= 0:
                row["sequence"] = record.sequence
            yield row
    except Malformed as error:
        yield _problem(path, position, f"the records of the batch cannot be read: {error}")


def shown(data: Buffer | None) -> Any:
    """Bytes as text where they are UTF-8, else as base64; None stays None."""
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


# --- what the records of internal topics mean -------------------------------------------------------------------------
def decoder_for(path: str) -> Decoder | None:
    """The decoder of a file's records, by the name of its directory or its own."""
    directory, _, name = path.rpartition("/")
    if ".checkpoint" in name:
        return _metadata
    key = layout.parse_directory(directory.rpartition("/")[2])
    return None if key is None else DECODERS.get(key[0])


def _control(key: bytes | None, value: bytes | None) -> Row:
    kind = control.read_type(key)
    name = _CONTROL_NAMES[kind] if 0 <= kind < len(_CONTROL_NAMES) else f"unknown ({kind})"
    schema = control_schema.VALUES.get(kind)
    if schema is None or value is None:
        return {"control": name, "value": shown(value)}
    if kind in (control.ABORT, control.COMMIT):
        return {"control": name, "coordinatorEpoch": control.read_marker(key, value).coordinator_epoch}
    version = min(max(_short(value), schema.versions[0]), schema.versions[1])
    return {"control": name, "value": plain(schema.decode_at(value, 0, version)[0], version)}


def _short(data: Buffer | None) -> int:
    if data is None or len(data) < 2:
        raise Malformed("too short for its type", position=0)
    return int(_INT16.unpack_from(data)[0])


def _enveloped(table: dict[int, type[Message]]) -> Decoder:
    """Values behind three unsigned varints: frame version, record id, version."""

    def decode(key: bytes | None, value: bytes | None) -> Row:
        if value is None:
            raise Malformed("a record without a value")
        frame, position = _uvarint(value, 0)
        kind, position = _uvarint(value, position)
        version, position = _uvarint(value, position)
        schema = table.get(kind)
        if frame != 1 or schema is None:
            return {"type": f"unknown ({kind})", "value": shown(value)}
        _check_version(schema, version)
        message, end = schema.decode_at(value, position, version)
        if end != len(value):
            raise Malformed(f"{len(value) - end} bytes behind a {schema.__name__}", position=end)
        return {"type": schema.__name__, "version": version, "value": plain(message, version)}

    return decode


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while position < len(data) and shift <= 28:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise Malformed("an envelope is cut off or too long", position=position)


def _keyed(*tables: dict[int, tuple[type[Message], type[Message]]]) -> Decoder:
    """Keys behind an int16, their type; values behind an int16, their version."""
    table = {kind: pair for one in tables for kind, pair in one.items()}

    def decode(key: bytes | None, value: bytes | None) -> Row:
        kind = _short(key)
        pair = table.get(kind)
        if pair is None or key is None:
            return {"type": f"unknown ({kind})", "key": shown(key), "value": shown(value)}
        row: Row = {"type": pair[0].__name__.removesuffix("Key")}
        key_version = pair[0].versions[0]
        row["key"] = plain(pair[0].decode_at(key, 2, key_version)[0], key_version)
        if value is None:
            row["value"] = None
            return row
        version = _short(value)
        _check_version(pair[1], version)
        row["version"] = version
        row["value"] = plain(pair[1].decode_at(value, 2, version)[0], version)
        return row

    return decode


def _check_version(schema: type[Message], version: int) -> None:
    low, high = schema.versions
    if not low <= version <= high:
        raise Malformed(f"{schema.__name__} has version {version}, known are {low} to {high}")


def plain(value: Struct, version: int) -> Row:
    """A message's fields under Kafka's names, as what JSON has."""
    row: Row = {}
    for field in value.__fields__:
        if not field.exists_in(version):
            continue
        one = getattr(value, field.name)
        if field.tagged_in(version) and field.is_default(one):
            continue
        row[field.kafka_name[:1].lower() + field.kafka_name[1:]] = _value(one, version)
    return row


def _value(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, list):
        return [_value(one, version) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return shown(value)
    return value


_metadata: Final = _enveloped(metadata.RECORDS)
DECODERS: Final[dict[str, Decoder]] = {
    "__cluster_metadata": _metadata,
    "__remote_log_metadata": _enveloped(remote.RECORDS),
    "__consumer_offsets": _keyed(group.RECORDS, share_group.RECORDS, streams_group.RECORDS),
    "__transaction_state": _keyed({0: (txn.TransactionLogKey, txn.TransactionLogValue)}),
    "__share_group_state": _keyed(share.RECORDS),
}
"""Topic to what makes a key and a value readable."""


# --- everything else --------------------------------------------------------------------------------------------------
def _base(path: str) -> int:
    parsed = layout.parse(path.rpartition("/")[2])
    return 0 if parsed is None else parsed.offset


def _entries(disk: Disk, path: str, entry: struct.Struct) -> tuple[list[tuple[Any, ...]], int, int]:
    """(entries, unused slots behind them, bytes that are no whole entry)."""
    data = disk.read(path, limit=SMALL_BYTES_MAX)
    rest = len(data) % entry.size
    rows = list(entry.iter_unpack(data[: len(data) - rest]))
    used = len(rows)
    while used and not any(rows[used - 1]):
        used -= 1
    return rows[:used], len(rows) - used, rest


def _after(path: str, entry: struct.Struct, used: int, unused: int, rest: int) -> Iterator[Row]:
    if unused:
        yield {"kind": "note", "file": path, "text": f"{unused} unused slots"}
    if rest:
        position = (used + unused) * entry.size
        yield _problem(path, position, f"{rest} bytes are left over, an entry has {entry.size}")


def _index(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    rows, unused, rest = _entries(disk, path, _INDEX)
    base = _base(path)
    for slot, (relative, position) in enumerate(rows):
        if span[0] <= base + relative <= span[1]:
            yield {"kind": "index-entry", "slot": slot, "offset": base + relative, "position": position}
    yield from _after(path, _INDEX, len(rows), unused, rest)


def _time_index(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    rows, unused, rest = _entries(disk, path, _TIME)
    base = _base(path)
    for slot, (timestamp, relative) in enumerate(rows):
        if span[0] <= base + relative <= span[1]:
            yield {"kind": "time-index-entry", "slot": slot, "timestamp": timestamp, "offset": base + relative}
    yield from _after(path, _TIME, len(rows), unused, rest)


def _txn_index(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    data = disk.read(path, limit=SMALL_BYTES_MAX)
    rest = len(data) % _TXN.size
    count = len(data) // _TXN.size
    for slot, (version, pid, first, last, stable) in enumerate(_TXN.iter_unpack(data[: count * _TXN.size])):
        if version != 0:
            yield _problem(path, slot * _TXN.size, f"entry {slot} has version {version}, not 0")
        if span[0] <= last and first <= span[1]:
            yield {
                "kind": "aborted-transaction",
                "slot": slot,
                "producerId": pid,
                "firstOffset": first,
                "lastOffset": last,
                "lastStableOffset": stable,
            }
    yield from _after(path, _TXN, count, 0, rest)


def _snapshot(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    for entry in decode_snapshot(disk.read(path, limit=SMALL_BYTES_MAX)):
        names = (
            "producerId",
            "epoch",
            "lastSequence",
            "lastOffset",
            "offsetDelta",
            "timestamp",
            "coordinatorEpoch",
            "currentTxnFirstOffset",
        )
        yield {"kind": "producer", **dict(zip(names, entry.row(), strict=True))}


def _epochs(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    for epoch, start in checkpoints.read_epochs(disk, path):
        yield {"kind": "leader-epoch", "epoch": epoch, "startOffset": start}


def _offsets(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    for key, offset in checkpoints.read_offsets(disk, path).items():
        yield {"kind": "offset", "topic": key.topic, "partition": key.partition, "offset": offset}


def _partition_metadata(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    found = checkpoints.read_topic_id(disk, path.rpartition("/")[0] or ".")
    yield {"kind": "partition-metadata", "topicId": None if found is None else str(found)}


def _meta_properties(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    for name, value in sorted((checkpoints.read_meta_properties(disk, path.rpartition("/")[0] or ".") or {}).items()):
        yield {"kind": "property", "name": name, "value": value}


def _json(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    data = disk.read(path)
    try:
        yield {"kind": "json", "value": json.loads(data)}
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}", position=0) from error


def _nothing(disk: Disk, path: str, span: tuple[int, int]) -> Iterator[Row]:
    return iter(())


_SMALL: Final[dict[str, Callable[[Disk, str, tuple[int, int]], Iterator[Row]]]] = {
    "index": _index,
    "timeindex": _time_index,
    "txnindex": _txn_index,
    "snapshot": _snapshot,
    "leader-epochs": _epochs,
    "offset-checkpoint": _offsets,
    "partition-metadata": _partition_metadata,
    "meta-properties": _meta_properties,
    "clean-shutdown": _json,
    "quorum-state": _json,
    "status": _json,
    "lock": _nothing,
}
