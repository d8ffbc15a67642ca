"""Records the golden batches of tests/golden/records with Apache Kafka's builders; describes ours with its readers.

python tools/golden_records/record.py            write tests/golden/records again
python tools/golden_records/record.py read DIR   one line of JSON for each DIR/*.bin, by Kafka's readers
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("GoldenRecords.java")
GOLDEN = ROOT / "tests" / "golden" / "records"


def _peer() -> ModuleType:
    found = sys.modules.get("kafka_peer")
    if found is None:
        spec = importlib.util.spec_from_file_location("kafka_peer", ROOT / "tools" / "kafka_peer.py")
        assert spec is not None and spec.loader is not None
        found = sys.modules["kafka_peer"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    return found


def kafka_home() -> Path | None:
    """Where Kafka's jars are, or None (`tools/kafka_peer.py` knows)."""
    home: Path | None = _peer().kafka_home()
    return home


def why_missing() -> str:
    return str(_peer().why_missing())


def run(*arguments: str | os.PathLike[str], source: Path = SOURCE) -> str:
    """One run of a Java program beside this file; its standard output."""
    home = kafka_home()
    if home is None:
        raise SystemExit(why_missing())
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")
    command = [str(_peer().java()), *options, "-cp", f"{home}/libs/*", str(source), *map(os.fspath, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    return done.stdout


def read(directory: os.PathLike[str] | str) -> dict[str, list[dict[str, object]]]:
    """What Kafka's readers see in each `directory/*.bin`, by name."""
    lines = [json.loads(line) for line in run("read", directory).replace("\n ", " ").splitlines()]
    return {line["name"]: line["batches"] for line in lines}


def validate(directory: os.PathLike[str] | str) -> dict[str, dict[str, object]]:
    """What Kafka's validator answers to the cases in `directory` (see `ValidatorPeer.java`), by name."""
    lines = run(directory, source=SOURCE.with_name("ValidatorPeer.java")).splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        print(run("read", sys.argv[2]), end="")
    else:
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for old in GOLDEN.iterdir():
            old.unlink()
        run("write", GOLDEN)
        print(f"{len(list(GOLDEN.glob('*.bin')))} files in {GOLDEN.relative_to(ROOT)}")
