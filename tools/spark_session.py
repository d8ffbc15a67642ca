"""One Spark session for all tests of one process, whichever asks first: a JVM takes five seconds and 700 MB.

It has Spark's own Kafka source where its jars are to be had.  It ends with the process: tests of several directories
share it, and none knows whether it is the last.
"""

from __future__ import annotations

import functools
import tempfile
from typing import Any

import spark_peer


@functools.cache
def shared() -> Any:
    """The session, on two threads."""
    from stratalog.spark.local import session

    config = {
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    jars = spark_peer.jars()
    if jars:
        config["spark.jars"] = ",".join(map(str, jars))
    warehouse = tempfile.TemporaryDirectory(prefix="stratalog-test-warehouse-")
    made = session("local[2]", config=config, warehouse=warehouse.name)
    made.sparkContext.setLogLevel("OFF")
    made.stratalog_test_warehouse = warehouse  # removed when the session goes
    return made
