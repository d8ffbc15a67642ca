"""One Spark session for all tests of this directory, on two threads; one worker of xdist runs them all."""

import gc
import sys

import pytest

pyspark = pytest.importorskip("pyspark")


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in item.keywords and "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with Spark's own Kafka source where its jars are to be had."""
    import spark_peer
    from stratalog.spark import session

    found = spark_peer.jars()
    config = {
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    if found:
        config["spark.jars"] = ",".join(map(str, found))
    running = session("local[2]", config=config, warehouse=str(tmp_path_factory.mktemp("warehouse")))
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()
    gc.collect()
    sys.stdout.flush()
