"""Frames written by Kafka's own message classes against our codecs, and ours against theirs.

`tools/golden/record` wrote the files: for every version of every message a frame of defaults and one of pseudo-random
values, with unknown tagged fields, nulls and nested structs, and the values as Kafka's JSON.
"""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest

import golden_frames
import kafka_peer
from stratalog.base.errors import ErrorCode
from stratalog.base.types import Uuid
from stratalog.protocol import headers
from stratalog.protocol.apis import APIS, BY_NAME
from stratalog.protocol.schema import INTEGERS, Field, Message, Struct

FILES = ("requests", "responses", "old-versions", "disk")


@functools.cache
def frames(file: str) -> dict[str, list[dict[str, Any]]]:
    """The frames of one golden file by message."""
    found: dict[str, list[dict[str, Any]]] = {}
    text = (golden_frames.GOLDEN / f"{file}.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        frame = json.loads(line)
        found.setdefault(frame["message"], []).append(frame)
    return found


def without_records(shown: Any) -> Any:
    """Kafka's JSON with the payloads left out: its converters give their size only, or nothing at all."""
    if isinstance(shown, dict):
        return {
            key: without_records(value)
            for key, value in shown.items()
            if key not in ("records", "unalignedRecords", "recordsSizeInBytes", "unalignedRecordsSizeInBytes")
        }
    if isinstance(shown, list):
        return [without_records(one) for one in shown]
    return shown


@pytest.mark.parametrize("name", [f"{file}/{name}" for file in FILES for name in frames(file)])
def test_a_frame_of_kafka_is_read_to_its_values_and_written_back_to_its_bytes(name: str):
    """issue 3, Proof: golden frames written by the real Java client; unknown tagged fields are kept."""
    file, _, message = name.partition("/")
    cls = golden_frames.message_class(message)
    for frame in frames(file)[message]:
        version = frame["version"]
        data = bytes.fromhex(frame["hex"])
        decoded = cls.decode(data, version)
        assert without_records(golden_frames.kafka_json(decoded, version)) == without_records(frame["json"]), frame
        assert decoded.encode_bytes(version) == data, frame
        assert decoded.size(version) == len(data)
        if frame["kind"] == "default":
            assert cls().encode_bytes(version) == data, frame


def test_headers_are_those_of_kafka_for_every_version_of_every_api():
    """issue 3, section 2: headers v0 to v2 with the ApiVersions exception."""
    seen = set()
    for rows in frames("headers").values():
        for row in rows:
            key, version = row["key"], row["version"]
            header = headers.RequestHeader(key, version, row["correlation"], row["client"])
            sent = bytes.fromhex(row["request"])
            assert header.encode() == sent
            assert headers.RequestHeader.decode(sent + b"body") == (header, len(sent))
            answer = bytes.fromhex(row["response"])
            assert headers.response_header(key, version, row["correlation"]) == answer
            assert headers.decode_response_header(answer + b"body", key, version) == (row["correlation"], len(answer))
            seen.add((key, version))
    assert seen == {(api.key, v) for api in APIS.values() for v in range(api.versions[0], api.versions[1] + 1)}


def conversation() -> list[dict[str, Any]]:
    text = (golden_frames.GOLDEN / "conversation.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("spoken", sorted({(row["api"], row["version"]) for row in conversation()}), ids=str)
def test_what_kafka_clients_and_a_kafka_broker_said_is_read_and_written_back(spoken: tuple[str, int]):
    """issue 3, Proof: frames of the real Java client and broker (4.3.1), recorded through a proxy."""
    name, version = spoken
    api = BY_NAME[name]
    for row in conversation():
        if (row["api"], row["version"]) != spoken:
            continue
        request = memoryview(bytes.fromhex(row["request"]))
        header, body = headers.RequestHeader.decode(request)
        assert (header.api_key, header.api_version) == (api.key, version)
        asked = api.request.decode(request[body:], version)
        assert header.encode() + asked.encode_bytes(version) == request
        response = memoryview(bytes.fromhex(row["response"]))
        correlation_id, body = headers.decode_response_header(response, api.key, version)
        assert correlation_id == header.correlation_id
        spoken_back = version
        if name == "ApiVersions" and response[body : body + 2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            spoken_back = 0  # a broker that does not speak the request's version answers in the oldest
        answer = api.response.decode(response[body:], spoken_back)
        again = headers.response_header(api.key, version, correlation_id) + answer.encode_bytes(spoken_back)
        assert again == response


def test_the_conversation_has_what_every_client_says():
    """A recording that lost its frames would prove nothing."""
    spoken = {row["api"] for row in conversation()}
    daily = ("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator")
    groups = ("JoinGroup", "SyncGroup", "LeaveGroup", "ConsumerGroupHeartbeat", "DescribeGroups")
    transactions = ("InitProducerId", "EndTxn", "ApiVersions", "CreateTopics", "DescribeConfigs", "DescribeCluster")
    assert {*daily, *groups, *transactions} <= spoken


def test_there_is_a_golden_frame_for_every_version_of_every_message():
    """A message that is added without a recording is noticed."""
    recorded = {
        (name, frame["version"])
        for file in FILES
        for name, rows in frames(file).items()
        for frame in rows
        if frame["kind"] == "random"
    }
    classes = [cls for api in APIS.values() for cls in (api.request, api.response)]
    classes += golden_frames.schema_check.disk_classes().values()
    ours = {(cls.__name__, v) for cls in classes for v in range(cls.versions[0], cls.versions[1] + 1)}
    assert recorded == ours


# --- the other direction ------------------------------------------------------------------------------------------
TEXTS = ("", "a", "topic-1", "é", "日本語", "🚀" * 3, "x" * 126, "y" * 127, "z" * 128, "w" * 16_384)


NULLS = (0.0, 0.2, 0.6, 1.0)
"""How often what may be null is, in one message after the other."""


def some_value(field: Field, version: int, rng: random.Random, nulls: float, depth: int = 0) -> Any:
    """A value that a version of a field may have.  Arrays are null half as often: there is more to see in them."""
    if field.nullable_in(version) and rng.random() < (nulls / 2 if field.kind == "array" else nulls):
        return None
    kind = field.kind
    if kind == "array":
        assert field.element is not None
        count = rng.choice((0, 1, 1, 2, 3)) if field.element.kind == "struct" else rng.choice((0, 1, 5, 127, 130))
        return [some_value(field.element, version, rng, nulls, depth + 1) for _ in range(count)]
    if kind == "struct":
        assert field.structure is not None
        return some_struct(field.structure, version, rng, nulls, depth + 1)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return rng.choice(
            (low, high, 0 if low < 0 else 1, max(low, -1), rng.randint(low, high), rng.randint(0, 300) % (high + 1))
        )
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "string":
        return rng.choice(TEXTS[: 9 if depth else 10])
    if kind == "uuid":
        return Uuid(rng.randbytes(16))
    assert kind in ("bytes", "records")
    return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 1000)))


