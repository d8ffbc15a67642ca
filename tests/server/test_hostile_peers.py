"""Peers that mean harm, against a broker of its own process: somebody else is served meanwhile, memory stays bounded.

The lines of security.md 7.3 that concern a listener without SASL and TLS; also N01, N02, N03, N08, N11, N13.
"""

from __future__ import annotations

import contextlib
import gzip
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from broker_process import BrokerProcess
from stratalog.client import Client, Connection, ConnectionLost, admin
from stratalog.protocol import headers
from stratalog.protocol import k44_incremental_alter_configs as k44
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from stratalog.protocol.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stratalog.protocol.k03_metadata import MetadataRequest, MetadataRequestTopic
from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest
from stratalog.protocol.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from stratalog.protocol.k19_create_topics import CreatableTopic, CreateTopicsRequest
from stratalog.records import legacy
from stratalog.records.batch import BatchBuilder, patch

MIB = 1 << 20
SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4", "num.partitions=1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", *SETTINGS) as broker:
        with Client(broker.bootstrap) as client:
            admin.create_topic(client, "orders", partitions=1)
        yield broker


@contextlib.contextmanager
def under_watch(broker: BrokerProcess, *, grows: int = 64 * MIB, waits_s: float = 1.5) -> Iterator[None]:
    """Meanwhile a probe is served within `waits_s`, and at no moment the broker holds `grows` bytes more."""
    broker.ask()
    before = broker.rss
    broker.forget_peak()
    stop = threading.Event()
    slowest = [0.0]
    failures: list[str] = []

    def probe() -> None:
        while not stop.wait(0.02):
            try:
                slowest[0] = max(slowest[0], broker.ask())
            except OSError as error:
                failures.append(repr(error))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert broker.alive and not failures, failures
    assert slowest[0] < waits_s, f"a probe waited {slowest[0]:.2f} s"
    peak = broker.rss_peak - before
    assert peak < grows, f"the broker took {peak / MIB:.0f} MiB more"


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=10)


