"""Networks with companions on folds: a worked example, and a cross-validation beside its slow form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.config import CommitteeConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import Ledger, cross_validate
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.divisions import FOLDS_SEED
from graphcaps.evaluation.mixture_results import CompanionRecords, mixture_results
from graphcaps.inference.mixture import Mixture
from graphcaps.metrics import class_metrics
from graphcaps.training import Callback, CallbackError, Replica, companion_weights
from graphcaps.training.calibration import calibrate_probabilities
from graphcaps.training.classical_fit import fit_replica
from graphcaps.training.companion_weights import fit_mixture, stacking_folds
from tests.evaluation.test_committee_results import with_predictions
from tests.small_models import HGCN_SMALL, labelled
from tests.training.small_forests import few_trees

__all__ = ["few_trees"]
pytestmark = pytest.mark.usefixtures("few_trees")
CONFIG = RunConfig(
    model_arguments=HGCN_SMALL, training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01)
)


def test_validation_graphs_of_each_fold_choose_its_weights() -> None:
    network, forest = with_predictions(0), with_predictions(7)
    companions = CompanionRecords(("wl-forest",), ((forest,),))
    results = mixture_results([network], [companions])
    y, tests, weights = np.tile([0, 1], 2), [], []
    for fold in range(2):
        parts, answers = [], []
        for record in (network, forest):
            assert record.predictions is not None
            p = record.predictions.probabilities[8 * fold : 8 * fold + 8]
            calibration = calibrate_probabilities(p[:4], y, "temperature")
            parts.append(calibration.apply(p[:4]))
            answers.append(calibration.apply(p[4:]))
        mixture = fit_mixture(parts, y, "temperature", stacked=False)
        weights.append(mixture.weights)
        tests.append(mixture.apply(answers))
    np.testing.assert_allclose(results.weights[0], weights)
    accuracies = [float((q.argmax(1) == y).mean()) for q in tests]
    assert results.mixture.accuracy.per_seed[0] == pytest.approx(accuracies)
    pooled = class_metrics(np.tile(y, 2), np.concatenate(tests))
    assert results.mixture.pooled["log_loss"] == pytest.approx(pooled["log_loss"])
    assert not results.stacked
    content = results.as_dict()
    assert [part["name"] for part in content["parts"]] == [network.config.model, "wl-forest"]
    assert content["weights"]["mean"] == pytest.approx(np.mean(weights, axis=0).round(6).tolist())


def test_test_graphs_choose_nothing() -> None:
    network, forest = with_predictions(0), with_predictions(7)
    assert forest.predictions is not None
    p = forest.predictions.probabilities.copy()
    p[forest.predictions.part == 1] = p[forest.predictions.part == 1][:, ::-1]
    changed = replace(forest, predictions=replace(forest.predictions, probabilities=p))
    weights = [
        mixture_results([network], [CompanionRecords(("wl-forest",), ((each,),))]).weights
        for each in (forest, changed)
    ]
    np.testing.assert_array_equal(*weights)


def test_records_that_do_not_match_are_refused() -> None:
    network, forest = with_predictions(0), with_predictions(7)
    companions = CompanionRecords(("wl-forest",), ((forest,),))
    with pytest.raises(ArgumentError, match=r"'companions' must have 2 records of each model, got \[1\]"):
        mixture_results([network, with_predictions(1)], [companions])
    with pytest.raises(ArgumentError, match=r"be one entry for each of the divisions \[0\], got \[\]"):
        mixture_results([network], [])
    with pytest.raises(ArgumentError, match="be a multiple of 2 held-out records"):
        mixture_results([network], [companions], 2)
    with pytest.raises(ArgumentError, match="must hold predictions, got none in"):
        mixture_results([replace(network, predictions=None)], [companions])
    assert forest.predictions is not None
    for name in ("graph", "fold", "part", "y"):
        values = vars(forest.predictions)[name].copy()
        values[[0, -1]] = values[[-1, 0]]
        swapped = replace(forest, predictions=replace(forest.predictions, **{name: values}))
        with pytest.raises(ArgumentError, match="predict the same graphs in the same folds and parts"):
            mixture_results([network], [CompanionRecords(("wl-forest",), ((swapped,),))])


def test_few_validation_graphs_leave_the_choice_to_out_of_fold_predictions(tmp_path: Path) -> None:
    store = labelled()
    assert store.y is not None
    ledger = cross_validate(store, CONFIG, folds=3, companion="wl-forest", results=tmp_path)
    results = ledger.mixture()
    assert results.stacked == 3
    (companions,) = ledger.companions
    assert companions.fold_of_inner == tuple(np.repeat(range(3), 3).tolist())
    folds = stratified_folds(store.y, 3, FOLDS_SEED)
    inner = companions.inner[0][0].predictions
    assert inner is not None
    split = folds.held_out(1)
    assert split.validation is not None
    rows = (np.array(companions.fold_of_inner)[inner.fold] == 1) & (inner.part == 1)
    assert sorted(inner.graph[rows].tolist()) == split.train.tolist()
    # the forest's out-of-fold predictions of the second fold, by single fits
    network, forest, ys = [], [], []
    for train, test in stacking_folds(store.y, split.train, split.validation, FOLDS_SEED):
        fit = fit_replica(store, RunConfig(model="wl-forest"), Replica(train, split.validation, test))
        forest.append(fit.probabilities[split.validation.numel() :])
        place = {int(graph): row for row, graph in zip(np.flatnonzero(rows), inner.graph[rows], strict=True)}
        network.append(inner.probabilities[[place[graph] for graph in test.tolist()]])
        ys.append(store.y[test].numpy())
    parts = [np.concatenate(network), np.concatenate(forest)]
    expected = fit_mixture(parts, np.concatenate(ys), "temperature", stacked=True)
    np.testing.assert_allclose(results.weights[0, 1], expected.weights, atol=1e-9)
    resumed = cross_validate(store, CONFIG, folds=3, companion="wl-forest", results=tmp_path, resume=True)
    assert resumed.mixture().as_dict() == results.as_dict()
    with pytest.raises(DataError, match="no record yet"):
        cross_validate(store, CONFIG, folds=3, companion="wl-forest", results=tmp_path)


def test_divisions_have_companions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion_weights, "MIN_VALIDATION", 5)
    ledger = cross_validate(labelled(), CONFIG, folds=3, divisions=2, companion="wl-forest")
    both, single = ledger.mixture(), []
    for number in ledger.divisions:
        of_division = ledger.division(number)
        assert [each.division for each in of_division.companions] == [number]
        single.append(of_division.mixture())
    assert both.mixture.accuracy.mean == pytest.approx(
        np.mean([each.mixture.accuracy.mean for each in single])
    )
    np.testing.assert_array_equal(both.weights, np.concatenate([each.weights for each in single]))
    assert abs(np.diff(both.weights, axis=0)).max() > 0


def test_committees_have_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion_weights, "MIN_VALIDATION", 5)
    store = labelled()
    ledger = cross_validate(store, CONFIG, folds=3, members=2, companion="wl-forest,features-trees")
    results = ledger.mixture(2)
    assert (results.members, results.stacked) == (2, 0)
    assert results.weights.shape == (1, 3, 3)
    assert results.parts[0].accuracy.per_seed == ledger.committees(2).accuracy.per_seed
    assert results.parts[0].pooled == ledger.committees(2).pooled
    assert results.mixture.name == "hgcn + wl-forest + features-trees"
    assert results.rule.endswith("on the validation graphs of each fold")
    mixed_rule = replace(results, stacked=2).rule
    assert "in 2 of 3 folds and on the validation graphs in the others" in mixed_rule
    assert mixed_rule.endswith(
        "out-of-fold predictions are of one member, and the weights apply to the mean of 2"
    )
    assert "one member" not in replace(results, stacked=3, members=1).rule
    assert ledger.companions[0].inner == ()
    with pytest.raises(ArgumentError, match="be evaluated on the same folds, got none"):
        replace(ledger, companions=()).mixture()


def test_a_class_that_a_fold_lacks_is_accepted_as_without_companions() -> None:
    y = torch.arange(39) % 2
    y[:4] = 2  # one of five folds has none
    store = replace(planted_parts(num_graphs=39), y=y)
    config = replace(CONFIG, training=replace(CONFIG.training, epochs=1))
    results = cross_validate(store, config, folds=5, companion="wl-forest").mixture()
    assert results.weights.shape == (1, 5, 2)
    assert results.stacked == 5


class _Raises(Callback):
    def on_result(self, results: Mapping[str, float]) -> None:
        raise RuntimeError("no log")


def test_an_error_of_a_callback_loses_no_companion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion_weights, "MIN_VALIDATION", 5)
    with pytest.raises(CallbackError, match="no log") as caught:
        cross_validate(labelled(), CONFIG, folds=3, divisions=2, companion="wl-forest", callbacks=[_Raises()])
    assert isinstance(caught.value.result, Ledger)
    assert caught.value.result.mixture().weights.shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "paper"}, "'companion' must be left out unless the protocol is held-out"),
        ({"companion": "wl-forrest"}, "'companion' must be one of wl-forest"),
    ],
)
def test_companions_are_refused_before_training(options: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        cross_validate(labelled(), CONFIG, folds=3, **{"companion": "wl-forest"} | options)  # type: ignore[arg-type]


def test_weights_of_one_part_give_its_results() -> None:
    q = np.random.default_rng(0).uniform(size=(5, 2))
    np.testing.assert_array_equal(Mixture((0.0, 1.0), 5, False).apply([1 - q, q]), q)


def test_a_configuration_can_state_members_and_companion(tmp_path: Path) -> None:
    store = labelled()
    config = replace(CONFIG, committee=CommitteeConfig(2, "wl-forest"))
    stated = cross_validate(store, config, folds=3, results=tmp_path)
    stored = [json.loads(path.read_text())["config"] for path in tmp_path.rglob("*.json")]
    assert {each["model"]["name"] for each in stored} == {"hgcn", "wl-forest"}
    assert not any("committee" in each for each in stored)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    options = {"folds": 3, "members": 2, "companion": "wl-forest", "resume": True}
    given = cross_validate(store, CONFIG, results=tmp_path, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == files  # the same records
    assert stated.mixture(2).as_dict() == given.mixture(2).as_dict()


def test_arguments_replace_those_of_the_configuration() -> None:
    store, config = labelled(), replace(CONFIG, committee=CommitteeConfig(2, "wl-forest"))
    one = CrossValidation(store, config, folds=3, members=1, companion="none", protocol="both")
    assert (one.seeds, one.companion_runs, one.predictions) == ((0,), None, False)
    other = CrossValidation(store, config, folds=3, members=3, companion="wl")
    assert other.seeds == (0, 1, 2)
    assert other.companion_runs is not None
    assert [run.config.model for run in other.companion_runs.folds] == ["wl"]
    fix = "It is of 'defaults'; members=1 and companion='none' leave it out."
    for arguments, name in (({}, "members"), ({"members": 1}, "companion")):
        with pytest.raises(ArgumentError, match=f"'{name}' must be left out unless .* 'paper'. {fix}"):
            CrossValidation(store, config, folds=3, protocol="paper", **arguments)
    with pytest.raises(ArgumentError, match=r"got 2 with 'paper'\.$"):
        CrossValidation(store, CONFIG, folds=3, protocol="paper", members=2)
