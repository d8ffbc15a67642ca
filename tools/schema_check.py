"""Compare our message classes with the definitions inside Kafka's own jars: `make schema`.

Every message and every version that we speak, field by field: whether the field is there, its place, type, tag,
whether it may be null, its default, whether it is ignorable; for the message its key, versions and first flexible
version; for the registry its listeners and the unstable flag.  The definitions are JSON files in the jars of
kafka-clients 4.4.0 and, for what brokers keep on disk, of 4.3.1; versions that Kafka 4 dropped are compared with
kafka-clients 3.9.1.  Differences are printed as a table.  The last line is `N messages, M differences`; the exit code
is 0 for none, 1 for some, 2 when the jars are missing.

What is not ours to have, or on purpose different, stands in `LEFT_OUT` and `OLD_VERSIONS_LEFT_OUT` with its reason.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kafka_peer
from stratalog.base.types import ZERO_UUID
from stratalog.protocol import disk, schema
from stratalog.protocol.apis import APIS, BY_NAME

BROKER_JARS = (
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
    "kafka-storage",
)
LEFT_OUT = {
    "ControlledShutdown": "removed from Kafka 4; no version is valid",
    "LeaderAndIsr": "removed from Kafka 4; no version is valid",
    "StopReplica": "removed from Kafka 4; no version is valid",
    "UpdateMetadata": "removed from Kafka 4; no version is valid",
}
"""APIs without classes."""
OLD_VERSIONS_LEFT_OUT = {
    "AlterPartition": "spoken among brokers of Kafka 3 only",
    "WriteTxnMarkers": "spoken among brokers of Kafka 3 only",
    "ShareAcknowledge": "version 0 was an early access form that no client uses",
    "ShareFetch": "version 0 was an early access form that no client uses",
    "ShareGroupDescribe": "version 0 was an early access form that no client uses",
    "ShareGroupHeartbeat": "version 0 was an early access form that no client uses",
}
"""APIs of which we do not speak the versions that Kafka 4 dropped."""
HAND_WRITTEN = {
    "RequestHeader": "`protocol.headers` does it by hand; tests/golden/protocol/headers.jsonl is what it must give",
    "ResponseHeader": "`protocol.headers` does it by hand; tests/golden/protocol/headers.jsonl is what it must give",
}
_NAMES = "a name became ignorable in Kafka 4, with topic ids; one flag for all versions, and it writes the same"
DIFFERENT_ON_PURPOSE = {
    ("ProduceRequest", "TopicData.Name", "ignorable"): _NAMES,
    ("ProduceResponse", "Responses.Name", "ignorable"): _NAMES,
    ("OffsetCommitRequest", "Topics.Name", "ignorable"): _NAMES,
    ("OffsetCommitResponse", "Topics.Name", "ignorable"): _NAMES,
}
"""Single facts of versions that Kafka 4 dropped, where the newer definition wins."""
KINDS = {"bool": "boolean"}


@dataclass
class Report:
    """What was compared and what differs."""

    messages: int = 0
    versions: int = 0
    fields: int = 0
    differences: dict[tuple[str, str, str, str, str], list[int]] = field(default_factory=dict)
    exceptions: list[tuple[str, str]] = field(default_factory=list)
    excused: set[tuple[str, str, str]] = field(default_factory=set)

    def differs(self, message: str, where: str, what: str, kafka: object, ours: object, version: int = -1) -> None:
        if (message, where, what) in DIFFERENT_ON_PURPOSE and version >= 0:
            self.excused.add((message, where, what))
            return
        row = (message, where, what, str(kafka), str(ours))
        self.differences.setdefault(row, []).append(version)

    def table(self) -> str:
        """The differences, one a line, the versions that show it together."""
        lines = []
        for (message, where, what, kafka, ours), versions in self.differences.items():
            shown = "" if versions == [-1] else f" v{min(versions)}-{max(versions)}"
            lines.append(f"{message}{shown}  {where}  {what}: Kafka {kafka}, ours {ours}")
        return "\n".join(lines)


# --- the definitions ----------------------------------------------------------------------------------------------
def definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """The message definitions of one jar, by name."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if (entry.endswith(".json") and "message/" in entry) or entry.startswith("common/metadata/"):
                if not entry.endswith(".json"):
                    continue
                text = archive.read(entry).decode("utf-8")
                kept = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
                definition = json.loads("\n".join(kept))
                found[definition["name"]] = definition
    return found


def span(text: str | None) -> range:
    """`"4-13"`, `"9+"`, `"2"`, `"none"` as a range of versions."""
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), 32768)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def kafka_shape(definition: dict[str, Any], version: int) -> list[dict[str, Any]]:
    """A definition's fields in one version: first the plain ones in their order, then the tagged by number."""
    commons = {common["name"]: common for common in definition.get("commonStructs", ())}
    return _kafka_fields(definition.get("fields", []), commons, version)


