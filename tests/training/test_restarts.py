"""Restarts: of several seeds one model is kept, which is that of its seed trained alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.config import CommitteeConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.model_file import load
from graphcaps.nn import HGCN, block_loss
from graphcaps.training import multiprocess, training_inputs
from graphcaps.training.final_training import FinalTraining, train_final
from graphcaps.training.ranks import Ranks
from graphcaps.training.restarts import Restarts
from graphcaps.training.single_training import FinalResult
from tests.training.small_forests import few_trees
from tests.training.thread_ranks import run_ranks

__all__ = ["few_trees"]

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.2},
    training=TrainConfig(epochs=5, batch_size=8, learning_rate=0.01),
)
BLOCKS = CONFIG.with_model(parts="blocks")
pytestmark = pytest.mark.filterwarnings("ignore::graphcaps.nn.capsule_use.CapsuleCollapseWarning")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=24)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Replicas in this process: a pool of processes cannot be patched, and forks take longer than the training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in float64 that may keep any epoch from the second on."""
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    encode = partial(training_inputs.encode_graphs, dtype=torch.float64)
    monkeypatch.setattr(training_inputs, "encode_graphs", encode)
    stack = partial(multiprocess.stack_replicas, dtype=torch.float64)
    monkeypatch.setattr(multiprocess, "stack_replicas", stack)


def same_bits(one: FinalResult, two: FinalResult) -> bool:
    a, b = one.model.model.state_dict(), two.model.model.state_dict()  # type: ignore[union-attr]
    return all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys())


def criteria(result: FinalResult) -> list[float]:
    return [run["criterion"] for run in result.training["restarts"]["runs"]]


def whole_block_loss(result: FinalResult, graphs: GraphStore) -> float:
    """The loss of parts over graphs as one batch, with the weights of a model."""
    model = result.model.model
    assert isinstance(model, HGCN)
    batch = graphs.batch(encode_graphs(graphs, result.model.recipe, dtype=result.model.dtype).x)
    with torch.no_grad():
        assignment = model.eval().forward_batch(batch).levels[0].assignment
        return float(block_loss(assignment, batch.edges, batch.segments))


@pytest.mark.parametrize(
    ("model", "metric"),
    [("hgcn", "loss"), ("hgcn", "balanced-accuracy"), ("gin", "loss"), ("blocks", "loss")],
)
def test_the_best_seed_is_kept_as_if_it_was_trained_alone(
    model: str, metric: Any, store: GraphStore, in_float64: None
) -> None:
    config = replace(BLOCKS if model == "blocks" else CONFIG).with_training(epochs=8, learning_rate=0.05)
    if model == "gin":
        config = replace(config, model="gin", model_arguments={"hidden": 8, "num_layers": 2})
    validation = FinalTraining(store, config, seed=4, validation=0.3, device="cpu").holdout.validation
    run = partial(train_final, store, config, validation=validation, device="cpu", patience=2, metric=metric)
    result = run(seed=4, restarts=3)
    alone = [run(seed=seed) for seed in (4, 5, 6)]
    if model == "blocks":
        values = [whole_block_loss(one, store[validation]) for one in alone]
        best = int(np.argmin(values))
    else:
        events = [[event.criterion[0] for event in one.history] for one in alone]
        values = [
            float(np.mean(row[one.epoch - 2 : one.epoch])) for row, one in zip(events, alone, strict=True)
        ]
        best = int(np.argmin(values))
        values = values if metric == "loss" else [1 - value for value in values]
    record = result.training["restarts"]
    assert (record["count"], record["kept_seed"]) == (3, 4 + best)
    assert [run["seed"] for run in record["runs"]] == [4, 5, 6]
    assert [run["epoch"] for run in record["runs"]] == [one.epoch for one in alone]
    assert criteria(result) == pytest.approx(values)
    kept = alone[best]
    state, expected = result.model.model.state_dict(), kept.model.model.state_dict()  # type: ignore[union-attr]
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-9)
    # All that follows the training is that of the kept model too.
    assert not result.model.is_committee
    assert len(result.model.members) == 1
    assert result.model.calibration is not None
    assert kept.model.calibration is not None
    assert result.model.calibration.temperature == pytest.approx(kept.model.calibration.temperature, rel=1e-4)
    untold = ("seconds", "run", "seed", "restarts")
    ours, theirs = (
        {name: value for name, value in one.training.items() if name not in untold} for one in (result, kept)
    )
    assert ours.keys() == theirs.keys()
    for name in ("epoch", "epochs_run", "rule", "capsule_use", "train_accuracy", "validation_accuracy"):
        assert ours.get(name) == theirs.get(name), name
    assert len(result.history) == len(kept.history)
    for ours_of, theirs_of in zip(result.history, kept.history, strict=True):
        assert ours_of.validation_loss == pytest.approx(theirs_of.validation_loss)
        assert ours_of.train_loss == pytest.approx(theirs_of.train_loss)


