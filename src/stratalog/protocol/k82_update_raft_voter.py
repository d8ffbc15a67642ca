"""UpdateRaftVoter, API key 82.

Behaviour
  A voter tells the leader its addresses and the range of quorum versions that it supports.

Version notes
  One version.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, struct, tag, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message):
    api_key = 82
    versions = (0, 0)
    flexible = 0

    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message):
    api_key = 82
    versions = (0, 0)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = tag(0, struct(CurrentLeader), since=0)
