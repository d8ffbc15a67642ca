"""The controller's decisions: each handler looks at the image and makes records and an answer; it changes nothing.

`controller.image` is the head of the metadata log, uncommitted records included: `controller.runtime` replays what a
handler made before the next handler runs, and answers when the log has committed it.  Pure: time comes in as `now`,
randomness as a port.  Loop only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratalog.base.types import Millis
from stratalog.metadata.image import MetadataImage
from stratalog.protocol.schema import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What a handler decided: records for the log, and the answer once they are committed."""

    records: Sequence[Message]
    response: T


class Controller:
    """Handlers take the request as it came from the wire, and give the response message back."""

    image: MetadataImage

    def create_topics(self, request: Any, now: Millis) -> Result[Any]:
        """CreateTopics (19); also the way of auto-creation."""
        raise NotImplementedError

    def delete_topics(self, request: Any, now: Millis) -> Result[Any]:
        """DeleteTopics (20), by name or id."""
        raise NotImplementedError

    def create_partitions(self, request: Any, now: Millis) -> Result[Any]:
        """CreatePartitions (37)."""
        raise NotImplementedError

    def alter_configs(self, request: Any, now: Millis) -> Result[Any]:
        """AlterConfigs (33): the given set replaces what was set before."""
        raise NotImplementedError

    def incremental_alter_configs(self, request: Any, now: Millis) -> Result[Any]:
        """IncrementalAlterConfigs (44)."""
        raise NotImplementedError

    def alter_client_quotas(self, request: Any, now: Millis) -> Result[Any]:
        """AlterClientQuotas (49)."""
        raise NotImplementedError

    def update_features(self, request: Any, now: Millis) -> Result[Any]:
        """UpdateFeatures (57)."""
        raise NotImplementedError

    def allocate_producer_ids(self, request: Any, now: Millis) -> Result[Any]:
        """AllocateProducerIds (67): the next block of 1,000."""
        raise NotImplementedError

    def register_broker(self, request: Any, now: Millis) -> Result[Any]:
        """BrokerRegistration (62)."""
        raise NotImplementedError

    def broker_heartbeat(self, request: Any, now: Millis) -> Result[Any]:
        """BrokerHeartbeat (63): unfences, fences, lets a broker stop."""
        raise NotImplementedError

    def unregister_broker(self, request: Any, now: Millis) -> Result[Any]:
        """UnregisterBroker (64)."""
        raise NotImplementedError
