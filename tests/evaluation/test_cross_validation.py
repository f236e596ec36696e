"""Folds and seeds trained together equal single trainings; a resumed run equals an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.quality.twins import has_twin, twin_colours
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.evaluation import (
    CrossValidation,
    EpochRecords,
    GroupEpoch,
    RecordKey,
    ResultsStore,
    cross_validate,
)
from graphcaps.evaluation.divisions import FOLDS_SEED
from graphcaps.evaluation.epoch_records import LOSS_STEP, METRIC_STEP
from graphcaps.evaluation.epoch_selection import smooth, window_for
from graphcaps.evaluation.ledger import choose_epochs
from graphcaps.metrics import class_metrics
from graphcaps.models.builder import model_factory
from graphcaps.training import Replica, Trainer, checkpoint_writer, early_stopping, stack_replicas
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.class_weights import balanced_class_weights
from graphcaps.training.training_inputs import prepare_inputs
from tests.graphs import random_graphs

TRAINING = TrainConfig(epochs=4, batch_size=8, learning_rate=0.01)
FEATURES = FeatureConfig(degree_onehot=4, propagation=1)
HGCN = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.2},
    features=FEATURES,
    training=TRAINING,
)
GIN = RunConfig(
    model="gin", model_arguments={"hidden": 8, "num_layers": 2}, features=FEATURES, training=TRAINING
)


def _store() -> GraphStore:
    """31 graphs of two classes, which differ in how dense they are."""
    sizes = torch.randint(2, 9, (31,), generator=torch.Generator().manual_seed(1)).tolist()
    return random_graphs(sizes, classes=2, seed=3).as_store()


STORE = _store()
FOLDS = stratified_folds(STORE.y, 3, FOLDS_SEED)
TWINS = np.concatenate(
    [FOLDS.paper(f).test.numpy()[has_twin(twin_colours(STORE), FOLDS.paper(f))] for f in range(3)]
)
"""Graphs that have a twin in another fold."""


def _same(one: EpochRecords, other: EpochRecords) -> None:
    """Equal counts; losses up to the rounding of float32."""
    for name in ("train_right", "validation_right", "test_right", "train_graphs", "test_graphs"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ("train_loss", "validation_loss"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=3, err_msg=name)


@pytest.mark.parametrize("config", [HGCN, GIN], ids=["hgcn", "gin"])
def test_each_fold_and_seed_equals_a_single_training(config: RunConfig) -> None:
    ledger = cross_validate(STORE, config, folds=4, seeds=2, protocol="both")
    split = stratified_folds(STORE.y, 4).held_out(2)
    x = FeatureRecipe(degree_onehot=4, propagation=1).fit(STORE).apply(STORE)
    assert split.validation is not None
    alone = Replica(split.train, split.validation, split.test, seed=1, fold=2)
    model = stack_replicas(model_factory(config, x.size(1), 2), [alone])
    events = list(Trainer(model, STORE, x, [alone], TRAINING).run())
    record = ledger.of("held-out")[1]
    assert record.key == RecordKey("test", config.model, "held-out", 1)
    _same(record.curves.folds([2]), EpochRecords.from_events(events, [alone]))


def test_results_do_not_depend_on_the_group_size() -> None:
    config = HGCN.with_training(epochs=2)
    whole = cross_validate(STORE, config, folds=4, seeds=2)
    for group in (1, 3):
        parts = cross_validate(STORE, config, folds=4, seeds=2, group=group)
        for one, other in zip(whole.records, parts.records, strict=True):
            _same(one.curves, other.curves)


def test_more_seeds_do_not_change_the_first() -> None:
    few = cross_validate(STORE, GIN, folds=3, protocol="paper")
    more = cross_validate(STORE, GIN, folds=3, protocol="paper", seeds=2)
    _same(few.records[0].curves, more.records[0].curves)
    assert [record.key.seed for record in more.records] == [0, 1]
    assert (more.records[0].curves.train_loss != more.records[1].curves.train_loss).any()


def test_ledger_of_both_protocols() -> None:
    seen: list[GroupEpoch] = []
    ledger = graphcaps.cross_validate(STORE, GIN, folds=3, protocol="both", on_event=seen.append)
    assert list(ledger.estimates) == ["held-out", "C", "C*", "optimism"]
    assert (ledger.dataset, ledger.variant, ledger.num_folds, ledger.folds_seed) == ("test", "gin", 3, 12345)
    held_out, paper = ledger.records
    assert (held_out.curves.train_graphs + held_out.curves.validation_graphs).tolist() == (
        paper.curves.train_graphs.tolist()
    )
    assert paper.curves.validation_graphs.tolist() == [0, 0, 0]
    assert paper.curves.test_graphs.sum() == len(STORE)
    assert ledger.seconds > 0
    assert {"graphcaps", "torch", "python", "numpy"} <= set(paper.versions)
    assert [(event.protocol, event.group, event.groups, event.epoch.epoch) for event in seen] == [
        *(("held-out", 1, 2, epoch) for epoch in range(1, 5)),
        *(("paper", 2, 2, epoch) for epoch in range(1, 5)),
    ]


def test_a_small_class_is_noted() -> None:
    y = torch.zeros(31, dtype=torch.long)
    y[5] = 1
    from dataclasses import replace

    ledger = cross_validate(replace(STORE, y=y), GIN.with_training(epochs=1), folds=3)
    assert ledger.notes == ("Class '1' has 1 graph for 3 folds and is missing from some.",)


class _Stop:
    """Ctrl-C after so many epochs."""

    def __init__(self, after: int) -> None:
        self.left, self.seen = after, 0

    def __call__(self, event: GroupEpoch) -> None:
        self.seen += 1
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("protocol", "group", "after"),
    [
        ("both", 3, 13),
        pytest.param("paper", None, 2, marks=pytest.mark.exhaustive),
        pytest.param("both", None, 6, marks=pytest.mark.exhaustive),
        pytest.param("paper", 2, 7, marks=pytest.mark.slow),
    ],
)
def test_resumed_equals_uninterrupted(tmp_path: Path, protocol: str, group: int | None, after: int) -> None:
    settings: dict[str, Any] = {"folds": 3, "seeds": 2, "protocol": protocol, "group": group}
    whole = cross_validate(STORE, HGCN, **settings)
    stop = _Stop(after)
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, HGCN, **settings, results=tmp_path, on_event=stop)
    assert list((tmp_path / "unfinished").iterdir())
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.record.json")}
    rest: list[GroupEpoch] = []
    ledger = cross_validate(STORE, HGCN, **settings, results=tmp_path, resume=True, on_event=rest.append)
    assert [record.curves for record in ledger.records] == [record.curves for record in whole.records]
    assert ledger.estimates == whole.estimates
    trainings = {None: 1, 2: 4, 3: 2}[group] * len(whole.protocols)
    assert stop.seen + len(rest) == 4 * trainings  # no epoch was trained twice
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert not (tmp_path / "unfinished").exists()
    assert ResultsStore(tmp_path).ledgers()[0] == ledger


def test_a_kill_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written on the way out: what was written between epochs has to do."""
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writer, "MAX_TIME_SHARE", 1e9)
    whole = cross_validate(STORE, HGCN, folds=3)
    written: list[bytes] = []

    def look(event: GroupEpoch) -> None:
        (path,) = (tmp_path / "unfinished").iterdir()
        written.append(path.read_bytes())

    cross_validate(STORE, HGCN, folds=3, results=tmp_path, on_event=look)
    assert len(written) == 4
    for done, bytes_then in enumerate(written, 1):
        fresh = tmp_path / str(done)
        (fresh / "unfinished").mkdir(parents=True)
        (fresh / "unfinished" / "test--hgcn--held-out--seed0-folds0to2.checkpoint").write_bytes(bytes_then)
        rest: list[GroupEpoch] = []
        again = cross_validate(STORE, HGCN, folds=3, results=fresh, resume=True, on_event=rest.append)
        assert len(rest) == 4 - min(done, 3)  # none is written after the last epoch
        assert again.records[0].curves == whole.records[0].curves


