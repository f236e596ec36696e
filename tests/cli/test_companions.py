"""Companions on the command line: train, predict, info, explain and evaluate."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.evaluation import ResultsStore
from graphcaps.inference.model_file import load

pytestmark = pytest.mark.usefixtures("isolated_folders")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def model(few_trees: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a network with a companion, trained for two epochs."""
    path = tmp_path_factory.mktemp("companion") / "c.safetensors"
    result = run(
        *("train", "planted-parts", "--out", path, "--companion", "wl-forest"),
        *("--epochs", 2, "--validation", 0.2, "--device", "cpu"),
    )
    assert result.exit_code == 0, result.output
    assert "the companion wl-forest reads edges; the graphs have no node labels." in result.output
    assert "chosen on" in result.output
    assert "validation log loss: hgcn" in result.output
    return path


def test_predict_writes_the_parts_of_each_answer(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    result = run("predict", model, "planted-parts", "--out", out, "--parts-of-answer")
    assert result.exit_code == 0, result.output
    assert "contribution" in result.output
    fitted, store = load(model), load_dataset("planted-parts")
    answer = fitted.answer(store)
    assert fitted.mixture is not None
    assert answer.parts is not None
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    best = answer.probabilities.argmax(-1)
    shares = answer.parts.contributions(best)
    for part, name in enumerate(("hgcn", "wl-forest")):
        columns = {
            "part_probability": answer.parts.probabilities[part][np.arange(len(best)), best],
            "part_weight": np.full(len(best), fitted.mixture.weights[part]),
            "part_contribution": shares[part],
        }
        for heading, expected in columns.items():
            found = [float(row[f"{heading}[{name}]"]) for row in rows]
            np.testing.assert_allclose(found, expected, rtol=1e-8)
    config = json.loads((tmp_path / "p.csv.config.json").read_text())
    assert [part["model"] for part in config["parts"]] == ["hgcn", "wl-forest"]
    table = run("predict", model, "planted-parts", "--parts-of-answer")
    assert table.exit_code == 0, table.output
    header = next(line for line in table.output.splitlines() if "contribution" in line)
    assert "wl-forest" in header
    plain = run("predict", model, "planted-parts", "--json")
    assert "parts" not in json.loads(plain.stdout)["predictions"][0]


def test_info_names_companion_and_weights(model: Path) -> None:
    result = run("info", model)
    assert result.exit_code == 0, result.output
    assert "wl-forest, " in result.output
    assert "reads edges, node labels" in result.output
    assert "or chose weights: not a test" in " ".join(result.output.split())
    companion = json.loads(run("info", model, "--json").stdout)["model"]["companion"]
    weights = [companion["network_weight"], *(each["weight"] for each in companion["models"])]
    assert sum(weights) == pytest.approx(1)
    assert f"network {weights[0]:.2f}, wl-forest {weights[1]:.2f}; chosen on" in result.output


def test_explain_says_how_much_of_the_answer_the_scores_are_about(model: Path) -> None:
    result = run("explain", model, "planted-parts", "--graph", 1)
    assert result.exit_code == 0, result.output
    assert "of this probability, wl-forest the rest" in result.output
    assert "scores and capsules are of the network alone" in result.output
    explained = json.loads(run("explain", model, "planted-parts", "--graph", 1, "--json").stdout)
    text = json.dumps(explained)
    assert '"network_share"' in text


def test_a_model_without_a_companion_has_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    trained = run("train", "planted-parts", "--out", path, "--epochs", 1, "--device", "cpu")
    assert trained.exit_code == 0, trained.output
    refused = run("predict", path, "planted-parts", "--parts-of-answer")
    assert refused.exit_code == 2
    assert "'--parts-of-answer' must be left out for a model without a companion" in refused.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--companion", "wl-forrest"), "options: '--companion' must be one of wl-forest"),
        (("--companion", "gin"), "got 'gin' (a network)"),
        (("--companion", "ecfp-forest"), "which reads SMILES, and the graphs have none of these"),
        (("--companion", "ldp-forest", "--model", "ldp-forest"), "must differ from the model itself"),
        (("--companion", "wl-forest", "--validation", "0"), "come with validation graphs, which choose its"),
        (
            ("--preset", "best", "--validation", "0"),
            "got 'wl-forest' without any. Set --validation above 0, or leave it out: --companion none,",
        ),
    ],
)
def test_companions_that_cannot_be_fitted_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    refused = run("train", "planted-parts", "--out", tmp_path / "m.safetensors", *words)
    assert refused.exit_code == 2
    assert message in refused.output
    assert not list(tmp_path.iterdir())


