"""Makes `storage_kit` importable and gives each test a log's directory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from storage_kit import Kit


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path / "t-0")
