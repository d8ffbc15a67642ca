"""AlterReplicaLogDirs, API key 34.

Behaviour
  Moves replicas between the directories of the broker that it is sent to; the reply comes before the copy is done.

Version notes
  0 and 1 look the same.
  2: flexible.
"""

from __future__ import annotations

from stratalog.protocol.schema import Message, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message):
    api_key = 34
    versions = (0, 2)
    flexible = 2

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message):
    api_key = 34
    versions = (0, 2)
    flexible = 2

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
