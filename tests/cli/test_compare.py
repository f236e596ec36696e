"""``graphcaps compare``: tables and files, unknown models, failed models, resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.evaluation import ResultsStore
from tests.cli.test_evaluate import write_tu

RUN = CliRunner()


@pytest.fixture(scope="module")
def tu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tu(tmp_path_factory.mktemp("data"), "SMALL", [1, 2] * 12)


def test_a_table_the_page_and_all_files(tu: Path, tmp_path: Path) -> None:
    words = [
        "compare",
        str(tu),
        *["--models", "gin,majority", "--folds", "3", "--epochs", "1", "--protocol", "both"],
    ]
    done = RUN.invoke(app, [*words, "--device", "cpu", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "twin-free" in done.stdout
    assert "bound" in done.stdout  # of C, whose heading is on two lines
    assert "1/2  " in done.stderr
    assert "majority: held-out" in done.stderr
    assert {"index.html", "comparison.json", "comparison.md"} <= {path.name for path in tmp_path.iterdir()}
    assert len(ResultsStore(tmp_path)) == 4
    refused = RUN.invoke(app, [*words, "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "Add --resume" in refused.stderr
    again = RUN.invoke(
        app, [*words, "--out", str(tmp_path), "--resume", "--format", "json", "--device", "cpu"]
    )
    assert again.exit_code == 0
    assert json.loads(again.stdout)["models"] == ["gin", "majority"]
    assert json.loads(again.stdout) == json.loads((tmp_path / "comparison.json").read_text("utf-8"))


def test_a_model_that_has_hardly_learned_is_named_above_the_table(
    tu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = "SMALL: majority has hardly learned."
    monkeypatch.setattr(
        "graphcaps.comparison.comparison_tables.learning_warnings", lambda comparison: [warning]
    )
    done = RUN.invoke(app, ["compare", str(tu), "--models", "majority,wl-forest", "--folds", "3"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"Caution: {warning}\n")


def test_a_failed_model_is_listed_and_the_exit_code_says_so(tu: Path) -> None:
    done = RUN.invoke(app, ["compare", str(tu), "--models", "ecfp-forest,majority", "--folds", "3"])
    assert done.exit_code == 1
    assert "ecfp-forest: failed. The model ecfp-forest reads molecules" in done.stdout
    assert "majority" in done.stdout
    assert "Failed: ecfp-forest on" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--models", "wl-florest"],
            "must name models, 'paper' or 'all', got 'wl-florest'. Did you mean wl-forest",
        ),
        (["--models", "gin", "--baseline", "gcn"], "'--baseline' must be one of the models, gin"),
        (["--models", "gin", "--format", "csv"], "'--format' must be one of table, markdown, latex, json"),
        (["--models", "gin", "--folds", "400"], "graphs"),
        (["--models", "gin", "--repeat", "3"], "come with --split scaffold or --split random"),
        (["--models", "gin", "--resume"], "come with a folder of results"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(tu: Path, words: list[str], message: str) -> None:
    done = RUN.invoke(app, ["compare", str(tu), *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") <= 2


@pytest.mark.parametrize(("form", "start"), [("markdown", "### "), ("latex", "\\begin{table}")])
def test_other_formats(tu: Path, form: str, start: str) -> None:
    done = RUN.invoke(app, ["compare", str(tu), "--models", "majority", "--folds", "3", "--format", form])
    assert done.exit_code == 0
    assert done.stdout.startswith(start)
