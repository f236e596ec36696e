"""``--split`` of train and evaluate, and ``--groups`` of evaluate: results, messages and refusals."""

from __future__ import annotations

import json
import re
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
    return ["--preset", str(tmp_path / "small.toml"), "--device", "cpu", "--no-baseline"]


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
    small.remove("--no-baseline")
    arguments = ["train", molecules, "--label", "kind", "--split", "Part", *small]
    result = invoke(*arguments, "--out", "m.safetensors")
    assert result.exit_code == 0, result.stderr
    parts = [
        "Split (column 'Part'):",
        "              graphs  a  b",
        "  training        16  8  8",
        "  validation       4  2  2",
        "  test             4  2  2",
    ]
    assert "\n".join(parts) in result.stderr
    assert "ecfp-forest on the same split: test accuracy" in result.stdout
    text = " ".join(result.stdout.split())
    assert "of 4 graphs, which were not used in training (column 'Part')" in text
    for name in ("balanced accuracy", "ROC-AUC", "PR-AUC", "MCC", "Brier score"):
        assert f"test {name} " in text
    assert "Caution: the test set has only 2 graphs of class 'a', so ROC-AUC, PR-AUC" in text
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
    assert first["training"]["split"] == "by scaffold, seed 0"
    assert first["training"]["run"] == again["training"]["run"]  # the split is deterministic
    assert first["training"]["test_graphs"] == 24 - first["training"]["graphs"]
    by_file = json_of("train", networks, "--split", "parts.csv", *small, "--out", "f.safetensors")
    assert by_file["training"]["split"] == "file parts.csv"
    assert by_file["training"]["test_metrics"]["accuracy"] == by_file["training"]["test_accuracy"]