def _kafka_fields(fields: list[dict[str, Any]], commons: dict[str, Any], version: int) -> list[dict[str, Any]]:
    rows = []
    for one in fields:
        if version not in span(one.get("versions") or one.get("taggedVersions")):
            continue
        kind = one["type"].strip()
        is_array = kind.startswith("[]")
        element = kind.removeprefix("[]")
        nested = one.get("fields")
        if nested is None and element in commons:
            nested = commons[element]["fields"]
        tagged = "tag" in one and version in span(one.get("taggedVersions"))
        row = {
            "name": one["name"][:1].upper() + one["name"][1:],
            "type": ("[]" if is_array else "") + KINDS.get(element, element),
            "tag": one["tag"] if tagged else None,
            "nullable": version in span(one.get("nullableVersions")),
            "default": _kafka_default(one, is_array, element, nested is not None),
            "ignorable": str(one.get("ignorable", False)).lower() == "true",
            "compact": one.get("flexibleVersions") != "none",
        }
        if nested is not None:
            row["fields"] = _kafka_fields(nested, commons, version)
        rows.append(row)
    return _in_order(rows)


def _kafka_default(one: dict[str, Any], is_array: bool, element: str, is_struct: bool) -> Any:
    given = one.get("default")
    if given is not None and str(given) == "null":
        return None
    if is_array:
        return []
    if is_struct:
        return {}
    if element == "string":
        return str(given or "")
    if element == "bytes":
        return b""
    if element == "records":
        return None
    if element == "uuid":
        return ZERO_UUID
    if element == "bool":
        return str(given).lower() == "true"
    if element == "float64":
        return float(given or 0)
    return int(str(given), 0) if given not in (None, "") else 0


# --- our classes --------------------------------------------------------------------------------------------------
def our_shape(cls: type[schema.Struct], version: int) -> list[dict[str, Any]]:
    """A class's fields in one version, in the form of `kafka_shape`."""
    rows = []
    for one in cls.__fields__:
        if not one.exists_in(version):
            continue
        inner = one.element if one.kind == "array" else one
        assert inner is not None
        nested = inner.structure
        element = inner.kind if nested is None else vars(nested).get("kafka_name", nested.__name__)
        if one.default is schema.UNSET:
            default: Any = [] if one.kind == "array" else {}
        else:
            default = one.default
        row = {
            "name": one.kafka_name[:1].upper() + one.kafka_name[1:],
            "type": ("[]" if one.kind == "array" else "") + element,
            "tag": one.tag if one.tagged_in(version) else None,
            "nullable": one.nullable_in(version),
            "default": default,
            "ignorable": one.ignorable,
            "compact": one.compact,
        }
        if nested is not None:
            row["fields"] = our_shape(nested, version)
        rows.append(row)
    return _in_order(rows)


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = [row for row in rows if row["tag"] is None]
    tagged = [row for row in rows if row["tag"] is not None]
    return plain + sorted(tagged, key=lambda row: row["tag"])


def disk_classes() -> dict[str, type[schema.Message]]:
    """All records on disk, and the principal inside an envelope, by Kafka's name."""
    found: dict[str, type[schema.Message]] = {}
    names = [f"{disk.__name__}.{module.name}" for module in pkgutil.iter_modules(disk.__path__)]
    for name in [*names, "stratalog.protocol.k58_envelope"]:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, schema.Message) and value.__module__ == name:
                found[value.__name__] = value
    return {name: cls for name, cls in found.items() if not name.startswith("Envelope")}


# --- the comparison -----------------------------------------------------------------------------------------------
def compare_fields(
    report: Report, message: str, version: int, kafka: list[dict[str, Any]], ours: list[dict[str, Any]], path: str = ""
) -> None:
    """One struct in one version."""
    names = [row["name"] for row in kafka]
    our_names = [row["name"] for row in ours]
    if names != our_names:
        for missing in [name for name in names if name not in our_names]:
            report.differs(message, path + missing, "field", "has it", "lacks it", version)
        for extra in [name for name in our_names if name not in names]:
            report.differs(message, path + extra, "field", "lacks it", "has it", version)
        if sorted(names) == sorted(our_names):
            report.differs(message, path or "(top)", "order", names, our_names, version)
    by_name = {row["name"]: row for row in ours}
    for row in kafka:
        mine = by_name.get(row["name"])
        if mine is None:
            continue
        report.fields += 1
        for what in ("type", "tag", "nullable", "default", "ignorable", "compact"):
            same = row[what] == mine[what] and type(row[what]) is type(mine[what])
            if not same:
                report.differs(message, path + row["name"], what, row[what], mine[what], version)
        if "fields" in row and "fields" in mine:
            compare_fields(report, message, version, row["fields"], mine["fields"], f"{path}{row['name']}.")


