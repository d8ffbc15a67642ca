"""Configuration of topics, brokers and groups.

stratalog config get topic orders                what was set (--all: every key; --docs: what it does)
stratalog config set topic orders retention.ms=86400000
stratalog config unset topic orders retention.ms
stratalog config get broker 1
stratalog config set broker "" log.cleaner.threads=2     all brokers
"""

from __future__ import annotations

import argparse
import difflib
import textwrap

from stratalog.cli import UsageError
from stratalog.cli.output import add_bootstrap, add_json, print_json, table
from stratalog.cli.topic import pairs


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="get|set|unset")
    get = commands.add_parser("get", help="show values and where they come from")
    get.add_argument("kind", choices=("topic", "broker", "group"))
    get.add_argument("name")
    get.add_argument("-a", "--all", action="store_true", help="defaults too")
    get.add_argument("-d", "--docs", action="store_true", help="with what each key does")
    set_ = commands.add_parser("set", help="set keys; takes effect at once")
    set_.add_argument("kind", choices=("topic", "broker", "group"))
    set_.add_argument("name", help='"" for all brokers')
    set_.add_argument("pair", nargs="+", metavar="KEY=VALUE")
    unset = commands.add_parser("unset", help="back to the default")
    unset.add_argument("kind", choices=("topic", "broker", "group"))
    unset.add_argument("name")
    unset.add_argument("key", nargs="+")
    for sub in (get, set_, unset):
        add_bootstrap(sub)
        add_json(sub)


def run(args: argparse.Namespace) -> int:
    from stratalog.client import Client, admin

    if args.kind == "broker" and args.name and not args.name.isdigit():
        raise UsageError(f'broker {args.name!r}: expected a node id, or "" for all brokers')
    with Client(args.bootstrap) as client:
        client.metadata([])
        if args.what == "set":
            admin.alter_configs(client, args.kind, args.name, set_=pairs(args.pair))
        elif args.what == "unset":
            _check_known(client, args)
            admin.alter_configs(client, args.kind, args.name, delete=args.key)
        else:
            return _get(client, args)
        changed = args.pair if args.what == "set" else [f"{key} (default)" for key in args.key]
        if args.json:
            print_json({"kind": args.kind, "name": args.name, "changed": changed})
        else:
            print(f"{args.kind} {args.name or '(all)'}: {', '.join(changed)}")
    return 0


def _check_known(client, args: argparse.Namespace) -> None:  # type: ignore[no-untyped-def]
    """A broker forgets a key that was never there without a word: a misspelt one is told here."""
    from stratalog.client import admin

    known = [c.name for c in admin.describe_configs(client, args.kind, args.name)]
    for key in args.key:
        if known and key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{key}: {args.kind} {args.name or '(all)'} has no such key{hint}")


def _get(client, args: argparse.Namespace) -> int:  # type: ignore[no-untyped-def]
    from stratalog.client import admin

    rows = [
        (c.name, None if c.is_sensitive else c.value, admin.CONFIG_SOURCES.get(c.config_source, ""), c.documentation)
        for c in admin.describe_configs(client, args.kind, args.name, documentation=args.docs)
        if args.all or c.config_source != 5
    ]
    if args.json:
        names = ("key", "value", "source", "documentation") if args.docs else ("key", "value", "source")
        print_json([dict(zip(names, row, strict=False)) for row in rows])
        return 0
    if not rows:
        print("nothing was set; --all shows the defaults")
        return 0
    if not args.docs:
        table([row[:3] for row in rows], ("key", "value", "from"))
        return 0
    for key, value, source, text in rows:
        print(f"{key} = {value}   ({source})" if value is not None else f"{key} is not set   ({source})")
        print(textwrap.fill(text or "", 100, initial_indent="    ", subsequent_indent="    "))
    return 0
