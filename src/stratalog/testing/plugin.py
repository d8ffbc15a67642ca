"""The pytest plugin: `stratalog_broker`, a broker of its own for each test that asks for it.

Loaded by pytest in every project where Stratalog is installed, so it imports nothing until a test asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stratalog.testing import TestBroker


@pytest.fixture
def stratalog_broker() -> Iterator[TestBroker]:
    """A broker in this process on a free port of the loopback, gone after the test."""
    from stratalog.testing import broker

    with broker() as running:
        yield running
