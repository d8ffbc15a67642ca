"""Our broker as a process of its own, for tests that kill it, measure its memory, or must not share its interpreter.

    with BrokerProcess(tmp_path / "data", "num.partitions=3") as broker:
        broker.bootstrap            # "127.0.0.1:21544", the same after each start
        broker.kill(); broker.start()
        broker.rss                  # resident bytes

Only what was started here is ended, by its pid.  No import of the product but in the child.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from kafka_peer import free_port

_HELLO = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00"
"""ApiVersions version 0, without a client id (empty)."""


class BrokerProcess:
    """One `python -m stratalog.server` with its directory and its port."""

    def __init__(self, directory: Path, *settings: str, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.settings = settings
        self.output = directory.with_name(directory.name + ".out")
        self.process: subprocess.Popen[bytes] | None = None
        self.starts: list[float] = []
        """Seconds from the start of the process to the first answer, one for each start."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, ready_s: float = 60.0) -> BrokerProcess:
        assert self.process is None
        begin = time.monotonic()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "stratalog.server",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port}",
                    f"log.dirs={self.directory}",
                    *self.settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self.process.returncode}: {self.said()[-2000:]}")
            try:
                self.ask(1.0)
                break
            except OSError:
                if time.monotonic() - begin > ready_s:
                    self.kill()
                    raise RuntimeError(f"the broker does not answer: {self.said()[-2000:]}") from None
                time.sleep(0.005)
        self.starts.append(time.monotonic() - begin)
        return self

    def ask(self, timeout_s: float = 10.0) -> float:
        """Seconds that a new connection and an ApiVersions take; an `OSError` when there is no answer."""
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout_s) as probe:
            probe.sendall(_HELLO)
            head = b""
            while len(head) < 4:
                more = probe.recv(4 - len(head))
                if not more:
                    raise ConnectionResetError("no answer")
                head += more
        return time.monotonic() - begin

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise RuntimeError(f"the broker does not end: {self.said()[-2000:]}") from None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def rss(self) -> int:
        """Resident bytes now."""
        return self._status("VmRSS")

    @property
    def rss_peak(self) -> int:
        """The most resident bytes since the process began, or since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def cpu_s(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"no {name} in /proc")

    def said(self) -> str:
        """What it printed, all starts together."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""
