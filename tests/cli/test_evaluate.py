"""``graphcaps evaluate``: printed table, result files, resuming, and errors of one sentence."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner, Result

import graphcaps.cli.evaluate as evaluate_module
from graphcaps.cli.main import app
from graphcaps.evaluation import CrossValidation, GroupEpoch, ResultsStore
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.training import checkpoint_writer
from graphcaps.training.checkpoint import Checkpoint

RUNNER = CliRunner()
FAST = ("--folds", "3", "--epochs", "2", "--device", "cpu")
PRESET = """
[features]
degree_onehot = 4
propagation = 1
[model]
name = "hgcn"
capsule_dim = 8
num_capsules = [3]
[training]
epochs = 3
batch_size = 8
"""


@pytest.fixture(autouse=True)
def _tmp_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("GRAPHCAPS_DATA", raising=False)


def write_tu(folder: Path, name: str, labels: list[int] | None) -> Path:
    """Triangles for class 1 and paths of three for class 2, 24 graphs, as a TU folder."""
    path = folder / name
    path.mkdir(parents=True)
    edges, owner = [], []
    for graph in range(24):
        first = 3 * graph + 1
        pairs = [(0, 1), (1, 2)] + ([(0, 2)] if labels is None or labels[graph] == 1 else [])
        edges += [f"{first + i}, {first + j}\n{first + j}, {first + i}\n" for i, j in pairs]
        owner += [f"{graph + 1}\n"] * 3
    (path / f"{name}_A.txt").write_text("".join(edges))
    (path / f"{name}_graph_indicator.txt").write_text("".join(owner))
    if labels is not None:
        (path / f"{name}_graph_labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the data sets OWN and TWO and the preset small.toml."""
    folder = tmp_path / "sets"
    write_tu(folder, "OWN", [1, 2] * 12)
    write_tu(folder, "TWO", [2, 1] * 12)
    (folder / "small.toml").write_text(PRESET)
    return folder


def run(root: Path, *arguments: object, baseline: str = "--no-baseline") -> Result:
    words = ["evaluate", *arguments, "--root", root, "--preset", root / "small.toml", baseline]
    return RUNNER.invoke(app, [str(word) for word in words])


def read(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    summaries: list[dict[str, Any]] = json.loads(result.stdout)
    return summaries


def test_json_has_metrics_configuration_and_versions(root: Path) -> None:
    first, second = read(run(root, "OWN", "TWO", *FAST, "--protocol", "both", "--seeds", 2, "--json"))
    assert (first["dataset"], second["dataset"], first["variant"]) == ("OWN", "TWO", "hgcn")
    assert list(first["figures"]) == ["held-out", "C", "C*", "optimism"]
    assert first["figures"]["C"]["seeds"] == [0, 1]
    assert first["figures"]["C"]["upper_bound"]
    assert first["config"]["training"]["epochs"] == 2
    assert first["config"]["model"]["capsule_dim"] == 8
    assert first["config"]["source"].endswith("small.toml")
    assert "torch" in first["versions"]
    assert first["seconds"] > 0


def test_upper_bounds_are_marked_in_the_table(root: Path) -> None:
    result = run(root, "OWN", *FAST, "--protocol", "both")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    rows = {line.split()[0]: line for line in lines[2:9]}
    assert lines[1].split()[:3] == ["OWN", "hgcn", "held-out"]
    assert rows["C"].rstrip().endswith("upper bound")
    assert rows["C*"].rstrip().endswith("upper bound")
    assert "upper bound" not in lines[1] + rows["optimism"]
    for name in ("C", "C*"):
        line = next(line for line in lines if line.startswith(f"{name}: "))
        assert line.endswith("an upper bound: the epoch is chosen on test data.")
    assert "± seeds" not in lines[0]
    parts = "(held-out: 1 fold to train on, 1 to select the epoch, 1 to test)"
    assert f"OWN: 3 folds × 1 seed {parts}, hgcn, preset: " in result.stderr


def test_only_metrics_of_the_protocol_are_shown(root: Path) -> None:
    result = run(root, "OWN", *FAST, "--seeds", 2)
    assert "held-out" in result.stdout
    assert "C*" not in result.stdout
    assert "± seeds" in result.stdout


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        (
            3,
            "held-out: each fold's epoch of lowest validation loss (mean over 1 epoch); chosen without test data.",
        ),
        (12, "(mean over 5 epochs); chosen without test data."),
        (42, "(mean over 21 epochs); chosen without test data."),
    ],
)
def test_the_averaging_window_grows_with_the_epochs(root: Path, epochs: int, message: str) -> None:
    result = run(root, "OWN", *FAST, "--model", "gin", "--epochs", epochs)
    assert message in result.stdout
    assert ("over 21 epochs" in result.stdout) == (epochs == 42)
    assert (
        "optimism: C, the best of one epoch for all folds by mean test accuracy, minus held-out"
        in result.stdout
    )


