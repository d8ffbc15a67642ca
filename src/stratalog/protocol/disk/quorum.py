"""What a voter must not forget: its epoch, the leader it knows, its vote.

Kafka keeps it as one JSON object in the text file `quorum-state` (`data_version` says which version), never in this
binary form; the class is the list of its keys.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int32, int64, string, uuid


class Voter(Struct):
    voter_id: int = int32(until=0)


class QuorumStateData(Message):
    versions = (0, 1)
    flexible = 0

    cluster_id: str = string(until=0)
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid(since=1)
    applied_offset: int = int64(until=0)
    current_voters: list[Voter] | None = array(Voter, until=0, nullable=0)
