"""One Spark session for all tests of the jobs, and the kits of other directories."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "logs"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The active session where other tests have one already."""
    pytest.importorskip("pyspark")
    from stratalog.spark.local import session

    made = session("local[2]", warehouse=str(tmp_path_factory.mktemp("warehouse")))
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()
