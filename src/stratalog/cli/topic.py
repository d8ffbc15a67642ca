"""Topics.

stratalog topic list
stratalog topic create orders --partitions 6 -c cleanup.policy=compact
stratalog topic describe orders
stratalog topic grow orders 12
stratalog topic trim orders --before 1000
stratalog topic delete orders
"""

from __future__ import annotations

import argparse
import sys

from stratalog.cli import UsageError, at_least, one_line
from stratalog.cli.output import add_bootstrap, add_json, print_json, size, table


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|create|describe|grow|trim|delete")
    listing = commands.add_parser("list", help="names, partitions, records and sizes")
    listing.add_argument("--internal", action="store_true", help="internal topics too")
    create = commands.add_parser("create", help="make a topic")
    create.add_argument("name")
    create.add_argument(
        "-p", "--partitions", type=at_least(1), default=-1, help="default: num.partitions of the broker"
    )
    create.add_argument("-r", "--replication-factor", type=at_least(1), default=-1, help="default: the broker's")
    create.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="a topic that is there is fine")
    describe = commands.add_parser("describe", help="partitions, leaders, offsets, configuration that was set")
    describe.add_argument("name", nargs="+")
    grow = commands.add_parser("grow", help="add partitions")
    grow.add_argument("name")
    grow.add_argument("total", type=at_least(1), help="how many partitions it shall have")
    trim = commands.add_parser("trim", help="delete the oldest records")
    trim.add_argument("name")
    trim.add_argument("--before", type=at_least(-1), required=True, metavar="OFFSET", help="-1 deletes all")
    trim.add_argument("--partition", type=at_least(0), help="default: every partition")
    delete = commands.add_parser("delete", help="delete topics with all their records")
    delete.add_argument("name", nargs="+")
    for sub in (listing, create, describe, grow, trim, delete):
        add_bootstrap(sub)
        add_json(sub)


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client

    with Client(args.bootstrap) as client:
        return int(globals()[f"_{args.what}"](client, args))


def _list(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    topics = {n: t for n, t in client.topics().items() if args.internal or not (t.internal or n.startswith("__"))}
    sizes = _sizes(client)
    rows = []
    for name, info in topics.items():
        ends = admin.bounds(client, name)
        records = sum(end - start for start, end in ends.values())
        rows.append((name, len(info.partitions), records, sizes.get(name, 0), str(info.topic_id)))
    if args.json:
        print_json([dict(zip(("topic", "partitions", "offsets", "bytes", "id"), row, strict=True)) for row in rows])
    elif rows:
        table(
            [(n, p, f"{r:,}", size(b), i) for n, p, r, b, i in rows],
            ("topic", "partitions", "offsets", "size", "id"),
            right=(1, 2, 3),
        )
    else:
        print("no topics; stratalog topic create NAME makes one")
    return 0


def _create(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.base.errors import ErrorCode
    from stratalog.client import admin
    from stratalog.client.failures import Refused

    try:
        partitions = admin.create_topic(
            client,
            args.name,
            partitions=args.partitions,
            replication_factor=args.replication_factor,
            configs=pairs(args.config),
        )
    except Refused as error:
        if args.if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            partitions = len(client.topic(args.name).partitions)
        else:
            raise
    if args.json:
        print_json({"topic": args.name, "partitions": partitions})
    else:
        print(f"{args.name}: {partitions} partition{'s' if partitions != 1 else ''}")
    return 0


def _describe(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    found = []
    for name in args.name:
        info = client.topic(name)
        ends = admin.bounds(client, name)
        configs = {c.name: c.value for c in admin.describe_configs(client, "topic", name) if c.config_source == 1}
        found.append(
            {
                "topic": name,
                "id": str(info.topic_id),
                "configs": configs,
                "partitions": [
                    {
                        "partition": p.index,
                        "leader": p.leader,
                        "epoch": p.leader_epoch,
                        "replicas": p.replicas,
                        "isr": p.isr,
                        "start": ends[p.index][0],
                        "end": ends[p.index][1],
                    }
                    for p in info.partitions.values()
                ],
            }
        )
    if args.json:
        print_json(found)
        return 0
    for topic in found:
        print(f"{topic['topic']}  id {topic['id']}")
        for key, value in topic["configs"].items():
            print(f"  {key} = {value}")
        table(
            [
                (p["partition"], p["leader"], p["epoch"], _ids(p["replicas"]), _ids(p["isr"]), p["start"], p["end"])
                for p in topic["partitions"]
            ],
            ("partition", "leader", "epoch", "replicas", "isr", "start", "end"),
            right=(0, 1, 2, 5, 6),
        )
    return 0


def _grow(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    admin.create_partitions(client, args.name, args.total)
    print(f"{args.name}: {args.total} partitions") if not args.json else print_json({"partitions": args.total})
    return 0


def _trim(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    partitions = [args.partition] if args.partition is not None else list(client.topic(args.name).partitions)
    ends = admin.bounds(client, args.name)
    before = {p: args.before if args.before < 0 else min(args.before, ends[p][1]) for p in partitions if p in ends}
    if not before:
        raise UsageError(f"--partition {args.partition}: {args.name} has partitions 0 to {len(ends) - 1}")
    starts = admin.delete_records(client, args.name, before)
    if args.json:
        print_json(starts)
    else:
        table(sorted(starts.items()), ("partition", "starts at"), right=(0, 1))
    return 0


def _delete(client, args) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    client.metadata([])
    failed = 0
    results = admin.delete_topics(client, args.name)
    for name, error in results.items():
        if error is not None:
            failed += 1
            if not args.json:
                print(f"stratalog: {one_line(error)}", file=sys.stderr)
        elif not args.json:
            print(f"{name}: deleted")
    if args.json:
        print_json({name: None if error is None else str(error) for name, error in results.items()})
    return 1 if failed else 0


def pairs(options: list[str]) -> dict[str, str]:
    """KEY=VALUE arguments."""
    found = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"{option!r}: expected KEY=VALUE")
        found[key] = value
    return found


def _sizes(client) -> dict[str, int]:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    sizes: dict[str, int] = {}
    for directories in admin.log_dirs(client).values():
        for directory in directories:
            for topic in directory.topics:
                sizes[topic.name] = sizes.get(topic.name, 0) + sum(p.partition_size for p in topic.partitions)
    return sizes


def _ids(nodes: list[int]) -> str:
    return ",".join(str(node) for node in nodes)