def closes(sock: socket.socket) -> bool:
    """Whether the broker ends the connection without an answer."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def header(key: int, version: int, client: bytes = b"x") -> bytes:
    return struct.pack(">hhih", key, version, 1, len(client)) + client


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def request(body, version: int, number: int = 1) -> bytes:
    """A whole frame."""
    data = headers.RequestHeader(body.api_key, version, number, "t").encode() + body.encode_bytes(version)
    return framed(data)


def answers(sock: socket.socket, count: int) -> None:
    """Read so many answers and drop them."""
    reader = sock.makefile("rb")
    for _ in range(count):
        size = int.from_bytes(reader.read(4), "big")
        assert size and len(reader.read(size)) == size


def produce(records, *, topic: str = "orders", acks: int = -1) -> ProduceRequest:
    row = PartitionProduceData(index=0, records=bytes(records))
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[row])])


# --- frames ---------------------------------------------------------------------------------------------------------

GARBAGE = {
    "a frame over the limit": struct.pack(">i", (100 << 20) + 1),
    "a frame of 2^31-1": struct.pack(">i", 2**31 - 1),
    "a negative frame": struct.pack(">i", -1),
    "a frame of nothing": struct.pack(">i", 0),
    "an array of 2^31-1 topics": framed(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "an array of -2 topics": framed(header(3, 1) + struct.pack(">i", -2)),
    "a compact array of 2^31-1": framed(header(3, 9) + b"\0" + b"\xff\xff\xff\xff\x07"),
    "a varint without end": framed(header(3, 9) + b"\0" + b"\xff" * 12),
    "a string of -2": framed(header(10, 0) + struct.pack(">h", -2)),
    "a string past the end": framed(header(10, 0) + struct.pack(">h", 32767) + b"x"),
    "a client id past the end": framed(struct.pack(">hhih", 3, 1, 1, 32767)),
    "records of -2 bytes": framed(header(0, 3) + struct.pack(">hhiih1siii", -1, 1, 1, 1, 1, b"t", 1, 0, -2)),
    "an array of partitions of 2^31-1": framed(
        header(1, 4) + struct.pack(">iiiibih1si", -1, 0, 1, 1, 0, 1, 1, b"t", 2**31 - 1)
    ),
    "tags without end": framed(header(18, 3) + b"\xff\xff\xff\xff\x07"),
    "an unknown API": framed(header(999, 0)),
    "a negative API": framed(header(-1, 0)),
    "a version of the future": framed(header(3, 99)),
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32) + b"\x20",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def test_garbage_ends_its_connection_only(broker):
    """N01, N03: not a byte more is held than has come, whatever a length claims."""
    with under_watch(broker, grows=16 * MIB):
        for name, data in GARBAGE.items():
            with connect(broker) as sock:
                sock.sendall(data)
                assert closes(sock), name


def test_frames_without_progress_are_dropped_and_hold_little(broker):
    """Truncated frames and then silence, a byte a second: 200 connections that claim 90 MiB each; all are gone when
    the grace and the progress deadline are over (five seconds, 1 KiB a second)."""
    start = struct.pack(">i", 90 << 20) + header(0, 9) + bytes(100)
    with under_watch(broker, grows=48 * MIB), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(broker)) for _ in range(180)]
        slow = [stack.enter_context(connect(broker)) for _ in range(20)]
        for sock in silent + slow:
            sock.sendall(start)
        for _ in range(9):
            time.sleep(1)
            for sock in slow:
                with contextlib.suppress(OSError):
                    sock.send(b"x")
        assert all(closes(sock) for sock in silent + slow)


def test_a_large_frame_that_comes_in_time_is_served(broker):
    """The other side of the deadline: eight seconds for a request are fine while its bytes come."""
    data = request(produce(BatchBuilderOf(b"v" * 100_000)), 9)
    with connect(broker) as sock:
        for number in range(6):
            sock.sendall(data[number * 10_000 : (number + 1) * 10_000])
            time.sleep(1.1)
        sock.sendall(data[60_000:])
        answers(sock, 1)


def BatchBuilderOf(*values: bytes, **settings) -> bytes:
    builder = BatchBuilder(**settings)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return bytes(builder.build())


# --- connections ----------------------------------------------------------------------------------------------------


def test_thousands_of_idle_connections_cost_little(broker):
    """10,000 connections fit in 500 MiB, and one idle connection holds 20 KiB at most.  As many as we may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10_000, hard - 500)
    hello = request(MetadataRequest(topics=[]), 1)
    before = broker.rss
    try:
        with under_watch(broker, grows=200 * MIB, waits_s=4.0), contextlib.ExitStack() as stack:
            for number in range(count):
                sock = stack.enter_context(connect(broker))
                sock.sendall(hello if number % 2 else hello[:5])  # every other one stays in the middle of a frame
                if number % 2:
                    assert sock.recv(4096)
            assert broker.rss < 500 * MIB
            each = (broker.rss - before) / count
            assert each < 20 << 10, f"{each:.0f} bytes for each of {count} connections"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_storm_of_connections_leaves_nothing(broker):
    with under_watch(broker, grows=24 * MIB, waits_s=3.0):
        for number in range(3_000):
            with connect(broker) as sock:
                if number % 3 == 0:
                    sock.sendall(header(3, 1)[:3])
                if number % 7 == 0:  # no farewell: a reset
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_reader_with_a_tiny_window_holds_no_memory(broker):
    """N13: 20 readers ask for 20 MiB each and take nothing."""
    with Connection("127.0.0.1", broker.port) as connection:
        for _ in range(30):
            answer = connection.call(produce(BatchBuilderOf(b"v" * 900_000)), version=9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[row])])
    body.max_bytes = 50 << 20
    with under_watch(broker, grows=32 * MIB), contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.connect(("127.0.0.1", broker.port))
            sock.sendall(request(body, 11) * 3)
        time.sleep(2)