def test_train_refuses_invalid_splits(small: list[str], molecules: str, networks: str) -> None:
    out = ["--out", "x.safetensors", *small]
    train = ["train", molecules, "--label", "kind", *out]
    assert refusal(*train, "--split", "kind") == (
        "mols.csv, line 2: expected train, valid or test in column 'kind', found 'a'."
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


def test_entries_of_a_split_column_are_named_by_their_line(small: list[str], molecules: str) -> None:
    """Also after a row that was skipped; --bad skip leaves rows without an entry out, and no others."""
    lines = Path(molecules).read_text().splitlines()
    train = ["train", "messy.csv", "--label", "kind", "--split", "part", "--out", "m.safetensors", *small]
    lines[1], lines[4] = "C1CC,a,train", lines[4].rsplit(",", 1)[0] + ","
    write("messy.csv", "\n".join([*lines, ""]))
    expected = "messy.csv, line 5: expected train, valid or test in column 'part', found"
    assert refusal(*train) == (
        f"{expected} an empty entry. Add the set, or leave such rows out with --bad skip."
    )
    skipped = invoke(*train, "--bad", "skip")
    assert skipped.exit_code == 0, skipped.stderr
    assert skipped.stderr.splitlines()[:2] == [
        "1 row holds no valid molecule and was left out: line 2.",
        "1 row without an entry in the split column was left out: line 5.",
    ]
    write("messy.csv", "\n".join([*lines[:4], lines[4] + "trian", *lines[5:], ""]))
    assert refusal(*train, "--bad", "skip", "--overwrite") == f"{expected} 'trian'."


def test_graphs_drawn_for_validation_are_said(small: list[str], molecules: str) -> None:
    text = Path(molecules).read_text().replace(",Val", ",train")
    train = ["train", write("two.csv", text), "--label", "kind", "--split", "part", *small]
    result = invoke(*train, "--out", "m.safetensors")
    sentence = (
        "The split has no validation part: 2 of its 20 training graphs were drawn for it, 10 % of each class "
        "(--validation)."
    )
    assert sentence in result.stderr.splitlines()
    none = invoke(*train, "--out", "n.safetensors", "--validation", "0")
    assert "no validation part" not in none.stderr


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
    assert "Split (by scaffold, seed 0):\n              graphs  alcohol  ether" in result.stderr
    assert "  test            50       25     25\n" in result.stderr
    single = "One split says little, since results differ from split to split. Mean and spread of ten:"
    assert (
        f"{single} graphcaps evaluate with the same columns, --split scaffold and --repeat 10.\n"
        in result.stderr
    )


def test_copies_across_the_parts_are_said_without_molecules_too(small: list[str], networks: str) -> None:
    """Every second graph is a copy of the one before."""
    drawn = invoke("train", networks, *small, "--epochs", 1, "--out", "m.safetensors")
    assert re.search(
        r"\d of \d distinct validation graphs equals? a training graph as the model", drawn.stderr
    )
    assert (
        "so that validation results say less about new graphs; graphcaps data check lists copies.\n"
        in drawn.stderr
    )
    split = invoke("train", networks, *small, "--epochs", 1, "--split", "parts.csv", "--out", "s.safetensors")
    assert re.search(
        r"\d of \d distinct test graphs equals? another graph as the model reads them", split.stderr
    )


# ---------------------------------------------------------------------- seeded splits
def test_evaluate_repeats_a_seeded_split(small: list[str], molecules: str) -> None:
    whole = [
        "evaluate",
        molecules,
        "--label",
        "kind",
        *small,
        "--split",
        "scaffold",
        "--repeat",
        "3",
        "--out",
        "r",
    ]
    result = invoke(*whole, "--seed", "4")
    assert result.exit_code == 0, result.stderr
    assert "mols: 3 splits × 1 seed" in result.stderr
    assert "Splits (by scaffold, seeds 4 to 6):\n" in result.stderr
    assert "3 splits (by scaffold, seeds 4 to 6): 20 training, 2 validation, 2 test graphs." in result.stdout
    assert "± splits" in result.stdout
    assert "One split says little" not in result.stderr
    (summary,) = json_of(*whole, "--seed", "4", "--resume")
    assert (summary["folds"], summary["partition"]["kind"], summary["partition"]["count"]) == (3, "splits", 3)
    assert summary["partition"]["by"] == "by scaffold, seeds 4 to 6"
    accuracies = summary["per_seed"][0]["accuracies"]
    assert len(accuracies) == 3
    assert summary["figures"]["held-out"]["mean"] == pytest.approx(sum(accuracies) / 3, abs=1e-3)
    assert "two that differ (partition 3 splits" in refusal(*whole, "--seed", "5", "--resume")


def test_a_random_split_with_other_fractions(small: list[str], networks: str) -> None:
    nets = [
        "evaluate",
        networks,
        *small,
        "--split",
        "random",
        "--fractions",
        "0.5,0.25,0.25",
        "--repeat",
        "2",
    ]
    result = invoke(*nets)
    assert "2 splits (random, seeds 0 to 1): 12 training, 6 validation, 6 test graphs." in result.stdout
    alone = invoke(*nets[:-2])
    assert "from split to split. Mean and spread of ten: add --repeat 10.\n" in alone.stderr
    out = ["--out", "m.safetensors", *small, "--split", "random", "--fractions", "0.5,0.25,0.25"]
    training = json_of("train", networks, *out, "--seed", "7")["training"]
    assert (training["split"], training["test_graphs"]) == ("random, seed 7", 6)
    assert sum(training["split_class_counts"]["validation"].values()) == 6


def test_evaluate_repeats_the_division_into_folds(small: list[str], networks: str) -> None:
    whole = ["evaluate", networks, *small, "--folds", "3", "--repeat", "2", "--out", "r"]
    result = invoke(*whole, "--predictions", "p.csv")
    assert result.exit_code == 0, result.stderr
    assert ": 2 divisions × 3 folds × 1 seed" in result.stderr
    assert "± folds" in result.stdout
    assert "± div." in result.stdout
    lines = Path("p.csv").read_text().splitlines()
    assert lines[0].startswith("graph,seed,division,fold,split")
    assert {line.split(",")[2] for line in lines[1:]} == {"0", "1"}
    (summary,) = json_of(*whole, "--resume")
    figure = summary["figures"]["held-out"]
    assert len(figure["per_division"]) == 2
    assert f"{figure['mean']:.2f}" in result.stdout
    assert f"{figure['std_divisions']:.2f}" in result.stdout
    (single,) = json_of(*whole[:-4])
    assert single["figures"]["held-out"]["mean"] == figure["per_division"][0]
    assert "divisions" not in single


def test_options_of_seeded_splits_are_refused_elsewhere(small: list[str], molecules: str) -> None:
    whole = ["evaluate", molecules, "--label", "kind", *small]
    assert refusal(*whole, "--split", "part", "--repeat", "3") == (
        "evaluate: '--repeat' must come with --split scaffold or --split random, got 3 with --split part."
    )
    assert refusal(*whole, "--seed", "3") == (
        "evaluate: '--seed' must come with --split scaffold or --split random, got 3 with folds."
    )
    assert "'--seed' must come with --split scaffold or --split random, got 1 with --split part" in refusal(
        *whole, "--split", "part", "--seed", "1"
    )
    assert "'--fractions' must come with --split scaffold or random" in refusal(
        *whole, "--split", "part", "--fractions", "0.8,0.1,0.1"
    )
    scaffold = [
        "train",
        molecules,
        "--label",
        "kind",
        *small,
        "--out",
        "x.safetensors",
        "--split",
        "scaffold",
    ]
    assert "be three numbers with commas, such as 0.8,0.1,0.1, got '8/1/1'" in refusal(
        *scaffold, "--fractions", "8/1/1"
    )
    assert "'--fractions' must be three fractions that add up to 1" in refusal(
        *scaffold, "--fractions", "1,1,1"
    )


def test_a_part_without_a_class_is_refused_before_training(small: list[str], molecules: str) -> None:
    """A class of one ring system can be in one part only; a file may put one class into the test part."""
    rows = [f"{'C' * n}C1CC1,ring" for n in range(8)] + [f"{'C' * n}O,chain" for n in range(1, 33)]
    write("rings.csv", "smiles,kind\n" + "".join(f"{row}\n" for row in rows))
    gap = (
        "rings: '--split' must give every part graphs of every class, got none of class 'ring' in the validation set, "
        "none of class 'ring' in the test set (by scaffold, seed 0). Choose another seed (--seed), other fractions "
        "(--fractions) or plain folds."
    )
    rings = ["rings.csv", "--label", "kind", *small]
    assert refusal("train", *rings, "--split", "scaffold", "--out", "x.safetensors") == gap
    assert refusal("evaluate", *rings, "--split", "scaffold", "--repeat", "2") == gap
    fold = refusal("evaluate", *rings, "--groups", "scaffolds", "--folds", "3")
    assert "none of class 'ring' in fold " in fold
    assert fold.endswith("(scaffolds of 'rings'). Use fewer folds, other groups, or plain folds.")
    names = ["test" if n >= 36 else "valid" if n % 5 == 0 else "train" for n in range(40)]
    write("parts.csv", "graph,split\n" + "".join(f"{n},{name}\n" for n, name in enumerate(names)))
    for verb in (["train", "--out", "x.safetensors"], ["evaluate"]):
        message = refusal(*verb, *rings, "--split", "parts.csv")
        assert "got none of class 'ring' in the test set (file parts.csv). Move graphs between" in message
    assert not Path("x.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label"), [("bace", "Class"), ("bbbp", "p_np")])
