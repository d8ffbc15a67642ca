"""BrokerRegistration, API key 62.

Behaviour
  A starting broker makes itself known to the controller: id, incarnation, listeners, features, rack, directories. The
  reply is its broker epoch, which it shows in every later request.

Version notes
  1: the ZooKeeper migration flag.
  2: directory ids.
  3: a feature's lowest level may be 0.
  4: the epoch before a clean shutdown.
"""

from __future__ import annotations

from stratalog.base.types import Uuid
from stratalog.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message):
    api_key = 62
    versions = (0, 4)
    flexible = 0

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable=0)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[Uuid] = array(uuid, since=2, ignorable=True)
    previous_broker_epoch: int = int64(since=3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Message):
    api_key = 62
    versions = (0, 4)
    flexible = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
