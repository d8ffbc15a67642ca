"""A driver to be killed: a streaming query and a batch job over one topic, slow enough to be hit in the middle.

    python kill_driver.py BOOTSTRAP DATA_DIRECTORY CHECKPOINT

Both go on where an earlier life of this program was killed, and begin again when an error ends them: a worker that is
killed may take the query with it.  Prints `done` when all is written.
"""

import os
import signal
import sys
import threading
import time

ROWS_A_TURN = 10


def slowly(batches):
    """Rows pass ten at a time: the sink has written some of a task's rows, and not all, for most of its life."""
    for batch in batches:
        for at in range(0, batch.num_rows, ROWS_A_TURN):
            time.sleep(0.02)
            yield batch.slice(at, ROWS_A_TURN)


def stream(spark, bootstrap, checkpoint):
    rows = (
        spark.readStream.format("stratalog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "in")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "120").load().select("key", "value")
    )  # fmt: skip
    query = (
        rows.mapInArrow(slowly, rows.schema).writeStream.format("stratalog").option("topic", "out")
        .option("kafka.bootstrap.servers", bootstrap).option("checkpointLocation", checkpoint)
        .option("batchBytes", "1k").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def job(spark, bootstrap, data):
    rows = (
        spark.read.format("stratalog").option("path", data).option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "in").option("minPartitions", "6").load().select("key", "value")
    )  # fmt: skip
    (
        rows.mapInArrow(slowly, rows.schema).write.format("stratalog").mode("append").option("topic", "copy")
        .option("kafka.bootstrap.servers", bootstrap).option("writeId", "copy-of-in").option("writeVersion", "7")
        .option("batchBytes", "1k").save()
    )  # fmt: skip


def end_with(parent):
    """A test that is killed itself leaves nothing behind."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def main():
    from stratalog.spark import reason, session

    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    bootstrap, data, checkpoint = sys.argv[1:]
    spark = session(
        "local[2,4]",  # a task is tried four times; in a plain local session it is not tried again
        config={
            "spark.log.level": "OFF",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # lives are short
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_A_TURN),
        },
    )
    for run in (lambda: stream(spark, bootstrap, checkpoint), lambda: job(spark, bootstrap, data)):
        while True:
            try:
                run()
                break
            except Exception as error:  # noqa: BLE001  whatever a killed worker has caused
                print("again:", reason(error), flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
