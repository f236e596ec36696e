"""The summary and warnings of ``graphcaps train``, and graphs without class labels or with too many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import torch

from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.training.final_training import FinalTraining
from graphcaps.training.learning_warning import training_warning
from tests.cli.training import PRESET, invoke, refusal, write_inputs

pytestmark = pytest.mark.usefixtures("in_tmp_path")

TEXTS = [f"{'C' * n}{end}" for n in range(1, 7) for end in ("O", "N")]


@pytest.fixture
def molecules(tmp_path: Path) -> str:
    pytest.importorskip("rdkit")
    rows = [f"{text},n{n},{'ab'[n % 2]}\n" for n, text in enumerate(TEXTS)]
    (tmp_path / "molecules.csv").write_text("Structure,name,active\n" + "".join(rows))
    return "molecules.csv"


# ---------------------------------------------------------------------- no class labels, or too many
@pytest.mark.parametrize(("verb", "rest"), [("train", ["--out", "m.safetensors"]), ("evaluate", [])])
def test_a_table_without_labels_lists_its_columns(molecules: str, verb: str, rest: list[str]) -> None:
    assert refusal(verb, molecules, "--smiles", "Structure", *rest) == (
        f"{verb}: molecules.csv has no class labels; "
        "name the column with --label (molecules.csv has 'Structure', 'name', 'active')."
    )


def test_networks_and_edge_lists_without_labels(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    for n in range(3):
        graph = nx.path_graph(n + 2)
        graph.graph.update(kind=str(n), city="x")
        nx.write_graphml(graph, tmp_path / "nets" / f"{n}.graphml")
    message = refusal("evaluate", "nets")
    assert message.endswith("name the graph attribute with --label (0.graphml has 'city', 'kind').")
    assert refusal("evaluate", "nets/1.graphml").endswith("--label (1.graphml has 'city', 'kind').")
    nx.write_graphml(nx.path_graph(3), tmp_path / "bare.graphml")
    assert "add a graph attribute such as 'class': the graphs of bare.graphml have none." in refusal(
        "evaluate", "bare.graphml"
    )
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "edges.csv").write_text("graph,source,target\n0,a,b\n1,a,b\n")
    assert refusal("evaluate", "list").endswith("with the columns graph and label next to edges.csv.")
    (tmp_path / "list" / "graphs.csv").write_text("graph,sort\n0,x\n1,y\n")
    assert refusal("evaluate", "list/edges.csv").endswith("with --label (graphs.csv has 'graph', 'sort').")


def test_a_label_column_with_a_class_per_graph_is_refused(molecules: str) -> None:
    arguments = [molecules, "--smiles", "Structure", "--label", "name"]
    message = refusal("train", *arguments, "--out", "m.safetensors")
    assert "got 1 graph of class 'n0' in all. 12 classes for 12 graphs: is --label right? Else add" in message
    assert "12 classes for 12 graphs: is --label right?" in refusal("evaluate", *arguments)


def test_a_measured_quantity_is_no_class(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = "".join(f"{'C' * n}O,{4 + n / 8}\n" for n in range(1, 13))
    (tmp_path / "assay.csv").write_text(f"smiles,pIC50\n{rows}")
    quantity = "numbers such as '4.125': models predict classes, not quantities; make classes of them"
    assert quantity in refusal("train", "assay.csv", "--label", "pIC50", "--out", "m.safetensors")
    assert quantity in refusal("evaluate", "assay.csv", "--label", "pIC50")
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=1))
    options = ("--validation", 0, "--preset", "small.toml", "--no-baseline", "--device", "cpu")
    result = invoke("train", "assay.csv", "--label", "pIC50", *options, "--out", "m.safetensors")
    assert f"assay: the classes are {quantity}" in result.stderr


# ---------------------------------------------------------------------- summary and warnings
def test_the_metrics_are_those_of_the_validation_set(tmp_path: Path) -> None:
    result = invoke(*write_inputs(tmp_path, 2), "--out", "m.safetensors", "--validation", "0.2")
    text = " ".join(result.stdout.split())
    assert "validation Brier score" in text
    assert text.count("Brier score") == text.count("validation Brier score") == 1


def test_a_model_that_has_hardly_learned_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FinalTraining, "_train_accuracy", lambda self, fitted: 0.375)
    arguments = [*write_inputs(tmp_path, 2), "--validation", "0"]
    message = (
        "The model has hardly learned: its training accuracy is 37.5 %, and the largest class has 33.3 % of "
        "12 graphs (standard error 13.6 %); a model that has learned is above 60.5 %. Train longer (--epochs)."
    )
    result = invoke(*arguments, "--out", "m.safetensors")
    assert (result.exit_code, result.stderr.splitlines().count(message)) == (0, 1)
    assert (
        message in invoke(*arguments, "--out", "m.safetensors", "--resume").stderr
    )  # also for a finished training
    weighted = invoke(*arguments, "--out", "w.safetensors", "--class-weight", "balanced")
    assert "hardly learned" not in weighted.stderr


@pytest.mark.parametrize(
    ("right", "largest", "warns"),
    [
        (0.62, 12, True),
        (0.66, 12, True),
        (0.79, 12, True),
        (0.81, 12, False),
        (0.3, 12, True),
        (0.97, 19, True),
        (0.98, 19, False),
    ],
)
def test_threshold_of_the_warning(right: float, largest: int, warns: bool) -> None:
    """The largest class has 60 or 95 % of 20 graphs; half of the remaining share is less than two standard errors."""
    y = (torch.arange(20) >= largest).long()
    store = planted_parts(num_graphs=21)[range(20)]
    training = FinalTraining(
        replace(store, y=y, class_names=("a", "b")), RunConfig(model="gin"), validation=0.0, device="cpu"
    )
    info = {"train_accuracy": right, "epochs": 9, "epochs_run": 5}
    warning = training_warning(training, info, epochs="--epochs", patience="--patience 0")
    assert bool(warning) == warns
    assert warning.endswith("Train longer (--patience 0)." if warns else "")


def test_a_model_that_has_learned_gives_no_warning(molecules: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=60))
    arguments = [
        molecules,
        "--smiles",
        "Structure",
        "--label",
        "active",
        "--preset",
        "small.toml",
        "--device",
        "cpu",
    ]
    result = invoke("train", *arguments, "--validation", "0", "--out", "m.safetensors")
    assert result.exit_code == 0, result.stderr
    assert "hardly learned" not in result.stderr
