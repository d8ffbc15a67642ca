"""Runs benches one after the other: `python -m bench [--list] [NAME ...] [options of the benches]`.

A NAME is a bench's (`produce_raw`), its directory's (`micro`, `macro`, `spark`) or a part of one; without a name all
run.  What begins with two dashes is handed on: `--quick`, `--json`, `--no-history`, `--strict`.  Each bench runs in a
process of its own; what one leaves behind does not slow the next.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def found() -> dict[str, Path]:
    """Name with its directory -> file."""
    return {
        f"{path.parent.name}.{path.stem.removeprefix('bench_')}": path for path in sorted(HERE.glob("*/bench_*.py"))
    }


def first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n")[0]


def main(argv: list[str]) -> int:
    names = [word for word in argv if not word.startswith("--")]
    options = [word for word in argv if word.startswith("--") and word != "--list"]
    benches = found()
    unknown = [name for name in names if not any(name in known for known in benches)]
    if unknown:
        print(f"there is no bench {unknown[0]!r}; python -m bench --list", file=sys.stderr)
        return 2
    chosen = {known: path for known, path in benches.items() if not names or any(name in known for name in names)}
    if "--list" in argv:
        for known, path in chosen.items():
            print(f"{known:<24} {first_line(path)}")
        return 0
    failed: list[str] = []
    for known, path in chosen.items():
        began = time.monotonic()
        module = f"bench.{path.parent.name}.{path.stem}"
        print(f"=== {known}", file=sys.stderr, flush=True)
        code = subprocess.run([sys.executable, "-m", module, *options], cwd=HERE.parent, check=False).returncode
        print(f"=== {known}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if code:
            failed.append(known)
    if failed:
        print(f"missed targets or failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
