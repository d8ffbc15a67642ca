"""Apache Kafka beside us: where its jars and scripts are, and a broker of its own for a test.

Kafka is not part of this repository.  It is looked for in `STRATALOG_KAFKA_HOME`, else in `.cache/kafka` below the
repository, which is filled once from Maven Central by `../shared/peers/kafka/get` when Java 17 and Maven are there (a
file lock keeps parallel test workers from doing it twice).  Where something is missing, `kafka_home()` is None and
`why_missing()` says in one line what.  Run as a program it prints the home, or that line.

    home = kafka_home()                        # Path | None
    tool("kafka-dump-log", "--files", path)    # one of Kafka's scripts, a finished process with its output
    run_class("org.example.Main", "x")         # any class on Kafka's class path
    with kafka_broker(data_dir) as broker:     # a single node on 127.0.0.1, stopped by its pid at the end
        broker.bootstrap                       # "127.0.0.1:21544"
    clients_jar("4.4.0")                       # one version of the Java client's jar, Path | None

Stdlib only, and no import of the product: the tests, the schema check and the golden recorder stand on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BROKER_VERSION = "4.3.1"
CLIENTS_VERSION = "4.4.0"
OLD_CLIENTS_VERSION = "3.9.1"
"""The last clients whose message definitions still have the versions that Kafka 4 dropped."""

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "kafka"
GET = ROOT.parent / "shared" / "peers" / "kafka" / "get"
_FOLDERS = {CLIENTS_VERSION: "libs44", OLD_CLIENTS_VERSION: "libs39"}
_FETCH_SECONDS_MAX = 540
_reasons: dict[str, str] = {}


# --- where Kafka is -----------------------------------------------------------------------------------------------
def java() -> str | None:
    """The `java` program: below JAVA_HOME, else on the path."""
    return _program("java")


@functools.cache
def kafka_home() -> Path | None:
    """The directory with `bin/` and `libs/` of Apache Kafka 4.3.1, brought here when that is possible."""
    if java() is None:
        return _missing("home", "no Java: install a Java 17 runtime (or set JAVA_HOME)")
    chosen = os.environ.get("STRATALOG_KAFKA_HOME")
    if chosen:
        home = Path(chosen)
        if _is_complete(home):
            return home
        return _missing("home", f"STRATALOG_KAFKA_HOME={chosen} has no libs/kafka_2.13-{BROKER_VERSION}.jar")
    if _is_complete(CACHE):
        return CACHE
    if shutil.which("mvn") is None or _program("javac") is None:
        return _missing("home", "no Kafka in .cache/kafka, and no Maven with a JDK 17 to bring it")
    if not GET.exists():
        return _missing("home", "no Kafka in .cache/kafka, and no ../shared/peers/kafka/get to bring it")
    with _locked():
        if _is_complete(CACHE):
            return CACHE
        done = _fetch([str(GET), str(CACHE)])
        if done is None or not _is_complete(CACHE):
            return _missing("home", "Kafka could not be brought from Maven Central: " + _reasons.get("fetch", ""))
    return CACHE


def why_missing() -> str:
    """One line for a skipped test: what to install so that `kafka_home()` finds Kafka.  Empty when it is there."""
    return _reasons.get("home", "") if kafka_home() is None else ""


@functools.cache
def clients_jar(version: str = CLIENTS_VERSION) -> Path | None:
    """The jar `kafka-clients` of one version, brought through Maven when it is not there yet."""
    name = f"kafka-clients-{version}.jar"
    home = kafka_home()
    folder = "libs" if version == BROKER_VERSION else _FOLDERS.get(version, f"libs-{version}")
    candidates = [base / folder / name for base in (home, CACHE) if base is not None]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    if shutil.which("mvn") is None:
        return _missing(version, f"no {name} in .cache/kafka/{folder}, and no Maven to bring it")
    target = CACHE / folder
    with _locked():
        if not (target / name).exists():
            artifact = f"org.apache.kafka:kafka-clients:{version}"
            _fetch(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}"])
    if not (target / name).exists():
        return _missing(version, f"{name} could not be brought from Maven Central: " + _reasons.get("fetch", ""))
    return target / name


def why_no_clients(version: str = CLIENTS_VERSION) -> str:
    """One line: why `clients_jar(version)` is None.  Empty when it is there."""
    return _reasons.get(version, "") if clients_jar(version) is None else ""


# --- its programs -------------------------------------------------------------------------------------------------
def tool(
    name: str,
    *args: str | os.PathLike[str],
    stdin: str | None = None,
    timeout_s: float = 120,
    check: bool = False,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's scripts (`kafka-topics`, `kafka-dump-log` ...) and return it with its output.

    The exit code of these tools says little (a damaged log ends with 0): read the output too.
    """
    return subprocess.run(
        [str(_home() / "bin" / name), *(os.fspath(arg) for arg in args)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=check,
        env={**os.environ, **(env or {})},
    )


def run_class(
    name: str,
    *args: str | os.PathLike[str],
    class_path: str = "",
    stdin: str | None = None,
    timeout_s: float = 120,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run any class on Kafka's class path, after `class_path` where given."""
    env = {"KAFKA_EXTRA_CP": class_path} if class_path else {}
    return tool("_run", name, *args, stdin=stdin, timeout_s=timeout_s, check=check, env=env)


@dataclass(frozen=True)
class KafkaBroker:
    """A running broker of Apache Kafka: one node, broker and controller."""

    pid: int
    port: int
    directory: Path
    """`directory/log` is its log.dirs, `directory/server.log` what it printed."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.directory / "log"


@contextlib.contextmanager
def kafka_broker(
    directory: str | os.PathLike[str],
    *settings: str,
    port: int | None = None,
    heap: str = "-Xmx512M -Xms256M",
    ready_s: float = 180,
) -> Iterator[KafkaBroker]:
    """Start one broker on `directory` (formatted when new) with `key=value` settings; stop it cleanly at the end."""
    broker = start_broker(directory, *settings, port=port, heap=heap, ready_s=ready_s)
    try:
        yield broker
    finally:
        stop_broker(broker)


def start_broker(
    directory: str | os.PathLike[str],
    *settings: str,
    port: int | None = None,
    heap: str = "-Xmx512M -Xms256M",
    ready_s: float = 180,
) -> KafkaBroker:
    """Start a broker and wait until it answers; the caller ends it with `stop_broker`."""
    place = Path(directory).resolve()
    place.mkdir(parents=True, exist_ok=True)
    chosen = port or free_port(2)
    done = tool(
        "start-single",
        str(chosen),
        place,
        *settings,
        timeout_s=ready_s + 60,
        env={"KAFKA_HEAP_OPTS": heap, "WAIT_TIMEOUT": str(int(ready_s))},
    )
    pid_file = place / "pid"
    if done.returncode != 0:
        if pid_file.exists():
            _end(int(pid_file.read_text()), signal.SIGKILL, 10)
        raise RuntimeError(f"the Kafka broker did not start: {done.stderr.strip()[-2000:]}")
    return KafkaBroker(int(pid_file.read_text()), chosen, place)


def stop_broker(broker: KafkaBroker, *, kill: bool = False) -> None:
    """End a broker by its pid: a clean stop, or at once with `kill` as a crash would."""
    if not kill and _end(broker.pid, signal.SIGTERM, 60):
        return
    if not _end(broker.pid, signal.SIGKILL, 20):
        raise RuntimeError(f"the Kafka broker with pid {broker.pid} does not end")


def free_port(count: int = 1) -> int:
    """The first of `count` free ports in a row, below the range from which the system hands out client ports."""
    for _ in range(200):
        first = random.SystemRandom().randrange(18_000, 32_700 - count)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    listener = held.enter_context(socket.socket())
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free port below 32768 in 200 tries")


# --- below --------------------------------------------------------------------------------------------------------
def _home() -> Path:
    home = kafka_home()
    if home is None:
        raise RuntimeError(why_missing())
    return home


def _program(name: str) -> str | None:
    base = os.environ.get("JAVA_HOME")
    if base and (Path(base) / "bin" / name).exists():
        return str(Path(base) / "bin" / name)
    return shutil.which(name)


def _is_complete(home: Path) -> bool:
    """The jar of the core, and the class that `get` compiles last."""
    core = home / "libs" / f"kafka_2.13-{BROKER_VERSION}.jar"
    return core.exists() and (home / "extra" / "classes" / "Adopt.class").exists()


def _missing(what: str, reason: str) -> Path | None:
    _reasons[what] = reason.strip()
    return None


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE.parent / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(command: list[str]) -> str | None:
    """Run a command that brings files; its output, or None with the reason kept."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _missing("fetch", f"{command[0]}: {error}")
        return None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        _missing("fetch", lines[0] if lines else f"{command[0]} ended with {done.returncode}")
        return None
    return done.stdout


def _end(pid: int, how: signal.Signals, seconds: float) -> bool:
    """Send a signal and wait until the process is gone; it is nobody's child here, so its entry in /proc decides."""
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return True
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not _runs(pid):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def main() -> int:
    """Print the home; 1 and the reason when there is none."""
    home = kafka_home()
    print(home if home is not None else why_missing())
    return 0 if home is not None else 1


if __name__ == "__main__":
    sys.exit(main())
