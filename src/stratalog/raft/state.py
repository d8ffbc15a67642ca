"""The file `quorum-state`: the epoch, leader and vote that a voter must not forget.

One JSON object without a newline.  `data_version` 0 is written with kraft.version 0, 1 with kraft.version 1.  A file
that does not read exactly like that is `Malformed` and stops the start: whoever guesses may vote twice (K05).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from stratalog.base.failures import Malformed
from stratalog.base.ports import Disk
from stratalog.base.types import MAX_INT32, ZERO_UUID, Uuid

QUORUM_STATE: Final = "quorum-state"
_BYTES_MAX: Final = 64 << 10
"""A hundred bytes in practice; with version 0 the voters are listed, a few dozen at most."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What the file says."""

    leader_epoch: int
    leader_id: int = -1
    voted_id: int = -1
    voted_directory_id: Uuid = ZERO_UUID
    voters: tuple[int, ...] | None = None
    """Version 0 only."""
    data_version: int = 1

    def encode(self) -> bytes:
        fields: dict[str, Any]
        if self.data_version == 0:
            fields = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": None if self.voters is None else [{"voterId": voter} for voter in self.voters],
                "data_version": 0,
            }
        else:
            fields = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": str(self.voted_directory_id),
                "data_version": 1,
            }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes, path: str) -> QuorumState:
    """`Malformed`, with the path and the field, for anything that is not one whole state."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path}: not the JSON of a quorum state: {error}") from error
    if not isinstance(fields, dict):
        raise Malformed(f"{path}: not a JSON object")

    def integer(name: str, low: int) -> int:
        value = fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_INT32:
            raise Malformed(f"{path}: {name} is {value!r}, not a number from {low} to {MAX_INT32}")
        return value

    version = integer("data_version", 0)
    if version > 1:
        raise Malformed(f"{path}: unknown data_version {version}")
    directory = ZERO_UUID
    voters: tuple[int, ...] | None = None
    if version == 1:
        try:
            directory = Uuid.parse(str(fields.get("votedDirectoryId")))
        except ValueError as error:
            raise Malformed(f"{path}: votedDirectoryId: {error}") from error
    else:
        listed = fields.get("currentVoters")
        if listed is not None:
            if not isinstance(listed, list) or not all(
                isinstance(voter, dict) and isinstance(voter.get("voterId"), int) for voter in listed
            ):
                raise Malformed(f"{path}: currentVoters is not a list of voters")
            voters = tuple(voter["voterId"] for voter in listed)
    return QuorumState(
        leader_epoch=integer("leaderEpoch", 0),
        leader_id=integer("leaderId", -1),
        voted_id=integer("votedId", -1),
        voted_directory_id=directory,
        voters=voters,
        data_version=version,
    )


def read(disk: Disk, directory: str) -> QuorumState | None:
    """The state of a metadata directory, None where the file is missing (a new voter)."""
    path = f"{directory}/{QUORUM_STATE}"
    if not disk.exists(path):
        return None
    return decode(disk.read(path, limit=_BYTES_MAX), path)


def write(disk: Disk, directory: str, state: QuorumState) -> None:
    disk.write_atomically(f"{directory}/{QUORUM_STATE}", state.encode())
