"""The small text files beside the logs: each is written beside itself, synced, renamed, and its directory synced.

    offset checkpoint      '0' NL count NL (topic ' ' partition ' ' offset NL)*       an empty file is an empty one
    leader epochs          '0' NL count NL (epoch ' ' start-offset NL)*
    partition.metadata     'version: 0' NL 'topic_id: ' uuid            (no NL at the end)
    .kafka_cleanshutdown   {"version":0,"brokerEpoch":N}
    meta.properties        Java properties: version=1, cluster.id, node.id, directory.id

A file that does not follow its format raises `Malformed` with the path and the line in its text; whoever loads it
decides what is lost by going on without.  Called from the loop at start and from pool threads; no state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk
from stratalog.base.types import MAX_INT32, MAX_INT64, Uuid
from stratalog.storage import layout

_MAX_LINE = 4096


class TopicPartition(NamedTuple):
    """A partition's name.  A plain tuple of the same two compares equal."""

    topic: str
    partition: int


def _text(disk: Disk, path: str) -> str:
    try:
        return disk.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: not text: {error.reason}", position=error.start) from error


def _number(path: str, line: int, text: str, low: int = -MAX_INT64 - 1, high: int = MAX_INT64) -> int:
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(text) <= high):
        raise Malformed(f"{path}: line {line}: not a number: {text[:40]!r}")
    return int(text)


def _counted(disk: Disk, path: str) -> list[str]:
    """The entry lines of a version 0 checkpoint, checked against its count."""
    text = _text(disk, path)
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if _number(path, 1, lines[0]) != 0:
        raise Malformed(f"{path}: line 1: unknown version {lines[0][:20]!r}")
    if len(lines) < 2:
        raise Malformed(f"{path}: line 2: the count is missing")
    count = _number(path, 2, lines[1], 0)
    if count != len(lines) - 2:
        raise Malformed(f"{path}: line 2: says {count} entries, {len(lines) - 2} follow")
    return lines[2:]


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; a missing file is an empty one."""
    if not disk.exists(path):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(_counted(disk, path), 3):
        parts = line.split(" ")
        if len(parts) != 3 or len(line) > _MAX_LINE:
            raise Malformed(f"{path}: line {number}: not 'topic partition offset': {line[:80]!r}")
        key = TopicPartition(parts[0], _number(path, number, parts[1], 0, MAX_INT32))
        offsets[key] = _number(path, number, parts[2], 0)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    lines = [f"0\n{len(offsets)}\n"]
    lines += [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    disk.write_atomically(path, "".join(lines).encode())


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Leader epochs with their start offsets, as they stand in the file; a missing file is an empty one."""
    if not disk.exists(path):
        return []
    epochs: list[tuple[int, int]] = []
    for number, line in enumerate(_counted(disk, path), 3):
        epoch, _, start = line.partition(" ")
        epochs.append((_number(path, number, epoch, 0, MAX_INT32), _number(path, number, start, 0)))
    return epochs


def write_epochs(disk: Disk, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    rows = list(epochs)
    disk.write_atomically(
        path, "".join([f"0\n{len(rows)}\n", *[f"{epoch} {start}\n" for epoch, start in rows]]).encode()
    )


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """The topic id of `partition.metadata`, None where the file is missing, or empty: a crash came before its bytes."""
    path = f"{directory}/{layout.PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    fields: dict[str, str] = {}
    text = _text(disk, path)
    if not text.strip("\0"):
        return None
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not colon or len(line) > _MAX_LINE:
            raise Malformed(f"{path}: line {number}: not 'name: value': {line[:80]!r}")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0":
        raise Malformed(f"{path}: unknown version {fields.get('version', '')[:20]!r}")
    try:
        return Uuid.parse(fields.get("topic_id", ""))
    except ValueError as error:
        raise Malformed(f"{path}: {error}") from error


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> None:
    """Not synced: the metadata log has the id, and a topic of a thousand partitions must not wait for a thousand disk
    flushes.  What a crash leaves empty is written again by whoever opens the partition for its topic."""
    file = disk.open(f"{directory}/{layout.PARTITION_METADATA}", create=True)
    data = f"version: 0\ntopic_id: {topic_id}".encode()
    file.truncate(0)
    file.pwritev([data], 0)
    file.close()


def take_clean_shutdown(disk: Disk, data_directory: str) -> int | None:
    """Consume the marker of a clean stop *before* anything is loaded (ST-10): returns its broker epoch (-1 where it
    does not say), None where the last stop was not clean.  A crash while loading then counts as unclean."""
    path = f"{data_directory}/{layout.CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    epoch = -1
    try:
        content = json.loads(disk.read(path, limit=4096) or b"{}")
        if isinstance(content, dict) and isinstance(content.get("brokerEpoch"), int):
            epoch = content["brokerEpoch"]
    except (ValueError, RecursionError):
        epoch = -1  # the file's presence is the statement; its content only helps the controller
    disk.unlink(path)
    disk.fsync_dir(data_directory)
    return epoch


def write_clean_shutdown(disk: Disk, data_directory: str, broker_epoch: int) -> None:
    """The last act of a clean stop, after every log of the directory is closed and every checkpoint written."""
    disk.write_atomically(
        f"{data_directory}/{layout.CLEAN_SHUTDOWN}", f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()
    )


def read_meta_properties(disk: Disk, data_directory: str) -> dict[str, str] | None:
    """`meta.properties` as a dict, None where it is missing.  Malformed when the version is not 1 (or 0)."""
    path = f"{data_directory}/{layout.META_PROPERTIES}"
    if not disk.exists(path):
        return None
    properties: dict[str, str] = {}
    for number, line in enumerate(_text(disk, path).splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        if not separator or len(line) > _MAX_LINE:
            raise Malformed(f"{path}: line {number}: not 'name=value': {line[:80]!r}")
        properties[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    if properties.get("version") not in ("0", "1"):
        raise Malformed(f"{path}: unknown version {properties.get('version', '')[:20]!r}")
    return properties


def write_meta_properties(
    disk: Disk, data_directory: str, *, cluster_id: str, node_id: int, directory_id: Uuid
) -> None:
    text = f"#\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
    disk.write_atomically(f"{data_directory}/{layout.META_PROPERTIES}", text.encode())
