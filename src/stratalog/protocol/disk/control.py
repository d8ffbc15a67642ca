"""The contents of control batches, which the log itself writes between the users' records.

The record's key is a `ControlRecordType` (an int16 version, then the type); the type says which of these the value is.
0 abort and 1 commit end a transaction (`EndTxnMarker`), 2 a leader of the metadata quorum announces its epoch
(`LeaderChangeMessage`), 3 and 4 frame a snapshot, 5 sets the quorum's protocol version, 6 its voters.  A value too
begins with an int16, its version: the `Version` field where the schema has one, in front of it otherwise.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, int16, int32, int64, string, struct, uint16, uuid


class ControlRecordTypeSchema(Message):
    versions = (0, 0)
    flexible = None

    type: int = int16()


class EndTxnMarker(Message):
    versions = (0, 0)
    flexible = None

    coordinator_epoch: int = int32()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid(since=1)


class LeaderChangeMessage(Message):
    versions = (0, 1)
    flexible = 0

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message):
    versions = (0, 0)
    flexible = 0

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message):
    versions = (0, 0)
    flexible = 0

    version: int = int16()


class KRaftVersionRecord(Message):
    versions = (0, 0)
    flexible = 0

    version: int = int16()
    k_raft_version: int = int16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersVoter(Struct):
    kafka_name = "Voter"

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message):
    versions = (0, 0)
    flexible = 0

    version: int = int16()
    voters: list[VotersVoter] = array(VotersVoter)


ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(7)

VALUES: dict[int, type[Message]] = {
    ABORT: EndTxnMarker,
    COMMIT: EndTxnMarker,
    LEADER_CHANGE: LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    KRAFT_VOTERS: VotersRecord,
}
"""Type of a control record to the class of its value."""
