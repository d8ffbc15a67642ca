"""Record real conversations: Kafka's own clients with Kafka's own broker, through a proxy that looks at the frames.

Writes tests/golden/protocol/conversation.jsonl: for every API and version that was spoken at most three exchanges,
{"api":..,"version":..,"request":..,"response":..} with whole frames (header and body, no size); and directory.jsonl:
what the broker left in its internal logs, at most three records of each type and version, {"log":..,"control":..,
"key":..,"value":..}, and its small files, {"file":..,"bytes":..}.  Ids and times differ from run to run; what the tests
ask (we read each and write the same bytes) does not.

    .venv/bin/python tools/golden/conversation.py
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kafka_peer
from stratalog.protocol.apis import APIS
from stratalog.records.batch import batches, records_of

TARGET = kafka_peer.ROOT / "tests" / "golden" / "protocol" / "conversation.jsonl"
DIRECTORY = TARGET.with_name("directory.jsonl")
INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "__share_group_state")
EARLIEST = "share.auto.offset.reset=earliest"
KEPT_OF_EACH = 3
FRAME_BYTES_MAX = 6_000


class Proxy:
    """Listens on one port, talks to another, keeps exchanges.  A thread for each direction of each connection."""

    def __init__(self, port: int, broker: int) -> None:
        self.broker = broker
        self.lock = threading.Lock()
        self.kept: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # closed: the recording is over
                return
            broker = socket.create_connection(("127.0.0.1", self.broker))
            waiting: dict[int, bytes] = {}
            for source, target, is_request in ((client, broker, True), (broker, client, False)):
                threading.Thread(target=self.pump, args=(source, target, is_request, waiting), daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket, is_request: bool, waiting: dict[int, bytes]) -> None:
        data = bytearray()
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                data += chunk
                while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
                    self.frame(bytes(data[4 : 4 + size]), is_request, waiting)
                    del data[: 4 + size]
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def frame(self, frame: bytes, is_request: bool, waiting: dict[int, bytes]) -> None:
        with self.lock:
            if is_request:
                waiting[int.from_bytes(frame[4:8], "big")] = frame
                return
            request = waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if request is None or max(len(request), len(frame)) > FRAME_BYTES_MAX:
                return
            spoken = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
            kept = self.kept.setdefault(spoken, [])
            if len(kept) == KEPT_OF_EACH:  # the longest say most
                kept.sort(key=lambda exchange: len(exchange[0]) + len(exchange[1]))
                if len(request) + len(frame) <= len(kept[0][0]) + len(kept[0][1]):
                    return
                del kept[0]
            kept.append((request, frame))


def talk(bootstrap: str, directory: Path) -> None:
    """One of each conversation that the tools can lead."""
    server = ("--bootstrap-server", bootstrap)

    def run(name: str, *args: str, stdin: str | None = None) -> None:
        done = kafka_peer.tool(name, *server, *args, stdin=stdin, timeout_s=60)
        print(f"{name} {' '.join(args)}: {done.returncode}")

    run("kafka-topics", "--create", "--topic", "plain", "--partitions", "3", "--config", "retention.ms=9000000")
    run("kafka-topics", "--create", "--topic", "gone")
    run("kafka-topics", "--describe")
    run("kafka-topics", "--alter", "--topic", "plain", "--partitions", "4")
    run("kafka-topics", "--delete", "--topic", "gone")
    lines = "".join(f"key-{i % 7}:value {i}\n" for i in range(40))
    keyed = ("--topic", "plain", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run("kafka-console-producer", *keyed, "--compression-codec", "none", stdin=lines)
    run("kafka-console-producer", *keyed, "--compression-codec", "zstd", stdin=lines)
    for group, protocol in (("old", "classic"), ("new", "consumer")):
        settings = ("--group", group, "--command-property", f"group.protocol={protocol}", "--from-beginning")
        run("kafka-console-consumer", "--topic", "plain", *settings, "--max-messages", "60", "--timeout-ms", "15000")
    committed = ("--isolation-level", "read_committed", "--from-beginning", "--timeout-ms", "3000")
    run("kafka-console-consumer", "--topic", "plain", *committed)
    run("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", "s", "--add-config", EARLIEST)
    consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    shared = (*server, "--topic", "plain", "--group", "s", "--max-messages", "5", "--timeout-ms", "20000")
    print(f"ConsoleShareConsumer: {kafka_peer.run_class(consumer, *shared, timeout_s=60).returncode}")
    run("kafka-consumer-groups", "--list", "--state", "--type")
    run("kafka-consumer-groups", "--describe", "--all-groups", "--members", "--verbose")
    run("kafka-consumer-groups", "--describe", "--all-groups")
    run("kafka-consumer-groups", "--delete-offsets", "--group", "old", "--topic", "plain")
    run("kafka-consumer-groups", "--delete", "--group", "new")
    run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "plain", "--all")
    run(
        "kafka-configs",
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "plain",
        "--add-config",
        "cleanup.policy=compact",
    )
    run(
        "kafka-configs",
        "--alter",
        "--entity-type",
        "clients",
        "--entity-name",
        "c",
        "--add-config",
        "producer_byte_rate=1000000",
    )
    run("kafka-configs", "--describe", "--entity-type", "clients")
    for time in ("-1", "-2", "-3", "1000"):
        run("kafka-get-offsets", "--topic", "plain", "--time", time)
    before = directory / "before.json"
    before.write_text(json.dumps({"version": 1, "partitions": [{"topic": "plain", "partition": 0, "offset": 1}]}))
    run("kafka-delete-records", "--offset-json-file", str(before))
    run("kafka-log-dirs", "--describe", "--topic-list", "plain")
    run("kafka-features", "describe")
    run("kafka-metadata-quorum", "describe", "--replication")
    run("kafka-metadata-quorum", "describe", "--status")
    run("kafka-broker-api-versions")
    run("kafka-groups", "--list")
    run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    run("kafka-reassign-partitions", "--list")
    run("kafka-transactions", "list")
    home = kafka_peer.kafka_home()
    done = kafka_peer.run_class("TxnAbort", bootstrap, "plain", "3", class_path=f"{home}/extra/classes", timeout_s=60)
    print(f"TxnAbort: {done.returncode} {done.stderr[-300:]}")
    run("kafka-transactions", "list")
    run("kafka-transactions", "describe-producers", "--topic", "plain", "--partition", "0")


def talk_newer(bootstrap: str) -> None:
    """The newest clients with the older broker: they begin with an ApiVersions that it does not know."""
    jar = kafka_peer.clients_jar(kafka_peer.CLIENTS_VERSION)
    program = kafka_peer.java()
    assert program is not None
    path = f"{jar}:{kafka_peer.kafka_home()}/libs/*"
    for words in (
        ("TopicCommand", "--describe", "--topic", "plain"),
        ("consumer.ConsoleConsumer", "--topic", "plain", "--from-beginning", "--timeout-ms", "5000"),
    ):
        command = [program, "-cp", path, f"org.apache.kafka.tools.{words[0]}", "--bootstrap-server", bootstrap]
        done = subprocess.run([*command, *words[1:]], capture_output=True, text=True, timeout=60, check=False)
        print(f"{words[0]} of {kafka_peer.CLIENTS_VERSION}: {done.returncode}")


def left_behind(log_dir: Path) -> list[dict[str, object]]:
    """Records of the internal logs and small files of a stopped broker."""
    rows: list[dict[str, object]] = []
    counts: dict[tuple[object, ...], int] = {}
    for path in sorted(log_dir.glob("*/*")):
        log = path.parent.name.rpartition("-")[0]
        if path.suffix in (".snapshot", ".txnindex") or path.name == "quorum-state":
            data = path.read_bytes()
            name = path.suffix.removeprefix(".") or path.name
            short = name == "snapshot" and len(data) <= 10  # no producer in it
            counts[name, short] = counts.get((name, short), 0) + 1
            if data and counts[name, short] <= KEPT_OF_EACH:
                rows.append({"file": name, "bytes": data.hex()})
        if path.suffix not in (".log", ".checkpoint") or log not in INTERNAL:
            continue
        data = path.read_bytes()
        for batch in batches(data):
            for record in records_of(data, batch):
                key, value = record.key, record.value
                kind = (log, batch.is_control, key and key[: 4 if batch.is_control else 2], value and value[:3])
                counts[kind] = counts.get(kind, 0) + 1
                if counts[kind] <= KEPT_OF_EACH and len(value or b"") <= FRAME_BYTES_MAX:
                    shown = {"key": None if key is None else key.hex(), "value": None if value is None else value.hex()}
                    rows.append({"log": log, "control": batch.is_control, **shown})
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")
    print(f"{path.relative_to(kafka_peer.ROOT)}: {len(rows)} lines, {path.stat().st_size} bytes")


def main() -> int:
    if kafka_peer.kafka_home() is None:
        print("no recording: " + kafka_peer.why_missing())
        return 2
    port = kafka_peer.free_port(3)  # the broker, its controller, the proxy
    with tempfile.TemporaryDirectory() as directory:
        through = f"advertised.listeners=PLAINTEXT://127.0.0.1:{port + 2}"
        with kafka_peer.kafka_broker(directory, through, port=port):
            proxy = Proxy(port + 2, port)
            with contextlib.suppress(subprocess.TimeoutExpired):
                talk(f"127.0.0.1:{port + 2}", Path(directory))
                talk_newer(f"127.0.0.1:{port + 2}")
            proxy.listener.close()
        left = left_behind(Path(directory) / "log")
    rows: list[dict[str, object]] = []
    for (key, version), exchanges in sorted(proxy.kept.items()):
        for request, response in exchanges:
            spoken = {"api": APIS[key].name, "version": version}
            rows.append({**spoken, "request": request.hex(), "response": response.hex()})
    write(TARGET, rows)
    write(DIRECTORY, left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
