"""Consumer groups.

stratalog group list
stratalog group describe billing                 members, offsets and lag
stratalog group reset billing orders --to start  start, end, an offset, or a time (2h, 2026-11-18T12:00)
stratalog group delete billing
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from stratalog.cli import UsageError, one_line
from stratalog.cli.output import add_bootstrap, add_json, print_json, table

if TYPE_CHECKING:
    from stratalog.client import Client


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|describe|reset|delete")
    listing = commands.add_parser("list", help="groups with state and type")
    describe = commands.add_parser("describe", help="members, committed offsets and lag")
    describe.add_argument("group", nargs="+")
    reset = commands.add_parser("reset", help="move the offsets of a group without members")
    reset.add_argument("group")
    reset.add_argument("topic", nargs="+", help="TOPIC or TOPIC:PARTITION")
    reset.add_argument("--to", required=True, help="start, end, an offset, or a time: 2h, 3d ago, an ISO time")
    reset.add_argument("-n", "--dry-run", action="store_true", help="show what would be")
    delete = commands.add_parser("delete", help="forget groups without members and their offsets")
    delete.add_argument("group", nargs="+")
    for sub in (listing, describe, reset, delete):
        add_bootstrap(sub)
        add_json(sub)


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client

    with Client(args.bootstrap) as client:
        if args.what == "list":
            return _list(client, args)
        if args.what == "describe":
            return _describe(client, args)
        if args.what == "reset":
            return _reset(client, args)
        return _delete(client, args)


def _list(client: Client, args: argparse.Namespace) -> int:
    from stratalog.client import admin

    rows = [(g.group_id, g.group_state, g.group_type, g.protocol_type) for g in admin.list_groups(client)]
    if args.json:
        print_json([dict(zip(("group", "state", "type", "protocol"), row, strict=True)) for row in rows])
    elif rows:
        table(rows, ("group", "state", "type", "protocol"))
    else:
        print("no groups")
    return 0


def _describe(client: Client, args: argparse.Namespace) -> int:
    from stratalog.client import admin

    found: list[dict[str, Any]] = []
    for name in args.group:
        group = admin.describe_group(client, name)
        owners = {}
        for member in group.members:
            for key in assigned(bytes(member.member_assignment)):
                owners[key] = member.member_id
        rows = []
        ends: dict[str, dict[int, tuple[int, int]]] = {}
        for place in admin.committed_offsets(client, name):
            if place.topic not in ends:
                ends[place.topic] = admin.bounds(client, place.topic, committed=True)
            end = ends[place.topic].get(place.partition, (0, -1))[1]
            rows.append(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": place.offset,
                    "end": end,
                    "lag": max(end - place.offset, 0) if end >= 0 else None,
                    "member": owners.get((place.topic, place.partition)),
                }
            )
        found.append(
            {
                "group": name,
                "state": group.group_state,
                "assignor": group.protocol_data,
                "members": [
                    {"id": m.member_id, "instance": m.group_instance_id, "client": m.client_id, "host": m.client_host}
                    for m in group.members
                ],
                "offsets": rows,
            }
        )
    if args.json:
        print_json(found)
        return 0
    for row in found:
        members = len(row["members"])
        print(
            f"{row['group']}  {row['state']}, {members} member{'s' if members != 1 else ''} {row['assignor']}".rstrip()
        )
        if row["offsets"]:
            table(
                [(o["topic"], o["partition"], o["offset"], o["end"], o["lag"], o["member"]) for o in row["offsets"]],
                ("topic", "partition", "offset", "end", "lag", "member"),
                right=(1, 2, 3, 4),
            )
    return 0


def assigned(assignment: bytes) -> list[tuple[str, int]]:
    """The partitions in a consumer's assignment; nothing where it is another protocol's."""
    from stratalog.base.failures import Malformed
    from stratalog.protocol.disk.consumer_protocol import ConsumerProtocolAssignment

    if len(assignment) < 2:
        return []
    version = int.from_bytes(assignment[:2], "big", signed=True)
    low, high = ConsumerProtocolAssignment.versions
    if version < low:
        return []
    try:
        message, _ = ConsumerProtocolAssignment.decode_at(assignment, 2, min(version, high))
    except Malformed:
        return []
    return [(t.topic, p) for t in message.assigned_partitions for p in t.partitions]


def _reset(client: Client, args: argparse.Namespace) -> int:
    from stratalog.base.errors import ErrorCode
    from stratalog.cli.consume import parse_time
    from stratalog.client import admin
    from stratalog.client.client import EARLIEST, LATEST
    from stratalog.client.failures import Refused

    try:
        members = admin.describe_group(client, args.group).members
    except Refused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        members = []  # a new group begins where it is told to
    if members:
        raise UsageError(
            f"group {args.group} has {len(members)} members: stop them first, an offset under a running consumer "
            "would be overwritten"
        )
    current = {(p.topic, p.partition): p.offset for p in admin.committed_offsets(client, args.group)}
    wanted: dict[tuple[str, int], int] = {}
    for text in args.topic:
        topic, colon, part = text.partition(":")
        info = client.topic(topic)
        if colon and (not part.isdigit() or int(part) not in info.partitions):
            raise UsageError(f"{text}: {topic} has partitions 0 to {len(info.partitions) - 1}")
        partitions = [int(part)] if colon else list(info.partitions)
        limits = admin.bounds(client, topic)
        if args.to in ("start", "end"):
            kind = EARLIEST if args.to == "start" else LATEST
            found = client.offsets(topic, dict.fromkeys(partitions, kind))
            wanted.update({(topic, p): o for p, (o, _) in found.items()})
        elif args.to.isdigit():
            wanted.update({(topic, p): min(max(int(args.to), limits[p][0]), limits[p][1]) for p in partitions})
        else:
            stamp = parse_time(args.to, time.time_ns() // 1_000_000)
            found = client.offsets(topic, dict.fromkeys(partitions, stamp))
            wanted.update({(topic, p): o if o >= 0 else limits[p][1] for p, (o, _) in found.items()})
    if not args.dry_run:
        admin.commit_offsets(client, args.group, wanted)
    rows = [(t, p, current.get((t, p)), o) for (t, p), o in sorted(wanted.items())]
    if args.json:
        print_json([dict(zip(("topic", "partition", "before", "after"), row, strict=True)) for row in rows])
    else:
        table(rows, ("topic", "partition", "before", "would be" if args.dry_run else "after"), right=(1, 2, 3))
    return 0


def _delete(client: Client, args: argparse.Namespace) -> int:
    from stratalog.client import admin

    results = admin.delete_groups(client, args.group)
    if args.json:
        print_json({name: None if error is None else str(error) for name, error in results.items()})
    else:
        for name, error in results.items():
            if error is None:
                print(f"{name}: deleted")
            else:
                print(f"stratalog: {one_line(error)}", file=sys.stderr)
    return 1 if any(results.values()) else 0
