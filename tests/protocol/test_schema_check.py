"""The schema check: our classes against the definitions in Kafka's jars, and the check against itself."""

from __future__ import annotations

from typing import Any

import pytest

import kafka_peer
import schema_check
from stratalog.base.types import Uuid
from stratalog.protocol.apis import APIS
from stratalog.protocol.disk import group, metadata, remote, share, share_group, streams_group
from stratalog.protocol.schema import Message, Struct, array, int16, int32, string, struct, tag, uuid


class Inner(Struct):
    error_code: int = int16()


class SampleRequest(Message):
    api_key = 99
    versions = (1, 4)
    flexible = 3

    group_id: str = string()
    topic_id: Uuid = uuid(since=2, ignorable=True)
    reason: str | None = string(until=3, nullable=2, default=None)
    parts: list[Inner] = array(Inner)
    numbers: list[int] | None = array(int32, nullable=1)
    epoch: int = tag(0, int32(default=-1), since=3)
    leader: Inner = tag(1, struct(Inner), since=3)


INNER: dict[str, Any] = {"name": "ErrorCode", "type": "int16", "versions": "1+"}


def definition(**changes: Any) -> dict[str, Any]:
    """The definition that `SampleRequest` follows, with single fields changed by name."""
    fields: list[dict[str, Any]] = [
        {"name": "GroupId", "type": "string", "versions": "1+"},
        {"name": "TopicId", "type": "uuid", "versions": "2+", "ignorable": True},
        {"name": "Reason", "type": "string", "versions": "1-3", "nullableVersions": "2+", "default": "null"},
        {"name": "Parts", "type": "[]Inner", "versions": "1+", "fields": [INNER]},
        {"name": "Numbers", "type": "[]int32", "versions": "1+", "nullableVersions": "1+"},
        {"name": "Epoch", "type": "int32", "versions": "3+", "tag": 0, "taggedVersions": "3+", "default": "-1"},
        {"name": "Leader", "type": "Inner", "tag": 1, "taggedVersions": "3+", "fields": [INNER]},
    ]
    for one in fields:
        one.update(changes.get(one["name"], {}))
    top = {"name": "SampleRequest", "apiKey": 99, "validVersions": "1-4", "flexibleVersions": "3+", "fields": fields}
    return {**top, **changes.get("top", {})}


def differences(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    report = schema_check.Report()
    schema_check.compare_message(report, SampleRequest, new, old)
    assert report.messages == 1
    return [(where, what) for _, where, what, _, _ in report.differences]


def test_a_class_that_follows_its_definition_has_no_difference():
    """issue 3, section 2: `N messages, 0 differences`."""
    assert differences(definition()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"GroupId": {"type": "bytes"}}, ("GroupId", "type")),
        ({"GroupId": {"versions": "2+"}}, ("GroupId", "field")),
        ({"GroupId": {"name": "Group"}}, ("Group", "field")),
        ({"GroupId": {"nullableVersions": "4+"}}, ("GroupId", "nullable")),
        ({"GroupId": {"default": "x"}}, ("GroupId", "default")),
        ({"GroupId": {"flexibleVersions": "none"}}, ("GroupId", "compact")),
        ({"TopicId": {"ignorable": False}}, ("TopicId", "ignorable")),
        ({"Reason": {"versions": "1+"}}, ("Reason", "field")),
        ({"Reason": {"default": ""}}, ("Reason", "default")),
        ({"Parts": {"type": "[]Other"}}, ("Parts", "type")),
        ({"Parts": {"fields": [{**INNER, "type": "int32"}]}}, ("Parts.ErrorCode", "type")),
        ({"Numbers": {"type": "[]int64"}}, ("Numbers", "type")),
        ({"Numbers": {"default": "null"}}, ("Numbers", "default")),
        ({"Epoch": {"tag": 2}}, ("Epoch", "tag")),
        ({"Epoch": {"default": "0"}}, ("Epoch", "default")),
        ({"Epoch": {"taggedVersions": "4+"}}, ("Epoch", "tag")),
        ({"top": {"apiKey": 98}}, ("(top)", "api key")),
        ({"top": {"validVersions": "1-5"}}, ("(top)", "versions")),
        ({"top": {"flexibleVersions": "2+"}}, ("(top)", "flexible")),
    ],
)
def test_a_single_changed_fact_is_found(changes: dict[str, Any], expected: tuple[str, str]):
    """issue 3, section 2: field by field, version by version."""
    assert expected in differences(definition(**changes))


def test_a_changed_order_is_found():
    """The order of the fields is the order on the wire."""
    changed = definition()
    changed["fields"][0], changed["fields"][1] = changed["fields"][1], changed["fields"][0]
    assert ("(top)", "order") in differences(changed)


def test_versions_that_kafka_dropped_are_compared_with_the_older_definition():
    """issue 3, section 2: below Kafka 4's minimum the definitions of 3.9.1 count."""
    newer = definition(top={"validVersions": "2-4"})
    assert differences(newer, definition()) == []
    assert ("Reason", "type") in differences(newer, definition(Reason={"type": "bytes"}))
    assert ("(top)", "versions") in differences(newer)


def test_each_row_of_the_registry_leads_to_its_classes():
    """STYLE 7: one API key, one schema file."""
    for key, api in APIS.items():
        assert api.request.__name__ == api.name + "Request"
        assert api.response.__name__ == api.name + "Response"
        assert api.request.api_key == api.response.api_key == key
        assert api.request.versions == api.response.versions == api.versions


def test_the_tables_of_records_on_disk_are_keyed_by_their_own_numbers():
    """api-surface.md, On-disk schemas: the number in front of a record decides its class."""
    for table in (metadata.RECORDS, remote.RECORDS):
        assert all(cls.api_key == number for number, cls in table.items())
    assert sorted(metadata.RECORDS) == [*range(6), 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 29)]
    for pairs in (group.RECORDS, share_group.RECORDS, streams_group.RECORDS, share.RECORDS):
        assert all(key.api_key == value.api_key == number for number, (key, value) in pairs.items())


@pytest.mark.java
def test_our_classes_are_those_of_kafka_field_by_field_in_every_version():
    """issue 3, section 2: `make schema` ends with 0 differences."""
    report = schema_check.check()
    if report is None:
        pytest.skip(kafka_peer.why_missing() or kafka_peer.why_no_clients())
    assert report.table() == ""
    assert report.messages > 260
    assert report.versions > 750
