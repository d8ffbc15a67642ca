"""The registry of the API: for each key its name, versions and classes.

The classes are imported when first asked for: a broker's answer to ApiVersions needs the table only.  `versions` is
what the classes speak; what a listener offers is decided by whoever answers on it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, Final

from stratalog.protocol.schema import Message


class Api:
    """One row.  `request` and `response` are the message classes, imported at their first use."""

    __slots__ = ("_request", "_response", "flexible", "key", "latest_unstable", "listeners", "name", "versions")

    def __init__(
        self,
        key: int,
        name: str,
        versions: tuple[int, int],
        flexible: int | None,
        listeners: str,
        latest_unstable: bool,
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        """First and last, both spoken."""
        self.flexible = flexible
        """The first flexible version, None for never."""
        self.listeners = listeners
        """Where Apache Kafka offers it: B for brokers, C for controllers."""
        self.latest_unstable = latest_unstable
        """Kafka's `latestVersionUnstable`: the last version is spoken, and offered only when asked for."""
        self._request: type[Message] | None = None
        self._response: type[Message] | None = None

    @property
    def module(self) -> str:
        """`k01_fetch`: the module's name here and the handler's in the node."""
        return f"k{self.key:02d}_{snake(self.name)}"

    @property
    def request(self) -> type[Message]:
        if self._request is None:
            self._resolve()
        assert self._request is not None
        return self._request

    @property
    def response(self) -> type[Message]:
        if self._response is None:
            self._resolve()
        assert self._response is not None
        return self._response

    def _resolve(self) -> None:
        module: Any = importlib.import_module(f"{__package__}.{self.module}")
        self._response = getattr(module, self.name + "Response")
        self._request = getattr(module, self.name + "Request")

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def speaks(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def __repr__(self) -> str:
        return f"<{self.name} ({self.key}) {self.versions[0]}-{self.versions[1]}>"


def snake(name: str) -> str:
    """`OffsetForLeaderEpoch` to `offset_for_leader_epoch`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _row(
    key: int, name: str, first: int, last: int, *, flexible: int | None, listeners: str, unstable: bool = False
) -> Api:
    return Api(key, name, (first, last), flexible, listeners, unstable)


_ROWS = (
    _row(0, "Produce", 0, 13, flexible=9, listeners="B"),
    _row(1, "Fetch", 0, 18, flexible=12, listeners="BC"),
    _row(2, "ListOffsets", 0, 11, flexible=6, listeners="B"),
    _row(3, "Metadata", 0, 13, flexible=9, listeners="B"),
    _row(8, "OffsetCommit", 0, 10, flexible=8, listeners="B"),
    _row(9, "OffsetFetch", 0, 10, flexible=6, listeners="B"),
    _row(10, "FindCoordinator", 0, 6, flexible=3, listeners="B"),
    _row(11, "JoinGroup", 0, 9, flexible=6, listeners="B"),
    _row(12, "Heartbeat", 0, 4, flexible=4, listeners="B"),
    _row(13, "LeaveGroup", 0, 5, flexible=4, listeners="B"),
    _row(14, "SyncGroup", 0, 5, flexible=4, listeners="B"),
    _row(15, "DescribeGroups", 0, 6, flexible=5, listeners="B"),
    _row(16, "ListGroups", 0, 5, flexible=3, listeners="B"),
    _row(17, "SaslHandshake", 0, 1, flexible=None, listeners="BC"),
    _row(18, "ApiVersions", 0, 5, flexible=3, listeners="BC"),
    _row(19, "CreateTopics", 0, 7, flexible=5, listeners="BC"),
    _row(20, "DeleteTopics", 0, 6, flexible=4, listeners="BC"),
    _row(21, "DeleteRecords", 0, 2, flexible=2, listeners="B"),
    _row(22, "InitProducerId", 0, 6, flexible=2, listeners="B", unstable=True),
    _row(23, "OffsetForLeaderEpoch", 0, 4, flexible=4, listeners="B"),
    _row(24, "AddPartitionsToTxn", 0, 5, flexible=3, listeners="B"),
    _row(25, "AddOffsetsToTxn", 0, 4, flexible=3, listeners="B"),
    _row(26, "EndTxn", 0, 5, flexible=3, listeners="B"),
    _row(27, "WriteTxnMarkers", 1, 2, flexible=1, listeners="B"),
    _row(28, "TxnOffsetCommit", 0, 6, flexible=3, listeners="B"),
    _row(29, "DescribeAcls", 0, 3, flexible=2, listeners="BC"),
    _row(30, "CreateAcls", 0, 3, flexible=2, listeners="BC"),
    _row(31, "DeleteAcls", 0, 3, flexible=2, listeners="BC"),
    _row(32, "DescribeConfigs", 0, 4, flexible=4, listeners="BC"),
    _row(33, "AlterConfigs", 0, 2, flexible=2, listeners="BC"),
    _row(34, "AlterReplicaLogDirs", 0, 2, flexible=2, listeners="B"),
    _row(35, "DescribeLogDirs", 0, 5, flexible=2, listeners="B"),
    _row(36, "SaslAuthenticate", 0, 2, flexible=2, listeners="BC"),
    _row(37, "CreatePartitions", 0, 3, flexible=2, listeners="BC"),
    _row(38, "CreateDelegationToken", 0, 3, flexible=2, listeners="BC"),
    _row(39, "RenewDelegationToken", 0, 2, flexible=2, listeners="BC"),
    _row(40, "ExpireDelegationToken", 0, 2, flexible=2, listeners="BC"),
    _row(41, "DescribeDelegationToken", 0, 3, flexible=2, listeners="BC"),
    _row(42, "DeleteGroups", 0, 3, flexible=2, listeners="B"),
    _row(43, "ElectLeaders", 0, 2, flexible=2, listeners="BC"),
    _row(44, "IncrementalAlterConfigs", 0, 1, flexible=1, listeners="BC"),
    _row(45, "AlterPartitionReassignments", 0, 1, flexible=0, listeners="BC"),
    _row(46, "ListPartitionReassignments", 0, 0, flexible=0, listeners="BC"),
    _row(47, "OffsetDelete", 0, 0, flexible=None, listeners="B"),
    _row(48, "DescribeClientQuotas", 0, 1, flexible=1, listeners="B"),
    _row(49, "AlterClientQuotas", 0, 1, flexible=1, listeners="BC"),
    _row(50, "DescribeUserScramCredentials", 0, 0, flexible=0, listeners="BC"),
    _row(51, "AlterUserScramCredentials", 0, 0, flexible=0, listeners="BC"),
    _row(52, "Vote", 0, 2, flexible=0, listeners="C"),
    _row(53, "BeginQuorumEpoch", 0, 1, flexible=1, listeners="C"),
    _row(54, "EndQuorumEpoch", 0, 1, flexible=1, listeners="C"),
    _row(55, "DescribeQuorum", 0, 2, flexible=0, listeners="BC"),
    _row(56, "AlterPartition", 2, 3, flexible=0, listeners="C"),
    _row(57, "UpdateFeatures", 0, 2, flexible=0, listeners="BC"),
    _row(58, "Envelope", 0, 0, flexible=0, listeners="C"),
    _row(59, "FetchSnapshot", 0, 1, flexible=0, listeners="C"),
    _row(60, "DescribeCluster", 0, 2, flexible=0, listeners="BC"),
    _row(61, "DescribeProducers", 0, 0, flexible=0, listeners="B"),
    _row(62, "BrokerRegistration", 0, 4, flexible=0, listeners="C"),
    _row(63, "BrokerHeartbeat", 0, 2, flexible=0, listeners="C"),
    _row(64, "UnregisterBroker", 0, 0, flexible=0, listeners="BC"),
    _row(65, "DescribeTransactions", 0, 0, flexible=0, listeners="B"),
    _row(66, "ListTransactions", 0, 2, flexible=0, listeners="B"),
    _row(67, "AllocateProducerIds", 0, 0, flexible=0, listeners="C"),
    _row(68, "ConsumerGroupHeartbeat", 0, 1, flexible=0, listeners="B"),
    _row(69, "ConsumerGroupDescribe", 0, 1, flexible=0, listeners="B"),
    _row(70, "ControllerRegistration", 0, 0, flexible=0, listeners="C"),
    _row(71, "GetTelemetrySubscriptions", 0, 0, flexible=0, listeners="B"),
    _row(72, "PushTelemetry", 0, 0, flexible=0, listeners="B"),
    _row(73, "AssignReplicasToDirs", 0, 0, flexible=0, listeners="C"),
    _row(74, "ListConfigResources", 0, 1, flexible=0, listeners="B"),
    _row(75, "DescribeTopicPartitions", 0, 0, flexible=0, listeners="B"),
    _row(76, "ShareGroupHeartbeat", 1, 1, flexible=0, listeners="B"),
    _row(77, "ShareGroupDescribe", 1, 1, flexible=0, listeners="B"),
    _row(78, "ShareFetch", 1, 2, flexible=0, listeners="B"),
    _row(79, "ShareAcknowledge", 1, 2, flexible=0, listeners="B"),
    _row(80, "AddRaftVoter", 0, 1, flexible=0, listeners="BC"),
    _row(81, "RemoveRaftVoter", 0, 0, flexible=0, listeners="BC"),
    _row(82, "UpdateRaftVoter", 0, 0, flexible=0, listeners="C"),
    _row(83, "InitializeShareGroupState", 0, 0, flexible=0, listeners="B"),
    _row(84, "ReadShareGroupState", 0, 0, flexible=0, listeners="B"),
    _row(85, "WriteShareGroupState", 0, 1, flexible=0, listeners="B"),
    _row(86, "DeleteShareGroupState", 0, 0, flexible=0, listeners="B"),
    _row(87, "ReadShareGroupStateSummary", 0, 1, flexible=0, listeners="B"),
    _row(88, "StreamsGroupHeartbeat", 0, 1, flexible=0, listeners="B"),
    _row(89, "StreamsGroupDescribe", 0, 1, flexible=0, listeners="B"),
    _row(90, "DescribeShareGroupOffsets", 0, 1, flexible=0, listeners="B"),
    _row(91, "AlterShareGroupOffsets", 0, 0, flexible=0, listeners="B"),
    _row(92, "DeleteShareGroupOffsets", 0, 0, flexible=0, listeners="B"),
    _row(93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, flexible=0, listeners="B"),
    _row(94, "UnregisterController", 0, 0, flexible=0, listeners="BC"),
)

APIS: Final[dict[int, Api]] = {api.key: api for api in _ROWS}
"""By key, in ascending order.  Keys 4 to 7 are gone from Kafka and not spoken."""

BY_NAME: Final[dict[str, Api]] = {api.name: api for api in _ROWS}


def classes() -> Iterator[type[Message]]:
    """All message classes: requests and responses, headers, records on disk.  Imports every module."""
    from stratalog.protocol import disk

    modules: list[Any] = []
    modules += [importlib.import_module(f"{__package__}.{api.module}") for api in _ROWS]
    modules += [
        importlib.import_module(f"{disk.__name__}.{module.name}") for module in pkgutil.iter_modules(disk.__path__)
    ]
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
                yield value


def find(name: str) -> list[type[Message]]:
    """The classes behind what a person types: `Fetch` and `1` are request and response, `FetchRequest` one of them,
    `PartitionRecord` a record on disk.  Empty where there is none."""
    api = APIS.get(int(name)) if name.isdecimal() else BY_NAME.get(name)
    if api is not None:
        return [api.request, api.response]
    return [cls for cls in classes() if cls.__name__ == name]
