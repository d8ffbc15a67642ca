"""Longer runs: `python -m tests.crash --images 200000 --seed 7 [--only cleaning,restarts] [--show LABEL]`.

Prints a line for each workload, and each violation with its seed; the exit code says whether there were any.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from crash_kit import check, clock, recover
from workloads import WORKLOADS

from stratalog.sim.crash import Report, describe, explore


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000, help="over all workloads together")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default="", help="names of workloads, with commas")
    parser.add_argument("--deep", type=float, default=0.2, help="the part of the images that fails twice")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(WORKLOADS)
    total = Report()
    for name in names:
        begin = time.process_time()
        recording = WORKLOADS[name]()
        images = args.images // len(names)
        report = explore(recording, check, recover, images=images, seed=args.seed, deep=args.deep, clock=clock)
        print(f"{name:<14} {report} ({time.process_time() - begin:.1f} s)", flush=True)
        for violation in report.violations:
            print(f"  {violation}\n{describe(recording.disk, violation.point)}")
        total.add(report)
    print(f"{'all':<14} {total}")
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
