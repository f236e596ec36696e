"""The pages build without a warning and without the network, and what they show runs."""

from __future__ import annotations

import html
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import graphcaps
from graphcaps.cli.main import app
from graphcaps.models import find_model, list_models

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
HOW_TO = sorted((DOCS / "howto").glob("*.md"))
RUN = [
    DOCS / "quickstart.md",
    DOCS / "layers.md",
    *TUTORIALS,
    *(page for page in HOW_TO if "```python" in page.read_text("utf-8")),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------- the build
@pytest.mark.slow
def test_the_pages_build_and_are_whole(tmp_path: Path) -> None:
    """One build, as ``make docs`` does it, and all that is to be true of it."""
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package, reason=f"the pages need {package}: pip install 'graphcaps[docs]'")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    nothing_comes_from_elsewhere(tmp_path)
    every_public_name_has_an_entry(tmp_path)
    every_registered_model_has_an_entry(tmp_path)
    every_page_is_in_the_table_of_contents(tmp_path)
    formulas_are_drawn_by_the_browser(tmp_path)


# What a browser would fetch by itself; a link that a reader may follow is none of these.
FETCHED = (
    r"<(?:script|img|iframe|source|video|audio|embed|input)\b[^>]*\ssrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    r"<link\b(?=[^>]*\srel\s*=\s*[\"']?(?:stylesheet|preload|icon|shortcut|modulepreload|preconnect))"
    r"[^>]*\shref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    r"@import\s+(?:url\()?[\"']?((?:https?:)?//[^\"')\s;]+)",
    r"url\(\s*[\"']?((?:https?:)?//[^\"')]+)",
    r"\b(?:import|importScripts|fetch)\(\s*[\"']((?:https?:)?//[^\"']+)",
)


def fetched(text: str) -> list[str]:
    return [address for pattern in FETCHED for address in re.findall(pattern, text)]


def nothing_comes_from_elsewhere(built: Path) -> None:
    files = [path for path in built.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len([path for path in files if path.suffix == ".html"]) > 30
    assert {str(path): found for path in files if (found := fetched(path.read_text("utf-8")))} == {}


def every_public_name_has_an_entry(built: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    entries = InventoryFile.loads((built / "objects.inv").read_bytes(), uri="").data
    documented = {name for kind, items in entries.items() if kind.startswith("py:") for name in items}
    assert {f"graphcaps.{name}" for name in graphcaps.__all__} - documented == set()
    # What the design promises to keep.
    for name in (
        "nn.HGCN",
        "nn.GraphModel.forward",
        "nn.HGCN.forward_batch",
        "ops.route",
        "HGCNClassifier.fit",
    ):
        assert f"graphcaps.{name}" in documented
    for name in ("Explanation.draw", "Explanation.tree", "FittedModel.predict_proba", "types.HGCNOutput"):
        assert f"graphcaps.{name}" in documented


def every_registered_model_has_an_entry(built: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    entries = InventoryFile.loads((built / "objects.inv").read_bytes(), uri="").data["py:class"]
    page = (built / "models.html").read_text("utf-8")
    # Installed packages may add models, which are not on these pages.
    for name in (listed.name for listed in list_models() if listed.package == "graphcaps"):
        model = find_model(name)
        module = "graphcaps.nn" if model.__module__.startswith("graphcaps.nn.") else model.__module__
        assert f"{module}.{model.__name__}" in entries
        assert f">{name}</span>" in page
        assert html.escape(model.summary(), quote=False) in page


def every_page_is_in_the_table_of_contents(built: Path) -> None:
    front = (built / "index.html").read_text("utf-8")
    for page in (*DOCS.glob("*.md"), *TUTORIALS, *HOW_TO):
        place = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert place == "index.html" or f'href="{place}"' in front, place


def formulas_are_drawn_by_the_browser(built: Path) -> None:
    page = (built / "api" / "models.html").read_text("utf-8")
    assert page.count("<math ") > 30
    assert "\\mathrm" not in page
    assert "mathjax" not in page.lower()


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://cdn.example/mathjax.js"></script>',
        "<link rel='stylesheet' href='//fonts.example/css'>",
        '<link href="https://fonts.example" rel="preconnect">',
        '<img alt="x" src="http://example/logo.png">',
        "@import url(https://example/a.css);",
        '@font-face { src: url("https://example/a.woff2"); }',
        'import("https://example/a.js")',
    ],
)
def test_what_a_browser_would_fetch_is_found(text: str) -> None:
    assert len(fetched(text)) >= 1


def test_a_link_to_follow_is_not() -> None:
    assert fetched('<a href="https://arxiv.org">paper</a><link rel="index" href="genindex.html">') == []


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        (r"\Big(\textstyle\sum_i c_i\Big)", ["∑", "("]),
        (r"a &= b \\ c &= \dots", ["<mtable", "…"]),
        (r"\big| x \big|", ["|"]),
    ],
)
def test_commands_that_docutils_does_not_know_are_rewritten(
    formula: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("sphinx", "docutils"):
        pytest.importorskip(package, reason=f"the pages need {package}: pip install 'graphcaps[docs]'")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    from mathml import as_mathml

    made = as_mathml(formula, block=True)
    for part in parts:
        assert part in made


# ---------------------------------------------------------------------- what the pages show
# Pages whose Python runs with all its epochs, so that all it prints is compared.
IN_FULL = ("own_training_loop.md",)


def printed(page: Path) -> list[tuple[str, str | None]]:
    """Each block of Python of a page, and the output that the page shows right below it."""
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
    return [(code, text or None) for code, text in re.findall(pattern, page.read_text("utf-8"), re.S | re.M)]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)


def shortened(code: str) -> str:
    """The same with two epochs, which show that it runs and nothing else."""
    return re.sub(r"\bepochs=\d+", "epochs=2", code)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_data_or_none: Path | None) -> Path:
    """An empty folder with the table of molecules in it, as a reader is told to make."""
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    if shared_data_or_none is not None:
        monkeypatch.setenv("GRAPHCAPS_DATA", str(shared_data_or_none))
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "molecules.csv", folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def shared_data_or_none() -> Path | None:
    folder = Path(os.environ.get("GRAPHCAPS_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.mark.slow
# torch 2.11 reads the archive of an exported program from a read-only buffer.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
# A page shows what becomes of a bond that no training molecule has.
@pytest.mark.filterwarnings("ignore::graphcaps.data.features.compatibility.UnseenValueWarning")
@pytest.mark.parametrize("page", RUN, ids=named)
def test_the_python_of_a_page_runs(
    page: Path, working_folder: Path, shared_data_or_none: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks(page, "python")
    text = "\n".join(code)
    assert code
    if "molecules.csv" in text or "from_smiles" in text:
        pytest.importorskip("rdkit", reason="molecules need RDKit: pip install 'graphcaps[chem]'")
    if '"MUTAG"' in text and shared_data_or_none is None:
        pytest.skip("the eleven data sets are not here: set GRAPHCAPS_DATA to the folder with their zips")
    trains = "fit(" in text.replace("FeatureRecipe().fit(", "") or "cross_validate(" in text
    assert trains <= ("epochs=" in text)  # else it would run for long
    names: dict[str, Any] = {"__name__": "page"}
    is_exact = True  # until a block trains with fewer epochs than the page
    for number, (block, expected) in enumerate(printed(page), 1):
        run = block if page.name in IN_FULL else shortened(block)
        is_exact &= run == block
        exec(compile(run, f"{named(page)}, block {number}", "exec"), names)
        output = capsys.readouterr().out
        if is_exact and expected is not None:
            assert output == expected, f"{named(page)}, block {number}"


@pytest.mark.exhaustive  # 20 s of CPU time
def test_a_decision_prints_what_its_page_shows(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole training on one thread; indices and last digits may differ on another processor."""
    names: dict[str, Any] = {"__name__": "page"}
    outputs = 0
    for code, expected in printed(DOCS / "tutorials" / "decision.md"):
        exec(compile(code, "decision.md", "exec"), names)
        output = capsys.readouterr().out
        if expected is not None:
            words = [re.sub(r"\d+(\.\d+)?", "N", text) for text in (output, expected)]
            found = [[float(each) for each in re.findall(r"\d+\.\d+", text)] for text in (output, expected)]
            assert words[0] == words[1]
            assert found[0] == pytest.approx(found[1], abs=0.02)
            outputs += 1
    assert outputs == 4


def test_printed_output_is_found_below_its_block() -> None:
    page = DOCS / "tutorials" / "own_training_loop.md"
    outputs = [text for _, text in printed(page)]
    assert len(outputs) == len(blocks(page, "python"))
    assert outputs[2:] == [
        "test accuracy: 1.0\n",
        "['hubs']\ntorch.Size([25])\n",
        "[-1, -1]\ntorch.Size([1, 2])\n",
    ]


@pytest.mark.slow
def test_molecules_in_three_commands(working_folder: Path) -> None:
    pytest.importorskip("rdkit", reason="molecules need RDKit: pip install 'graphcaps[chem]'")
    Path("new.csv").write_text("smiles\nCCCC(O)CC\nCCCOCC\n", "utf-8")
    *_, block = blocks(DOCS / "tutorials" / "molecules.md", "sh")
    lines = block.strip().splitlines()
    assert len(lines) == 3
    for line in lines:
        words = re.sub(r"--epochs \d+", "--epochs 2", line).split()[1:]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
    assert len(Path("predictions.csv").read_text("utf-8").splitlines()) == 3
    assert Path("report/index.html").stat().st_size > 10_000


@pytest.mark.parametrize("page", [DOCS / "quickstart.md", *TUTORIALS, *HOW_TO], ids=named)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in re.findall(r"^graphcaps (.*?)(?:\s+#.*)?$", block, re.M):
            words = line.split()
            verb = words[:2] if words[0] == "data" else words[:1]
            shown = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "200"})
            assert shown.exit_code == 0, line
            for option in (word for word in words if word.startswith("--")):
                assert option in shown.stdout, f"graphcaps {line}: {option}"


@pytest.mark.parametrize(
    "page", [DOCS / "index.md", *TUTORIALS, *HOW_TO, *(DOCS / "api").glob("*.md")], ids=named
)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_a_preset_on_a_page_is_one(tmp_path: Path) -> None:
    from graphcaps.presets import load_preset

    (text,) = blocks(DOCS / "howto" / "preset.md", "toml")
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    config = load_preset(str(tmp_path / "mine.toml"))
    assert config.model_arguments["num_capsules"] == (16, 4)
    assert config.training.epochs == 100


# ---------------------------------------------------------------------- examples
@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=named)
def test_an_example_runs(
    script: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "molecules" in script.stem:
        pytest.importorskip("rdkit", reason="molecules need RDKit: pip install 'graphcaps[chem]'")
    source = script.read_text("utf-8")
    given = ["--epochs", "1"] if '"--epochs"' in source else []
    given += (
        ["--out", "made.csv" if script.stem == "make_molecules" else "made"] if '"--out"' in source else []
    )
    monkeypatch.setattr(sys, "argv", [script.name, *given])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    if script.stem == "make_molecules":  # the table in the tree is what the script writes
        assert Path("made.csv").read_bytes() == (ROOT / "examples" / "molecules.csv").read_bytes()
