"""The controller's decisions: each handler looks at the image and makes records and an answer; it changes nothing.

`controller.image` is the head of the metadata log, uncommitted records included: `controller.runtime` replays what a
handler made before the next handler runs, and answers when the log has committed it.  Pure: time comes in as `now`,
randomness as a port.  Beside the image there is only soft state, which a restart may forget: when each broker was
last heard of.  The handlers' bodies are in one file for each noun, imported when first wanted.  Loop only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from stratalog.base.ports import Rng
from stratalog.base.types import Millis, Uuid
from stratalog.metadata.effective import Layers
from stratalog.metadata.features import SUPPORTED
from stratalog.metadata.image import MetadataImage
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.protocol.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
    from stratalog.protocol.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from stratalog.protocol.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from stratalog.protocol.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from stratalog.protocol.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from stratalog.protocol.k44_incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from stratalog.protocol.k45_alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from stratalog.protocol.k49_alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from stratalog.protocol.k57_update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from stratalog.protocol.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from stratalog.protocol.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from stratalog.protocol.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from stratalog.protocol.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What a handler decided: records for the log, and the answer once they are committed."""

    records: Sequence[Message]
    response: T


class Settings(Protocol):
    """The configuration that the controller looks at (`node.config.BrokerConfig`)."""

    @property
    def layers(self) -> Layers: ...

    def __getitem__(self, name: str) -> Any: ...


class Controller:
    """Handlers take the request as it came from the wire, and give the response message back."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        settings: Settings,
        rng: Rng,
        image: MetadataImage | None = None,
        supported_features: Mapping[str, tuple[int, int]] = SUPPORTED,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.settings = settings
        self.rng = rng
        self.image = image or MetadataImage()
        self.supported_features = supported_features
        self.next_offset = 0
        """Where the next record will stand in the log; a registration takes it as the broker's epoch."""
        self.topic_defaults: tuple[Layers, dict[str, str], dict[str, int]] | None = None
        """What `controller.topics` worked out of the layers: value and source of each topic key without an override."""
        self.contacts: dict[int, Millis] = {}
        """When each unfenced broker was last heard of (`now` of its heartbeat)."""

    def random_uuid(self) -> Uuid:
        """Like Kafka's, none that prints with a dash in front: command lines would take it for an option."""
        while True:
            raw = bytearray(self.rng.token(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            uuid = Uuid(raw)
            if not str(uuid).startswith("-"):
                return uuid

    # --- topics ----------------------------------------------------------------------------------------------------
    def create_topics(
        self, request: CreateTopicsRequest, now: Millis, *, internal: bool = False
    ) -> Result[CreateTopicsResponse]:
        """CreateTopics (19); also the way of auto-creation, and with `internal` that of the coordinators' topics."""
        from stratalog.controller import topics

        return topics.create_topics(self, request, internal=internal)

    def delete_topics(self, request: DeleteTopicsRequest, now: Millis) -> Result[DeleteTopicsResponse]:
        """DeleteTopics (20), by name or id."""
        from stratalog.controller import topics

        return topics.delete_topics(self, request)

    def create_partitions(self, request: CreatePartitionsRequest, now: Millis) -> Result[CreatePartitionsResponse]:
        """CreatePartitions (37)."""
        from stratalog.controller import topics

        return topics.create_partitions(self, request)

    # --- leaders and replicas --------------------------------------------------------------------------------------
    def elect_leaders(self, request: ElectLeadersRequest, now: Millis) -> Result[ElectLeadersResponse]:
        """ElectLeaders (43)."""
        from stratalog.controller import elections

        return elections.elect_leaders(self, request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, now: Millis
    ) -> Result[AlterPartitionReassignmentsResponse]:
        """AlterPartitionReassignments (45)."""
        from stratalog.controller import elections

        return elections.alter_partition_reassignments(self, request)

    # --- configurations --------------------------------------------------------------------------------------------
    def alter_configs(self, request: AlterConfigsRequest, now: Millis) -> Result[AlterConfigsResponse]:
        """AlterConfigs (33): the given set replaces what was set before."""
        from stratalog.controller import configs

        return configs.alter_configs(self, request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, now: Millis
    ) -> Result[IncrementalAlterConfigsResponse]:
        """IncrementalAlterConfigs (44)."""
        from stratalog.controller import configs

        return configs.incremental_alter_configs(self, request)

    def alter_client_quotas(self, request: AlterClientQuotasRequest, now: Millis) -> Result[AlterClientQuotasResponse]:
        """AlterClientQuotas (49)."""
        from stratalog.controller import quotas

        return quotas.alter_client_quotas(self, request)

    def update_features(self, request: UpdateFeaturesRequest, now: Millis) -> Result[UpdateFeaturesResponse]:
        """UpdateFeatures (57)."""
        from stratalog.controller import features

        return features.update_features(self, request)

    # --- brokers ---------------------------------------------------------------------------------------------------
    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, now: Millis
    ) -> Result[AllocateProducerIdsResponse]:
        """AllocateProducerIds (67): the next block of 1,000."""
        from stratalog.controller import brokers

        return brokers.allocate_producer_ids(self, request)

    def register_broker(self, request: BrokerRegistrationRequest, now: Millis) -> Result[BrokerRegistrationResponse]:
        """BrokerRegistration (62).  A new incarnation replaces the old one of the same directories at once."""
        from stratalog.controller import brokers

        return brokers.register_broker(self, request, now)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest, now: Millis) -> Result[BrokerHeartbeatResponse]:
        """BrokerHeartbeat (63): unfences, fences, lets a broker stop."""
        from stratalog.controller import brokers

        return brokers.broker_heartbeat(self, request, now)

    def unregister_broker(self, request: UnregisterBrokerRequest, now: Millis) -> Result[UnregisterBrokerResponse]:
        """UnregisterBroker (64)."""
        from stratalog.controller import brokers

        return brokers.unregister_broker(self, request)

    def fence_silent_brokers(self, now: Millis) -> Result[None]:
        """Fence each broker that was not heard of for `broker.session.timeout.ms`."""
        from stratalog.controller import brokers

        return brokers.fence_silent_brokers(self, now)

    def session_deadline(self) -> Millis | None:
        """When the first session ends."""
        if not self.contacts:
            return None
        return Millis(min(self.contacts.values()) + int(self.settings["broker.session.timeout.ms"]))