def test_values_decide_in_the_direction_of_the_criterion() -> None:
    seeds, epochs = (3, 4, 5), (1, 2, 3)
    by_loss = Restarts.by_metric(seeds, epochs, (0.3, 0.1, 0.2), "loss", 100)
    assert (by_loss.kept, by_loss.rule) == (1, "lowest validation loss, mean of the last 21 epochs")
    by_metric = Restarts.by_metric(seeds, epochs, (0.3, 0.1, 0.25), "roc-auc", 5)
    assert (by_metric.kept, by_metric.values) == (1, (0.7, 0.9, 0.75))
    assert by_metric.rule == "highest validation ROC-AUC, mean of the last 5 epochs"
    by_parts = Restarts.by_block_loss(seeds, epochs, (-0.3, -0.1, -0.5))
    assert (by_parts.kept, by_parts.rule) == (2, "lowest block loss on the validation graphs")
    assert Restarts.by_block_loss(seeds, epochs, (math.nan, 0.5, 0.5)).kept == 1
    unknown = Restarts.by_block_loss(seeds, epochs, (math.nan, 0.5, math.inf)).describe()
    assert [run["criterion"] for run in unknown["runs"]] == [None, 0.5, None]


def test_parts_are_chosen_by_the_loss_of_parts_and_not_by_that_of_classes(store: GraphStore) -> None:
    training = FinalTraining(store, BLOCKS, validation=0.3, device="cpu", restarts=3)
    list(training.run())
    result = training.result()
    best = result.training["restarts"]["kept_seed"]
    losses = np.full(3, 0.5)
    losses[(best + 1) % 3] = 0.1
    training.best.criteria = losses  # another seed has the lowest validation loss
    assert training.result().training["restarts"]["kept_seed"] == best
    assert criteria(result)[best] == min(criteria(result))
    held_out = store[training.holdout.validation]
    assert criteria(result)[best] == pytest.approx(whole_block_loss(result, held_out), rel=1e-5)
    plain = FinalTraining(store, CONFIG, validation=0.3, device="cpu", restarts=3)
    list(plain.run())
    plain.best.criteria = losses
    assert plain.result().training["restarts"]["kept_seed"] == (best + 1) % 3


def test_one_restart_is_the_training_without(store: GraphStore) -> None:
    single = train_final(store, CONFIG, device="cpu")
    one = train_final(store, CONFIG, device="cpu", restarts=1)
    assert same_bits(single, one)
    untimed = {"seconds": None}
    assert one.training | untimed == single.training | untimed
    assert "restarts" not in one.training


def test_the_file_is_that_of_a_single_model(store: GraphStore, tmp_path: Path) -> None:
    result = train_final(store, CONFIG.with_training(epochs=2), device="cpu", restarts=2)
    result.model.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert "members" not in loaded.info()["model"]
    assert loaded.info()["training"]["restarts"] == result.training["restarts"]
    np.testing.assert_array_equal(loaded.predict_proba(store), result.model.predict_proba(store))


