"""DescribeCluster, API key 60.

Behaviour
  Cluster id, controller and brokers (or, with endpoint type 2, controllers) and on wish what the caller may do with
  the cluster.

Version notes
  1: endpoint type.
  2: fenced brokers on wish.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message):
    api_key = 60
    versions = (0, 2)
    flexible = 0

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Message):
    api_key = 60
    versions = (0, 2)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
