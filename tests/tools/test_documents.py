"""The documents say what is there: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from bench import figures

import check_docs


def test_the_documents_name_nothing_that_is_not_there():
    assert check_docs.findings() == []


def test_what_is_not_there_is_found(monkeypatch, tmp_path):
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("[a link](docs/NOWHERE.md) and `src/nothing.py`\n")
    for folder in ("docs", "tests", "src/stratalog/base"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/stratalog/base/types.py").write_text("")
    (tmp_path / "docs/ARCHITECTURE.md").write_text("")
    (tmp_path / "docs/INVARIANTS.md").write_text("| AB-1 | rule | | `test_nobody_wrote` |\n| AB-1 | again | | |\n")
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    found = "\n".join(check_docs.findings())
    for word in (
        "leads nowhere: docs/NOWHERE.md",
        "no such file: src/nothing.py",
        "test_nobody_wrote",
        "AB-1 stands",
        "base/types.py",
    ):
        assert word in found


def test_the_figures_in_the_documents_are_those_of_the_history():
    assert figures.main(["--check"]) == 0


def test_a_figure_typed_by_hand_is_found(monkeypatch, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "README.md"
    page.write_text(f"before {figures.BEGIN} by hand {figures.END} after")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    assert figures.main(["--check"]) == 1
    assert "README.md is not what" in capsys.readouterr().err
    assert figures.main([]) == figures.main(["--check"]) == 0
    text = page.read_text()
    assert text.startswith("before ") and text.endswith(" after") and "by hand" not in text
