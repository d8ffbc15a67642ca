"""Prepare data directories for a new cluster, before the first start.

`stratalog serve` does this by itself; format is for those who want to choose the cluster id, or prepare a directory
for Apache Kafka:

    stratalog format --data /var/lib/stratalog --cluster-id "$(uuidgen)"
    stratalog format --config server.properties

What is formatted already is checked and left alone.
"""

from __future__ import annotations

import argparse

from stratalog.cli import UsageError, at_least
from stratalog.cli.output import add_json, print_json
from stratalog.cli.serve import properties


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--data", metavar="DIR", action="append", default=[], help="a data directory; repeat for several"
    )
    parser.add_argument("--node-id", type=at_least(0), help="default: node.id of the configuration, else 1")
    parser.add_argument("--cluster-id", help="default: a new one")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from stratalog.base.config import ConfigError
    from stratalog.node.config import BrokerConfig
    from stratalog.node.metadata import format_directories
    from stratalog.server.clock import RealClock, RealRng
    from stratalog.server.disk import RealDisk

    text = properties(args.config) if args.config else ""
    options = [f"log.dirs={','.join(args.data)}"] if args.data else []
    if args.node_id is not None:
        options.append(f"node.id={args.node_id}")
    try:
        config = BrokerConfig.load(text, options)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    formatted = format_directories(
        RealDisk(),
        config.log_dirs,
        node_id=config.node_id,
        rng=RealRng(),
        now=RealClock().now_ms(),
        cluster_id=args.cluster_id,
    )
    if args.json:
        print_json(
            {
                "cluster": formatted.cluster_id,
                "node": config.node_id,
                "directories": {path: str(identity) for path, identity in formatted.directory_ids.items()},
            }
        )
    else:
        print(f"cluster {formatted.cluster_id}, node {config.node_id}")
        for path, identity in formatted.directory_ids.items():
            print(f"  {path}  directory {identity}")
    return 0
