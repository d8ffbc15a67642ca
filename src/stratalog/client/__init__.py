"""A small synchronous client over `protocol/`: for the command line, Spark, tests and tools.

It speaks to any Kafka broker since 0.10 and picks for each request the highest version that both sides know.  It is
not a consumer framework: no background threads, no group membership.  One `Client` belongs to one thread.
"""

from stratalog.client.client import Client, FetchedPartition, PartitionInfo, TopicInfo
from stratalog.client.connection import Connection
from stratalog.client.consumer import records_between
from stratalog.client.failures import ClientError, ConnectionLost, Refused, Unreachable
from stratalog.client.partitioner import murmur2, partition_for_key
from stratalog.client.producer import Delivery, Producer

__all__ = [
    "Client",
    "ClientError",
    "Connection",
    "ConnectionLost",
    "Delivery",
    "FetchedPartition",
    "PartitionInfo",
    "Producer",
    "Refused",
    "TopicInfo",
    "Unreachable",
    "murmur2",
    "partition_for_key",
    "records_between",
]
