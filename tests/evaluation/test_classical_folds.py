"""Cross-validation of classical models: the folds, records and rules of all models, without epochs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

import graphcaps
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split, stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.evaluation import CrossValidation, GroupEpoch, ResultsStore, cross_validate
from graphcaps.evaluation.divisions import FOLDS_SEED
from graphcaps.evaluation.ledger import Ledger
from graphcaps.metrics import class_metrics
from graphcaps.models import ValidationGraphs
from graphcaps.models.colour_counts import count_colours
from graphcaps.models.wl import WL
from graphcaps.models.wl_forest import WLForest

FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 15})
MAJORITY = RunConfig(model="majority")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=60)


@pytest.mark.parametrize("protocol", ["held-out", "paper"])
def test_accuracies_are_those_of_scikit_learn_on_the_same_folds(store, protocol):
    ledger = cross_validate(store, FOREST, folds=5, seeds=2, protocol=protocol)
    folds, y = stratified_folds(store.y, 5, FOLDS_SEED), store.y.numpy()
    colours = count_colours(store, 2)
    for record in ledger.records:
        right = []
        for fold in range(5):
            split = folds.held_out(fold) if protocol == "held-out" else folds.paper(fold)
            train, test = split.train.numpy(), split.test.numpy()
            vocabulary = colours.frequent(train, 3, 4000)
            forest = RandomForestClassifier(15, random_state=record.key.seed)
            forest.fit(colours.select(train, vocabulary), y[train])
            right.append([(forest.predict(colours.select(test, vocabulary)) == y[test]).sum()])
        assert record.curves.test_right.tolist() == right
        assert record.curves.num_epochs == 1


def test_the_validation_fold_is_measured_and_not_fitted(store):
    ledger = cross_validate(store, FOREST, folds=5)
    (record,) = ledger.records
    assert record.curves.validation_graphs.tolist() == [12] * 5
    assert record.curves.train_graphs.tolist() == [36] * 5
    assert (record.curves.validation_loss > 0).all()
    folds = stratified_folds(store.y, 5, FOLDS_SEED)
    validation = folds.held_out(0).validation
    assert validation is not None
    flipped = store.y.clone()
    flipped[validation] = (flipped[validation] + 1) % 3
    model = WLForest(3, trees=15)
    train, test = folds.held_out(0).train.numpy(), folds.held_out(0).test.numpy()
    model.fit(replace(store, y=flipped), train, flipped.numpy()[train])
    right = (model.predict_proba(store, test).argmax(1) == store.y.numpy()[test]).sum()
    assert record.curves.test_right[0, 0] == right


def test_the_record_says_what_does_not_apply(store):
    config = replace(FOREST, features=FeatureConfig(propagation=2), training=TrainConfig(epochs=7))
    ledger = cross_validate(store, config, folds=3)
    assert ledger.records[0].config.training == TrainConfig(epochs=1)
    assert ledger.records[0].config.features == WLForest.features()
    (note,) = ledger.notes
    assert "Fitted once per fold, to its training graphs: wl-forest. " in note
    assert "validation fold is not used" in note
    assert ledger.hardware


def test_nothing_is_selected_and_c_is_no_upper_bound(store):
    ledger = cross_validate(store, FOREST, folds=3, protocol="both")
    assert not ledger.selects_epochs
    assert ledger.C is not None
    assert ledger.C_star is not None
    assert ledger.C.mean == ledger.C_star.mean
    assert ledger.optimism is not None
    assert ledger.optimism.mean == 0
    for name, figure in ledger.summary()["figures"].items():
        assert not figure["upper_bound"]
        assert not ledger.is_upper_bound(name)
        assert "chosen" in figure["rule"] or name == "C*"
    assert Ledger.from_json(ledger.to_json()).records == ledger.records


def test_majority_reaches_the_share_of_the_largest_class(store):
    y = torch.tensor([0] * 30 + [1] * 18 + [2] * 12)
    ledger = cross_validate(replace(store, y=y), MAJORITY, folds=6)
    assert ledger.held_out is not None
    assert ledger.held_out.mean == pytest.approx(50)


def test_events_count_the_fits(store):
    events: list[GroupEpoch] = []
    cross_validate(store, MAJORITY, folds=4, seeds=2, protocol="both", on_event=events.append)
    assert [event.group for event in events] == list(range(1, 17))
    assert {(event.groups, event.replicas, event.epoch.epoch) for event in events} == {(16, 1, 1)}
    assert [event.protocol for event in events] == ["held-out"] * 8 + ["paper"] * 8


def test_finished_records_are_kept(store, tmp_path: Path):
    first = cross_validate(store, FOREST, folds=3, results=tmp_path)
    with pytest.raises(DataError, match="no record yet"):
        cross_validate(store, FOREST, folds=3, results=tmp_path)
    events: list[GroupEpoch] = []
    both = cross_validate(
        store, FOREST, folds=3, seeds=2, results=tmp_path, resume=True, on_event=events.append
    )
    assert len(events) == 3
    assert both.records[0] == first.records[0]
    assert (
        cross_validate(store, FOREST, folds=3, seeds=2, results=tmp_path, resume=True).records == both.records
    )
    other = replace(FOREST, model_arguments={"trees": 16})
    with pytest.raises(DataError, match=r"model\.trees"):
        cross_validate(store, other, folds=3, results=tmp_path, resume=True)
    (ledger,) = ResultsStore(tmp_path).ledgers()
    assert ledger.records == both.records


def test_an_interrupted_seed_starts_again_and_ends_alike(store, tmp_path: Path):
    def stop(event: GroupEpoch) -> None:
        if event.group == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cross_validate(store, FOREST, folds=3, seeds=3, results=tmp_path, on_event=stop)
    assert len(list(tmp_path.glob("*.record.json"))) == 1
    resumed = cross_validate(store, FOREST, folds=3, seeds=3, results=tmp_path, resume=True)
    whole = cross_validate(store, FOREST, folds=3, seeds=3)
    assert [record.curves for record in resumed.records] == [record.curves for record in whole.records]


def test_groups_and_a_fixed_split_work(store):
    ledger = cross_validate(store, MAJORITY, folds=3, groups=[graph // 3 for graph in range(60)])
    assert ledger.partition is not None
    split = Split(torch.arange(40), torch.arange(40, 50), torch.arange(50, 60), name="made")
    fixed = cross_validate(store, FOREST, split=split)
    assert fixed.num_folds == 1
    model = WLForest(3, trees=15)
    model.fit(store, np.arange(40), store.y.numpy()[:40])
    expected = (model.predict_proba(store, np.arange(50, 60)).argmax(1) == store.y.numpy()[50:]).mean()
    assert fixed.held_out is not None
    assert fixed.held_out.mean == pytest.approx(100 * expected)


def test_bad_arguments_are_refused_before_the_first_fit(store):
    with pytest.raises(UsageError, match="The model 'wl-forest' runs on the CPU"):
        CrossValidation(store, FOREST, device="cuda")
    with pytest.raises(ArgumentError, match="'depth' must be one of iterations"):
        CrossValidation(store, RunConfig(model="wl-forest", model_arguments={"depth": 1}))
    with pytest.raises(ArgumentError, match="Did you mean wl-forest"):
        CrossValidation(store, RunConfig(model="wl-forrest"))


def test_a_network_of_one_epoch_has_nothing_to_select_either(store):
    config = RunConfig(
        model="gin",
        model_arguments={"hidden": 4},
        features=FeatureConfig(degree_onehot=2, propagation=0),
        training=TrainConfig(epochs=1),
    )
    ledger = graphcaps.cross_validate(store, config, folds=3)
    assert not ledger.selects_epochs
    assert ledger.rule("held-out").endswith("nothing is chosen")


def test_metrics_and_predictions_of_a_classical_model(store):
    ledger = cross_validate(store, FOREST, folds=5, predictions=True)
    (record,) = ledger.records
    found = record.predictions
    assert found is not None
    for fold in range(5):
        rows = (found.fold == fold) & (found.part == 1)
        expected = class_metrics(found.y[rows], found.probabilities[rows])
        assert record.metrics is not None
        assert expected["accuracy"] == record.curves.test_accuracy[fold, 0]
        assert {name: values[fold] for name, values in record.metrics.values.items()} == {
            name: expected[name] for name in record.metrics.values
        }
    for name, value in (("metric", "mcc"), ("class_weight", "balanced")):
        with pytest.raises(ArgumentError, match=f"'{name}' must be left out with the model 'wl-forest'"):
            cross_validate(store, FOREST, folds=5, **{name: value})


@pytest.mark.parametrize("protocol", ["held-out", "paper"])
def test_a_kernel_selects_on_the_validation_fold(store, protocol):
    config = RunConfig(model="wl", model_arguments={"iterations": (1, 3), "C": (0.1, 10.0)})
    ledger = cross_validate(store, config, folds=3, protocol=protocol)
    (record,) = ledger.records
    folds, y = stratified_folds(store.y, 3, FOLDS_SEED), store.y.numpy()
    for fold in range(3):
        split = folds.held_out(fold) if protocol == "held-out" else folds.paper(fold)
        train, test = split.train.numpy(), split.test.numpy()
        judges = None if split.validation is None else split.validation.numpy()
        model = WL(3, iterations=(1, 3), C=(0.1, 10.0))
        validation = None if judges is None else ValidationGraphs(judges, y[judges])
        model.fit(store, train, y[train], validation=validation)
        right = (model.predict_proba(store, test).argmax(1) == y[test]).sum()
        assert record.curves.test_right[fold, 0] == right
        p = model.predict_proba(store, train)[np.arange(len(train)), y[train]]
        assert record.curves.train_loss[fold, 0] == round(-1e5 * np.log(p).mean())
    (note,) = ledger.notes
    where = "the validation graphs" if protocol == "held-out" else "a tenth of the training graphs"
    assert f"There are no epochs, iterations and C are selected on {where}, and settings" in note


def test_the_note_lists_all_selected_options(store):
    config = RunConfig(model="dgk", model_arguments={"iterations": (1,), "C": (1.0,)})
    (note,) = cross_validate(store, config, folds=3).notes
    assert (
        "There are no epochs, iterations, dimension and C are selected on the validation graphs, and" in note
    )