def test_evaluate_shows_network_companion_and_mixture(tmp_path: Path) -> None:
    words = ("evaluate", "planted-parts", "--folds", 3, "--epochs", 1, "--device", "cpu", "--companion")
    shown = run(*words, "wl-forest", "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    (summary,) = tmp_path.glob("*hgcn.summary.json")
    content = json.loads(summary.read_text())["companion"]
    assert [part["name"] for part in content["parts"]] == ["hgcn", "wl-forest"]
    assert content["mixture"]["name"] == "hgcn + wl-forest"
    assert np.array(content["weights"]["per_fold"]).shape == (1, 3, 2)
    for part in (*content["parts"], content["mixture"]):
        assert f"{100 * part['accuracy']['mean']:.2f}" in shown.output
    assert "hgcn + wl-forest: weighted mean of the calibrated probabilities" in shown.output
    assert "out-of-fold" not in shown.output
    assert content["stacked"] == 0
    again = run(*words, "wl-forest", "--out", tmp_path, "--resume", "--json")
    assert json.loads(again.stdout)[0]["companion"]["mixture"] == content["mixture"]
    refused = run(*words, "wl-forest", "--protocol", "paper")
    assert refused.exit_code == 2
    assert "'--companion' must come with --protocol held-out" in refused.output


def test_evaluate_says_how_many_models_choose_the_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("graphcaps.training.companion_weights.MIN_VALIDATION", 1000)
    monkeypatch.setattr("graphcaps.training.companion_weights.STACKING_FOLDS", 2)
    words = ("evaluate", "planted-parts", "--folds", 3, "--epochs", 1, "--device", "cpu", "--ensemble", 2)
    shown = run(*words, "--companion", "wl-forest", "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "in 3 of 3 folds, which have fewer than 1000 validation graphs. 6 further models are" in text
    assert "They are single models; the weights apply to the mean of 2 members." in text
    assert "out-of-fold predictions are of one member" in text
    assert [ledger.variant for ledger in ResultsStore(tmp_path).ledgers()] == ["hgcn", "wl-forest"]
    assert len(ResultsStore(tmp_path / "inner")) == 2


def test_records_of_a_companion_are_taken_as_they_are(tmp_path: Path) -> None:
    words = ("evaluate", "planted-parts", "--folds", 3, "--device", "cpu", "--out", tmp_path)
    forest = (*words, "--model", "wl-forest", "--predictions", tmp_path / "p.csv")
    assert run(*forest).exit_code == 0
    (record,) = tmp_path.glob("*wl-forest*.record.json")
    before = record.read_bytes()
    mixed = run(*words, "--epochs", 1, "--companion", "wl-forest")
    assert mixed.exit_code == 0, mixed.output
    assert record.read_bytes() == before


def test_a_companion_s_record_without_predictions_is_refused_with_the_way_out(tmp_path: Path) -> None:
    words = ("evaluate", "planted-parts", "--folds", 3, "--device", "cpu", "--out", tmp_path)
    assert run(*words, "--model", "wl-forest").exit_code == 0
    refused = run(*words, "--epochs", 1, "--companion", "wl-forest")
    assert refused.exit_code == 2
    assert "leave out --predictions, --ensemble and --companion" in " ".join(refused.output.split())
