"""Consumer groups and their offsets on `__consumer_offsets`: `GroupCoordinator` is the door."""

from stratalog.coordinator.group.config import GroupConfig
from stratalog.coordinator.group.coordinator import GroupCoordinator, partition_for

__all__ = ["GroupConfig", "GroupCoordinator", "partition_for"]
