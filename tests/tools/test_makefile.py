"""`make lint`: what fails in it fails it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
TOOLS = ("tools/setup_venv", ".venv/bin/ruff", ".venv/bin/lint-imports")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("failing", [None, *TOOLS])
def test_lint_ends_as_its_tools_do(failing: str | None, tmp_path: Path) -> None:
    """A pipe that shortens what a tool prints must not swallow its verdict: imports up the layers passed CI so."""
    shutil.copy(MAKEFILE, tmp_path)
    for name in TOOLS:
        tool = tmp_path / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text(f"#!/bin/sh\necho verdict of {name}\nexit {int(name == failing)}\n")
        tool.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "lint"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (failing is None), done.stdout + done.stderr
    assert f"verdict of {failing or TOOLS[-1]}" in done.stdout
