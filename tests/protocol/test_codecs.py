"""The compiled codecs against the interpreter, for every class and version, on good and on bad bytes."""

from __future__ import annotations

import itertools
import linecache
import random
import struct
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.base.failures import Malformed
from stratalog.base.limits import REQUEST_ELEMENTS_MAX, REQUEST_UNCOUNTED_BYTES
from stratalog.base.types import FileRegion, Uuid
from stratalog.protocol import compiler, interpreter, schema
from stratalog.protocol.apis import APIS, classes
from stratalog.protocol.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stratalog.protocol.schema import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    INTEGERS,
    Field,
    Message,
    Struct,
    Unencodable,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int32,
    int64,
    records,
    string,
    tag,
    uint16,
    uint32,
    uuid,
)  # fmt: skip
from stratalog.protocol.schema import (
    struct as struct_field,
)

ALL = sorted(set(classes()), key=lambda cls: (cls.__module__, cls.__name__))
EACH = pytest.mark.parametrize("cls", ALL, ids=lambda cls: f"{cls.__module__.rsplit('.', 1)[1]}.{cls.__name__}")


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)


# --- values ---------------------------------------------------------------------------------------------------------


def random_value(field: Field, version: int, rng: random.Random, depth: int = 0) -> Any:
    """Any value that a version can hold; edges come up often, and one array in a few dozen needs a long length."""
    kind = field.kind
    if field.nullable_in(version) and rng.random() < 0.25:
        return None
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return rng.choice((0, 1, low, high, rng.randint(low, high), max(low, -1)))
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if kind == "uuid":
        return Uuid(rng.randbytes(16)) if rng.random() < 0.8 else Uuid()
    if kind == "string":
        size = rng.choice((0, 1, 5, 20, 126, 127, 128, 300) if rng.random() < 0.3 else (0, 1, 7))
        return "".join(rng.choice("abcxyz-_.é€😀") for _ in range(size))
    if kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 9, 127, 128)))
    if kind == "records":
        return memoryview(rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 300))))
    if kind == "array":
        element = field.element
        assert element is not None
        size = rng.choice((0, 1, 1, 2, 3) if depth < 3 else (0, 1))
        if element.kind != "struct" and rng.random() < 0.1:
            size = rng.choice((62, 65, 126, 127, 128))
        return [random_value(element, version, rng, depth + 1) for _ in range(size)]
    assert field.structure is not None
    return random_struct(field.structure, version, rng, depth + 1)


def random_struct(
    structure: type[Struct], version: int, rng: random.Random, depth: int = 0, flexible: bool = True
) -> Any:
    made = structure()
    if issubclass(structure, Message):
        flexible = interpreter.is_flexible(structure, version)
    _FLEXIBLE.append(flexible if issubclass(structure, Message) else _FLEXIBLE[-1])
    known = set()
    for field in structure.__fields__:
        if field.tagged_in(version):
            known.add(field.tag)
            if not _FLEXIBLE[-1] or rng.random() < 0.5:
                continue
        elif not field.exists_in(version):
            continue
        setattr(made, field.name, random_value(field, version, rng, depth))
    if _FLEXIBLE[-1] and rng.random() < 0.15:
        tags = sorted({rng.choice((0, 3, 11, 127, 128, 100_000)) for _ in range(3)} - known)
        made.unknown_tags = [(tag, rng.randbytes(rng.choice((0, 1, 4, 130)))) for tag in tags]
    _FLEXIBLE.pop()
    return made


_FLEXIBLE: list[bool] = [True]


def codecs(cls: type[Message], version: int) -> list[tuple[Any, Any]]:
    """The decoder with each encoder: the generated one, and the one by hand where there is any."""
    pairs = [(compiler.decoder(cls, version), compiler.compiled_encoder(cls, version))]
    if cls.__name__ in ("ProduceResponse", "FetchResponse"):
        pairs.append((compiler.decoder(cls, version), compiler.encoder(cls, version)))
    return pairs


