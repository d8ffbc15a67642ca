"""D20 around the partitions: what a full disk stops for a while, and what must go on again by itself."""

from __future__ import annotations

import pytest

import stratalog.testing
from stratalog.base.errors import ErrorCode
from stratalog.client import Client, admin
from stratalog.protocol.k10_find_coordinator import FindCoordinatorRequest


def coordinator(client: Client, version: int) -> int:
    """The error of the answer."""
    node = next(iter(client.brokers))
    asked = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    answer = client.connection(node).call(asked, version=version)
    return int(answer.error_code if version < 4 else answer.coordinators[0].error_code)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_disk_that_is_full_when_the_first_group_comes_stops_no_later_one(version: int) -> None:
    with stratalog.testing.broker() as b, b.client() as client:
        with b.disk.full("__cluster_metadata"):
            for _ in range(2):
                assert coordinator(client, version) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert coordinator(client, version) == ErrorCode.NONE


def test_groups_are_coordinated_once_there_is_room_for_their_logs() -> None:
    config = {"offsets.topic.num.partitions": "2"}
    with stratalog.testing.broker(topics=["t"], config=config) as b, b.client() as client:
        with b.disk.full("__consumer_offsets"):
            assert coordinator(client, 4) == ErrorCode.NONE
            assert not b.running.node.groups.runtimes
        b.clock.advance(seconds=5)
        admin.commit_offsets(client, "g", {("t", 0): 3})
        assert [place.offset for place in admin.committed_offsets(client, "g")] == [3]


