"""Checks the documents against the tree: links lead somewhere, named tests and files exist, ids are unique, the file
map is whole.

`make docs` and a test run it.  It knows Markdown links to files of the repository, back-quoted paths that begin with
src/, tests/, bench/, tools/ or docs/, the tables of INVARIANTS.md with the tests that they name, and the file map of
ARCHITECTURE.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
QUOTED = re.compile(r"`((?:src|tests|bench|tools|docs)/[A-Za-z0-9_./-]+)(?:::([A-Za-z0-9_]+))?`")
TEST = re.compile(r"\b(?:test|fuzz)_\w+")
API = re.compile(r"/k\d\d_\w+\.py$")
INVARIANT = re.compile(r"^\| *([A-Z]{2}-\d+) *\|")


def findings() -> list[str]:
    found: list[str] = []
    files = {path.stem: path for path in (ROOT / "tests").rglob("*.py")}
    written = "\n".join(path.read_text(encoding="utf-8") for path in files.values())

    def known(name: str) -> bool:
        return name in files or f"def {name}(" in written

    documents = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    documents += sorted((ROOT / "docs").rglob("*.md"))
    for document in documents:
        text = document.read_text(encoding="utf-8")
        name = document.relative_to(ROOT)
        for number, line in enumerate(text.splitlines(), 1):
            found.extend(
                f"{name}:{number}: the link leads nowhere: {target}"
                for target in LINK.findall(line)
                if "://" not in target and not (document.parent / target).exists()
            )
            for path, test in QUOTED.findall(line):
                file = ROOT / path
                if not file.exists() and not list(ROOT.glob(path + "*")):
                    found.append(f"{name}:{number}: no such file: {path}")
                elif test and file.is_file() and f"def {test}" not in file.read_text(encoding="utf-8"):
                    found.append(f"{name}:{number}: no test {test} in {path}")
    seen: dict[str, int] = {}
    for number, line in enumerate((ROOT / "docs" / "INVARIANTS.md").read_text(encoding="utf-8").splitlines(), 1):
        match = INVARIANT.match(line)
        if match:
            if match[1] in seen:
                found.append(f"docs/INVARIANTS.md:{number}: {match[1]} stands at line {seen[match[1]]} already")
            seen[match[1]] = number
        if line.startswith("|"):
            found.extend(
                f"docs/INVARIANTS.md:{number}: no such test: {name}" for name in TEST.findall(line) if not known(name)
            )
    mapped = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for file in sorted((ROOT / "src" / "stratalog").rglob("*.py")):
        name = file.relative_to(ROOT / "src" / "stratalog").as_posix()
        if not API.search("/" + name) and file.name != "__main__.py" and f"`{name}`" not in mapped:
            found.append(f"docs/ARCHITECTURE.md: the file map has no {name}")
    return found


def main() -> int:
    found = findings()
    for line in found:
        print(line)
    print(f"documents: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
