"""The cluster: brokers, quorum, log directories, features, and what a broker speaks.

stratalog cluster brokers
stratalog cluster quorum
stratalog cluster dirs
stratalog cluster features
stratalog cluster apis
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from stratalog.cli.output import add_bootstrap, add_json, print_json, size, table

if TYPE_CHECKING:
    from stratalog.client import Client


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="brokers|quorum|dirs|features|apis")
    for name, text in (
        ("brokers", "id and addresses of each broker"),
        ("quorum", "leader and voters of the metadata log"),
        ("dirs", "log directories with sizes and free space"),
        ("features", "feature levels"),
        ("apis", "requests that the broker serves, with versions"),
    ):
        sub = commands.add_parser(name, help=text)
        add_bootstrap(sub)
        add_json(sub)


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client

    with Client(args.bootstrap) as client:
        header, rows, right = {
            "brokers": _brokers,
            "quorum": _quorum,
            "dirs": _dirs,
            "features": _features,
            "apis": _apis,
        }[args.what](client)
    if args.json:
        names = [title.replace(" ", "_") for title in header]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        if args.what == "dirs":
            rows = [(*row[:3], size(row[3]), size(row[4]) if row[4] >= 0 else None, row[5]) for row in rows]
        table(rows, header, right=right)
    return 0


def _brokers(client: Client) -> tuple[tuple[str, ...], list[Any], tuple[int, ...]]:
    brokers = client.brokers
    rows = [
        (node, host, port, "controller" if node == client.controller_id else "")
        for node, (host, port) in brokers.items()
    ]
    return ("node", "host", "port", "role"), rows, (0, 2)


def _quorum(client: Client) -> tuple[tuple[str, ...], list[Any], tuple[int, ...]]:
    from stratalog.client.failures import check
    from stratalog.protocol.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

    answer = client.call(
        DescribeQuorumRequest(
            topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
        )
    )
    check(answer.error_code, "quorum", answer.error_message)
    part = answer.topics[0].partitions[0]
    check(part.error_code, "quorum", part.error_message)
    rows = [
        (
            r.replica_id,
            kind if r.replica_id != part.leader_id else "leader",
            part.leader_epoch,
            r.log_end_offset,
            part.high_watermark,
            str(r.replica_directory_id),
        )
        for kind, replicas in (("voter", part.current_voters), ("observer", part.observers))
        for r in replicas
    ]
    return ("node", "role", "epoch", "end", "high watermark", "directory"), rows, (0, 2, 3, 4)


def _dirs(client: Client) -> tuple[tuple[str, ...], list[Any], tuple[int, ...]]:
    from stratalog.base.errors import ErrorCode
    from stratalog.client import admin

    rows = []
    for node, directories in admin.log_dirs(client).items():
        for d in directories:
            state = ErrorCode(d.error_code).name if d.error_code else "cordoned" if d.is_cordoned else "online"
            used = sum(p.partition_size for t in d.topics for p in t.partitions)
            rows.append((node, d.log_dir, sum(len(t.partitions) for t in d.topics), used, d.usable_bytes, state))
    return ("node", "directory", "partitions", "size", "free", "state"), rows, (0, 2, 3, 4)


def _features(client: Client) -> tuple[tuple[str, ...], list[Any], tuple[int, ...]]:
    from stratalog.protocol.k18_api_versions import ApiVersionsRequest

    answer = client.call(ApiVersionsRequest(client_software_name="stratalog", client_software_version="0"))
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    rows = [(f.name, f.min_version, f.max_version, levels.get(f.name, 0)) for f in answer.supported_features]
    return ("feature", "lowest", "highest", "level"), sorted(rows), (1, 2, 3)


def _apis(client: Client) -> tuple[tuple[str, ...], list[Any], tuple[int, ...]]:
    from stratalog.client.client import api_name

    connection = client.connection(next(iter(client.brokers)))
    rows = [(key, api_name(key), low, high) for key, (low, high) in sorted(connection.versions.items())]
    return ("key", "name", "lowest", "highest"), rows, (0, 2, 3)