def test_a_checkpoint_that_cannot_be_written_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writer, "MAX_TIME_SHARE", 1e9)
    (tmp_path / "unfinished").write_text("no folder")
    ledger = cross_validate(STORE, GIN, folds=3, results=tmp_path)
    assert ResultsStore(tmp_path).records() == ledger.records
    (note,) = (note for note in ledger.notes if "checkpoint" in note)
    assert note.startswith("A checkpoint could not be written: ")


def test_a_removed_checkpoint_folder_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writer, "MAX_TIME_SHARE", 1e9)
    folder, write = tmp_path / "unfinished", checkpoint_writer.write_checkpoint
    calls: list[Path] = []
    written: list[bool] = []

    def vanish(path: Path, *rest: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            folder.rmdir()
        write(path, *rest)
        written.append(path.is_file())

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", vanish)
    ledger = cross_validate(STORE, GIN, folds=3, results=tmp_path)
    assert len(calls) == 1 + 3  # one retry, none after the last epoch
    assert written == [True] * 3
    assert not any("checkpoint" in note for note in ledger.notes)
    assert not folder.exists()  # empty at the end


# ---------------------------------------------------------------------- early stopping
LONG = {"epochs": 14, "learning_rate": 0.01}
SAGE = HGCN.with_model(trunk="sage")


@pytest.fixture
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs are compared from the second on, however few steps they have."""
    monkeypatch.setattr(early_stopping, "WINDOW", 2)
    monkeypatch.setattr(early_stopping, "MIN_STEPS", 1)


def test_patience_counts_epochs_of_ten_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All epochs are compared, nothing is progress, and an epoch has one step: two epochs of patience are twenty."""
    monkeypatch.setattr(early_stopping, "WINDOW", 1)
    monkeypatch.setattr(early_stopping, "MIN_DELTA", 10.0)
    config = GIN.with_training(epochs=40, batch_size=len(STORE))
    (record,) = cross_validate(STORE, config, folds=3, patience=2).records
    assert record.curves.fold_epochs.tolist() == [30] * 3  # they count from epoch 10 on


@pytest.mark.parametrize(
    ("config", "groups"),
    # Groups of 3 mix the folds of two seeds, and the last is smaller; those of 1 are trained alone.
    [
        pytest.param(HGCN, (1,), marks=pytest.mark.slow),
        (GIN, (3,)),
        pytest.param(SAGE, (3,), marks=pytest.mark.exhaustive),
    ],
    ids=["hgcn", "gin", "trunk"],
)
def test_a_fold_stops_alone_as_it_does_among_others(
    short_window: None, config: RunConfig, groups: tuple[int, ...]
) -> None:
    config = config.with_training(**LONG)
    whole = cross_validate(STORE, config, folds=4, seeds=2, patience=3)
    lengths = [record.curves.fold_epochs.tolist() for record in whole.records]
    assert len({length for row in lengths for length in row}) > 3, "choose a rate with different last epochs"
    for group in groups:
        parts = cross_validate(STORE, config, folds=4, seeds=2, patience=3, group=group)
        for one, other in zip(whole.records, parts.records, strict=True):
            np.testing.assert_array_equal(one.curves.fold_epochs, other.curves.fold_epochs)
            losses = (one.curves.validation_loss, other.curves.validation_loss)
            np.testing.assert_allclose(*losses, rtol=5e-3)  # rounding of float32 over 14 epochs
    unlimited = cross_validate(STORE, config, folds=4, seeds=2)
    for record, full in zip(whole.records, unlimited.records, strict=True):
        assert record.curves.num_epochs == record.curves.fold_epochs.max()
        for fold, length in enumerate(record.curves.fold_epochs):  # the epochs before the stop are unchanged
            loss = full.curves.validation_loss[fold, :length]
            np.testing.assert_array_equal(record.curves.validation_loss[fold, :length], loss)
            assert (record.curves.validation_loss[fold, length:] == loss[-1]).all()


def test_no_epoch_after_the_stop_is_selected(short_window: None) -> None:
    ledger = cross_validate(STORE, HGCN.with_training(**LONG), folds=4, patience=3)
    (record,) = ledger.records
    for row in ledger.per_seed():
        lengths = (
            record.curves.fold_epochs if row["figure"] == "held-out" else record.curves.fold_epochs.min()
        )
        assert (np.array(row["epochs"]) <= lengths).all()
    assert ledger.patience == record.patience == 3
    assert ledger.summary()["patience"] == 3
    assert "patience" not in cross_validate(STORE, GIN.with_training(epochs=1), folds=3).summary()


@pytest.mark.parametrize(
    ("config", "group", "after"),
    [
        (HGCN, 2, 12),
        pytest.param(SAGE, None, 9, marks=pytest.mark.slow),
        pytest.param(HGCN, None, 3, marks=pytest.mark.exhaustive),
        pytest.param(HGCN, None, 9, marks=pytest.mark.exhaustive),
        pytest.param(HGCN, 1, 20, marks=pytest.mark.exhaustive),
        pytest.param(SAGE, 2, 12, marks=pytest.mark.exhaustive),
    ],
)
def test_resumed_equals_uninterrupted_with_patience(
    short_window: None, tmp_path: Path, config: RunConfig, group: int | None, after: int
) -> None:
    settings: dict[str, Any] = {"folds": 3, "group": group, "patience": 3}
    config = config.with_training(**LONG, average_epochs=2)
    epochs: list[GroupEpoch] = []
    whole = cross_validate(STORE, config, **settings, on_event=epochs.append)
    stop = _Stop(after)
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, config, **settings, results=tmp_path, on_event=stop)
    rest: list[GroupEpoch] = []
    ledger = cross_validate(STORE, config, **settings, results=tmp_path, resume=True, on_event=rest.append)
    assert [record.curves for record in ledger.records] == [record.curves for record in whole.records]
    assert ledger.estimates == whole.estimates
    assert stop.seen + len(rest) == len(epochs)  # no epoch was trained twice
    assert ResultsStore(tmp_path).ledgers()[0] == ledger