def test_resumed_restarts_have_the_same_bits(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = BLOCKS.with_training(epochs=12, learning_rate=0.05)
    make = partial(FinalTraining, store, config, validation=0.3, device="cpu", patience=2)
    whole = make(restarts=3)
    epochs = len([*whole.run()])
    expected = whole.result()
    for stop in (1, epochs - 1):
        interrupted = make(restarts=3)
        for _ in range(stop):
            next(interrupted.run())
        interrupted.save(tmp_path / "c")
        resumed = make(restarts=3)
        resumed.resume(tmp_path / "c")
        assert len([*resumed.run()]) == epochs - stop
        result = resumed.result()
        assert same_bits(result, expected)
        assert result.training["restarts"] == expected.training["restarts"]
    with pytest.raises(DataError, match=r"restarts 3 \(here none\)"):
        make(members=3).resume(tmp_path / "c")
    with pytest.raises(DataError, match=r"seed \[0, 1, 2\] \(here \[0, 1\]\)"):
        make(restarts=2).resume(tmp_path / "c")


def test_a_companion_stands_beside_the_kept_model(store: GraphStore, few_trees: None) -> None:
    config = CONFIG.with_training(epochs=2)
    result = train_final(store, config, validation=0.3, device="cpu", restarts=2, companion="wl-forest")
    assert result.model.part_names == ("hgcn", "wl-forest")
    assert result.training["restarts"]["count"] == 2
    (forest,) = result.model.companions
    assert forest.model.seed == result.training["restarts"]["kept_seed"]  # type: ignore[union-attr]


@pytest.mark.parametrize("restarts", [0, -1, 2.0, True, 1001])
def test_a_wrong_number_of_restarts_is_refused(store: GraphStore, restarts: int) -> None:
    message = r"train: 'restarts' must be a whole number from 1 to 1,000, got"
    with pytest.raises(ArgumentError, match=message):
        train_final(store, CONFIG, device="cpu", restarts=restarts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"members": 2},
            "train: 'restarts' must be 1 with a committee, which keeps all of its members, got 3 with 2 members. "
            "Set members=1 to keep one of 3 models.",
        ),
        (
            {"validation": 0},
            "train: 'restarts' must be 1 without validation graphs, which choose the model to keep, got 3. "
            "Set a validation share above 0.",
        ),
        (
            {"config": RunConfig(model="wl-forest")},
            "train: 'restarts' must be left out with the model 'wl-forest', which is fitted without epochs, got 3.",
        ),
        (
            {"config": replace(CONFIG, committee=CommitteeConfig(5))},
            "train: 'restarts' must be 1 with a committee, which keeps all of its members, got 3 with 5 members. "
            "Set members=1 to keep one of 3 models.",
        ),
    ],
)
def test_trainings_that_cannot_be_chosen_from_are_refused(
    changes: dict[str, Any], message: str, store: GraphStore
) -> None:
    options: dict[str, Any] = {"config": CONFIG, "restarts": 3} | changes
    with pytest.raises(ArgumentError) as refused:
        train_final(store, **options)
    assert str(refused.value) == message


def test_fine_tuning_has_no_restarts(store: GraphStore) -> None:
    start = train_final(store, CONFIG.with_training(epochs=1), device="cpu").model
    message = "'restarts' must be 1 for fine-tuning, where all trainings start from the same weights, got 2."
    with pytest.raises(ArgumentError, match=message):
        train_final(store, CONFIG, device="cpu", start=start, restarts=2)


def test_two_processes_keep_the_model_of_one(store: GraphStore, in_float64: None) -> None:
    config = BLOCKS.with_training(epochs=2)

    def work(ranks: Ranks | None) -> FinalResult | None:
        training = FinalTraining(store, config, validation=0.3, device="cpu", restarts=2, ranks=ranks)
        list(training.run())
        return training.result() if ranks is None or ranks.is_first else None

    alone, together = work(None), run_ranks(2, work)[0]
    assert alone is not None
    assert together is not None
    assert criteria(together) == pytest.approx(criteria(alone), rel=1e-6)
    assert together.training["restarts"]["kept_seed"] == alone.training["restarts"]["kept_seed"]
