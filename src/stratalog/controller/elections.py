"""Leaders and replicas as an operator wants them: elections on request, and reassignments.

Each partition of a request succeeds or fails for itself.  Replicas can only be moved to where they are already: a
change of brokers needs replication between them, which is not here yet, and is refused.  Called by
`controller.controller`; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.brokers import leader_change
from stratalog.controller.controller import Result
from stratalog.controller.topics import check_assignment
from stratalog.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from stratalog.protocol.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from stratalog.protocol.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller

PREFERRED: Final = 0
UNCLEAN: Final = 1


# --- elections --------------------------------------------------------------------------------------------------------
def elect_leaders(controller: Controller, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
    image = controller.image
    kind = request.election_type
    if kind not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown election type {kind}")
    wanted: list[tuple[str, list[int]]]
    if request.topic_partitions is None:
        wanted = [(topic.name, list(topic.partitions)) for topic in image.topics.values()]
    else:
        wanted = [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
    records: list[Message] = []
    results: list[ReplicaElectionResult] = []
    for name, numbers in wanted:
        rows: list[PartitionResult] = []
        for number in numbers:
            code, message = ErrorCode.NONE, None
            try:
                records.append(_elect(image, name, number, kind))
            except ApiError as error:
                code, message = error.code, error.message
            if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
                continue  # of all partitions only those are told where there was something to do
            rows.append(PartitionResult(partition_id=number, error_code=code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=rows))
    return Result(records, ElectLeadersResponse(error_code=0, replica_election_results=results))


def _elect(image: MetadataImage, name: str, number: int, kind: int) -> Message:
    partition = _partition(image, name, number)
    preferred = partition.replicas[0]
    if partition.leader == preferred if kind == PREFERRED else partition.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    alive = [id for id in partition.replicas if id in image.brokers and not image.brokers[id].fenced]
    in_sync = [id for id in alive if id in partition.isr]
    if kind == PREFERRED:
        if preferred not in in_sync:
            raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return leader_change(partition, leader=preferred)
    if not in_sync:
        # An election that loses records takes a replica that must be told so; there is one replica here, and the
        # last one in sync stays in sync.
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return leader_change(partition, leader=in_sync[0])


def _partition(image: MetadataImage, name: str, number: int) -> PartitionImage:
    topic = image.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{name}'")
    partition = topic.partitions.get(number)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' has no partition {number}")
    return partition


# --- reassignments ----------------------------------------------------------------------------------------------------
def alter_partition_reassignments(
    controller: Controller, request: AlterPartitionReassignmentsRequest
) -> Result[AlterPartitionReassignmentsResponse]:
    responses = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                _reassign(controller.image, topic.name, wanted, request.allow_replication_factor_change)
            except ApiError as error:
                code, message = error.code, error.message
            rows.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )
    return Result((), response)


def _reassign(image: MetadataImage, name: str, wanted: ReassignablePartition, may_resize: bool) -> None:
    """`ApiError` unless the partition is where it shall be."""
    partition = _partition(image, name, wanted.partition_index)
    if wanted.replicas is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = list(wanted.replicas)
    check_assignment(image, [replicas], len(replicas))
    if not may_resize and len(replicas) != len(partition.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the request keeps the replication factor, which is {len(partition.replicas)}, and names "
            f"{len(replicas)} replicas",
        )
    if replicas != list(partition.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas cannot be moved between brokers yet: {list(partition.replicas)} has to stay",
        )