def test_patience_is_a_setting_of_the_run(short_window: None, tmp_path: Path) -> None:
    short = GIN.with_training(epochs=4)
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, short, folds=3, patience=2, results=tmp_path, on_event=_Stop(1))
    with pytest.raises(DataError, match=r"one of another run: patience 2 \(here none\)"):
        cross_validate(STORE, short, folds=3, results=tmp_path, resume=True)
    cross_validate(STORE, short, folds=3, patience=2, results=tmp_path, resume=True)
    with pytest.raises(DataError, match=r"two that differ \(patience 2 and 5\)"):
        cross_validate(STORE, short, folds=3, patience=5, results=tmp_path, resume=True)
    with pytest.raises(DataError, match=r"two that differ \(patience 2 and None\)"):
        cross_validate(STORE, short, folds=3, results=tmp_path, resume=True)


def test_finished_records_are_kept_or_refused(tmp_path: Path) -> None:
    short = GIN.with_training(epochs=1)
    cross_validate(STORE, short, folds=3, results=tmp_path)
    with pytest.raises(DataError, match="expected no record yet, found one of test, gin, held-out, seed 0"):
        cross_validate(STORE, short, folds=3, results=tmp_path)
    with pytest.raises(DataError, match=r"two that differ \(training\.epochs 1 and 4\)"):
        cross_validate(STORE, GIN, folds=3, results=tmp_path, resume=True)
    with pytest.raises(DataError, match=r"two that differ \(folds 3 and 4\)"):
        cross_validate(STORE, short, folds=4, results=tmp_path, resume=True)
    assert cross_validate(STORE, GIN, folds=3, results=tmp_path, variant="longer").variant == "longer"
    seen: list[GroupEpoch] = []
    more = cross_validate(STORE, short, folds=3, seeds=2, results=tmp_path, resume=True, on_event=seen.append)
    assert len(seen) == 1
    assert [record.key.seed for record in more.records] == [0, 1]


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, GIN, folds=3, results=tmp_path, on_event=_Stop(1))
    other = GIN.with_training(learning_rate=0.5)
    with pytest.raises(DataError, match=r"one of another run: training\.learning_rate 0\.01 \(here 0\.5\)"):
        cross_validate(STORE, other, folds=3, results=tmp_path, resume=True)


