"""The Spark session that all tests share, and the kits of other directories."""

import sys
from pathlib import Path

import pytest

for directory in ("logs", "cli", "spark_jobs"):
    sys.path.insert(0, str(Path(__file__).parent.parent / directory))


@pytest.fixture(scope="session")
def spark():
    """The process's one session; tests never stop it."""
    pytest.importorskip("pyspark")
    import spark_session

    return spark_session.shared()