# --- what is remembered ---------------------------------------------------------------------------------------------


def test_a_producer_id_costs_little(broker):
    """10^6 distinct producer ids (here 20,000): what one costs is known and small, a million stay below 1 GiB."""
    count = 20_000
    before = broker.rss
    with under_watch(broker, grows=200 * MIB), connect(broker) as sock:
        for start in range(0, count, 200):
            frames = [
                request(produce(BatchBuilderOf(b"v", producer_id=900_000 + n, producer_epoch=0, base_sequence=0)), 9)
                for n in range(start, start + 200)
            ]
            sock.sendall(b"".join(frames))
            answers(sock, 200)
    each = (broker.rss - before) / count
    print(f"{each:.0f} bytes a producer id")
    assert each < 1_000


def test_a_group_with_one_member_costs_little(broker):
    """10^5 groups of one member (here 2,000), from one client."""
    count = 2_000
    before = broker.rss
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(20))
    with under_watch(broker, grows=100 * MIB), Connection("127.0.0.1", broker.port) as connection:
        connection.call(FindCoordinatorRequest(key="flood", key_type=0), version=1)  # makes the topic of offsets
        for number in range(count):
            body = JoinGroupRequest(
                group_id=f"flood-{number}",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            )
            for _ in range(100):
                code = connection.call(body, version=3).error_code
                if code not in (14, 15, 16):  # the coordinator is loading, or its topic is on its way
                    break
                time.sleep(0.05)
            assert code == 0, code
    each = (broker.rss - before) / count
    print(f"{each:.0f} bytes a group")
    assert each < 16 << 10


@pytest.mark.parametrize(("version", "known"), [(11, False), (12, True)], ids=["unknown topics", "one topic"])
def test_a_fetch_of_a_hundred_thousand_partitions(broker, version, known):
    """With a window of one byte, eight times, each in a new session: refused or served, but never for long, and the
    sessions hold no more than their share."""
    rows = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(1_000)]
    topics = [FetchTopic(topic="orders" if known else f"t{n}", partitions=rows) for n in range(100)]
    if known:
        topics = [
            FetchTopic(
                topic="orders",
                partitions=[FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(100_000)],
            )
        ]
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    body.max_bytes = 1
    body.session_epoch = 0
    data = request(body, version)
    with under_watch(broker, grows=200 * MIB, waits_s=8.0):
        for _ in range(8):
            with connect(broker) as sock:
                sock.sendall(data)
                with contextlib.suppress(OSError, AssertionError):
                    answers(sock, 1)


# --- bombs ----------------------------------------------------------------------------------------------------------

BOMB_BYTES = 300 * MIB
BOMB_GROWS = 640 * MIB
"""Twice `BATCH_DECOMPRESSED_BYTES_MAX`, since zlib joins its blocks at the end; and what a process holds beside."""
CLEANER_MAP = 128 * MIB
"""`log.cleaner.dedupe.buffer.size`, which the cleaner has beside what it unpacks."""
REFUSED = (2, 10, 87)
"""CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD."""


