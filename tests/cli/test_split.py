"""``--split`` of train and evaluate, and ``--groups`` of evaluate: results, messages and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.data.splits.groups import read_groups
from tests.cli.training import PRESET, invoke, refusal

pytestmark = pytest.mark.usefixtures("in_tmp_path")

PARTS = ["Train", "TRAIN", "training", "train", "Val", "test"]
ALKYL = ["C", "CC", "CCC", "CCCC", "CC(C)C", "CCCCC"]
MOLECULES = [f"{chain}{end}" for end in ("O", "N") for chain in ALKYL] + [
    f"{chain}{ring}" for ring in ("c1ccccc1", "C1CCCC1") for chain in ALKYL
]


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """The options of a small model."""
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=2))
    return ["--preset", str(tmp_path / "small.toml"), "--device", "cpu"]


@pytest.fixture
def molecules(tmp_path: Path) -> str:
    pytest.importorskip("rdkit")
    rows = [f"{text},{'ab'[n // 6 % 2 ^ n % 2]},{PARTS[n % 6]}\n" for n, text in enumerate(MOLECULES)]
    (tmp_path / "mols.csv").write_text("smiles,kind,part\n" + "".join(rows))
    return "mols.csv"


@pytest.fixture
def networks(tmp_path: Path) -> str:
    """24 graphs, every second a copy of the one before, and a file that assigns them to sets."""
    write_tu(planted_parts(num_graphs=12)[[n // 2 for n in range(24)]], tmp_path / "NETS")
    rows = "".join(f"{n},{PARTS[n % 6]}\n" for n in range(24))
    (tmp_path / "parts.csv").write_text("graph,split\n" + rows)
    return str(tmp_path / "NETS")


def json_of(*arguments: object) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# ---------------------------------------------------------------------- train
def test_train_uses_the_sets_of_a_column(small: list[str], molecules: str) -> None:
    arguments = ["train", molecules, "--label", "kind", "--split", "Part", *small]
    result = invoke(*arguments, "--out", "m.safetensors")
    assert result.exit_code == 0, result.stderr
    message = "Split (column 'Part'): 16 training graphs, 4 validation graphs, 4 test graphs."
    assert message in result.stderr
    text = " ".join(result.stdout.split())
    assert "of 4 graphs, which were not used in training (column 'Part')" in text
    for name in ("balanced accuracy", "ROC-AUC", "PR-AUC", "Matthews' correlation", "Brier score"):
        assert f"test {name} " in text
    assert text.count("Brier score") == 1  # the validation score is not shown, to avoid confusion
    training = graphcaps.load("m.safetensors").training
    assert (training["train_graphs"], training["validation_graphs"], training["test_graphs"]) == (16, 4, 4)
    config = json.loads(Path("m.safetensors.config.json").read_bytes())
    assert config["training"]["test_metrics"] == training["test_metrics"]
    again = invoke(*arguments, "--out", "m.safetensors", "--resume")
    assert "is finished" in again.stderr
    other = refusal("train", molecules, "--label", "kind", *small, "--out", "m.safetensors", "--resume")
    assert other.endswith("Replace it with --overwrite.")


def test_train_by_scaffold_and_by_a_file(small: list[str], molecules: str, networks: str) -> None:
    first, again = (
        json_of(
            "train", molecules, "--label", "kind", "--split", "scaffold", *small, "--out", f"{n}.safetensors"
        )
        for n in range(2)
    )
    assert first["training"]["split"] == "by scaffold"
    assert first["training"]["run"] == again["training"]["run"]  # the split is deterministic
    assert first["training"]["test_graphs"] == 24 - first["training"]["graphs"]
    by_file = json_of("train", networks, "--split", "parts.csv", *small, "--out", "f.safetensors")
    assert by_file["training"]["split"] == "file parts.csv"
    assert by_file["training"]["test_metrics"]["accuracy"] == by_file["training"]["test_accuracy"]


def test_train_refuses_invalid_splits(small: list[str], molecules: str, networks: str) -> None:
    out = ["--out", "x.safetensors", *small]
    train = ["train", molecules, "--label", "kind", *out]
    assert (
        "'split' must be train, valid or test for each graph, got 'a' for graph 0 in column 'kind'"
        in refusal(*train, "--split", "kind")
    )
    assert "expected a column 'prat', found the columns" in refusal(*train, "--split", "prat")
    share = refusal(*train, "--split", "part", "--validation", "0.2")
    assert share.startswith("train: '--validation' must be left out if the split has a validation set")
    assert "row for each of 24 graphs, found 1" in refusal(
        *train, "--split", write("e.csv", "graph,split\n0,train\n")
    )
    assert "not read from SMILES" in refusal("train", networks, "--split", "scaffold", *out)
    assert "since it applies to user files only" in refusal("train", networks, "--split", "part", *out)
    assert not Path("x.safetensors").exists()


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


# ---------------------------------------------------------------------- evaluate
def test_evaluate_keeps_groups_of_a_quality_report_together(small: list[str], networks: str) -> None:
    assert invoke("data", "check", networks, "--groups", "groups.csv", "--no-forecast").exit_code == 0
    assert len(set(read_groups("groups.csv", 24).tolist())) == 12
    folds = ["evaluate", networks, "--folds", "3", *small, "--out", "r"]
    result = invoke(*folds, "--groups", "groups.csv")
    assert result.exit_code == 0, result.stderr
    line = (
        "Folds keep groups together: 12 groups, 12 of them with several graphs (24 in all); folds have 8 to 8"
    )
    assert sum(line in row for row in result.stdout.splitlines()) == 1
    (summary,) = json_of(*folds, "--groups", "copies", "--resume")  # the same groups: the same record
    assert (summary["partition"]["count"], summary["partition"]["by"]) == (12, "file groups.csv")
    message = refusal(*folds, "--resume")
    assert "two that differ (partition 12 groups" in message
    assert "and none (plain folds))" in message
    (plain,) = json_of("evaluate", networks, "--folds", "3", *small)
    assert "partition" not in plain


def test_evaluate_by_scaffolds(small: list[str], molecules: str) -> None:
    folds = ["evaluate", molecules, "--label", "kind", "--folds", "3", *small]
    (summary,) = json_of(*folds, "--groups", "scaffolds")
    assert (summary["partition"]["count"], summary["partition"]["by"]) == (14, "scaffolds")


def test_groups_of_one_graph_give_ordinary_folds(small: list[str], molecules: str) -> None:
    result = invoke("evaluate", molecules, "--label", "kind", "--folds", "3", *small, "--groups", "copies")
    assert "mols: no two graphs share a group (copies), so the folds are the ordinary ones." in result.stderr


def test_evaluate_of_one_split(small: list[str], molecules: str) -> None:
    whole = ["evaluate", molecules, "--label", "kind", *small, "--split", "part"]
    (summary,) = json_of(*whole, "--seeds", "2")
    assert (summary["folds"], summary["partition"]["kind"], summary["partition"]["by"]) == (
        1,
        "split",
        "column 'part'",
    )
    result = invoke(*whole)
    assert "mols: one split × 1 seed" in result.stderr
    assert "One split (column 'part'): 16 training, 4 validation, 4 test graphs." in result.stdout


def test_evaluate_refuses_before_it_trains(small: list[str], molecules: str, networks: str) -> None:
    write("few.csv", "graph,group\n0,0\n")
    write("other.csv", "graph,size\n0,0\n")
    nets = ["evaluate", networks, *small]
    assert refusal(*nets, "--groups", "few.csv") == (
        "few.csv: expected a row for each of 24 graphs, found 1."
    )
    assert "expected a column 'group', found the columns 'graph', 'size'" in refusal(
        *nets, "--groups", "other.csv"
    )
    assert "be 'copies', 'scaffolds' or an existing file, got 'no.csv'" in refusal(
        *nets, "--groups", "no.csv"
    )
    assert "not read from SMILES" in refusal(*nets, "--groups", "scaffolds")
    assert "'--groups' must be left out with --split" in refusal(
        *nets, "--groups", "copies", "--split", "parts.csv"
    )
    assert "'--folds' must be left out with --split" in refusal(*nets, "--folds", "5", "--split", "parts.csv")
    two = ["evaluate", networks, molecules, *small]
    assert "a file for one data set at a time" in refusal(*two, "--groups", "few.csv")
    assert "a file for one data set at a time" in refusal(*two, "--split", "parts.csv")


def test_evaluate_draws_a_missing_validation_set(small: list[str], networks: str) -> None:
    nets = ["evaluate", networks, *small]
    write("two.csv", "graph,split\n" + "".join(f"{n},{'test' if n % 3 else 'train'}\n" for n in range(24)))
    result = invoke(*nets, "--split", "two.csv")
    assert result.exit_code == 0, result.stderr
    assert "One split (file two.csv): 5 training, 3 validation (a tenth" in result.stdout
    (summary,) = json_of(*nets, "--split", "two.csv")
    assert (summary["partition"]["count"], summary["partition"]["drawn"]) == (2, 3)


def test_the_example_is_split_by_scaffold(small: list[str]) -> None:
    pytest.importorskip("rdkit")
    source = Path(__file__).parents[2] / "examples" / "molecules.csv"
    result = invoke(
        "train",
        source,
        "--label",
        "kind",
        "--split",
        "scaffold",
        *small,
        "--epochs",
        1,
        "--out",
        "m.safetensors",
    )
    message = "Split (by scaffold): 400 training graphs, 50 validation graphs, 50 test graphs."
    assert message in result.stderr