def some_struct(cls: type[Struct], version: int, rng: random.Random, nulls: float, depth: int = 0) -> Any:
    value = cls()
    for field in cls.__fields__:
        if field.exists_in(version) and not (field.tagged_in(version) and rng.random() < 0.3):
            setattr(value, field.name, some_value(field, version, rng, nulls, depth))
    return value


@pytest.mark.java
@pytest.mark.timeout(280)
def test_kafka_reads_what_we_write_and_writes_the_same():
    """issue 3, Proof: what we write is read back by Java's own classes: values and bytes, every version."""
    if kafka_peer.kafka_home() is None or kafka_peer.clients_jar() is None:
        pytest.skip(kafka_peer.why_missing() or kafka_peer.why_no_clients())
    if kafka_peer.clients_jar(kafka_peer.OLD_CLIENTS_VERSION) is None:
        pytest.skip(kafka_peer.why_no_clients(kafka_peer.OLD_CLIENTS_VERSION))
    sent = []
    expected: dict[tuple[str, int, str], Any] = {}
    for row in golden_frames.rows():
        for version in range(row.first, row.last + 1):
            rng = random.Random(f"{row.name} {version}")
            for message in (row.cls(), *(some_struct(row.cls, version, rng, nulls) for nulls in NULLS)):
                assert isinstance(message, Message)
                fill_what_has_no_null(message, version)
                data = message.encode_bytes(version)
                sent.append((row.name, version, data))
                expected[row.name, version, data.hex()] = golden_frames.kafka_json(message, version)
    answers = list(golden_frames.echo(sent))
    assert len(answers) == len(sent) > 3000
    for answer in answers:
        what = (answer["message"], answer["version"])
        assert "error" not in answer, (what, answer["error"])
        assert answer["hex"] == answer["sent"], what
        assert without_records(answer["json"]) == without_records(expected[(*what, answer["sent"])]), what


def fill_what_has_no_null(value: Struct, version: int) -> None:
    """Payloads are null by default, also where a version has no null for them."""
    for field in value.__fields__:
        one = getattr(value, field.name)
        if field.kind == "records" and one is None and not field.nullable_in(version):
            setattr(value, field.name, b"")
        elif isinstance(one, Struct):
            fill_what_has_no_null(one, version)
        elif field.kind == "array" and one and isinstance(one[0], Struct):
            for part in one:
                fill_what_has_no_null(part, version)
