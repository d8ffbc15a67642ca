"""What commands show on a terminal while they work."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from stratalog.cli.output import Progress


@pytest.mark.parametrize(("term", "shown"), [("xterm", True), ("dumb", False)])
def test_a_bar_fits_the_terminal_that_it_is_on(term: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps cannot be written over again.  Standard output, a file here as in `consume t > file`, says
    nothing about the width; a terminal that cannot write over gets no bar."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLUMNS", raising=False)
    now = [0.0]
    leading, following = os.openpty()
    fcntl.ioctl(following, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 40, 0, 0))
    with os.fdopen(following, "w") as terminal, os.fdopen(leading, "rb", buffering=0) as screen:
        progress = Progress("consume", 10_000_000, stream=terminal, clock=lambda: now[0])
        now[0] = 1.5
        progress.update(5_000_000)
        terminal.write("|")
        terminal.flush()
        line = screen.read(200).partition(b"|")[0].removeprefix(b"\r\x1b[K")
        assert len(line) == (39 if shown else 0), line
