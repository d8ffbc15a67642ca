"""Features: which this broker knows in which range, and what of an image it may tell to clients.

A feature of Kafka that has no row here is kept when it is found in a log (Kafka may come back to its directory) and
not advertised.  Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratalog.metadata.image import LATEST_METADATA_VERSION, METADATA_VERSION, MINIMUM_METADATA_VERSION, MetadataImage

KRAFT_VERSION: Final = "kraft.version"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
}
"""Feature to its lowest and highest level.  A later issue that brings transactions adds `transaction.version`."""

BOOTSTRAP: Final[Mapping[str, int]] = {METADATA_VERSION: LATEST_METADATA_VERSION}
"""What a new cluster starts with."""


def finalized(image: MetadataImage) -> dict[str, int]:
    """The levels that clients may rely on: finalized and supported here."""
    return {name: level for name, level in image.features.items() if name in SUPPORTED}