def hot_shape(cls: type[Message], version: int, rng: random.Random) -> Any:
    """One topic, one partition, little that is unusual: what the quick ways know, and its near neighbours."""
    message = random_struct(cls, version, rng)
    for field in cls.__fields__:
        if field.kind == "array" or field.tag is not None or field.name in ("transactional_id", "rack_id"):
            setattr(message, field.name, field.fresh_default())
    topics = next(field for field in cls.__fields__ if field.name in ("topic_data", "topics", "responses"))
    assert topics.element is not None and topics.element.structure is not None
    topic = random_struct(topics.element.structure, version, rng, flexible=True)
    partitions = topics.element.structure.__fields__[-1]
    assert partitions.element is not None and partitions.element.structure is not None
    partition = random_struct(partitions.element.structure, version, rng, flexible=True)
    for made in (topic, partition):
        for field in type(made).__fields__:
            if field.kind != "records" and (field.kind == "array" or field.tag is not None or field.nullable):
                setattr(made, field.name, field.fresh_default())
        if rng.random() < 0.9:
            made._tags = None
    if hasattr(partition, "records"):
        partition.records = memoryview(rng.randbytes(rng.choice((0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 70_000))))
    if hasattr(partition, "aborted_transactions"):
        partition.aborted_transactions = rng.choice(([], None))
    if hasattr(partition, "current_leader") and rng.random() < 0.2 and version >= 12:
        partition.current_leader.leader_id = 3
    setattr(topic, partitions.name, [partition] * rng.choice((0, 1, 1, 1, 1, 2)))
    setattr(message, topics.name, [topic] * rng.choice((0, 1, 1, 1, 1, 2)))
    if rng.random() < 0.9:
        message._tags = None
    return message


HOT = [cls for cls in ALL if cls.__name__ in ("ProduceRequest", "ProduceResponse", "FetchRequest", "FetchResponse")]


def usual_shape(structure: type[Struct], version: int, rng: random.Random) -> Any:
    """One element in each array, little that is unusual: what `straight` reads, and its near neighbours."""
    made = structure()
    for field in structure.__fields__:
        if not field.exists_in(version) or (field.tagged_in(version) and rng.random() < 0.98):
            continue
        inner = field.element if field.kind == "array" else field
        assert inner is not None
        if rng.random() < 0.03:
            value = random_value(field, version, rng, 3)
        elif field.rare or (field.kind == "string" and field.default is None):
            value = None if field.nullable_in(version) and field.default is None else field.fresh_default()
        elif field.kind == "records":
            value = memoryview(rng.randbytes(rng.choice((0, 1, 126, 127, 128, 16_382, 16_383, 16_384))))
        elif inner.structure is not None:
            value = usual_shape(inner.structure, version, rng)
        else:
            value = random_value(inner, version, rng, 3)
        if field.kind == "array" and isinstance(value, inner.structure or object) and not isinstance(value, list):
            value = [value] * rng.choice((1,) * 20 + (0, 2))
        setattr(made, field.name, value)
    return made


STRAIGHT = [cls for cls in ALL if cls.one_of_each]


@pytest.mark.parametrize("cls", STRAIGHT, ids=lambda cls: cls.__name__)
def test_straight_code_agrees_on_the_shape_it_knows_and_beside_it(cls: type[Message]) -> None:
    """STYLE 14: what is read without loops is read as the interpreter reads it, and what is damaged is refused."""
    assert cls.flexible is not None
    rng = random.Random(cls.__name__ + "straight")
    for version in range(cls.flexible, cls.versions[1] + 1):
        decode = compiler.decoder(cls, version)
        for _ in range(25):
            message = usual_shape(cls, version, rng)
            try:
                expected = joined(interpreter.encode(message, version))
            except Unencodable:
                continue  # null where it cannot be
            for data in (expected, memoryview(expected)):
                assert decode(data, 0, len(data)) == (message, len(data))
            assert decode(b"#" + expected + b"\x01", 1, len(expected) + 2) == (message, len(expected) + 1)
            if len(expected) > 400:
                continue
            damaged = [expected[:cut] for cut in range(len(expected))]
            for at in range(len(expected)):
                bytes_there = (expected[at] ^ 1, expected[at] ^ 0x80, 0, 1, 2, 3, 0x80)
                damaged += [expected[:at] + bytes((byte,)) + expected[at + 1 :] for byte in bytes_there]
                damaged.append(expected[:at] + b"\x80\x00" + expected[at + 1 :])  # a varint longer than need be
            for data in rng.choices(damaged, k=20):
                try:
                    wanted = interpreter.decode(cls, data, 0, version)
                except Malformed:
                    wanted = None
                assert outcome(decode, data) == wanted
                assert outcome(decode, memoryview(data)) == wanted