def test_gin_uses_features_training_and_width_of_the_preset(root: Path) -> None:
    (result,) = read(run(root, "OWN", *FAST, "--model", "gin", "--json"))
    assert result["variant"] == "gin"
    assert result["config"]["model"] == {"name": "gin", "hidden": 8}
    assert result["config"]["features"]["degree_onehot"] == 4
    assert result["config"]["training"]["batch_size"] == 8


def test_options_change_the_preset(root: Path) -> None:
    arguments = ("--batch-size", 5, "--learning-rate", 0.25, "--group", 2, "--variant", "mine", "--json")
    (result,) = read(run(root, "OWN", *FAST, *arguments))
    assert (result["variant"], result["folds"]) == ("mine", 3)
    assert result["config"]["training"]["batch_size"] == 5
    assert result["config"]["training"]["learning_rate"] == 0.25


def test_out_holds_records_and_a_summary(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    (result,) = read(run(root, "OWN", *FAST, "--out", out, "--json"))
    assert sorted(path.name for path in out.iterdir()) == [
        "OWN--hgcn--held-out--seed0.record.json",
        "OWN--hgcn.summary.json",
    ]
    summary = json.loads((out / "OWN--hgcn.summary.json").read_text("utf-8"))
    assert summary.pop("source") == str(root / "OWN")
    assert summary == result
    (ledger,) = ResultsStore(out).ledgers()
    assert json.loads(json.dumps(ledger.summary())) == result


@pytest.mark.parametrize(("option", "epochs"), [((), [1]), (("--checkpoint-every", 2), [2, 4])])
def test_checkpoints_begin_with_the_first_epoch_or_follow_the_option(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[object, ...], epochs: list[int]
) -> None:
    written = []
    write = checkpoint_writer.write_checkpoint

    def write_checkpoint(path: Path, checkpoint: Checkpoint, fingerprint: Any) -> None:
        written.append(checkpoint.epoch)
        write(path, checkpoint, fingerprint)

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", write_checkpoint)
    words = ("OWN", "--folds", 3, "--epochs", 5, "--device", "cpu", "--out", tmp_path / "out")
    result = run(root, *words, *option)
    assert result.exit_code == 0, result.output
    assert written == epochs


def test_a_folder_that_holds_no_checkpoint_costs_a_note(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "unfinished").write_bytes(b"a file in the place of the folder")
    result = run(root, "OWN", *FAST, "--out", out, "--checkpoint-every", 1)
    assert result.exit_code == 0, result.output
    assert result.output.count("A checkpoint could not be written") == 1
    before, _, _ = result.stderr.partition("OWN: training")
    assert f"No checkpoints can be written to {out / 'unfinished'} (Not a directory)." in before
    assert len(ResultsStore(out).records()) == 1


def test_partial_files_of_killed_runs_are_removed(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    left = [folder / ".OWN.00000000.1.abcdef01.part" for folder in (out, out / "unfinished")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    result = run(root, "OWN", *FAST, "--out", out)
    assert result.exit_code == 0, result.output
    assert not any(path.exists() for path in left)


def test_a_resumed_evaluation_equals_an_uninterrupted_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("OWN", *FAST, "--protocol", "both", "--json")
    (uninterrupted,) = read(run(root, *arguments))
    out = tmp_path / "results"
    original, count = CrossValidation.run, []

    def interrupted(self: CrossValidation, on_event: Any) -> Any:
        def on_epoch(event: GroupEpoch) -> None:
            count.append(event)
            if len(count) == 3:
                raise KeyboardInterrupt

        return original(self, on_epoch)

    monkeypatch.setattr(CrossValidation, "run", interrupted)
    stopped = run(root, *arguments, "--out", out)
    assert stopped.exit_code == 130
    assert stopped.stdout == ""
    assert stopped.stderr.endswith("Stopped. Continue with the same command and --resume.\n")
    monkeypatch.undo()
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    again = run(root, *arguments, "--out", out, "--resume")
    (resumed,) = read(again)
    assert "OWN: 1 of 2 records are finished." in again.stderr
    for changing in ("seconds", "peak_memory"):
        del uninterrupted[changing], resumed[changing]
    assert resumed == uninterrupted
    refused = run(root, *arguments, "--out", out)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Add --resume to keep it" in refused.stderr


def test_an_embedded_set_has_a_default_preset() -> None:
    result = RUNNER.invoke(app, ["evaluate", "planted-parts", "--folds", "3", "--epochs", "1", "--json"])
    (summary,) = read(result)
    assert (summary["dataset"], summary["config"]["source"]) == ("planted-parts", "planted-parts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("NONE",), "has no class labels; add graph labels."),
        (("ALONE",), "hold at least two classes, got only class '2' in 'ALONE'"),
        (("OWN", "--folds", 25), "25 graphs for as many folds, got 24 in 'OWN'. Add graphs, or lower"),
        (
            ("OWN", "--folds", 2),
            "'--folds' must be at least 3: one fold for testing and one for validation, got 2.",
        ),
        (("OWN", "--folds", 1), "'--folds' must be at least 3"),
        (("OWN", "--folds", 1, "--protocol", "paper"), "'--folds' must be an integer of at least 2"),
        (("OWN", "MUTAGG"), "Did you mean MUTAG?"),
        (("OWN", "OWN"), "'NAME' must be given once each, got 'OWN' twice."),
        (("OWN", "--model", "gni"), "'--model' must name a model"),
        (("OWN", "--protocol", "mine"), "'--protocol' must be one of held-out, paper, both"),
        (("OWN", "--seeds", 1001), "'--seeds' must be at most 1000, got 1001."),
        (("OWN", "--variant", "x" * 101), "'--variant' must have at most 100 characters, got 101."),
        (("OWN", "--out", __file__), "expected a folder to write into, found a file at"),
        (("OWN", "--out", f"{__file__}/deep/er"), "expected a folder to write into, found a file at"),
        (("OWN", "--seeds", 0), "'--seeds' must be a whole number from 1 on, got 0."),
        (("OWN", "--epochs", 0), "'--epochs' must be at least 1, got 0."),
        (("OWN", "--learning-rate", -1), "'--learning-rate' must be above 0"),
        (("OWN", "--group", 0), "'--group' must be a whole number from 1 on, got 0."),
        (("OWN", "--device", "tpu"), "'--device' must be cpu, cuda or auto"),
        (("OWN", "--resume"), "'--resume' must come with a folder of results"),
        (("OWN", "--checkpoint-every", "2"), "must come with a folder of results"),
        (("OWN", "--patience", 5, "--protocol", "paper"), "unless the protocol is held-out: 'paper' has no"),
        (("OWN", "--patience", 5, "--protocol", "both"), "unless the protocol is held-out: 'paper' has no"),
        (
            ("OWN", "--metric", "auc"),
            "'--metric' must be one of loss, accuracy, balanced-accuracy, roc-auc, pr-auc",
        ),
        (
            ("OWN", "--metric", "mcc", "--protocol", "paper"),
            "'--metric' must be left out unless the protocol is",
        ),
        (("OWN", "--class-weight", "even"), "'--class-weight' must be 'balanced', got 'even'."),
        (("OWN", "--predictions", "p.txt"), "'--predictions' must end in .csv, got 'p.txt'."),
        (("OWN", "--predictions", "none/p.csv"), "expected a folder to write into, found none at none"),
        (
            ("OWN", "TWO", "--predictions", "p.csv"),
            "'--predictions' must come with one data set, got 2 data sets.",
        ),
        (
            ("OWN", "--predictions", "p.csv", "--protocol", "both"),
            "'--predictions' must come with --protocol held",
        ),
    ],
)
def test_invalid_arguments_end_with_2_and_one_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], message: str
) -> None:
    def never(self: CrossValidation, on_event: Any) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(CrossValidation, "run", never)
    write_tu(root, "NONE", None)
    write_tu(root, "ALONE", [2] * 24)
    result = run(root, *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert message in result.stderr
    assert result.stderr.startswith("graphcaps: ")
    assert result.stderr.count("\n") == 1


def test_patience_is_recorded(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 1)
    arguments = (
        "OWN",
        *FAST,
        "--epochs",
        40,
        "--learning-rate",
        1e-9,
        "--patience",
        2,
        "--out",
        tmp_path / "out",
    )
    (summary,) = read(run(root, *arguments, "--json"))
    assert summary["patience"] == 2
    (record,) = ResultsStore(tmp_path / "out").records()
    assert record.patience == 2
    assert record.curves.num_epochs < 40
    (plain,) = read(run(root, "OWN", *FAST, "--patience", 0, "--json"))
    assert "patience" not in plain


def test_brackets_in_a_name_are_no_markup(root: Path) -> None:
    result = run(root, "OWN", *FAST, "--variant", "[/x]")
    assert result.exit_code == 0, result.exception
    assert "[/x]" in result.stdout


def test_a_model_that_has_hardly_learned_gives_a_warning(root: Path) -> None:
    plain = ("evaluate", "OWN", "--root", str(root), "--folds", "3", "--model")
    majority = RUNNER.invoke(app, [*plain, "majority"], env={"COLUMNS": "200"})
    assert majority.exit_code == 0
    message = "OWN: the model has hardly learned: its training accuracy is 50.0 %, and the largest class has 50.0 % of"
    assert message in majority.stderr
    forest = RUNNER.invoke(app, [*plain, "wl-forest"], env={"COLUMNS": "200"})
    assert forest.exit_code == 0
    assert "hardly learned" not in forest.stderr


def test_the_largest_class_is_that_of_the_training_part(root: Path) -> None:
    """A split with other proportions in its test part: 12 of 24 graphs are of class 1, 9 of 12 training graphs."""
    parts = ["train" if (n % 2 == 0 and n < 18) or n in (1, 3, 5) else "test" for n in range(24)]
    rows = "".join(f"{n},{part}\n" for n, part in enumerate(parts))
    (root / "parts.csv").write_text(f"graph,split\n{rows}")
    options = ["--root", str(root), "--model", "majority", "--split", str(root / "parts.csv")]
    result = RUNNER.invoke(app, ["evaluate", "OWN", *options])
    assert result.exit_code == 0, result.stderr
    assert (
        "the largest class has 80.0 % of 10 graphs" in result.stderr
    )  # 1 of each class is drawn for validation


@pytest.mark.parametrize(("validation", "warns"), [(0.7, True), (0.75, False)])
def test_validation_graphs_without_dropout_can_show_that_a_model_has_learned(
    root: Path, monkeypatch: pytest.MonkeyPatch, validation: float, warns: bool
) -> None:
    """Training accuracy is measured with dropout, and says less; the threshold of 24 validation graphs is 70.4 %."""
    for name, value in (("train", 0.5), ("validation", validation)):
        curve = property(lambda self, value=value: np.full(self.test_right.shape, value))
        monkeypatch.setattr(EpochRecords, f"{name}_accuracy", curve)
    warning = "its training accuracy (with dropout) is 50.0 %, and the largest class has 50.0 % of 8 graphs"
    assert (warning in run(root, "OWN", *FAST).stderr) == warns


def test_an_unknown_preset_suggests_similar_ones() -> None:
    result = RUNNER.invoke(app, ["evaluate", "planted-parts", "--preset", "papre"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "paper" in result.stderr


def test_help_has_an_example() -> None:
    result = RUNNER.invoke(app, ["evaluate", "--help"])
    assert "Example: graphcaps evaluate MUTAG" in " ".join(result.output.split())


# ---------------------------------------------------------------------- metrics and predictions
@pytest.mark.parametrize(
    "options",
    [
        ("--epochs", 6, "--seeds", 2),
        ("--epochs", 6, "--group", 2, "--metric", "roc-auc", "--class-weight", "balanced"),
    ],
    ids=["seeds", "groups"],
)
def test_the_printed_metrics_are_those_of_the_written_predictions(
    root: Path, tmp_path: Path, options: tuple[object, ...]
) -> None:
    path = tmp_path / "p.csv"
    result = run(root, "OWN", *FAST, *options, "--predictions", path)
    check_predictions(result, path)


def test_predictions_of_folds_that_stop_at_different_epochs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.MIN_STEPS", 1)  # an epoch has one step
    path, out = tmp_path / "p.csv", tmp_path / "out"
    result = run(root, "OWN", *FAST, "--epochs", 50, "--patience", 3, "--predictions", path, "--out", out)
    check_predictions(result, path)
    ((record,),) = (ledger.records for ledger in ResultsStore(out).ledgers())
    assert len(set(record.curves.fold_epochs.tolist())) > 1
    assert record.curves.fold_epochs.max() < 50


def check_predictions(result: Result, path: Path) -> None:
    """Computes accuracy and ROC-AUC from the file with scikit-learn and compares what was printed."""
    lines = result.stdout.split("\n\n")[0].splitlines()
    assert result.exit_code == 0, result.stderr
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    seeds = sorted({row["seed"] for row in rows})
    accuracies, areas = [], []
    for seed in seeds:
        for fold in ("1", "2", "3"):
            test = [row for row in rows if (row["seed"], row["fold"], row["split"]) == (seed, fold, "test")]
            accuracies.append(100 * np.mean([row["label"] == row["predicted"] for row in test]))
            positive = [row["label"] == "2" for row in test]
            areas.append(roc_auc_score(positive, [float(row["probability[2]"]) for row in test]))
        for split in ("validation", "test"):
            graphs = [int(row["graph"]) for row in rows if (row["seed"], row["split"]) == (seed, split)]
            assert sorted(graphs) == list(range(1, 25))
    (accuracy,) = (line for line in lines if " held-out " in line)
    (area,) = (line for line in lines if " ROC-AUC " in line)
    assert f" {np.mean(accuracies):.2f} " in accuracy
    assert f" {np.mean(areas):.3f} " in area
    deviation = np.mean([np.std(areas[i : i + 3], ddof=1) for i in range(0, len(areas), 3)])
    assert f" {deviation:.3f} " in area
    assert f"Predictions of {len(rows)} rows: {path}" in result.stderr


def test_predictions_of_a_classical_model_and_of_a_resumed_run(root: Path, tmp_path: Path) -> None:
    words = [
        "evaluate",
        "OWN",
        "--root",
        root,
        "--folds",
        3,
        "--model",
        "wl-forest",
        "--out",
        tmp_path / "out",
    ]
    first = RUNNER.invoke(app, [*map(str, words), "--predictions", str(tmp_path / "a.csv")])
    check_predictions(first, tmp_path / "a.csv")
    again = RUNNER.invoke(app, [*map(str, words), "--resume", "--predictions", str(tmp_path / "b.csv")])
    check_predictions(again, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert "1 of 1 records are finished" in again.stderr


def test_simple_models_stand_below_each_data_set(root: Path, tmp_path: Path) -> None:
    """On the same folds: their accuracies are those of a run of their own."""
    out = tmp_path / "out"
    result = run(root, "OWN", *FAST, "--seeds", 2, "--out", out, baseline="--baseline")
    assert result.exit_code == 0, result.stderr
    table = result.stdout.split("\n\n")[0].splitlines()
    rows = [line for line in table if " held-out " in line]
    assert [line.split()[:2] for line in rows] == [
        ["OWN", "hgcn"],
        ["wl-forest", "held-out"],
        ["majority", "held-out"],
    ]
    assert rows[2].split()[2:5] == ["50.00", "0.00", "–"]
    assert result.stdout.count("ROC-AUC   ") == 2  # the largest class has none
    assert "wl-forest, majority: simple models on the same folds, with one seed." in result.stdout
    forest, majority = json.loads((out / "OWN--hgcn.summary.json").read_text())["baselines"]
    assert (forest["variant"], majority["variant"]) == ("wl-forest", "majority")
    alone = ["evaluate", "OWN", "--root", str(root), "--folds", "3", "--model", "wl-forest", "--json"]
    (summary,) = json.loads(RUNNER.invoke(app, alone).stdout)
    assert forest["figures"]["held-out"]["mean"] == summary["figures"]["held-out"]["mean"]
    assert set(summary) == {*json.loads((out / "OWN--hgcn.summary.json").read_text())} - {
        "baselines",
        "source",
    }
    assert len(ResultsStore(out).records()) == 2


def test_own_graphs_get_simple_models_and_others_on_request(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        evaluate_module, "_run_baselines", lambda runs: asked.append(runs[0].store.name) or []
    )
    words = ["--folds", "3", "--epochs", "1", "--preset", str(root / "small.toml"), "--device", "cpu"]
    for source, more in (("planted-parts", []), ("planted-parts", ["--baseline"]), (str(root / "OWN"), [])):
        assert RUNNER.invoke(app, ["evaluate", source, *words, *more]).exit_code == 0
    assert RUNNER.invoke(app, ["evaluate", str(root / "OWN"), "--model", "majority"]).exit_code == 0
    assert asked == ["planted-parts", "OWN"]


def test_class_weights_are_said(root: Path) -> None:
    result = run(root, "OWN", *FAST, "--class-weight", "balanced")
    assert "OWN: class weights (balanced) '1' 1, '2' 1.\n" in result.stderr
    assert "class weights" not in run(root, "OWN", *FAST).stderr


def test_metrics_are_printed_with_a_caution_and_are_in_the_json(root: Path, tmp_path: Path) -> None:
    result = run(root, "OWN", *FAST, "--out", tmp_path / "out")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["ROC-AUC", "PR-AUC", "balanced", "MCC"]
    assert "Caution: test fold 1 has only 4 graphs of class '1', so ROC-AUC" in result.stdout
    (summary,) = read(run(root, "OWN", *FAST, "--out", tmp_path / "out", "--resume", "--json"))
    assert list(summary["metrics"]) == ["roc_auc", "pr_auc", "balanced_accuracy", "mcc"]
    assert f" {summary['metrics']['roc_auc']['mean']:.3f} " in lines[2]
    assert summary["cautions"][0].startswith("Caution: test fold 1")
    assert summary["metric"] == "loss"
    (record,) = ResultsStore(tmp_path / "out").records()
    assert record.predictions is None


def test_records_without_metrics_are_shown_with_accuracy_alone(root: Path, tmp_path: Path) -> None:
    """As records of earlier versions."""
    run(root, "OWN", *FAST, "--out", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.record.json")
    values = json.loads(path.read_text())
    del values["metrics"]
    path.write_text(json.dumps(values))
    result = run(root, "OWN", *FAST, "--out", tmp_path / "out", "--resume")
    assert result.exit_code == 0
    assert "held-out" in result.stdout
    assert "ROC-AUC" not in result.stdout
    assert "Caution" not in result.stdout


def test_a_second_evaluation_of_the_same_model_and_data_in_a_folder_is_refused(
    root: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    out.mkdir()
    hold = (
        "import sys; from graphcaps._io.file_lock import lock_file\n"
        "with lock_file(sys.argv[1]): print('locked', flush=True), sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(out / "TWO--hgcn--held-out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        refused = run(root, "OWN", "TWO", *FAST, "--out", out)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.splitlines() == [
            f"graphcaps: {out}: another process is evaluating hgcn on TWO (held-out) in this folder. "
            "Wait until it has ended, or name another folder."
        ]
        paper = run(root, "TWO", *FAST, "--out", out, "--protocol", "paper")  # other records
        assert paper.exit_code == 0, paper.stderr
        other.communicate("")
    assert run(root, "OWN", "TWO", *FAST, "--out", out).exit_code == 0
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_finished_records_need_no_lock(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs"
    assert run(root, "OWN", *FAST, "--out", out).exit_code == 0
    monkeypatch.setattr(ResultsStore, "lock", None)
    assert run(root, "OWN", *FAST, "--out", out, "--resume").exit_code == 0
