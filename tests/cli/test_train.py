"""``graphcaps train``: written files, refused arguments, interruption and resuming, reproducible weights."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import graphcaps
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.cli import progress
from graphcaps.cli.main import app
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.errors import DataError, UsageError
from graphcaps.training import checkpoint_writer
from graphcaps.training.checkpoint import _KIND, FORMAT
from graphcaps.training.final_training import FinalTraining
from tests._io.test_file_lock import locked
from tests.cli.training import invoke, refusal, same_weights, write_inputs

EPOCHS = 3


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_inputs(tmp_path_factory.mktemp("data"), EPOCHS)


@pytest.fixture(autouse=True)
def tmp_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "m.safetensors"


def sidecar(out: Path, ending: str) -> Path:
    return out.with_name(f"{out.name}.{ending}")


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training raises an error: arguments must be refused before it."""

    def run(*_: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(FinalTraining, "run", run)


# ---------------------------------------------------------------------- files
def test_three_files_and_one_json_object(inputs: list[str], out: Path) -> None:
    result = invoke(*inputs, "--out", out, "--seed", 4, "--batch-size", 5, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert Path(content["model"]) == out
    assert content["resolved"]["training"] == {
        "epochs": 3,
        "batch_size": 5,
        "learning_rate": 0.02,
        "weight_decay": 0.0001,
        "halve_every": 500,
        "reconstruction_weight": 0.1,
        "average_epochs": 1,
        "precision": "float32",
        "batches_per_epoch": None,
    }
    assert content["data"]["source"] == inputs[1]
    assert content["training"]["digest"] == content["data"]["digest"]
    assert (content["training"]["seed"], content["training"]["epoch"]) == (4, 3)
    assert {"graphcaps", "torch", "python"} <= content["versions"].keys()
    config = json.loads(sidecar(out, "config.json").read_bytes())
    assert (config["config"], config["data"]) == (content["resolved"], content["data"])
    history = json.loads(sidecar(out, "history.json").read_bytes())
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert history[2]["validation_accuracy"] == content["training"]["validation_accuracy"]
    assert all(type(value) in (int, float) for row in history for value in row.values())
    model = graphcaps.load(out)
    assert model.training == content["training"]
    assert len(model.predict(planted_parts(num_graphs=3))) == 3
    assert sorted(os.listdir(out.parent)) == [
        "cache",
        "m.safetensors",
        "m.safetensors.config.json",
        "m.safetensors.history.json",
    ]


def test_text_names_the_selected_epoch_and_the_sets(inputs: list[str], out: Path) -> None:
    result = invoke(*inputs, "--out", out, "--validation", "0.2")
    assert result.exit_code == 0, result.output
    classes = "3 classes (ring-star: 4, ring-clique: 4, ring-ladder: 4)"
    assert f"12 graphs of SMALL, {classes}, hgcn, preset: " in result.stderr
    text = " ".join(result.stdout.split())
    assert (
        "selected epoch 3 of 3: the last epoch, since 105 are needed for a choice with so few training graphs"
        in text
    )
    assert "of 9 graphs" in text
    assert "of 3 graphs; not a test set" in text
    without_validation = invoke(*inputs, "--out", out, "--validation", "0", "--overwrite")
    assert "selected epoch 3 of 3: the last epoch" in " ".join(without_validation.stdout.split())
    assert "validation accuracy" not in without_validation.stdout


def test_the_same_seed_gives_the_same_weights(inputs: list[str], tmp_path: Path) -> None:
    names = ("a", "b", "c")
    for name, seed in zip(names, (0, 0, 1), strict=True):
        assert invoke(*inputs, "--out", tmp_path / f"{name}.safetensors", "--seed", seed).exit_code == 0
    a, b, c = (tmp_path / f"{name}.safetensors" for name in names)
    assert same_weights(a, b)
    assert not same_weights(a, c)


def test_the_embedded_set_and_another_model(out: Path) -> None:
    result = invoke(
        *("train", "planted-parts", "--model", "gin", "--epochs", 1, "--batch-size", 128, "--out", out)
    )
    assert result.exit_code == 0, result.output
    assert "gin, preset: planted-parts (planted-parts of the catalogue)." in result.stderr
    assert graphcaps.load(out).config.model == "gin"
    assert json.loads(sidecar(out, "config.json").read_bytes())["data"]["source"] is None


# ---------------------------------------------------------------------- refused before training
@pytest.mark.usefixtures("no_training")
def test_outputs_that_cannot_be_written(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = out.parent / "away" / "m.safetensors"
    assert refusal(*inputs, "--out", away).endswith(f"none at {away.parent}. Create the folder first.")
    assert refusal(*inputs, "--out", out.with_suffix(".pt")).startswith(
        "train: '--out' must end in .safetensors"
    )
    both = refusal(*inputs, "--out", out, "--resume", "--overwrite")
    assert both == "train: '--resume' must be used without --overwrite, got both."
    (out.parent / "d.safetensors").mkdir()
    assert "found a folder" in refusal(*inputs, "--out", out.parent / "d.safetensors")

    def denied(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    message = refusal(*inputs, "--out", out)
    assert message == f"{out.parent}: expected a folder to write into, found 'Permission denied'."


@pytest.mark.usefixtures("no_training")
def test_existing_files_are_not_overwritten(inputs: list[str], out: Path) -> None:
    out.write_bytes(b"user data")
    assert refusal(*inputs, "--out", out) == (f"{out}: the file exists. Replace it with --overwrite.")
    assert refusal(*inputs, "--out", out, "--resume").endswith(
        "is not the model of this training. Replace it with --overwrite."
    )
    out.unlink()
    sidecar(out, "checkpoint").write_bytes(b"user data")
    assert refusal(*inputs, "--out", out).endswith("Continue with --resume, or start again with --overwrite.")
    assert "Start again without resuming." in refusal(*inputs, "--out", out, "--resume")
    assert sidecar(out, "checkpoint").read_bytes() == b"user data"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_a_second_training_of_the_same_file_is_refused(inputs: list[str], out: Path, option: str) -> None:
    with locked(out) as process:
        message = refusal(*inputs, "--out", out, option)
        process.communicate("")
    assert message.startswith(f"{out}: another process is writing this file.")


def test_a_file_made_during_the_training_is_kept(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = FinalTraining.result

    def copy_a_file(training: FinalTraining) -> object:
        for path in (out, sidecar(out, "config.json"), out.with_name("m-2.safetensors")):
            path.write_bytes(b"user data")
        return result(training)

    monkeypatch.setattr(FinalTraining, "result", copy_a_file)
    kept = out.with_name("m-3.safetensors")
    assert refusal(*inputs, "--out", out, "--checkpoint-every", 1) == (
        f"{out}: another program made this file during the training. The finished model was written to {kept}."
    )
    assert out.read_bytes() == sidecar(out, "config.json").read_bytes() == b"user data"
    assert graphcaps.load(kept).training["epochs"] == EPOCHS
    assert not sidecar(out, "checkpoint").exists()


def test_a_folder_removed_during_the_training_is_made_again(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "folder" / "m.safetensors"
    out.parent.mkdir()
    result = FinalTraining.result

    def remove(training: FinalTraining) -> object:
        shutil.rmtree(out.parent)
        return result(training)

    monkeypatch.setattr(FinalTraining, "result", remove)
    done = invoke(*inputs, "--out", out, "--no-baseline")
    assert done.exit_code == 0, done.output
    assert graphcaps.load(out).training["epochs"] == EPOCHS


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", 0], "'--epochs' must be at least 1, got 0"),
        (["--batch-size", -1], "'--batch-size' must be at least 1, got -1"),
        (["--precision", "half"], "'--precision' must be one of float32, tf32, bf16, got 'half'"),
        (["--learning-rate", 0], "'--learning-rate' must be above 0"),
        (["--validation", 1], "'--validation' must be at least 0 and below 1, got 1"),
        (["--seed", -1], "'--seed' must be a whole number from 0"),
        (["--device", "tpu"], "'--device' must be cpu, cuda or auto"),
        (["--model", "hgnc"], "'--model' must name a model, got 'hgnc'. Did you mean hgcn"),
        (["--preset", "none.toml"], "none.toml: file not found."),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_invalid_values_are_refused(
    inputs: list[str], out: Path, options: list[object], message: str
) -> None:
    assert message in refusal(*inputs, "--out", out, *options)


@pytest.mark.usefixtures("no_training")
def test_unsuitable_graphs_are_refused(inputs: list[str], out: Path) -> None:
    store = planted_parts(num_graphs=12)
    write_tu(store[store.y == 0], out.parent / "ONE")
    assert "must hold graphs of at least two classes, got only class" in refusal(
        "train", out.parent / "ONE", "--out", out
    )
    few = torch.cat([(store.y == 0).nonzero().squeeze(-1), (store.y == 1).nonzero().squeeze(-1)[:1]])
    write_tu(store[few], out.parent / "FEW")
    message = refusal("train", out.parent / "FEW", "--out", out)
    assert message.endswith("Add graphs of that class, or train with --validation 0.")
    labels = next((out.parent / "FEW").glob("*_graph_labels.txt"))
    labels.unlink()
    for names in (out.parent / "FEW").glob("*_class_names.txt"):
        names.unlink()
    refusal("train", out.parent / "FEW", "--out", out)
    assert "file or folder not found." in refusal("train", "no/where", "--out", out)
    assert not out.exists()


# ---------------------------------------------------------------------- interrupting and resuming
@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch):
    """Raises KeyboardInterrupt when the progress bar shows an epoch."""
    describe = progress.describe

    def arrange(epoch: int) -> None:
        def press(event):
            if event.epoch == epoch:
                raise KeyboardInterrupt
            return describe(event)

        monkeypatch.setattr(progress, "describe", press)

    return arrange


@pytest.mark.parametrize("name", ["model.layers.0.weight", "adam.second.layers.0.weight"])
def test_a_resealed_checkpoint_of_other_shapes_is_refused(
    inputs: list[str], out: Path, stop_after, name: str
) -> None:
    stop_after(2)
    assert invoke(*inputs, "--out", out).exit_code == 130
    checkpoint = out.with_name(f"{out.name}.checkpoint")
    read = read_checked(checkpoint, _KIND, FORMAT)
    head = {key: value for key, value in read.content.items() if key not in ("format", "version", "sha256")}
    shape = list(read.tensors[f"state.{name}"].shape)
    missing = {key: value for key, value in read.tensors.items() if key != f"state.{name}"}
    unknown = read.tensors | {"state.model.unknown": torch.zeros(1)}
    for tensors, expected in (
        (
            read.tensors | {f"state.{name}": torch.zeros(3, 5)},
            f"shape {shape} under 'state.{name}', found the shape [3, 5].",
        ),
        (missing, f"'state.{name}', found none."),
        (unknown, "expected tensors of this training, found also 'model.unknown'."),
    ):
        checkpoint.write_bytes(encode_checked(_KIND, FORMAT, head, tensors))
        sentence = refusal(*inputs, "--out", out, "--resume")
        assert expected in sentence
        assert sentence.startswith(f"{checkpoint}: expected ")
        assert sentence.endswith("Start again without resuming.")


def test_an_interrupted_training_is_resumed(inputs: list[str], out: Path, stop_after) -> None:
    uninterrupted = out.with_name("uninterrupted.safetensors")
    assert invoke(*inputs, "--out", uninterrupted).exit_code == 0
    stop_after(2)
    stopped = invoke(*inputs, "--out", out, "--seed", 0, "--no-baseline")
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert stopped.stderr.splitlines()[-1] == (
        f"Stopped after epoch 2 of 3; continue with: graphcaps train {inputs[1]} --out {out} "
        f"--preset {inputs[3]} --seed 0 --no-baseline --device cpu --resume"
    )
    assert not out.exists()
    stop_after(0)
    for options, message in (
        (["--seed", 1], "seed 0 (here 1)"),
        (["--epochs", 1], "at most 1 epochs, found one of 2"),
    ):
        assert message in refusal(*inputs, "--out", out, "--resume", *options)
    resumed = invoke(*inputs, "--out", out, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "Continuing after epoch 2." in resumed.stderr
    assert same_weights(out, uninterrupted)
    assert not sidecar(out, "checkpoint").exists()
    again = invoke(*inputs, "--out", out, "--resume", "--json")
    assert (again.exit_code, json.loads(again.stdout)["training"]["epoch"]) == (0, 3)
    assert "This training is finished; nothing to do." in again.stderr
    assert "the file is not the model of this training" in refusal(
        *inputs, "--out", out, "--resume", "--seed", 1
    )


def test_a_checkpoint_that_cannot_be_written_is_noted(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object) -> None:
        raise DataError(path, "no space is left")

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", full)
    result = invoke(*inputs, "--out", out, "--checkpoint-every", 1)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("A checkpoint could not be written: ") == 1
    (note,) = graphcaps.load(out).training["notes"]
    assert note.startswith("A checkpoint could not be written: ")


def test_resume_without_a_checkpoint_starts_with_a_note(inputs: list[str], out: Path) -> None:
    result = invoke(*inputs, "--out", out, "--resume")
    assert result.exit_code == 0
    assert "No checkpoint found: starting from the beginning." in result.stderr
    assert out.exists()


def test_overwrite_starts_again(inputs: list[str], out: Path) -> None:
    out.write_bytes(b"old")
    sidecar(out, "checkpoint").write_bytes(b"of another run")
    assert invoke(*inputs, "--out", out, "--overwrite").exit_code == 0
    assert graphcaps.load(out).training["epoch"] == 3
    assert not sidecar(out, "checkpoint").exists()


# ---------------------------------------------------------------------- failures during training
def test_no_model_is_written_if_the_loss_is_nan(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "graphcaps.nn.hgcn.margin_loss", lambda scores, y, **_: scores.sum((-1, -2)) * float("nan")
    )
    assert "loss is not a number" in refusal(*inputs, "--out", out)
    assert not out.exists()


def test_out_of_memory_names_what_to_lower(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "graphcaps.training.optimizer.ReplicaAdam.step", lambda *_, **__: torch.empty(1 << 60)
    )
    message = refusal(*inputs, "--out", out)
    assert message.startswith(
        "The computer ran out of memory: lower the batch size (now 8), num_capsules (now 3), "
    )
    assert not out.exists()


def test_patience_class_weight_and_calibration(inputs: list[str], out: Path) -> None:
    done = invoke(
        *inputs, "--out", out, "--validation", "0.3", "--class-weight", "balanced", "--calibrate", "isotonic"
    )
    assert done.exit_code == 0, done.output
    model = graphcaps.load(out)
    assert model.calibration is not None
    assert model.calibration.method == "isotonic"
    assert model.profile is not None
    weights = model.training["class_weight"]  # n / (O n_o)
    assert list(weights) == list(model.class_names)
    described = invoke("info", out).stdout
    assert all(f"{name} {weight:.4g}" in described for name, weight in weights.items())
    assert "Brier score" in done.stdout
    bare = invoke(*inputs, "--out", out, "--overwrite", "--calibrate", "none", "--patience", "1")
    assert bare.exit_code == 0, bare.output
    assert graphcaps.load(out).calibration is None
    for wrong in (["--calibrate", "platt"], ["--class-weight", "equal"]):
        assert f"'{wrong[0]}' must be" in refusal(*inputs, "--out", out, "--overwrite", *wrong)


# ---------------------------------------------------------------------- baseline
def test_a_forest_is_fitted_beside_the_model(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke(*inputs, "--out", out, "--validation", "0.4")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if line.startswith("baseline"))
    assert "wl-forest on the same graphs: validation accuracy" in line
    stored = json.loads(sidecar(out, "config.json").read_bytes())["baseline"]
    assert (stored["model"], stored["part"]) == ("wl-forest", "validation")
    again = invoke(*inputs, "--out", out, "--validation", "0.4", "--resume", "--json")
    assert json.loads(again.stdout)["baseline"] == stored
    without = invoke(*inputs, "--out", out, "--overwrite", "--no-baseline")
    assert not any(line.startswith("baseline") for line in without.stdout.splitlines())
    assert "baseline" not in json.loads(sidecar(out, "config.json").read_bytes())
    named = invoke("train", "planted-parts", "--model", "gin", "--epochs", 1, "--out", out, "--overwrite")
    line = next(line for line in named.stdout.splitlines() if line.startswith("baseline"))
    assert "wl-forest on the same graphs: validation accuracy" in line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), "Stopped the baseline; the model is complete."),
        (UsageError("No forest here."), "The baseline could not be fitted: No forest here."),
    ],
)
def test_a_baseline_that_fails_costs_no_model(
    inputs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("graphcaps.training.baseline.fit_baseline", fail)
    result = invoke(*inputs, "--out", out)
    assert result.exit_code == 0, result.output
    assert message in result.stderr
    assert graphcaps.load(out).class_names
    assert not any(line.startswith("baseline") for line in result.stdout.splitlines())


def test_the_metric_selects_the_epoch_and_is_in_the_model_file(inputs: list[str], out: Path) -> None:
    result = invoke(*inputs, "--out", out, "--metric", "roc-auc", "--epochs", "26", "--batch-size", "1")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "highest validation ROC-AUC, mean of the last 21 epochs" in text
    assert "this set selected the epoch, so it is not a test" in text
    training = graphcaps.load(out).training
    assert training["metric"] == "roc-auc"
    history = json.loads(sidecar(out, "history.json").read_bytes())
    assert history[training["epoch"] - 1]["validation_metric"] == training["validation_metric"]
    shown = CliRunner().invoke(app, ["info", str(out)])
    assert re.search(r"metric +roc-auc", shown.stdout)
    wrong = invoke(*inputs, "--out", out, "--overwrite", "--metric", "f1")
    assert wrong.exit_code == 2
    assert (
        "train: '--metric' must be one of loss, accuracy, balanced-accuracy, roc-auc, pr-auc, mcc"
        in wrong.stderr
    )
    none = invoke(*inputs, "--out", out, "--overwrite", "--metric", "mcc", "--validation", "0")
    assert "train: '--metric' must be 'loss' without a validation set" in none.stderr
