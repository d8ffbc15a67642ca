"""The Spark session of this directory's tests: the process's one; one worker of xdist runs all that need it."""

import pytest

pytest.importorskip("pyspark")


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in item.keywords and "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark():
    """A session with Spark's own Kafka source where its jars are to be had; tests never stop it."""
    import spark_session

    return spark_session.shared()