@pytest.mark.parametrize("cls", STRAIGHT, ids=lambda cls: cls.__name__)
def test_the_usual_shape_is_read_without_loops(cls: type[Message]) -> None:
    """A condition that never holds would make the straight code a detour that no other test sees."""
    version = cls.versions[1]
    decode = compiler.decoder(cls, version)
    code = decode.__code__
    text = linecache.getlines(code.co_filename)
    behind = 1 + next(number for number, line in enumerate(text, 1) if line.strip() == "except short:")
    furthest = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal furthest
        if frame.f_code is code:
            furthest = max(furthest, frame.f_lineno)
        return trace

    data = plainest(cls, version).encode_bytes(version)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decode(data, 0, len(data))
    finally:
        sys.settrace(before)
    assert 0 < furthest < behind


@pytest.mark.parametrize("size", [2**21 - 2, 2**21 - 1, 2**21])
def test_payloads_of_megabytes_have_lengths_of_three_and_four_bytes(size: int) -> None:
    """Where the straight code ends and the general one takes over."""
    for cls in HOT:
        if not any(inner.kind == "records" for inner in every_field(cls)):
            continue
        message = plainest(cls, cls.versions[1])
        partition = message
        while not hasattr(partition, "records"):
            arrays = [field.name for field in partition.__fields__ if field.kind == "array" and not field.rare]
            (partition,) = next(value for name in arrays if (value := getattr(partition, name)))
        partition.records = bytes(size)
        data = message.encode_bytes(cls.versions[1])
        assert compiler.decoder(cls, cls.versions[1])(data, 0, len(data)) == (message, len(data))


@pytest.mark.parametrize("name", ["orders", "o" * 200])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_views_on_the_input_whatever_it_is(kind: Any, name: str) -> None:
    """`Message.decode`: payloads are not copied, in straight code (a short name) and in the loops (a long one)."""
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=1, records=b"some bytes")])
    data = kind(ProduceRequest(topic_data=[topic]).encode_bytes(9))
    records = ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert type(records) is memoryview and records == b"some bytes"
    assert records.obj is (data.obj if kind is memoryview else data)


def every_field(structure: type[Struct]) -> list[Field]:
    found = []
    for field in structure.__fields__:
        inner = field.element if field.kind == "array" else field
        assert inner is not None
        found.append(inner)
        if inner.structure is not None:
            found += every_field(inner.structure)
    return found


def plainest(structure: type[Struct], version: int) -> Any:
    """One element in each array, defaults everywhere else."""
    made = structure()
    for field in structure.__fields__:
        inner = field.element if field.kind == "array" else field
        assert inner is not None
        if field.exists_in(version) and not field.tagged_in(version) and not field.rare:
            if field.kind == "records":
                setattr(made, field.name, b"some bytes")
            elif inner.structure is not None:
                value = plainest(inner.structure, version)
                setattr(made, field.name, [value] if field.kind == "array" else value)
            elif field.kind == "array":
                setattr(made, field.name, [inner.default])
    return made