def compare_message(
    report: Report, cls: type[schema.Message], new: dict[str, Any], old: dict[str, Any] | None = None
) -> None:
    """One class with its definition, and below that one's versions with the older definition."""
    name = new["name"]
    report.messages += 1
    valid = span(new["validVersions"])
    first = valid.start if old is None else min(valid.start, span(old["validVersions"]).start)
    if cls.versions != (first, valid.stop - 1):
        report.differs(name, "(top)", "versions", (first, valid.stop - 1), cls.versions)
    if "apiKey" in new and new["apiKey"] != cls.api_key:
        report.differs(name, "(top)", "api key", new["apiKey"], cls.api_key)
    for version in range(cls.versions[0], cls.versions[1] + 1):
        definition = new if version in valid else old
        if definition is None:
            continue  # reported as a difference of versions above
        report.versions += 1
        flexible = version in span(definition["flexibleVersions"])
        ours = cls.flexible is not None and version >= cls.flexible
        if flexible != ours:
            report.differs(name, "(top)", "flexible", flexible, ours, version)
        compare_fields(report, name, version, kafka_shape(definition, version), our_shape(cls, version))


def compare_api(report: Report, key: int, request: dict[str, Any]) -> None:
    """One row of the registry."""
    api = APIS[key]
    listeners = "".join(
        letter for letter, name in (("B", "broker"), ("C", "controller")) if name in request["listeners"]
    )
    unstable = bool(request.get("latestVersionUnstable", False))
    for what, kafka, ours in (
        ("listeners", listeners, api.listeners),
        ("latest version unstable", unstable, api.latest_unstable),
        ("versions of registry and class", api.request.versions, api.versions),
        ("flexible of registry and class", api.request.flexible, api.flexible),
    ):
        if kafka != ours:
            report.differs(request["name"], "(registry)", what, kafka, ours)


def check() -> Report | None:
    """The whole comparison; None when the jars are missing."""
    home = kafka_peer.kafka_home()
    clients = kafka_peer.clients_jar(kafka_peer.CLIENTS_VERSION)
    old_clients = kafka_peer.clients_jar(kafka_peer.OLD_CLIENTS_VERSION)
    if home is None or clients is None or old_clients is None:
        return None
    report = Report()
    new = definitions(clients)
    old = definitions(old_clients)
    seen = set()
    for name, reason in LEFT_OUT.items():
        report.exceptions.append((name, reason))
        seen |= {name + "Request", name + "Response"}
    for name, reason in HAND_WRITTEN.items():
        report.exceptions.append((name, reason))
        seen.add(name)
    for api in BY_NAME.values():
        for suffix, cls in (("Request", api.request), ("Response", api.response)):
            name = api.name + suffix
            seen.add(name)
            if name not in new:
                report.differs(name, "(top)", "message", "lacks it", "has it")
                continue
            older = None if api.name in OLD_VERSIONS_LEFT_OUT else old.get(name)
            compare_message(report, cls, new[name], older)
        compare_api(report, api.key, new[api.name + "Request"])
    report.exceptions += [(f"{name}, old versions", reason) for name, reason in OLD_VERSIONS_LEFT_OUT.items()]
    records = {name: one for name, one in new.items() if name not in seen}
    for jar in BROKER_JARS:
        records |= definitions(home / "libs" / f"{jar}-{kafka_peer.BROKER_VERSION}.jar")
    classes = disk_classes()
    for name, definition in records.items():
        if name not in classes:
            report.differs(name, "(top)", "message", "has it", "lacks it")
            continue
        compare_message(report, classes[name], definition)
    for fact, reason in DIFFERENT_ON_PURPOSE.items():
        report.exceptions.append((" ".join(fact), reason))
        if fact not in report.excused:
            report.differs(*fact, "as ours by now", "an exception without need")
    for name in classes.keys() - records.keys():
        report.differs(name, "(top)", "message", "lacks it", "has it")
    return report


def main() -> int:
    report = check()
    if report is None:
        missing = kafka_peer.why_missing() or kafka_peer.why_no_clients()
        print("schema check not done: " + (missing or kafka_peer.why_no_clients(kafka_peer.OLD_CLIENTS_VERSION)))
        return 2
    for name, reason in report.exceptions:
        print(f"except {name}: {reason}")
    if report.differences:
        print(report.table())
    print(f"{report.versions} versions of messages, {report.fields} fields compared")
    print(f"{report.messages} messages, {len(report.differences)} differences")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