def test_out_of_memory_names_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Trainer) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Trainer, "run_epoch", full)
    message = r"lower the batch size .* Or set a smaller group: 3 trainings run together\."
    with pytest.raises(GraphcapsError, match=message):
        cross_validate(STORE, GIN, folds=3)


def test_invalid_arguments_are_refused_before_training() -> None:
    from dataclasses import replace

    def refuse(match: str, store: GraphStore = STORE, config: RunConfig = GIN, **settings: Any) -> None:
        with pytest.raises(ArgumentError, match=match) as raised:
            CrossValidation(store, config, **settings)
        assert str(raised.value).startswith(
            ("cross_validate: ", "model 'gin': ", "config: ", "Folds", "train")
        )

    refuse("'store' must have a class for every graph, got 'test' without", replace(STORE, y=None))
    alone = torch.zeros(31, dtype=torch.long)
    refuse("hold at least two classes, got only class '0' in 'test'", replace(STORE, y=alone))
    refuse("hold at least 32 graphs for as many folds, got 31 in 'test'", folds=32)
    refuse("'folds' must be an integer of at least 2, got 1", folds=1, protocol="paper")
    refuse("'folds' must be at least 3: one fold for testing and one for validation, got 2", folds=2)
    CrossValidation(STORE, GIN, folds=2, protocol="paper")
    refuse("'seeds' must be a whole number from 1 on, got 0", seeds=0)
    refuse("'seeds' must be a whole number from 1 on, got True", seeds=True)
    refuse("'group' must be a whole number from 1 on, got -1", group=-1)
    refuse("'protocol' must be one of held-out, paper, both, got 'mine'", protocol="mine")
    refuse("'device' must be cpu, cuda or auto, got 'tpu'", device="tpu")
    refuse("'resume' must come with a folder of results", resume=True)
    refuse("'patience' must be a whole number from 1 on, got 0", patience=0)
    message = (
        "'patience' must be left out unless the protocol is held-out: 'paper' has no validation set, got 5"
    )
    refuse(message, patience=5, protocol="paper")
    refuse(message, patience=5, protocol="both")
    majority = RunConfig(model="majority")
    text = "'patience' must be left out with the model 'majority', which is fitted without epochs, got 5"
    refuse(text, config=majority, patience=5)
    refuse("'hiden' must be one of", config=replace(GIN, model_arguments={"hiden": 3}))
    refuse("'model' must name a model", config=replace(GIN, model="gni"))