def test_public_molecules_are_split_with_both_classes_in_every_part(
    name: str, label: str, small: list[str], molecule_data: Path
) -> None:
    """Files that are sorted by class: the test set once had one class, and its accuracy meant nothing."""
    pytest.importorskip("rdkit")
    out = ["--out", "m.safetensors", *small, "--epochs", "1", "--split", "scaffold"]
    training = json_of("train", molecule_data / f"{name}.csv", "--label", label, *out)["training"]
    for part in ("validation", "test"):
        assert min(training["split_class_counts"][part].values()) > 40
    assert training["test_metrics"]["roc_auc"] is not None


def test_test_molecules_with_unseen_values_stay_test_molecules(small: list[str], tmp_path: Path) -> None:
    """Their hash is that of the molecule as the model reads it, in training and afterwards."""
    pytest.importorskip("rdkit")
    rows = [f"{text},{'ab'[n // 6 % 2 ^ n % 2]},{PARTS[n % 6]}" for n, text in enumerate(MOLECULES)]
    rows += ["CCI,a,test", "CI,b,test"]
    (tmp_path / "iodine.csv").write_text("smiles,kind,part\n" + "\n".join(rows) + "\n")
    trained = invoke(
        "train", "iodine.csv", "--label", "kind", "--split", "part", "--out", "m.safetensors", *small
    )
    assert trained.exit_code == 0, trained.stderr
    assert re.search(
        r"unseen values +2 test molecules have values that no training molecule has, read as 'other'",
        trained.stdout,
    )
    printed = re.search(r"test accuracy +([\d.]+) % of 6 graphs", trained.stdout)
    assert printed is not None
    predictions = json_of("predict", "m.safetensors", "iodine.csv", "--label", "kind")
    assert [row["used_in"] for row in predictions["predictions"][-2:]] == ["test", "test"]
    summary = predictions["summary"]
    assert summary["accuracies"]["test"]["graphs"] == 6
    assert "new" not in summary["accuracies"]
    assert f"{100 * summary['accuracies']['test']['accuracy']:.1f}" == printed[1]
    explained = invoke("explain", "m.safetensors", "iodine.csv", "--label", "kind", "--device", "cpu")
    assert re.search(
        r"test accuracy +\S+ %: \d of 6 test graphs, which training did not use", explained.stdout
    )
