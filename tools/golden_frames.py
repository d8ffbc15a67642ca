"""Golden frames: what Kafka's own message classes write, and what they make of what we write.

`tools/golden/record` runs this file and writes tests/golden/protocol/*.jsonl again: for every version of every message
a frame of defaults and one of pseudo-random values, with the values as Kafka's own JSON.  The tests use `echo` for the
other direction and `kafka_json` to compare values.  Three runs of Java, one for each class path: kafka-clients 4.4.0
(the wire), 3.9.1 (the versions that Kafka 4 dropped), the jars of 4.3.1 (the records on disk).
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kafka_peer
import schema_check
from stratalog.base.types import FileRegion
from stratalog.protocol import schema
from stratalog.protocol.apis import APIS

SOURCE = kafka_peer.ROOT / "tools" / "golden" / "GoldenFrames.java"
GOLDEN = kafka_peer.ROOT / "tests" / "golden" / "protocol"
RUN_SECONDS_MAX = 240


@dataclass(frozen=True)
class Row:
    """One message with the versions that one class path of Kafka knows."""

    file: str
    """Name of the golden file, without the suffix."""
    jars: str
    """`new`, `old` or `broker`."""
    name: str
    cls: type[schema.Message]
    first: int
    last: int


def rows() -> list[Row]:
    """Every version of every message once.  What Kafka 4.4 dropped is asked of the older clients."""
    new = schema_check.definitions(_jar(kafka_peer.CLIENTS_VERSION))
    found = []
    for api in APIS.values():
        for kind, cls in (("request", api.request), ("response", api.response)):
            name = cls.__name__
            valid = schema_check.span(new[name]["validVersions"])
            first, last = cls.versions
            found.append(Row(f"{kind}s", "new", name, cls, valid.start, last))
            if first < valid.start:
                found.append(Row("old-versions", "old", name, cls, first, valid.start - 1))
    for name, cls in sorted(schema_check.disk_classes().items()):
        found.append(Row("disk", "new" if name in new else "broker", name, cls, *cls.versions))
    return found


def message_class(name: str) -> type[schema.Message]:
    """Our class by Kafka's name."""
    for suffix in ("Request", "Response"):
        if name.endswith(suffix):
            for api in APIS.values():
                if api.name == name.removesuffix(suffix):
                    return api.request if suffix == "Request" else api.response
    return schema_check.disk_classes()[name]


# --- Java ---------------------------------------------------------------------------------------------------------
def record(directory: Path = GOLDEN) -> list[Path]:
    """Write the golden files; the same bytes again as long as Kafka's classes are the same."""
    everything = rows()
    answers: dict[str, list[str]] = {}
    for jars in ("new", "old", "broker"):
        mine = [row for row in everything if row.jars == jars]
        classes = _classes(jars)
        lines = [f"{row.name} {classes[row.name]} {row.first} {row.last}" for row in mine]
        files = {row.name: row.file for row in mine}
        for line in _java(jars, "record", lines):
            answers.setdefault(files[json.loads(line)["message"]], []).append(line)
        requests = [row for row in mine if row.name.endswith("Request") and row.cls.api_key >= 0]
        lines = [f"{row.name} {row.cls.api_key} {row.first} {row.last}" for row in requests]
        if lines:
            answers.setdefault("headers", []).extend(_java(jars, "headers", lines))
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for file, lines in sorted(answers.items()):
        path = directory / f"{file}.jsonl"
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        written.append(path)
    return written


def echo(frames: Iterable[tuple[str, int, bytes]]) -> Iterator[dict[str, Any]]:
    """What Java reads in frames (name, version, bytes) of ours, and writes back: dictionaries with `message`,
    `version`, `hex` and `json`, or `error`; the order is of the frames within a class path, not over all."""
    where: dict[str, list[Row]] = {}
    for row in rows():
        where.setdefault(row.name, []).append(row)
    lines: dict[str, list[str]] = {"new": [], "old": [], "broker": []}
    classes = {jars: _classes(jars) for jars in lines}
    for name, version, data in frames:
        row = next(row for row in where[name] if row.first <= version <= row.last)
        lines[row.jars].append(f"{name} {classes[row.jars][name]} {version} {data.hex()}")
    for jars, questions in lines.items():
        if questions:
            for question, answer in zip(questions, _java(jars, "echo", questions), strict=True):
                yield {**json.loads(answer), "sent": question.rpartition(" ")[2]}


def _java(jars: str, mode: str, lines: list[str]) -> list[str]:
    program = kafka_peer.java()
    home = kafka_peer.kafka_home()
    assert program is not None and home is not None, kafka_peer.why_missing()
    path = f"{home}/libs/*"
    if jars != "broker":
        path = f"{_jar(kafka_peer.CLIENTS_VERSION if jars == 'new' else kafka_peer.OLD_CLIENTS_VERSION)}:{path}"
    with tempfile.TemporaryDirectory() as directory:
        question = Path(directory) / "in"
        answer = Path(directory) / "out"
        question.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        command = [program, "-Xmx512M", "-cp", path, str(SOURCE), mode, str(question), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{SOURCE.name} {mode} with the jars {jars!r}: {done.stderr[-3000:]}")
        return answer.read_text(encoding="utf-8").splitlines()


def _jar(version: str) -> Path:
    jar = kafka_peer.clients_jar(version)
    if jar is None:
        raise RuntimeError(kafka_peer.why_no_clients(version))
    return jar


def _classes(jars: str) -> dict[str, str]:
    """Kafka's name of a message to its Java class: those that have a JSON converter beside them."""
    home = kafka_peer.kafka_home()
    assert home is not None, kafka_peer.why_missing()
    if jars == "broker":
        names = [*schema_check.BROKER_JARS, "kafka-clients"]
        paths = [home / "libs" / f"{name}-{kafka_peer.BROKER_VERSION}.jar" for name in names]
    else:
        paths = [_jar(kafka_peer.CLIENTS_VERSION if jars == "new" else kafka_peer.OLD_CLIENTS_VERSION)]
    found = {}
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
        for entry in entries:
            if entry.endswith("JsonConverter.class") and "$" not in entry:
                java = entry.removesuffix("JsonConverter.class").replace("/", ".")
                name = java.rpartition(".")[2]
                wire = name.removesuffix("Data")
                found[wire if wire.endswith(("Request", "Response")) else name] = java
    return found


# --- values -------------------------------------------------------------------------------------------------------
def kafka_json(value: schema.Struct, version: int) -> dict[str, Any]:
    """A message's values as Kafka's own JSON converters give them."""
    shown = {}
    for field in value.__fields__:
        if not field.exists_in(version):
            continue
        one = getattr(value, field.name)
        if field.tagged_in(version) and field.is_default(one):
            continue
        shown[field.kafka_name[:1].lower() + field.kafka_name[1:]] = _json(field, one, version)
    return shown


def _json(field: schema.Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        assert field.element is not None
        return [_json(field.element, one, version) for one in value]
    if field.kind == "struct":
        return kafka_json(value, version)
    if field.kind in ("bytes", "records"):
        parts = value if isinstance(value, list) else [value]
        data = b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)
        return base64.b64encode(data).decode("ascii")
    if field.kind == "uuid":
        return str(value)
    return value


def main() -> int:
    if kafka_peer.kafka_home() is None or kafka_peer.clients_jar() is None:
        print("no recording: " + (kafka_peer.why_missing() or kafka_peer.why_no_clients()))
        return 2
    for path in record():
        print(f"{path.relative_to(kafka_peer.ROOT)}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