def test_a_record_of_other_graphs_is_refused(tmp_path: Path) -> None:
    """The same name, sizes and classes, but other attributes: another data set."""
    store = replace(planted_parts(num_graphs=12), node_attributes=None)
    other = replace(store, node_attributes=torch.ones(store.num_nodes, 1))
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (3,)}, training=TrainConfig(epochs=1)
    )
    cross_validate(store, config, folds=3, results=tmp_path)
    with pytest.raises(GraphcapsError, match="sha256"):
        cross_validate(other, config, folds=3, results=tmp_path, resume=True)


def test_an_interrupted_run_is_not_overwritten_without_resume(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=12)
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (3,)}, training=TrainConfig(epochs=3)
    )

    def stop(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cross_validate(store, config, folds=3, results=tmp_path, on_event=stop)
    with pytest.raises(DataError, match=r"this is the checkpoint of an interrupted run\. Add --resume"):
        cross_validate(store, config, folds=3, results=tmp_path)
    assert cross_validate(store, config, folds=3, results=tmp_path, resume=True).held_out is not None


# ---------------------------------------------------------------------- metrics and predictions
@pytest.mark.parametrize(
    ("config", "group"),
    [
        (GIN, 2),
        pytest.param(HGCN, None, marks=pytest.mark.slow),
        pytest.param(GIN, None, marks=pytest.mark.exhaustive),
        pytest.param(HGCN, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_metrics_are_those_of_the_predictions_at_the_held_out_epoch(
    config: RunConfig, group: int | None
) -> None:
    """Every graph is a test graph of one fold and a validation graph of another, in every seed."""
    settings: dict[str, Any] = {"folds": 3, "seeds": 2, "group": group}
    ledger = cross_validate(STORE, config, **settings, predictions=True)
    assert STORE.y is not None
    y = STORE.y.numpy()
    for record in ledger.records:
        found, choice = record.predictions, choose_epochs(record)["held-out"]
        assert found is not None
        assert record.metrics is not None
        for part in (0, 1):
            assert sorted(found.graph[found.part == part].tolist()) == list(range(31))
        np.testing.assert_array_equal(found.y, y[found.graph])
        np.testing.assert_allclose(found.probabilities.sum(1), 1)
        for fold in range(3):
            rows = (found.fold == fold) & (found.part == 1)
            expected = class_metrics(found.y[rows], found.probabilities[rows])
            assert expected["accuracy"] == pytest.approx(choice.accuracies[fold])
            for name, values in record.metrics.values.items():
                assert values[fold] == expected[name]
            validation = (found.fold == fold) & (found.part == 0)
            right = (found.probabilities[validation].argmax(1) == found.y[validation]).sum()
            assert right == record.curves.validation_right[fold, choice.epochs[fold] - 1]
            free = rows & np.isin(found.graph, np.setdiff1d(found.graph, TWINS))
            correct = int((found.probabilities[free].argmax(1) == found.y[free]).sum())
            assert record.metrics.twin_free is not None
            assert record.metrics.twin_free[fold] == (correct, int(free.sum()))
        assert record.peak_memory is None or record.peak_memory > 10**7
    estimate = ledger.metrics["roc_auc"]
    assert estimate is not None
    assert estimate.mean == pytest.approx(np.mean(estimate.per_seed))
    assert estimate.std_seeds is not None
    plain = cross_validate(STORE, config, **settings)
    assert [record.curves for record in plain.records] == [record.curves for record in ledger.records]
    assert plain.metrics == ledger.metrics
    assert all(record.predictions is None for record in plain.records)


def test_the_metric_selects_the_epoch_and_is_recorded(tmp_path: Path) -> None:
    config = HGCN.with_training(epochs=12)
    by_loss = cross_validate(STORE, config, folds=3)
    ledger = cross_validate(STORE, config, folds=3, metric="roc-auc", predictions=True, results=tmp_path)
    (record,), (plain,) = ledger.records, by_loss.records
    np.testing.assert_array_equal(record.curves.test_right, plain.curves.test_right)  # the same training
    metric = record.curves.validation_metric
    assert metric is not None
    assert plain.curves.validation_metric is None
    half = window_for(12) // 2
    smoothed = smooth(1 - metric * METRIC_STEP, window_for(12))[:, half:]
    assert choose_epochs(record)["held-out"].epochs.tolist() == (1 + half + smoothed.argmin(1)).tolist()
    found = record.predictions
    assert found is not None
    for fold, epoch in enumerate(choose_epochs(record)["held-out"].epochs.tolist()):
        rows = (found.fold == fold) & (found.part == 0)
        auc = class_metrics(found.y[rows], found.probabilities[rows])["roc_auc"]
        assert metric[fold, epoch - 1] * METRIC_STEP == pytest.approx(auc, abs=1e-6)
    assert ResultsStore(tmp_path).records() == (record,)
    assert ledger.summary()["metric"] == "roc-auc"
    assert "highest validation ROC-AUC" in ledger.rule("held-out")
    assert "lowest validation loss" in by_loss.rule("held-out")
    with pytest.raises(DataError, match="metric roc-auc and None"):
        cross_validate(STORE, config, folds=3, results=tmp_path, resume=True)


def test_class_weights_are_those_of_each_folds_training_graphs() -> None:
    """A fold of three, trained among others, equals a training of its own with the weights of its training graphs."""
    assert STORE.y is not None
    uneven = STORE[torch.cat([(STORE.y == 0).nonzero()[:6, 0], (STORE.y == 1).nonzero()[:, 0]])]
    assert uneven.y is not None
    ledger = cross_validate(uneven, HGCN, folds=3, class_weight="balanced")
    (record,), (plain,) = ledger.records, cross_validate(uneven, HGCN, folds=3).records
    assert (record.class_weight, ledger.summary()["class_weight"]) == ("balanced", "balanced")
    assert (record.curves.train_loss != plain.curves.train_loss).any()
    folds = stratified_folds(uneven.y, 3, FOLDS_SEED)
    inputs = prepare_inputs(uneven, resolve_config(HGCN, uneven), torch.device("cpu"), owner="test")
    for fold in range(3):
        split = folds.held_out(fold)
        assert split.validation is not None
        replica = Replica(split.train, split.validation, split.test, fold=fold)
        weight = balanced_class_weights(uneven.y[split.train], 2)
        trainer = Trainer(
            stack_replicas(inputs.factory, [replica]), inputs.store, inputs.x, [replica], HGCN.training,
            class_weight=weight,
        )  # fmt: skip
        losses = [event.train_loss[0] for event in trainer.run()]
        np.testing.assert_allclose(record.curves.train_loss[fold] * LOSS_STEP, losses, atol=3 * LOSS_STEP)


@pytest.mark.parametrize("after", [pytest.param(2, marks=pytest.mark.exhaustive), 7])
def test_a_resumed_run_has_the_same_predictions(tmp_path: Path, after: int) -> None:
    settings: dict[str, Any] = {"folds": 3, "seeds": 2, "group": 3, "predictions": True, "metric": "mcc"}
    whole = cross_validate(STORE, HGCN, **settings)
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, HGCN, **settings, results=tmp_path, on_event=_Stop(after))
    ledger = cross_validate(STORE, HGCN, **settings, results=tmp_path, resume=True)
    assert [record.predictions for record in ledger.records] == [
        record.predictions for record in whole.records
    ]
    assert ledger.metrics == whole.metrics


def test_a_finished_record_without_predictions_is_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    cross_validate(STORE, HGCN, folds=3, results=tmp_path)
    with pytest.raises(DataError, match="a record with predictions, found none in it"):
        cross_validate(STORE, HGCN, folds=3, results=tmp_path, resume=True, predictions=True)


def test_records_of_the_paper_protocol_have_no_metrics() -> None:
    ledger = cross_validate(STORE, HGCN, folds=3, protocol="paper")
    assert ledger.records[0].metrics is None
    assert ledger.metrics == {}
    assert ledger.cautions == ()
    for name, value in (("metric", "mcc"), ("predictions", True)):
        with pytest.raises(ArgumentError, match=f"'{name}' must be left out unless the protocol is held-out"):
            cross_validate(STORE, HGCN, folds=3, protocol="both", **{name: value})
    with pytest.raises(ArgumentError, match="'class_weight' must be 'balanced', or be left out"):
        cross_validate(STORE, HGCN, folds=3, class_weight="even")  # type: ignore[arg-type]
