"""Runs the fuzz targets: each `fuzz_<name>.py` beside this file has a function `one(data: bytes)` that must return.

    python tests/fuzz/run.py                              every target, 100,000 executions each
    python tests/fuzz/run.py --target frames --executions 1000000
    python tests/fuzz/run.py --target frames --input FILE  one input again, with its traceback

Inputs start from the kept corpus, `corpus/<name>/`.  With atheris the executions are guided by coverage; where it is
not installed, the corpus is replayed and mutated at random, which finds less and says so.  An input that a target
does not survive is written to `crashes/<name>/` (not committed) and printed; add it to the corpus with the fix.
`--keep` writes what atheris found worth keeping into the corpus.
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import importlib
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXECUTIONS = 100_000
INPUT_BYTES_MAX = 2_048
"""Inputs stay short: what is worth finding in these formats needs few bytes, and short inputs run often."""
SLOW_SECONDS_MAX = 10
"""One input that takes longer is a finding too."""
LATE = (
    "stratalog.protocol.compiler",
    "stratalog.protocol.hot_codecs",
    "stratalog.records.compression",
    "stratalog.records.legacy",
    "stratalog.records.plain",
)
"""What the product imports at its first use: imported early here, or coverage would not see into it."""


def targets() -> list[str]:
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def load(name: str) -> Callable[[bytes], None]:
    sys.path.insert(0, str(HERE))
    one: Callable[[bytes], None] = importlib.import_module(f"fuzz_{name}").one
    return one


def corpus(name: str) -> list[bytes]:
    directory = HERE / "corpus" / name
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []


def mutate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A few random edits: bytes flipped, set to an edge, cut, doubled, or taken from another input."""
    value = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(6)
        at = rng.randrange(len(value) + 1)
        if kind == 0 and at < len(value):
            value[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(value):
            value[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del value[at : at + rng.choice((1, 2, 8))]
        elif kind == 3:
            value[at:at] = rng.randbytes(rng.choice((1, 2, 4)))
        elif kind == 4:
            value[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\x80\x80\x80")
            )
        elif others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            value[at:] = other[start:]
    return bytes(value[:INPUT_BYTES_MAX])


def report(name: str, data: bytes) -> None:
    directory = HERE / "crashes" / name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{abs(hash(data)):016x}"
    path.write_bytes(data)
    print(f"{name}: failed on {path.relative_to(HERE)} = base64 {base64.b64encode(data).decode()}", flush=True)


def loop(name: str, executions: int, seed: int) -> None:
    """Without atheris: the corpus as it is, then random mutations of it."""
    one = load(name)
    kept = corpus(name) or [b""]
    rng = random.Random(seed)
    for index in range(executions):
        data = kept[index] if index < len(kept) else mutate(rng.choice(kept), rng, kept)
        started = time.monotonic()
        try:
            one(data)
        except BaseException:
            report(name, data)
            raise
        if time.monotonic() - started > SLOW_SECONDS_MAX:
            report(name, data)
            raise TimeoutError(f"{name}: one input took more than {SLOW_SECONDS_MAX} s")


def guided(name: str, executions: int, seed: int, keep: bool) -> None:
    """With atheris.  Does not come back: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["stratalog.base", "stratalog.protocol", "stratalog.records"]):
        for module in LATE:
            importlib.import_module(module)
        one = load(name)
    directory = HERE / "corpus" / name
    directory.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.TemporaryDirectory()
    crashes = HERE / "crashes" / name
    crashes.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        *([] if keep else [scratch.name]),  # new finds go to the first directory
        str(directory),
        f"-runs={executions}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-seed={seed}",
        f"-timeout={SLOW_SECONDS_MAX}",
        f"-artifact_prefix={crashes}{os.sep}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


def run(name: str, executions: int, seed: int, keep: bool) -> tuple[str, int, float, str]:
    """One target in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__).resolve()), "--child", "--target", name]
    command += ["--executions", str(executions), "--seed", str(seed), *(["--keep"] if keep else [])]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return name, done.returncode, time.monotonic() - started, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=targets())
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--seed", type=int, default=1, help="the same seed runs the same executions")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--keep", action="store_true", help="write new finds into the corpus")
    parser.add_argument("--input", type=Path, help="run one input again")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with_atheris = importlib.util.find_spec("atheris") is not None

    if options.input is not None:
        if options.target is None:
            parser.error("--input needs --target")
        load(options.target)(options.input.read_bytes())
        print("survived")
        return 0
    if options.child:
        if with_atheris:
            guided(options.target, options.executions, options.seed, options.keep)
        else:
            loop(options.target, options.executions, options.seed)
        return 0

    if not with_atheris:
        print("fuzz: atheris is not installed, so the corpus is replayed and mutated at random, without coverage")
    names = [options.target] if options.target else targets()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        runs = [pool.submit(run, name, options.executions, options.seed, options.keep) for name in names]
        for future in concurrent.futures.as_completed(runs):
            name, code, seconds, output = future.result()
            if code == 0:
                done = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
                count = int(done[1]) if done else options.executions
                print(f"fuzz {name}: {count} executions in {seconds:.1f} s, nothing found", flush=True)
            else:
                failed += 1
                print(f"fuzz {name}: FAILED with code {code}\n{output[-4000:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