@pytest.mark.parametrize("cls", HOT, ids=lambda cls: cls.__name__)
def test_produce_and_fetch_agree_on_the_usual_shape_and_beside_it(cls: type[Message]) -> None:
    """The design: what is written by hand, or read in straight code, is under the same tests."""
    assert cls.flexible is not None
    rng = random.Random(cls.__name__)
    for version in range(cls.flexible, cls.versions[1] + 1):
        decode, encode = compiler.decoder(cls, version), compiler.encoder(cls, version)
        for round_ in range(150):
            message = hot_shape(cls, version, rng)
            expected = joined(interpreter.encode(message, version))
            assert joined(encode(message)) == expected
            assert decode(expected, 0, len(expected)) == (message, len(expected))
            assert decode(b"#" + expected + b"\x01", 1, len(expected) + 2) == (message, len(expected) + 1)
            if len(expected) > 400 or round_ > 40:
                continue
            damaged = [expected[:cut] for cut in range(len(expected))]
            for at in range(len(expected)):
                bytes_there = (expected[at] ^ 1, expected[at] ^ 0x80, 0, 1, 2, 3)
                damaged += [expected[:at] + bytes((byte,)) + expected[at + 1 :] for byte in bytes_there]
                damaged.append(in_more_bytes(expected, at, 1 + at % 3))
            for data in rng.choices(damaged, k=60):
                try:
                    wanted = interpreter.decode(cls, data, 0, version)
                except Malformed:
                    wanted = None
                assert outcome(decode, data) == wanted


def in_more_bytes(data: bytes, at: int, more: int) -> bytes:
    """The same, with the byte at `at` as a varint of more bytes than it needs."""
    return data[:at] + bytes((data[at] | 0x80,)) + b"\x80" * (more - 1) + b"\0" + data[at + 1 :]


@pytest.mark.parametrize("more", [1, 2, 3, 4])
@pytest.mark.parametrize("cls", [*dict.fromkeys((*HOT, *STRAIGHT))], ids=lambda cls: cls.__name__)
def test_a_length_in_more_bytes_than_it_needs_is_that_length_for_the_quick_ways_too(
    cls: type[Message], more: int
) -> None:
    """security.md 7.1: compiled == interpreted also for varints that no client writes.  A null payload in two bytes
    was taken for an empty one that ends where it begins, so that what followed was read a byte too early."""
    assert cls.flexible is not None
    rng = random.Random(cls.__name__)
    for version in range(cls.flexible, cls.versions[1] + 1):
        decode = compiler.decoder(cls, version)
        for payload in (None, b"", b"p" * 100):
            message = usual_shape(cls, version, rng)
            for topic in getattr(message, "topic_data", None) or getattr(message, "responses", None) or ():
                for partition in getattr(topic, "partition_data", None) or getattr(topic, "partitions", None) or ():
                    if hasattr(partition, "records"):
                        partition.records = payload
            try:
                data = joined(interpreter.encode(message, version))
            except Unencodable:
                continue  # null where it cannot be
            for at in range(min(len(data), 300)):
                odd = in_more_bytes(data, at, more)
                for damaged in (odd, odd[:-1], odd + b"\0"):
                    try:
                        wanted = interpreter.decode(cls, damaged, 0, version)
                    except Malformed:
                        wanted = None
                    assert repr(outcome(decode, damaged)) == repr(wanted)


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions[0], cls.versions[1] + 1)


def outcome(decode: Any, data: Any) -> Any:
    """What a raw decoder makes of it: message and position, or None for a refusal."""
    try:
        return decode(data, 0, len(data))
    except DECODE_ERRORS:
        return None


# --- every class, every version -------------------------------------------------------------------------------------


@EACH
def test_compiled_and_interpreted_write_the_same_bytes(cls: type[Message]) -> None:
    """Issue 3, Proof: compiled == interpreted, and what is written is read back as it was, by both."""
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        pairs = codecs(cls, version)
        for round_ in range(12):
            message = cls() if round_ == 0 else random_struct(cls, version, rng)
            try:
                expected = joined(interpreter.encode(message, version))
            except Unencodable:
                # Only defaults can be refused: a field that is null by default and not nullable here.
                assert round_ == 0
                for _, encode in pairs:
                    with pytest.raises(ENCODE_ERRORS):
                        encode(message)
                continue
            assert interpreter.size(message, version) == len(expected)
            reread, position = interpreter.decode(cls, expected, 0, version)
            assert reread == message
            assert position == len(expected)
            for decode, encode in pairs:
                assert joined(encode(message)) == expected
                for data in (expected, bytearray(expected), memoryview(b"##" + expected)[2:]):
                    got, position = decode(data, 0, len(data))
                    assert got == message
                    assert position == len(expected)
                got, position = decode(b"#" + expected + b"##", 1, len(expected) + 3)
                assert (got, position) == (message, len(expected) + 1)


