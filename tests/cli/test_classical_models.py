"""Classical models on the command line: each verb, and options that do not apply to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import graphcaps
from graphcaps.cli.main import app

RUNNER = CliRunner()
SOURCE = "planted-parts"
PRESET = """
[model]
name = "wl-forest"
trees = 12
iterations = 1
"""


@pytest.fixture(autouse=True)
def _tmp_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(PRESET)


def run(*words: str) -> Result:
    return RUNNER.invoke(app, words)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "forest.safetensors"
    result = run("train", SOURCE, "--preset", "small.toml", "--out", str(path))
    assert result.exit_code == 0, result.output
    return path


def test_evaluate_shows_one_figure_and_what_does_not_apply(tmp_path: Path):
    result = run("evaluate", SOURCE, "--preset", "small.toml", "--folds", "3", "--out", "records")
    assert result.exit_code == 0, result.output
    assert "wl-forest  held-out" in result.stdout
    assert "optimism" not in result.stdout
    assert "upper bound" not in result.stdout
    assert "Fitted once per fold, to its training graphs: wl-forest." in result.stdout
    assert "memory" not in result.output
    (record,) = (tmp_path / "records").glob("*.record.json")
    content = json.loads(record.read_text())
    assert content["curves"]["epochs"] == 1
    assert content["config"]["model"] == {"name": "wl-forest", "trees": 12, "iterations": 1}
    again = run("evaluate", SOURCE, "--preset", "small.toml", "--folds", "3", "--out", "records", "--resume")
    assert again.exit_code == 0
    assert "1 of 1 records are finished" in again.output


def test_the_paper_protocol_marks_no_upper_bound(tmp_path: Path):
    result = run("evaluate", SOURCE, "--model", "majority", "--folds", "3", "--protocol", "both", "--json")
    assert result.exit_code == 0, result.output
    (summary,) = json.loads(result.stdout)
    assert summary["figures"]["held-out"]["mean"] == pytest.approx(100 / 3, abs=1e-4)
    assert not summary["figures"]["C"]["upper_bound"]
    table = run("evaluate", SOURCE, "--model", "majority", "--folds", "3", "--protocol", "paper").stdout
    assert "upper bound" not in table
    assert "C*" not in table


def test_train_writes_a_model_that_predicts(model: Path, tmp_path: Path):
    store = graphcaps.load_dataset(SOURCE)
    fitted = graphcaps.load(model)
    result = run("predict", str(model), SOURCE, "--out", "rows.csv")
    assert result.exit_code == 0, result.output
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == fitted.predict(store).tolist()
    history = json.loads((tmp_path / "forest.safetensors.history.json").read_text())
    assert [row["epoch"] for row in history] == [1]
    assert not (tmp_path / "forest.safetensors.checkpoint").exists()
    assert fitted.calibration is not None


def test_train_reports_a_fit_and_not_an_epoch(tmp_path: Path):
    result = run("train", SOURCE, "--preset", "small.toml", "--out", "m.safetensors", "--split", "table.csv")
    assert result.exit_code == 2
    lines = [f"{graph},{('train', 'valid', 'test')[max(0, graph % 10 - 7)]}" for graph in range(1, 361)]
    (tmp_path / "table.csv").write_text("graph,split\n" + "\n".join(lines) + "\n")
    result = run("train", SOURCE, "--preset", "small.toml", "--out", "m.safetensors", "--split", "table.csv")
    assert result.exit_code == 0, result.output
    assert "fitted once to the training graphs" in result.stdout
    assert "epoch" not in result.stdout
    assert "test accuracy" in result.stdout
    assert "which were not used in training" in result.stdout


@pytest.mark.parametrize("calibrate", ["temperature", "none"])
def test_train_says_what_the_validation_set_was_used_for(calibrate: str):
    result = run("train", SOURCE, "--model", "majority", "--out", "m.safetensors", "--calibrate", calibrate)
    assert result.exit_code == 0, result.output
    assert "graphs; not used by the fit" in result.stdout
    assert ("the calibration is fitted to them" in result.stdout) == (calibrate != "none")


def test_a_finished_training_is_not_repeated(model: Path):
    before = model.stat().st_mtime_ns
    result = run("train", SOURCE, "--preset", "small.toml", "--out", str(model), "--resume")
    assert result.exit_code == 0, result.output
    assert "This training is finished" in result.output
    assert model.stat().st_mtime_ns == before
    refused = run("train", SOURCE, "--preset", "small.toml", "--out", str(model))
    assert refused.exit_code == 2
    other = run("train", SOURCE, "--model", "majority", "--out", str(model), "--resume")
    assert other.exit_code == 2
    assert "not the model of this training" in other.output


def test_a_model_that_learns_nothing_is_named_without_advice_on_epochs():
    result = run("train", SOURCE, "--model", "majority", "--out", "m.safetensors")
    assert result.exit_code == 0, result.output
    assert "The model has hardly learned" in result.output
    assert "--epochs" not in result.output


def test_info_shows_what_the_model_reads(model: Path):
    result = run("info", str(model))
    assert result.exit_code == 0, result.output
    assert "fitted values" in result.stdout
    assert "edges, node labels" in result.stdout
    assert "fitted once to the training graphs" in result.stdout
    for text in ("learning rate", "batches", "epoch", "input columns"):
        assert text not in result.stdout
    described = json.loads(run("info", str(model), "--json").stdout)
    assert described["expects"]["reads"] == ["edges", "node_labels"]


def test_explain_refuses_in_one_sentence(model: Path):
    result = run("explain", str(model), SOURCE, "--out", "page")
    assert result.exit_code == 2
    assert "Other models have no capsules to explain." in result.output
    assert not Path("page").exists() or not list(Path("page").iterdir())


@pytest.mark.parametrize(
    ("verb", "options", "message"),
    [
        ("train", ("--epochs", "5"), "'--epochs' must be left out with the model 'wl-forest'"),
        ("train", ("--patience", "5"), "'--patience' must be left out"),
        ("train", ("--batch-size", "5"), "'--batch-size' must be left out"),
        ("train", ("--learning-rate", "0.1"), "'--learning-rate' must be left out"),
        ("train", ("--precision", "tf32"), "'--precision' must be left out"),
        ("train", ("--max-nodes", "5"), "'--max-nodes' must be left out"),
        ("train", ("--class-weight", "balanced"), "'--class-weight' must be left out"),
        ("train", ("--checkpoint-every", "5"), "'--checkpoint-every' must be left out"),
        ("train", ("--parts", "blocks"), "'--parts' must be left out"),
        ("train", ("--device", "cuda"), "The model 'wl-forest' runs on the CPU"),
        ("train", ("--preset", "default"), "'--preset' must be of the model 'wl-forest', or be left out"),
        ("evaluate", ("--epochs", "5"), "'--epochs' must be left out with the model 'wl-forest'"),
        ("evaluate", ("--group", "5"), "'--group' must be left out"),
        ("evaluate", ("--precision", "tf32"), "'--precision' must be left out"),
        ("evaluate", ("--device", "cuda"), "The model 'wl-forest' runs on the CPU"),
    ],
)
def test_options_that_do_not_apply_are_refused(verb, options, message):
    out = ("--out", "m.safetensors") if verb == "train" else ()
    result = run(verb, SOURCE, "--model", "wl-forest", *options, *out)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not Path("m.safetensors").exists()


@pytest.mark.parametrize(("section", "line"), [("training", "epochs = 9"), ("features", "propagation = 1")])
def test_a_preset_with_settings_that_do_not_apply_is_refused(tmp_path: Path, section, line):
    (tmp_path / "more.toml").write_text(f"{PRESET}\n[{section}]\n{line}\n")
    result = run("evaluate", SOURCE, "--preset", "more.toml")
    assert result.exit_code == 2
    expected = f"'--preset' must have no [{section}] for the model 'wl-forest', which does not read it"
    assert expected in " ".join(result.output.split())


def test_an_interrupted_fit_writes_nothing(monkeypatch: pytest.MonkeyPatch):
    from graphcaps.models.majority import Majority

    def interrupt(self: Majority, *arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Majority, "_fit", interrupt)
    result = run("train", SOURCE, "--model", "majority", "--out", "m.safetensors")
    assert result.exit_code == 130
    assert "Stopped before the fit was complete; nothing was written." in result.output
    assert not list(Path().glob("m.safetensors*"))


def test_the_server_answers_with_the_same_probabilities(model: Path):
    from graphcaps.serve.request_graphs import RequestGraph
    from graphcaps.serve.responses import describe_model, respond

    fitted, store = graphcaps.load(model), graphcaps.load_dataset(SOURCE)[:2]
    requests = [RequestGraph(name=str(graph), store=store[graph]) for graph in range(2)]
    rows = respond(fitted, "predict", requests)["predictions"]
    expected = fitted.predict_proba(store)
    for row, probability in zip(rows, expected, strict=True):
        assert np.allclose(list(row["probabilities"].values()), probability)
    assert respond(fitted, "page", requests)["block"] is None
    described = describe_model(fitted)
    assert described["kind"] == "wl-forest"
    assert not described["explains"]


def test_the_forest_on_fingerprints_takes_every_verb(tmp_path: Path):
    pytest.importorskip("rdkit")
    from graphcaps.serve.request_graphs import RequestGraph
    from graphcaps.serve.responses import respond

    (tmp_path / "ecfp.toml").write_text('[model]\nname = "ecfp-forest"\ntrees = 20\n')
    source = str(Path(__file__).parents[2] / "examples" / "molecules.csv")
    options = ["--label", "kind", "--preset", "ecfp.toml", "--split", "scaffold"]
    result = run("train", source, *options, "--out", "ecfp.safetensors")
    assert result.exit_code == 0, result.output
    assert "test ROC-AUC" in result.output
    result = run("evaluate", source, *options, "--repeat", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["figures"]["held-out"]["mean"] > 80
    (tmp_path / "new.csv").write_text("smiles\nCCC(O)CC\nCCOCC\n")
    rows = json.loads(run("predict", "ecfp.safetensors", "new.csv", "--json").stdout)["predictions"]
    assert [row["class"] for row in rows] == ["alcohol", "ether"]
    assert "reads            smiles" in run("info", "ecfp.safetensors").stdout
    fitted = graphcaps.load("ecfp.safetensors")
    store = graphcaps.data.from_smiles(["CCC(O)CC"])
    (row,) = respond(fitted, "predict", [RequestGraph(name="1", store=store)])["predictions"]
    assert row["class"] == "alcohol"
    result = run("evaluate", SOURCE, "--model", "ecfp-forest")
    assert result.exit_code == 2
    assert "The model ecfp-forest reads molecules, and 'planted-parts' has no SMILES" in result.output


def test_train_says_which_options_a_kernel_selected(tmp_path: Path):
    (tmp_path / "wl.toml").write_text('[model]\nname = "wl"\niterations = [1, 2]\nC = 1\n')
    result = run("train", SOURCE, "--preset", "wl.toml", "--out", "wl.safetensors")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "fitted once to the training graphs, with iterations " in text
    assert ", C 1, selected on the validation graphs" in text
    assert "they selected options; the calibration is fitted to them" in text
    shown = " ".join(run("info", "wl.safetensors").stdout.split())
    assert "graphs that selected options" in shown
    none = run("train", SOURCE, "--preset", "wl.toml", "--out", "all.safetensors", "--validation", "0")
    assert "selected on a tenth of the training graphs" in " ".join(none.stdout.split())


def test_a_kernel_refuses_more_graphs_than_its_gram_matrix_has_room_for(tmp_path: Path):
    (tmp_path / "wl.toml").write_text('[model]\nname = "wl"\nmax_gigabytes = 0.001\n')
    result = run("evaluate", SOURCE, "--preset", "wl.toml")
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "must name at most 204 training graphs, got 288, whose Gram matrices take 2.0 MB" in text
    assert "Choose wl-forest" in text
