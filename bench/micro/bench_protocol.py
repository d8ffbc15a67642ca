"""The codecs beside kafka-python's and kio's: Metadata, Produce and Fetch, requests and responses, both directions.

All three read the same bytes, and write what they have read themselves.  kio reads with a native core; ours and
kafka-python are Python.  Targets: issue 3, Speed.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import kio.schema.fetch.v12.request as kio_fetch_request
import kio.schema.fetch.v12.response as kio_fetch_response
import kio.schema.metadata.v12.request as kio_metadata_request
import kio.schema.metadata.v12.response as kio_metadata_response
import kio.schema.produce.v11.request as kio_produce_request
import kio.schema.produce.v11.response as kio_produce_response
from kafka.protocol.consumer import fetch as kafka_fetch
from kafka.protocol.metadata import metadata as kafka_metadata
from kafka.protocol.producer import produce as kafka_produce
from kio.serial import entity_reader, entity_writer

from bench._run import Bench
from stratalog.base.types import Uuid
from stratalog.protocol import compiler
from stratalog.protocol.headers import RequestHeader, encode_response
from stratalog.protocol.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from stratalog.protocol.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from stratalog.protocol.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from stratalog.protocol.schema import Message

BATCH_BYTES = 16 << 10
LEVEL = 0.9
"""What counts as level with a native core: the noise of this bench is about a tenth."""


def batch() -> bytes:
    """One v2 batch whose header alone is true: codecs do not look inside."""
    return (
        bytes(8)
        + (BATCH_BYTES - 12).to_bytes(4, "big")
        + bytes(4)
        + b"\x02"
        + random.Random(1).randbytes(BATCH_BYTES - 17)
    )


def messages() -> list[tuple[str, Message, int, Any, Any]]:
    """Name, message, version, kio's class, kafka-python's class."""
    metadata = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092) for n in range(3)],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{t:03d}",
                topic_id=Uuid(bytes([t + 1]) * 16),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=p,
                        leader_id=p % 3,
                        leader_epoch=5,
                        replica_nodes=[p % 3, (p + 1) % 3, (p + 2) % 3],
                        isr_nodes=[p % 3, (p + 1) % 3, (p + 2) % 3],
                    )
                    for p in range(12)
                ],
            )
            for t in range(12)
        ],
    )
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{t:03d}") for t in range(12)])
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=batch())])],
    )
    produced = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="orders",
                partition_responses=[
                    PartitionProduceResponse(index=3, base_offset=123_456, log_append_time_ms=-1, log_start_offset=0)
                ],
            )
        ]
    )
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=77,
        session_epoch=4,
        topics=[
            FetchTopic(
                topic="orders",
                partitions=[
                    FetchPartition(
                        partition=3, current_leader_epoch=5, fetch_offset=123_456, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )
    fetched = FetchResponse(
        session_id=77,
        responses=[
            FetchableTopicResponse(
                topic="orders",
                partitions=[
                    PartitionData(
                        partition_index=3,
                        high_watermark=123_556,
                        last_stable_offset=123_556,
                        log_start_offset=0,
                        records=batch(),
                    )
                ],
            )
        ],
    )
    return [
        ("metadata request", asked, 12, kio_metadata_request.MetadataRequest, kafka_metadata.MetadataRequest),
        ("metadata response", metadata, 12, kio_metadata_response.MetadataResponse, kafka_metadata.MetadataResponse),
        ("produce request", produce, 11, kio_produce_request.ProduceRequest, kafka_produce.ProduceRequest),
        ("produce response", produced, 11, kio_produce_response.ProduceResponse, kafka_produce.ProduceResponse),
        ("fetch request", fetch, 12, kio_fetch_request.FetchRequest, kafka_fetch.FetchRequest),
        ("fetch response", fetched, 12, kio_fetch_response.FetchResponse, kafka_fetch.FetchResponse),
    ]


def their_writer(write: Callable[[Any, Any], None], entity: Any) -> Callable[[], bytes]:
    def call() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    return call


def import_ms(statement: str, runs: int = 9) -> float:
    """Milliseconds of a statement in a fresh interpreter, beyond those of an empty one; the median."""
    script = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    taken = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
        for _ in range(runs)
    ]
    return sorted(taken)[runs // 2] * 1e3


def twelve(bench: Bench, name: str, message: Any, version: int, kio_class: Any, kafka_class: Any) -> None:
    """The same with 12 partitions in the topic: a shape that straight code and writers by hand leave to the loops."""
    topics = next(field for field in type(message).__fields__ if field.name in ("topic_data", "topics", "responses"))
    (topic,) = getattr(message, topics.name)
    partitions = type(topic).__fields__[-1].name
    setattr(topic, partitions, getattr(topic, partitions) * 12)
    data = message.encode_bytes(version)
    cls = type(message)
    kio_read = entity_reader(kio_class)
    bench.compare(
        f"{name}, read",
        {
            "compiled": lambda: cls.decode(data, version),
            "kafka-python": lambda: kafka_class.decode(data, version=version, header=False, framed=False),
            "kio": lambda: kio_read(data, 0),
        },
        at_least={"kafka-python": 3.0, "kio": 1 / 3},
    )
    kafka_entity = kafka_class.decode(data, version=version, header=False, framed=False)
    kafka_entity._header = None
    bench.compare(
        f"{name}, write",
        {
            "compiled": lambda: message.encode(version),
            "kafka-python": lambda: kafka_entity.encode(version=version, header=False, framed=False),
            "kio": their_writer(entity_writer(kio_class), kio_read(data, 0)[0]),
        },
        at_least={"kafka-python": 3.0, "kio": 3.0},
    )


def main() -> None:
    bench = Bench("protocol")
    for name, message, version, kio_class, kafka_class in messages():
        data = message.encode_bytes(version)
        view = memoryview(data)
        cls = type(message)
        hot = cls.__name__.startswith(("Produce", "Fetch"))
        read = compiler.decoder(cls, version)
        write = compiler.compiled_encoder(cls, version)
        size = len(data)

        kio_read, kio_write = entity_reader(kio_class), entity_writer(kio_class)
        kio_entity = kio_read(data, 0)[0]
        kafka_entity = kafka_class.decode(data, version=version, header=False, framed=False)
        kafka_entity._header = None  # its writer asks for one, and its reader makes none
        ours = cls.decode(data, version)
        assert ours == message
        assert their_writer(kio_write, kio_entity)() == data
        assert bytes(kafka_entity.encode(version=version, header=False, framed=False)) == data

        reading: dict[str, Callable[[], object]] = {
            "compiled": lambda read=read, data=data, size=size: read(data, 0, size),
            "kafka-python": lambda c=kafka_class, data=data, v=version: c.decode(
                data, version=v, header=False, framed=False
            ),
            "kio": lambda r=kio_read, data=data: r(data, 0),
        }
        writing: dict[str, Callable[[], object]] = {
            "compiled": lambda write=write, ours=ours: write(ours),
            "kafka-python": lambda e=kafka_entity, v=version: e.encode(version=v, header=False, framed=False),
            "kio": their_writer(kio_write, kio_entity),
        }
        if hot:
            reading["compiled, Message.decode of a memoryview"] = lambda c=cls, data=view, v=version: c.decode(data, v)
        level = LEVEL if hot else 1 / 3
        bench.compare(f"{name}, read", reading, at_least={"kafka-python": 3.0, "kio": level})
        bench.compare(f"{name}, write", writing, at_least={"kafka-python": 3.0, "kio": 3.0})
        if cls.__name__ in ("ProduceResponse", "FetchResponse"):
            writing = {
                "by hand": lambda m=ours, v=version: m.encode(v),
                "kafka-python": writing["kafka-python"],
                "kio": writing["kio"],
            }
            bench.compare(f"{name}, write by hand", writing, at_least={"kafka-python": 3.0, "kio": 3.0})

    for name, message, version, kio_class, kafka_class in messages()[2:]:
        twelve(bench, f"{name} of 12 partitions", message, version, kio_class, kafka_class)

    header = RequestHeader(0, 11, 12345, "rdkafka").encode()
    produced = messages()[3][1]
    bench.compare("request header, read", {"by hand": lambda: RequestHeader.decode(header)})
    bench.compare("produce response with header, write", {"by hand": lambda: encode_response(produced, 11, 12345)})
    if bench.wants("import"):
        started = time.perf_counter()
        bench.value("import stratalog", import_ms("import stratalog"), "ms", at_most=60)
        bench.value(
            "import and first use of Produce",
            import_ms("from stratalog.protocol.k00_produce import ProduceRequest as P; P().encode(9)"),
            "ms",
            at_most=60,
        )
        assert time.perf_counter() - started < 60
    bench.finish()


if __name__ == "__main__":
    main()
