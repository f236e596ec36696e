"""``graphcaps explain``: one decision, measures of all, and the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from typer.testing import CliRunner

from graphcaps.cli.explain import show_graph
from graphcaps.cli.main import app
from graphcaps.data import from_networkx
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.explanation.explanation_metrics import FAST_METHODS, METHODS, METRICS
from graphcaps.inference.applicability import TrainingProfile
from tests.small_models import planted, small_model, train_small

pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tu(planted_parts(num_graphs=6), tmp_path / "SMALL")
    return tmp_path / "SMALL"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(
        app, ["explain", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "80"}
    )


def test_alone_it_sums_up(model: Path, data: Path) -> None:
    shown = run(model, data)
    assert shown.exit_code == 0, shown.output
    assert "6 graphs in" in shown.stdout
    assert " of 4 used" in shown.stdout
    found = json.loads(run(model, data, "--json").stdout)
    assert (found["command"], found["graphs"]) == ("explain", 6)


def test_one_graph_as_a_tree(model: Path, data: Path) -> None:
    shown = run(model, data, "--graph", 2)
    assert shown.exit_code == 0, shown.output
    assert "graph      2 of SMALL" in shown.stdout
    for word in ("capsule", " of level 1: length", "nothing is mainly routed there", "weight 0.", "nodes "):
        assert word in shown.stdout
    found = json.loads(run(model, data, "--graph", 2, "--json").stdout)["explanation"]
    expected = small_model().explain(planted()[1])
    assert found["graph"] == 2  # counted as predict counts them
    assert found["node_scores"] == pytest.approx(expected.node_scores.tolist(), rel=1e-3, abs=1e-6)
    assert len(found["tree"]["classes"]) == 3
    other = json.loads(run(model, data, "--graph", 2, "--target", "ring-clique", "--json").stdout)[
        "explanation"
    ]
    assert other["target"] == "ring-clique"


def test_measures_for_people_and_machines(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.explanation.baselines.GNN_EXPLAINER_EPOCHS", 2)
    monkeypatch.setattr("graphcaps.explanation.baselines.INTEGRATION_STEPS", 2)
    second = tmp_path / "second.safetensors"
    train_small(planted(), epochs=1).save(second)
    shown = run(model, data, "--measure", "--methods", "capsules, random")
    assert shown.exit_code == 0, shown.output
    assert "parts  " in shown.stdout
    assert "fidelity+" in shown.stdout
    assert "…" not in shown.stdout  # nothing is cut in 80 columns
    assert "Evaluating capsules" in shown.stderr
    found = json.loads(run(model, data, "--measure", "--sample", 2, "--beside", second, "--json").stdout)
    assert list(found["methods"]) == list(METHODS)
    assert all(tuple(row) == METRICS for row in found["methods"].values())
    assert found["methods"]["kmeans-primary"]["nmi"] is not None  # the files keep which part a node is of
    assert found["methods"]["gnnexplainer"]["fidelity_plus"] is not None
    assert len(found["sample"]["graphs"]) == 2
    assert 0 < found["stability"]["nmi"] <= 1


def test_the_report_gets_what_was_found(model: Path, data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    given: dict[str, Any] = {}

    def write(folder: Path, fitted: Any, store: Any, explanations: Any, **named: Any) -> Path:
        given.update(named, explanations=explanations, store=store)
        return folder / "index.html"

    monkeypatch.setattr("graphcaps.explanation.report.write_report", write)
    history = tmp_path / "m.safetensors.history.json"
    trained = small_model().training
    rows = [{"epoch": e, "train_loss": trained["train_loss"]} for e in range(1, trained["epochs"] + 1)]
    for written, taken in (
        (rows, rows),
        (rows[1:], None),
        ([row | {"train_loss": 9.0} for row in rows], None),
    ):
        history.write_text(json.dumps(written))  # the others are of a training whose model was written over
        shown = run(model, data, "--out", tmp_path / "page")
        assert shown.exit_code == 0, shown.output
        assert "page" in shown.stderr
        assert given["history"] == taken
    assert set(given["metrics"]["methods"]) == set(FAST_METHODS)
    assert len(given["explanations"]) == len(given["store"]) == 6
    assert given["title"] == "m on SMALL"


def test_the_page_is_written(model: Path, data: Path, tmp_path: Path) -> None:
    found = json.loads(run(model, data, "--out", tmp_path / "page", "--json").stdout)
    page = Path(found["report"])
    assert page.parent == tmp_path / "page"
    assert "</html>" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--graph", 0), "'--graph' must be a number from 1 to 6, got 0"),
        (("--graph", 7), "'--graph' must be a number from 1 to 6, got 7"),
        (("--measure", "--methods", "lime"), "'--methods' must name some of capsules"),
        (("--methods", "capsules"), "must be used with --measure"),
        (("--target", "nothing"), "'target' must be one of ring-star"),
        (("--measure", "--graph", 1), "'--graph' must be used without --measure and --out"),
    ],
)
def test_mistakes_are_told_in_a_sentence(model: Path, data: Path, arguments: Any, told: str) -> None:
    shown = run(model, data, *arguments)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert told in shown.stderr
    assert shown.stderr.strip().count("\n") == 0


def test_a_file_in_the_way_and_a_model_without_capsules(model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = run(model, data, "--out", tmp_path / "file")
    assert shown.exit_code == 2
    assert "a folder to write into" in shown.stderr
    gin = tmp_path / "gin.safetensors"
    train_small(planted(), "gin", {"hidden": 8}).save(gin)
    shown = run(gin, data)
    assert shown.exit_code == 2
    assert "FittedModel with one, got GIN. Other models have no capsules to explain." in shown.stderr


@pytest.mark.parametrize("kind", [None, "scores", "flow", "assignment", "rounds"])
def test_a_picture_of_one_graph(model: Path, data: Path, tmp_path: Path, kind: str | None) -> None:
    path = tmp_path / "picture.svg"
    shown = run(model, data, "--graph", 2, "--draw", path, *(("--kind", kind) if kind else ()))
    assert shown.exit_code == 0, shown.output
    assert f"Written: {path}" in shown.stderr
    assert "<svg" in path.read_text("utf-8")
    assert json.loads(run(model, data, "--graph", 2, "--draw", path, "--json").stdout)["picture"] == str(path)


def test_a_molecule_is_drawn_as_one(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="molecules need the extra chem")
    table = tmp_path / "own.csv"
    lines = [
        f"{'C' * n}{end},{kind}" for n in range(1, 9) for end, kind in (("O", "alcohol"), ("N", "amine"))
    ]
    table.write_text("\n".join(["smiles,kind", *lines]) + "\n", "utf-8")
    trained = CliRunner().invoke(
        app,
        [
            *("train", str(table), "--label", "kind", "--epochs", "2", "--device", "cpu"),
            *("--out", str(tmp_path / "m.safetensors")),
        ],
    )
    assert trained.exit_code == 0, trained.output
    path = tmp_path / "molecule.svg"
    shown = run(tmp_path / "m.safetensors", table, "--label", "kind", "--graph", 3, "--draw", path)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"atoms .*\bO3 \(", shown.stdout)  # the third atom of CCO
    drawn = path.read_text("utf-8")
    assert "<svg" in drawn
    assert "OH" in drawn or ">O<" in drawn or "atom-" in drawn


def test_the_loudest_nodes_are_shown_both_for_and_against(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    store = planted()[0]
    one = small_model().explain(store)
    n = one.num_nodes
    assert n > 14
    lowest = one.levels[0]
    all_in_one = torch.zeros_like(lowest.assignment)
    all_in_one[:, 0] = 1
    scores = torch.zeros(n)
    scores[3], scores[7] = 0.25, -0.5
    one = replace(one, levels=(replace(lowest, assignment=all_in_one), *one.levels[1:]), node_scores=scores)
    show_graph(one, "1", store)
    told = capsys.readouterr().out
    assert "out of distribution" not in told
    assert re.search(rf"nodes 4 \(\+0\.250\)  .*  8 \(-0\.500\)  … {n - 12} more", told)
    show_graph(one, "1", store, "far too many nodes")
    assert "domain     out of distribution: far too many nodes" in capsys.readouterr().out


def test_an_out_of_distribution_graph_gets_a_warning(model: Path, tmp_path: Path) -> None:
    write_tu(from_networkx([networkx.path_graph(900), networkx.complete_graph(60)]), tmp_path / "LONG")
    replace(small_model(), profile=TrainingProfile.from_store(planted())).save(tmp_path / "known.safetensors")
    for path, said in ((tmp_path / "known.safetensors", True), (model, False)):
        shown = run(path, tmp_path / "LONG", "--graph", 1)
        assert shown.exit_code == 0, shown.output
        assert ("out of distribution" in shown.stdout) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--graph", "1", "--draw", "p.svg", "--kind", "molecule"),
            "be another kind for graphs that are not molecules",
        ),
        (("--draw", "p.svg"), "--draw' must be used with --graph"),
        (("--graph", "1", "--kind", "flow"), "be used with --draw"),
        (("--graph", "1", "--draw", "p.svg", "--kind", "pie"), "be one of parts, scores, flow"),
        (("--graph", "1", "--draw", "p.gif"), "end in"),
    ],
)
def test_pictures_that_cannot_be(model: Path, data: Path, words: tuple[str, ...], said: str) -> None:
    shown = run(model, data, *words)
    assert shown.exit_code == 2
    assert said in shown.stderr