@EACH
def test_damaged_bytes_are_a_value_or_malformed_for_both(cls: type[Message]) -> None:
    """Issue 3, Bad input: every prefix and random bit flips give a value or the declared error, the same for both."""
    rng = random.Random(cls.__name__ + "damage")
    for version in versions_of(cls):
        decode = compiler.decoder(cls, version)
        good = b""
        for _ in range(3):
            candidate = joined(interpreter.encode(random_struct(cls, version, rng), version))
            if not good or len(good) < len(candidate) < 400:
                good = candidate
        cuts = range(len(good)) if len(good) < 60 else sorted(rng.sample(range(len(good)), 40))
        damaged = [good[:cut] for cut in cuts]
        for _ in range(40):
            flipped = bytearray(good)
            for _ in range(rng.choice((1, 1, 2, 5))):
                if flipped:
                    at = rng.randrange(len(flipped))
                    flipped[at] = rng.choice((flipped[at] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF))
            damaged.append(bytes(flipped))
        for data in damaged:
            try:
                expected = interpreter.decode(cls, data, 0, version)
            except Malformed as malformed:
                assert 0 <= malformed.position <= len(data)
                expected = None
            assert repr(outcome(decode, data)) == repr(expected)  # not ==: a float may be NaN
            if expected is None or expected[1] != len(data):
                with pytest.raises(Malformed):
                    cls.decode(data, version)
            else:
                assert repr(cls.decode(data, version)) == repr(expected[0])


@EACH
def test_a_field_that_a_version_lacks_is_refused_unless_ignorable(cls: type[Message]) -> None:
    """Kafka's rule of ignorable fields, one field at a time, the same in both writers."""
    for version in versions_of(cls):
        flexible = interpreter.is_flexible(cls, version)
        for field in cls.__fields__:
            if field.exists_in(version) and (flexible or not field.tagged_in(version)):
                continue
            message = cls()
            for other in cls.__fields__:
                if other.exists_in(version) and other.kind == "records":
                    setattr(message, other.name, b"")
            setattr(message, field.name, not_default(field))
            if field.ignorable:
                assert joined(message.encode(version)) == joined(interpreter.encode(message, version))
            else:
                with pytest.raises(Unencodable, match=field.name):
                    message.encode(version)


def not_default(field: Field) -> Any:
    rng = random.Random(field.name)
    while True:
        value = random_value(field, max(field.since, field.tag_since), rng)
        if value is not None and not field.is_default(value):
            return value


# --- a message with everything, over Hypothesis ---------------------------------------------------------------------


class Leaf(Struct):
    number: int = int32(since=1, default=-1, ignorable=True)
    text: str | None = string(nullable=0)
    maybe: int = tag(0, int64(default=7), since=3)


class Everything(Message):
    versions = (0, 5)
    flexible = 2

    flag: bool = boolean(default=True)
    small: int = int8()
    port: int = uint16()
    big: int = uint32()
    ratio: float = float64()
    id: Uuid = uuid(since=1, ignorable=True)
    leaves: list[Leaf] | None = array(Leaf, nullable=1)
    names: list[str] = array(string)
    ids: list[Uuid] = array(uuid)
    numbers: list[int] | None = array(int64, nullable=2, default=None)
    flags: list[bool] = array(boolean)
    blob: bytes | None = bytes_(nullable=(1, 2))
    one: Leaf = struct_field(Leaf)
    perhaps: Leaf | None = struct_field(Leaf, nullable=0, default=None)
    plain: str | None = string(nullable=0, compact=False)
    moved: int = tag(1, int32(since=0, default=9), since=3)
    late: Leaf = tag(2, struct_field(Leaf), since=3)
    tagged_list: list[int] | None = tag(4, array(int32, nullable=0, default=None), since=3)
    tagged_perhaps: Leaf | None = tag(5, struct_field(Leaf, nullable=0, default=None), since=3)
    payload: Any = records()
    tail: int = int32(until=4, ignorable=True)


