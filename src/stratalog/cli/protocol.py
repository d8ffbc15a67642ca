"""Look at the wire format.

stratalog protocol list                 every API with its key and versions
stratalog protocol dump Fetch 12        the generated codecs of a request and its response
"""

from __future__ import annotations

import argparse

from stratalog.cli import UsageError, at_least
from stratalog.cli.output import add_json, print_json, table


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|dump")
    listing = commands.add_parser("list", help="every API with its key and versions")
    add_json(listing)
    dump = commands.add_parser("dump", help="the source that was generated for a message and version")
    dump.add_argument("name", help="the API's name or key, for example Fetch or 1")
    dump.add_argument("version", type=at_least(0))


def run(args: argparse.Namespace) -> int:
    from stratalog.protocol import compiler
    from stratalog.protocol.apis import APIS

    if args.what == "list":
        rows = [
            (api.key, api.name, f"{api.versions[0]}-{api.versions[1]}", api.flexible)
            for api in sorted(APIS.values(), key=lambda api: api.key)
        ]
        if args.json:
            print_json([dict(zip(("key", "name", "versions", "flexible"), row, strict=True)) for row in rows])
        else:
            table(rows, ("key", "name", "versions", "flexible from"), right=(0, 3))
        return 0
    try:
        print(compiler.dump(args.name, args.version))
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{args.name} {args.version}: no such message or version (stratalog protocol list shows them)"
        ) from error
    return 0
