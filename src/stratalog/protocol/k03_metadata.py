"""Metadata, API key 3.

Behaviour
  Which brokers there are, and for each topic its partitions with leader, epoch, replicas and ISR. Any broker answers.
  Naming an unknown topic may create it when the client allows it and the broker is configured so. The addresses are
  those of the listener that the request came in by.

Version notes
  0: an empty list of topics means all of them.
  1: null means all and empty means none; racks, controller id, internal flag.
  2: cluster id.
  3: throttle time.
  4: `allow_auto_topic_creation`.
  5: offline replicas.
  7: leader epochs.
  8: authorized operations on wish.
  9: flexible.
  10: topic ids in the reply; nullable names in the request.
  11: the cluster's authorized operations leave for DescribeCluster.
  12: topics can be asked for by id alone.
  13: an error for the whole reply.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid(since=10, ignorable=True)
    name: str | None = string(nullable=10)


class MetadataRequest(Message):
    api_key = 3
    versions = (0, 13)
    flexible = 9

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-2147483648)


class MetadataResponse(Message):
    api_key = 3
    versions = (0, 13)
    flexible = 9

    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-2147483648)
    error_code: int = int16(since=13, ignorable=True)
