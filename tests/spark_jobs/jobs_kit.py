"""A topic of which the test knows every record, because it has sent them, and what readers of tables find."""

import hashlib
import json
import random
from collections import namedtuple
from datetime import UTC, datetime

from stratalog.client import Client, Producer

BEGIN = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
PARTITIONS = 3

Row = namedtuple("Row", "partition offset timestamp key value headers")


class Sent:
    """What was sent to a topic of a broker, by partition and offset."""

    def __init__(self, broker, topic, *, seed=1):
        self.broker = broker
        self.topic = topic
        self.rows = []
        self._rng = random.Random(seed)
        self._next = [0] * PARTITIONS
        self._clock = BEGIN

    def send(self, number, *, partitions=range(PARTITIONS), codec="zstd", step=HOUR // 50, value=None):
        rng = self._rng
        places = list(partitions)
        with Client(self.broker.bootstrap) as client, Producer(client, compression=codec, batch_bytes=8_000) as out:
            for _ in range(number):
                n = len(self.rows)
                partition = rng.choice(places)
                self._clock += rng.randrange(2 * step)
                key = None if rng.random() < 0.1 else b"k%d" % int(rng.paretovariate(0.8))
                if value is not None:
                    data = value(n)
                elif rng.random() < 0.05:
                    data = None
                else:
                    data = json.dumps({"id": n, "name": f"näme {n}", "tags": ["a"] * (n % 3), "x": n / 4}).encode()
                headers = (("h", b"%d" % n), ("none", None)) if n % 5 == 0 else ()
                out.send(self.topic, data, key=key, partition=partition, timestamp=self._clock, headers=headers)
                self.rows.append(Row(partition, self._next[partition], self._clock, key, data, headers))
                self._next[partition] += 1
        return self


def checksum(rows):
    """Of (partition, offset, time in ms, key, value), in any order."""
    lines = sorted(repr((row[0], row[1], row[2], row[3], row[4])) for row in rows)
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()


def of_arrow(table):
    """The same of an Arrow table with the export's columns."""
    stamps = [int(stamp.timestamp() * 1000 + 0.5) for stamp in table["timestamp"].to_pylist()]
    columns = [table[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    rows = list(zip(columns[0], columns[1], stamps, columns[2], columns[3], strict=True))
    return checksum(rows)


def of_duckdb(files, query='SELECT partition, "offset", epoch_ms(timestamp) t, key, value FROM read_parquet($files)'):
    import duckdb

    with duckdb.connect() as connection:
        return checksum(connection.execute(query, {"files": [str(file) for file in files]}).fetchall())


def day(timestamp):
    return datetime.fromtimestamp(timestamp / 1000, UTC).date()