def zeros_gzip() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(MIB)
    return b"".join([packer.compress(block) for _ in range(BOMB_BYTES // MIB)] + [packer.flush()])


def zeros_zstd() -> bytes:
    import cramjam

    packer = cramjam.zstd.Compressor()
    for _ in range(BOMB_BYTES // MIB):
        packer.compress(bytes(MIB))
    return bytes(packer.finish())


def zeros_lz4() -> bytes:
    """Independent blocks of 4 MiB, as many as fit into a batch."""
    import cramjam

    one = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    frame = bytes((0x60, 0x70))  # version 1, independent blocks; 4 MiB
    from stratalog.records.compression import xxh32

    check = (xxh32(frame) >> 8) & 0xFF
    blocks = (struct.pack("<I", len(one)) + one) * 60
    return b"\x04\x22\x4d\x18" + frame + bytes((check,)) + blocks + bytes(4)


def zeros_snappy() -> bytes:
    """A raw block that says 2 GiB, then what fits."""
    return b"\x80\x80\x80\x80\x08" + bytes((0x00, 0x00)) + bytes((0xFE, 0x01, 0x00)) * 100_000


BOMBS = {1: zeros_gzip, 2: zeros_snappy, 3: zeros_lz4, 4: zeros_zstd}


def batch_around(payload: bytes, codec: int, count: int = 1) -> bytes:
    """A v2 batch with any bytes for its records, and a CRC that is right."""
    tail = struct.pack(">hiqqqhii", codec, count - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


@pytest.fixture(scope="module")
def bombs() -> dict[int, bytes]:
    made = {codec: make() for codec, make in BOMBS.items()}
    assert all(len(bomb) < MIB - 200 for bomb in made.values()), {c: len(b) for c, b in made.items()}
    return made


@pytest.mark.parametrize("codec", BOMBS, ids=["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_in_a_produce_request_is_refused(broker, bombs, codec):
    """N02, N11: through the batches of today and through the message sets of old."""
    with under_watch(broker, grows=BOMB_GROWS, waits_s=8.0), Connection("127.0.0.1", broker.port) as connection:
        answer = connection.call(produce(batch_around(bombs[codec], codec)), version=9, timeout_s=60)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code in REFUSED, row
        if codec != 4:
            message = legacy.encode_entry(1, 0, 1, None, bombs[codec], codec=codec)
            answer = connection.call(produce(message), version=2, timeout_s=60)
            assert answer.responses[0].partition_responses[0].error_code in REFUSED


def test_bombs_that_are_on_disk_already_are_not_unpacked_without_bound(tmp_path, bombs):
    """N02: a search by timestamp, a conversion for an old client, a restart with recovery, and the cleaner."""
    directory = tmp_path / "data"
    with BrokerProcess(directory, *SETTINGS, "log.cleaner.backoff.ms=200") as broker:
        with Client(broker.bootstrap) as client:
            for codec in bombs:
                admin.create_topic(client, f"bomb-{codec}", partitions=1)
        broker.stop()
        for codec, payload in bombs.items():
            data = bytearray(batch_around(payload, codec))
            patch(data, 0, base_offset=0, leader_epoch=0)
            (directory / f"bomb-{codec}-0" / f"{0:020}.log").write_bytes(data)
            (directory / f"bomb-{codec}-0" / f"{1:020}.log").touch()  # the active one, so that the first is cleaned
        (directory / ".kafka_cleanshutdown").unlink()
        broker.start()
        with under_watch(broker, grows=BOMB_GROWS, waits_s=8.0):
            for codec in bombs:
                topic = f"bomb-{codec}"
                row = ListOffsetsPartition(partition_index=0, timestamp=1_699_999_999_999)
                asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])])
                wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])
                for body, version in ((asked, 5), (fetch, 2)):
                    with contextlib.suppress(ConnectionLost), Connection("127.0.0.1", broker.port) as connection:
                        connection.call(body, version=version, timeout_s=60)
        with under_watch(broker, grows=BOMB_GROWS + CLEANER_MAP, waits_s=8.0), Client(broker.bootstrap) as client:
            for codec in bombs:
                compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
                admin.alter_configs(client, "topic", f"bomb-{codec}", set_=compacted)
            deadline = time.monotonic() + 60
            while not all(f"bomb-{codec}-0 could not be cleaned" in broker.said() for codec in bombs):
                assert time.monotonic() < deadline, broker.said()[-2000:]
                time.sleep(0.2)


def test_nested_message_sets_are_refused(broker):
    """v0 sets within v0 sets, 30 deep."""
    data = legacy.encode_entry(0, 0, -1, None, b"v")
    for _ in range(30):
        data = legacy.encode_entry(0, 0, -1, None, gzip.compress(bytes(data)), codec=1)
    with under_watch(broker), Connection("127.0.0.1", broker.port) as connection:
        answer = connection.call(produce(data), version=0)
        assert answer.responses[0].partition_responses[0].error_code in REFUSED


def test_a_million_empty_headers(broker):
    """A few hundred bytes of zstd that unfold to one record with 10^6 headers."""
    import cramjam

    def varint(number: int) -> bytes:
        number = (number << 1) ^ (number >> 63)
        out = bytearray()
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes(out + bytes((number,)))

    body = b"\0\0\0\1\1" + varint(1_000_000) + b"\0\1" * 1_000_000
    payload = bytes(cramjam.zstd.compress(varint(len(body)) + body))
    with under_watch(broker), Connection("127.0.0.1", broker.port) as connection:
        answer = connection.call(produce(batch_around(payload, 4)), version=9)
        assert answer.responses[0].partition_responses[0].error_code in REFUSED


# --- names and values -----------------------------------------------------------------------------------------------

BAD_NAMES = ["../up", "..", ".", "", "a/b", "a\\b", "a\0b", "a\nb", "a b", "é", "a" * 250, "/etc/passwd", "%2e%2e"]


def test_names_of_topics_lead_nowhere(broker):
    """Traversal and length: no name that is none gets a directory, by whatever way it comes."""
    before = {path.name for path in broker.directory.iterdir()}
    with under_watch(broker), Connection("127.0.0.1", broker.port) as connection:
        for name in BAD_NAMES:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            answer = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
            assert answer.topics[0].error_code == 17, name
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            assert connection.call(wanted, version=9).topics[0].error_code == 17, name
            answer = connection.call(produce(BatchBuilderOf(b"v"), topic=name), version=9)
            assert answer.responses[0].partition_responses[0].error_code == 3, name
        fits = CreatableTopic(name="a" * 249, num_partitions=1, replication_factor=1)
        assert connection.call(CreateTopicsRequest(topics=[fits], timeout_ms=1000)).topics[0].error_code == 0
    after = {path.name for path in broker.directory.iterdir()}
    assert {name for name in after - before if not name.startswith("__consumer_offsets")} == {"a" * 249 + "-0"}


def test_a_client_id_writes_no_lines_into_the_log(broker):
    """Log injection: what a peer says about itself never begins a line of ours."""
    evil = "x\nINJECTED line\r\nINJECTED too\x1b[2J"
    with Connection("127.0.0.1", broker.port, client_id=evil) as connection:
        topic = CreatableTopic(name="a\nINJECTED", num_partitions=1, replication_factor=1)
        connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        body = JoinGroupRequest(
            group_id="g\nINJECTED", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range\nINJECTED", metadata=b"")],
        )  # fmt: skip
        connection.call(body, version=3)
    with connect(broker) as sock:
        sock.sendall(framed(header(3, 99, evil.encode())))
        assert closes(sock)
    said = broker.said()
    assert "\nINJECTED" not in said and "\rINJECTED" not in said and "\x1b" not in said


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (4, "1", "metric.reporters", "evil.Class"),
        (4, "", "metric.reporters", "evil.Class"),
        (4, "1", "sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required"),
        (4, "1", "sasl.oauthbearer.jwks.endpoint.url", "http://127.0.0.1:1/keys"),
        (4, "1", "remote.log.storage.manager.class.path", "/etc"),
        (4, "1", "log.dirs", "/etc"),
        (2, "orders", "compression.type", "file:///etc/passwd"),
        (2, "orders", "no.such.key", "http://127.0.0.1:1/"),
    ],
)
def test_no_configuration_loads_classes_or_opens_urls(broker, kind, name, key, value):
    """N08: over the wire nothing can be set that names code, a file or an address."""
    resource_ = k44.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[k44.AlterableConfig(name=key, config_operation=0, value=value)]
    )
    with Connection("127.0.0.1", broker.port) as connection:
        answer = connection.call(k44.IncrementalAlterConfigsRequest(resources=[resource_]))
        assert answer.responses[0].error_code in (40, 42), answer.responses[0]