@given(st.integers(0, 2**64), st.integers(*Everything.versions))
@settings(max_examples=150, deadline=None)
def test_a_message_with_every_kind_of_field_goes_both_ways(seed: int, version: int) -> None:
    message = random_struct(Everything, version, random.Random(seed))
    if not Everything.__fields__[12].nullable_in(version) and message.blob is None:
        message.blob = b""
    expected = joined(interpreter.encode(message, version))
    assert joined(message.encode(version)) == expected
    assert message.size(version) == len(expected)
    assert Everything.decode(expected, version) == message
    assert interpreter.decode(Everything, expected, 0, version) == (message, len(expected))


@given(st.binary(max_size=300), st.integers(*Everything.versions))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_a_value_or_malformed(data: bytes, version: int) -> None:
    try:
        expected = interpreter.decode(Everything, data, 0, version)
    except Malformed:
        expected = None
    assert repr(outcome(compiler.decoder(Everything, version), data)) == repr(expected)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_lengths_that_lie_allocate_nothing(api: Any) -> None:
    """Issue 3, Proof: no allocation above 8 x input + 1 MiB, whatever the lengths say (N01)."""
    rng = random.Random(api.key)
    for cls, version in itertools.product((api.request, api.response), {*api.versions}):
        good = joined(interpreter.encode(random_struct(cls, version, rng), version))
        lies = []
        for at in sorted(rng.sample(range(len(good)), min(len(good), 12))):
            lies.append(good[:at] + b"\x7f\xff\xff\xff" + good[at + 4 :])
            lies.append(good[:at] + b"\xff\xff\xff\xff\x07" + good[at + 5 :])
            lies.append(good[:at] + b"\x00\x0f\x42\x3f" + good[at + 4 :])
        decode = compiler.decoder(cls, version)
        outcome(decode, good)
        tracemalloc.start()
        for data in lies:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            outcome(decode, data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 8 * len(data) + (1 << 20)
        tracemalloc.stop()


# --- single rules ---------------------------------------------------------------------------------------------------


SMALLEST = (b"\0\0\0\1\x01\0", b"\0\0\0\1\0\0\0\0")
"""A partition of a produce request with an empty payload, flexible and not."""


@pytest.mark.parametrize("version", [8, 9])
def test_a_large_request_of_too_many_elements_is_refused_before_it_is_made(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """security.md 7.1, 7.2: a frame of 100 MiB may hold 17 million partitions, which would be 4 GiB of objects.  Here
    with limits of a fiftieth."""
    monkeypatch.setattr(schema, "REQUEST_UNCOUNTED_BYTES", REQUEST_UNCOUNTED_BYTES // 50)
    monkeypatch.setattr(interpreter, "REQUEST_ELEMENTS_MAX", REQUEST_ELEMENTS_MAX // 50)
    flexible = version >= 9
    head = (b"\0" if flexible else b"\xff\xff") + struct.pack(">hi", 1, 1)

    def length(count: int) -> bytes:
        return compiler.uvarint_bytes(count + 1) if flexible else count.to_bytes(4, "big")

    def request(partitions: int) -> bytes:
        name = b"\x02a" if flexible else b"\0\x01a"
        topic = name + length(partitions) + SMALLEST[not flexible] * partitions + b"\0" * flexible
        return head + length(2) + topic * 2 + b"\0" * flexible

    most = request(4_999)  # and two topics are 10,000
    assert [len(topic.partition_data) for topic in ProduceRequest.decode(most, version).topic_data] == [4_999] * 2
    for data in (request(9_000), request(15_000)):
        for read in (ProduceRequest.decode, lambda data, version: ProduceRequest.decode_at(b"#" + data, 1, version)):
            tracemalloc.start()
            try:
                with pytest.raises(Malformed, match="more than 10000 elements"):
                    read(data, version)
                assert tracemalloc.get_traced_memory()[1] < len(data) + (1 << 16)
            finally:
                tracemalloc.stop()


@EACH
def test_what_is_counted_is_read_all_the_same(cls: type[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version of every message goes over the counter as it goes over the codecs, cut off or not."""
    monkeypatch.setattr(schema, "REQUEST_UNCOUNTED_BYTES", -1)
    rng = random.Random(cls.__name__ + "counted")
    for version in versions_of(cls):
        message = random_struct(cls, version, rng)
        data = joined(interpreter.encode(message, version))
        assert cls.decode(data, version) == message
        cut = data[: rng.randrange(len(data) + 1)]
        try:
            interpreter.decode(cls, cut, 0, version)
        except Malformed:
            with pytest.raises(Malformed):
                cls.decode(cut, version)


class Tiny(Message):
    versions = (0, 1)
    flexible = 1
    name: str = string()
    known: int = tag(1, int32(), since=1)
    items: list[int] = array(int32)
    leaves: list[Leaf] = array(Leaf)


def tiny(tags: bytes, *, name: bytes = b"\x02a", items: bytes = b"\x01", leaves: bytes = b"\x01") -> bytes:
    return name + items + leaves + tags


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tiny(b"\x00", name=b"\x00"), "name: null where it cannot be"),
        (tiny(b"\x00", name=b"\x02\xff"), "name: not UTF-8"),
        (tiny(b"\x00", name=b"\x81\x80\x02" + b"a" * 32_768), "name: a string of 32768 bytes"),
        (tiny(b"\x00", name=b"\x80\x80\x80\x80\x80\x00"), "more than five bytes"),
        (tiny(b"\x00", name=b"\x80\x80\x80\x80\x10"), "more than 32 bits"),
        (tiny(b"\x00", items=b"\x03"), "items: 2 elements, 2 bytes left"),
        (tiny(b"\x00", leaves=b"\x80\x80\x80\x80\x01"), "leaves: 268435455 elements"),
        (tiny(b"\x02\x03\x00\x03\x00"), "tag 3 after tag 3"),
        (tiny(b"\x02\x03\x00\x02\x00"), "tag 2 after tag 3"),
        (tiny(b"\x01\x01\x05" + bytes(5)), "tag 1 says 5 bytes"),
        (tiny(b"\x01\x09\x05" + bytes(4)), "tag 9 of 5 bytes, 4 left"),
        (tiny(b"\x91\x4e" + bytes(20_002)), "10001 tagged fields"),
        (tiny(b"\x00\x00"), "1 bytes too many"),
        (b"", "1 bytes wanted, 0 left"),
    ],
)
def test_malformed_says_where_and_why(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as caught:
        Tiny.decode(data, 1)
    assert 0 <= caught.value.position <= len(data)


@pytest.mark.parametrize("number", [8, 28])
def test_what_a_client_commits_beside_an_offset_may_be_any_bytes(number: int) -> None:
    """Clients in C and Go hand it on as it is, and Kafka takes it, with U+FFFD."""
    cls = APIS[number].request
    for version in versions_of(cls):
        message = plainest(cls, version)
        partition = message.topics[0].partitions[0]
        partition.committed_metadata = "#####"
        for odd in (b"a\xff\xfe\x00b", b"\xe2\x82\xe2\x82\xac"):
            data = message.encode_bytes(version).replace(b"#####", odd)
            for found in (cls.decode(data, version), interpreter.decode(cls, data, 0, version)[0]):
                assert found.topics[0].partitions[0].committed_metadata == odd.decode("utf-8", "replace")


def test_tags_that_we_do_not_know_are_kept_and_written_back() -> None:
    """The design: unknown tagged fields are kept; they stand among the known ones in ascending order."""
    data = tiny(b"\x03\x00\x01A\x01\x04\x00\x00\x00\x05\x07\x00")
    message = Tiny.decode(data, 1)
    assert message.known == 5
    assert message.unknown_tags == [(0, b"A"), (7, b"")]
    assert message.encode_bytes(1) == data


def test_a_known_tag_among_the_unknown_ones_is_refused() -> None:
    message = Tiny()
    message.unknown_tags = [(1, b"")]
    with pytest.raises(Unencodable, match="known"):
        message.encode(1)


def test_tags_are_refused_in_a_version_without_them() -> None:
    message = Tiny()
    message.unknown_tags = [(5, b"x")]
    with pytest.raises(Unencodable, match="tagged fields"):
        message.encode(0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"name": None}, "name: null"),
        ({"name": "a" * 32_768}, "name: a string of 32768 bytes"),
        ({"name": 5}, "name: 5 is not a string"),
        ({"name": "\ud800"}, "half a surrogate"),
        ({"items": [2**31]}, r"items.\[0\]: 2147483648 is not an int32"),
        ({"items": None}, "items: null"),
        ({"leaves": [None]}, r"leaves.\[0\]: None is not a Leaf"),
        ({"known": "x"}, "known: 'x' is not an int32"),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_what_cannot_be_written_is_refused_by_name(values: dict[str, Any], reason: str, version: int) -> None:
    if "known" in values and version == 0:
        reason = "known: set, in a version"
    with pytest.raises(Unencodable, match=reason):
        Tiny(**values).encode(version)


def test_records_are_neither_copied_nor_joined() -> None:
    """The design: `records` are memoryviews on the input, and payloads go out as they came in."""
    produce = APIS[0]
    request = produce.request.decode(
        joined(interpreter.encode(random_struct(produce.request, 9, random.Random(5)), 9)), 9
    )
    payload = bytearray(b"p" * 5_000)
    view = memoryview(payload)
    whole = Everything(payload=[view[:100], view[100:]], blob=b"")
    parts = whole.encode(4)
    assert any(part is not None and len(part) == 4_900 and isinstance(part, memoryview) for part in parts)
    data = memoryview(joined(parts))
    again = Everything.decode(data, 4)
    assert isinstance(again.payload, memoryview)
    assert again.payload.obj is data.obj
    assert request is not None


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(Malformed, match="versions 0 to 1"):
        Tiny.decode(b"", 2)
    with pytest.raises(Unencodable, match="versions 0 to 1"):
        Tiny().encode(-1)


def test_a_late_struct_is_made_when_asked_for_and_not_written_as_a_default() -> None:
    message = Everything(blob=b"", payload=b"")
    plain = message.encode_bytes(4)
    message.late.number = -1
    assert message.encode_bytes(4) == plain
    message.late.number = 5
    assert Everything.decode(message.encode_bytes(4), 4).late == Leaf(number=5)


def test_lists_are_never_shared() -> None:
    assert Tiny().items is not Tiny().items
    assert Tiny.decode(tiny(b"\x00"), 1).items is not Tiny.decode(tiny(b"\x00"), 1).items


def test_a_constructor_takes_only_the_fields() -> None:
    with pytest.raises(TypeError):
        Tiny(nmae="x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Tiny().nmae = "x"  # type: ignore[attr-defined]


def test_payloads_are_not_printed() -> None:
    """Issue 3, Bad input: nothing in these layers logs payloads."""
    assert "secret" not in repr(Everything(payload=b"secret"))


def test_the_source_is_shown_in_tracebacks_and_by_dump() -> None:
    """The design: the generated source is in linecache and can be printed."""
    text = compiler.dump("Heartbeat", 4)
    assert "HeartbeatRequest, version 4" in text
    assert "HeartbeatResponse, version 4" in text
    decode = compiler.decoder(APIS[12].request, 4)
    filename = decode.__code__.co_filename
    assert linecache.getline(filename, 1).startswith("def decode")
    with pytest.raises(KeyError):
        compiler.dump("Nonsense", 0)


def test_a_struct_error_is_no_bug_of_ours() -> None:
    """The interpreter must find what a compiled codec refused; `struct.error` is the cheapest refusal."""
    assert struct.error in DECODE_ERRORS
