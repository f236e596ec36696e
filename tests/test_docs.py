"""What the documents say is what the files and the program say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphcaps.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"`[^`\n]+`", "", page.read_text("utf-8"))  # SMILES in code look like links
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target


def test_the_readme_s_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "epochs=30" in block
    monkeypatch.chdir(tmp_path)
    exec(block.replace("epochs=30", "epochs=1"), {})
    assert re.match(r"\d+\.\d+ ± \d+\.\d+\n\['ring-", capsys.readouterr().out)
    assert (tmp_path / "parts.safetensors").exists()


def test_the_readme_s_verbs_and_options_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    block = "".join(re.findall(r"```\n(graphcaps .*?)```", text, re.S))
    lines = re.findall(r"^graphcaps (?!VERB)(.*?)(?:\s+#.*)?$", block, re.M)
    assert len(lines) >= 9
    for line in lines:
        words = line.split()
        verb = words[:2] if words[0] == "data" else words[:1]
        shown = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, line
        assert "Example:" in shown.stdout, f"graphcaps {' '.join(verb)} --help has no example"
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.stdout, f"graphcaps {line}: {option}"


def test_two_models_are_compared_as_the_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And disentangling is seen to matter on ENZYMES."""
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluation.md").read_text("utf-8"), re.S)
    exec(blocks[-1], {})
    found = re.match(r"PairedTest\(difference=([\d.]+).* p=([\d.e-]+)", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) > 0
    assert float(found[2]) < 0.01


def test_the_readme_fits_a_newcomer() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 120


FOLDERS = "ops|nn|models|training|data|evaluation|inference|explanation|serve|cli|src|tests|benchmarks"
SOURCES = rf"`((?:{FOLDERS}|docs|examples)/[\w./-]*|results/[\w./-]*\.json)`"
ALL_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(SOURCES, page.read_text("utf-8")):
        assert (ROOT / name).exists() or (ROOT / "src" / "graphcaps" / name).exists(), name


def test_pages_name_source_files() -> None:
    """The pattern finds names on the pages that describe the source."""
    for page in ("CONTRIBUTING.md", *(f"docs/{name}.md" for name in ("architecture", "engine", "method"))):
        assert re.findall(SOURCES, (ROOT / page).read_text("utf-8")), page


def test_python_names_on_pages_exist() -> None:
    """Every dotted name ``graphcaps.x.y`` in code on a page can be imported."""
    from importlib import import_module

    missing = set()
    for page in ALL_PAGES:
        for name in re.findall(r"(?<![\w/.-])graphcaps(?:\.[A-Za-z_]\w*)+", page.read_text("utf-8")):
            parts = name.split(".")
            for split in range(len(parts), 0, -1):
                try:
                    value = import_module(".".join(parts[:split]))
                except ImportError:
                    continue
                for part in parts[split:]:
                    value = getattr(value, part, missing)
                if value is missing:
                    missing.add(f"{page.name}: {name}")
                break
    assert sorted(missing) == []
