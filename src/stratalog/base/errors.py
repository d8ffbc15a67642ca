"""The table of Kafka's error codes: code, name, whether a client may try again, and a text for people.

Codes, names and the retriable flag are facts of Kafka 4.4; `tests/base/test_errors.py` compares them with the Java
client's own table.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """One row: `ErrorCode.NOT_CONTROLLER`, `.retriable`, `.text`."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool = False, text: str = "") -> ErrorCode:
        row = int.__new__(cls, code)
        row._value_ = code
        row.retriable = retriable
        row.text = text
        return row

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "The broker failed in a way that it has no code for; its own log says more, and trying again may or may "
        "not help.",
    )
    NONE = 0, False, "All went well."
    OFFSET_OUT_OF_RANGE = (
        1,
        False,
        "No record has the offset that was asked for: it is before the start of the partition or past its end. "
        "Reset the position.",
    )
    CORRUPT_MESSAGE = 2, True, "A batch arrived damaged: its checksum, length or layout is wrong. Send it again."
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        True,
        "This broker has no such topic or partition, or does not know of it yet. Refresh the metadata and try again.",
    )
    INVALID_FETCH_SIZE = (
        4,
        False,
        "The size asked for in a fetch is negative or otherwise impossible. Correct the request.",
    )
    LEADER_NOT_AVAILABLE = 5, True, "The partition is between two leaders. Wait a moment and refresh the metadata."
    NOT_LEADER_OR_FOLLOWER = 6, True, "The partition is led by another broker now. Refresh the metadata and ask there."
    REQUEST_TIMED_OUT = (
        7,
        True,
        "The request ran into its time limit before it was done. It may still have taken effect.",
    )
    BROKER_NOT_AVAILABLE = 8, False, "The broker that was asked for is not running."
    REPLICA_NOT_AVAILABLE = (
        9,
        True,
        "The replica that was asked for is not on this broker or cannot be read now. Refresh the metadata.",
    )
    MESSAGE_TOO_LARGE = (
        10,
        False,
        "A batch is larger than the topic or the broker takes. Send smaller batches or raise max.message.bytes.",
    )
    STALE_CONTROLLER_EPOCH = 11, False, "The order came from a controller that has been replaced since. It is ignored."
    OFFSET_METADATA_TOO_LARGE = (
        12,
        False,
        "The text committed along with an offset is longer than offset.metadata.max.bytes. Shorten it.",
    )
    NETWORK_EXCEPTION = 13, True, "The connection broke before the answer was there. Connect again."
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "The group's or transaction's coordinator is still reading its state. Try again shortly.",
    )
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator is ready for this group or transaction. Look it up again."
    NOT_COORDINATOR = (
        16,
        True,
        "This broker does not coordinate the group or transaction. Look the coordinator up again.",
    )
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic's name is empty, too long, holds characters that names cannot have, or belongs to the system.",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        False,
        "A batch is larger than one whole segment of the log may be. Send smaller batches or raise segment.bytes.",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "Fewer replicas are in sync than min.insync.replicas asks for, so nothing was written. Try again when "
        "they are back.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but too few replicas were in sync to confirm them. Trying again may write them "
        "twice.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "The acks of a produce request are neither -1, 0 nor 1."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation. Join it again."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member offers no protocol that all others in the group share, or no protocol at all.",
    )
    INVALID_GROUP_ID = 24, False, "The group id is empty, or one that cannot be used here."
    UNKNOWN_MEMBER_ID = (
        25,
        False,
        "The group has no member with this id: it may have been removed after silence. Join again as a new one.",
    )
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout lies outside what the broker allows (group.min.session.timeout.ms, "
        "group.max.session.timeout.ms).",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is handing out its partitions anew. Join again to take part."
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        False,
        "The record of a committed offset would be larger than the offsets topic takes. Commit less at once.",
    )
    TOPIC_AUTHORIZATION_FAILED = (
        29,
        False,
        "The client may not do this with one of the topics. Ask for the permission.",
    )
    GROUP_AUTHORIZATION_FAILED = 30, False, "The client may not do this with the group. Ask for the permission."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The client may not do this with the cluster. Ask for the permission."
    INVALID_TIMESTAMP = (
        32,
        False,
        "A record's timestamp is further from the broker's clock than the topic allows, or is not set where it "
        "must be.",
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        False,
        "The broker does not offer this SASL mechanism; its answer lists those that it does.",
    )
    ILLEGAL_SASL_STATE = (
        34,
        False,
        "This SASL step does not fit where the handshake stands, or the connection has to authenticate first.",
    )
    UNSUPPORTED_VERSION = (
        35,
        False,
        "The broker does not speak this version of the request. Ask for ApiVersions and use a version that both know.",
    )
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = (
        37,
        False,
        "The number of partitions cannot be: it is below 1, or not above what the topic has already.",
    )
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        False,
        "The assignment of replicas names brokers that do not exist, repeats one, or leaves partitions out.",
    )
    INVALID_CONFIG = 40, False, "A configuration has an unknown key or a value that it cannot take."
    NOT_CONTROLLER = 41, True, "Another node is the active controller. Find it in the metadata and ask there."
    INVALID_REQUEST = (
        42,
        False,
        "The request contradicts itself or breaks a rule of the protocol. The broker's message says which.",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The partition's message format is too old for what the request needs."
    POLICY_VIOLATION = 44, False, "A policy that the operator set up does not permit this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "The producer's sequence numbers have a gap: an earlier batch never arrived.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The batch has been written already; nothing was written again."
    INVALID_PRODUCER_EPOCH = (
        47,
        False,
        "A newer producer with the same id has taken over. Close this one, or initialise it again.",
    )
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state in which this can be done."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id does not belong to this transactional id. Initialise the producer again.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout is above the broker's transaction.max.timeout.ms.",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "The last transaction of this producer is still being finished. Try again shortly.",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "The order came from a transaction coordinator that has been replaced since. It is ignored.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        False,
        "The client may not use this transactional id. Ask for the permission.",
    )
    SECURITY_DISABLED = 54, False, "Security is not set up on this broker, so this cannot be asked of it."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "Nothing was attempted, because another part of the same request failed. Fix that part and send all of it "
        "again.",
    )
    KAFKA_STORAGE_ERROR = (
        56,
        True,
        "A disk failed under the partition and its directory went offline. Another replica may serve; the "
        "operator has to look.",
    )
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no log directory of this name, or it is offline."
    SASL_AUTHENTICATION_FAILED = (
        58,
        False,
        "The credentials were not accepted. The broker's message says no more than it may.",
    )
    UNKNOWN_PRODUCER_ID = (
        59,
        False,
        "The broker has forgotten this producer, because all of its records are gone by now. Initialise it again.",
    )
    REASSIGNMENT_IN_PROGRESS = (
        60,
        False,
        "A reassignment of this partition is under way already. Wait for it or cancel it.",
    )
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off on this broker."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens are not given out over this kind of connection: use TLS with client certificates or SASL.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        False,
        "The client may not do this with the delegation token. Ask for the permission.",
    )
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token is past its time. Get a new one."
    INVALID_PRINCIPAL_TYPE = 67, False, "A principal of this type cannot be used here."
    NON_EMPTY_GROUP = 68, False, "The group still has members. Stop them first."
    GROUP_ID_NOT_FOUND = 69, False, "There is no group of this id."
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        True,
        "The broker has dropped the fetch session. Begin a new one with a full fetch.",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "The fetch session is at another epoch than the request. Begin a new one with a full fetch.",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "The partition's leader has no listener of the name that the client came in by. Check the listeners of "
        "all brokers.",
    )
    TOPIC_DELETION_DISABLED = 73, False, "Topics cannot be deleted here: delete.topic.enable is off."
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is older than the broker's. Refresh the metadata."
    UNKNOWN_LEADER_EPOCH = (
        75,
        True,
        "The client's leader epoch is newer than the broker's, which has yet to catch up. Try again.",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The records are compressed in a way that the request's version or the broker does not know.",
    )
    STALE_BROKER_EPOCH = (
        77,
        False,
        "The broker has registered again since it sent this. The old registration's orders are ignored.",
    )
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet. Try again shortly."
    MEMBER_ID_REQUIRED = (
        79,
        False,
        "The group wants the member to join once more with the id that came with this answer.",
    )
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        True,
        "The preferred leader is not alive or not in sync, so it cannot be elected.",
    )
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as group.max.size allows."
    FENCED_INSTANCE_ID = (
        82,
        False,
        "Another member with the same instance id has joined and taken over. Stop one of the two.",
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may become the leader: all that are in sync are down."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader that was asked for already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment of this partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "A member of the group still reads this topic, so its offsets stay."
    INVALID_RECORD = (
        87,
        False,
        "The broker refused a record for what it holds, for example a missing key in a compacted topic. The other "
        "codes say which.",
    )
    UNSTABLE_OFFSET_COMMIT = (
        88,
        True,
        "The partition has offsets from a transaction that is still open. Try again when it has ended.",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        True,
        "The client changes topics faster than its quota allows. Wait as long as the answer says.",
    )
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over. Close this one."
    RESOURCE_NOT_FOUND = 91, False, "What the request names does not exist."
    DUPLICATE_RESOURCE = 92, False, "What the request would create exists, or the request names it twice."
    UNACCEPTABLE_CREDENTIAL = (
        93,
        False,
        "The credential does not meet the rules, for example too few iterations or an empty name.",
    )
    INCONSISTENT_VOTER_SET = 94, False, "The two sides of a quorum request disagree about who the voters are."
    INVALID_UPDATE_VERSION = 95, False, "The version of the update does not follow the current one."
    FEATURE_UPDATE_FAILED = (
        96,
        False,
        "The features could not be changed; at least one broker does not support the level that was asked for.",
    )
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal in a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = (
        98,
        False,
        "The snapshot that was asked for does not exist on this node, or does no longer. Fetch again from the log.",
    )
    POSITION_OUT_OF_RANGE = 99, False, "The position in the snapshot is negative or past its end."
    UNKNOWN_TOPIC_ID = (
        100,
        True,
        "This broker has no topic of this id, or does not know of it yet. Refresh the metadata and try again.",
    )
    DUPLICATE_BROKER_REGISTRATION = (
        101,
        False,
        "Another broker that is alive has registered with the same node id. Give one of them another.",
    )
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = (
        103,
        True,
        "The topic has another id than the request says: it was probably deleted and created again. Refresh the "
        "metadata.",
    )
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster. Check the addresses."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no transaction with this transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "The fetch session speaks of topics by name and the request by id, or the reverse. Begin a new session.",
    )
    INELIGIBLE_REPLICA = (
        107,
        False,
        "The replica cannot be in the in-sync set: its broker is fenced or is shutting down.",
    )
    NEW_LEADER_ELECTED = 108, False, "The change took effect and moved the leadership to another broker."
    OFFSET_MOVED_TO_TIERED_STORAGE = (
        109,
        False,
        "The records at this offset live in remote storage only; a follower has to start from the local log's "
        "beginning.",
    )
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is not the one the group has for it. Join again."
    UNRELEASED_INSTANCE_ID = (
        111,
        False,
        "The instance id is still held by a member that has not left. Wait for it to leave or to time out.",
    )
    UNSUPPORTED_ASSIGNOR = 112, False, "The group's coordinator does not have the assignor that was asked for."
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "The member acts on an older epoch than the group is at. Send the next heartbeat first.",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        False,
        "The request was sent to a controller where a broker was meant, or the reverse.",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The answer cannot be given for this kind of endpoint."
    UNKNOWN_CONTROLLER_ID = 116, False, "No controller of this id is registered."
    UNKNOWN_SUBSCRIPTION_ID = (
        117,
        False,
        "The client's telemetry subscription is not the current one. Ask for it again.",
    )
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry that the client sent is larger than telemetry.max.bytes."
    INVALID_REGISTRATION = (
        119,
        False,
        "The controller does not accept the registration, because something in it contradicts the cluster. The "
        "message says what.",
    )
    TRANSACTION_ABORTABLE = (
        120,
        False,
        "The operation failed in a way that the transaction cannot go on. Abort it and begin a new one.",
    )
    INVALID_RECORD_STATE = (
        121,
        False,
        "The records are not in a state in which this can be done with them; another consumer may have them by now.",
    )
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker has dropped the share session. Begin a new one."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session is at another epoch than the request. Begin a new one."
    FENCED_STATE_EPOCH = (
        124,
        False,
        "The share coordinator's state is at a newer epoch. The older leader's write is ignored.",
    )
    INVALID_VOTER_KEY = 125, False, "The voter's directory id does not fit its node id."
    DUPLICATE_VOTER = 126, False, "The voter is a member of the quorum already."
    VOTER_NOT_FOUND = 127, False, "The quorum has no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression in a subscription cannot be compiled."
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "The client knows none of the cluster's brokers any more. Start again from the bootstrap addresses.",
    )
    STREAMS_INVALID_TOPOLOGY = (
        130,
        False,
        "The topology of the streams application cannot be used; the message says why.",
    )
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch does not follow the group's."
    STREAMS_TOPOLOGY_FENCED = (
        132,
        False,
        "The member runs an older topology than the group does. Bring it to the same version.",
    )
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker holds as many share sessions as it may. Try again later."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted in all its parts. Try to delete it again."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "The description of the topology could not be stored."
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller of this id is registered, so it cannot be removed."
