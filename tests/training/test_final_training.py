"""FinalTraining: validation split, early stopping, reproducibility, resuming and failures."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn import margin_loss
from graphcaps.training import checkpoint_writer
from graphcaps.training.calibration import calibrate
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import trailing_criterion
from graphcaps.training.final_training import FinalTraining, train_final
from graphcaps.training.holdout import validation_split
from graphcaps.training.memory import OutOfMemoryError, explain_out_of_memory, is_out_of_memory
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import replica_model
from graphcaps.training.single_training import FinalResult
from graphcaps.training.trainer import TrainingError

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.2},
    training=TrainConfig(epochs=4, batch_size=8, learning_rate=0.01),
)


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


def weights(result: FinalResult) -> dict[str, Tensor]:
    return result.model.model.state_dict()


def same_weights(one: FinalResult, two: FinalResult) -> bool:
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---------------------------------------------------------------------- validation split
def test_the_validation_set_is_stratified() -> None:
    y = torch.tensor([0] * 50 + [1] * 24 + [2] * 3)
    split = validation_split(y, 0.1, seed=3)
    assert split.validation is not None
    assert torch.bincount(y[split.validation]).tolist() == [5, 2, 1]  # at least one graph
    assert torch.equal(torch.cat([split.train, split.validation]).sort().values, torch.arange(77))
    assert torch.equal(validation_split(y, 0.1, seed=3).train, split.train)
    assert not torch.equal(validation_split(y, 0.1, seed=4).train, split.train)
    assert torch.bincount(y[validation_split(y, 0.99, seed=0).train]).tolist() == [
        1,
        1,
        1,
    ]  # one graph is left
    assert validation_split(y, 0, seed=0).train.numel() == 77


def test_a_class_that_cannot_be_split_is_refused() -> None:
    y = torch.tensor([0, 0, 0, 1])
    with pytest.raises(ArgumentError, match=r"got 1 graph of class 1 in all. Add graphs of that class, or"):
        validation_split(y, 0.1, seed=0)
    assert validation_split(y, 0, seed=0).train.numel() == 4
    for share in (-0.1, 1, math.nan):
        with pytest.raises(ArgumentError, match="'validation' must be at least 0 and below 1, got"):
            validation_split(y, share, seed=0)


def test_unlabelled_graphs_and_a_single_class_are_refused(store: GraphStore) -> None:
    with pytest.raises(UsageError, match=r"'planted.*' has no class labels; add graph labels"):
        FinalTraining(replace(store, y=None), CONFIG)
    with pytest.raises(ArgumentError, match="graphs of at least two classes, got only class 'ring-star'"):
        FinalTraining(store[store.y == 0], CONFIG)
    with pytest.raises(ArgumentError, match="'seed' must be a whole number"):
        FinalTraining(store, CONFIG, seed=-1)


# ---------------------------------------------------------------------- choice of the epoch
def test_the_kept_weights_are_those_of_the_best_epoch(
    store: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    long = FinalTraining(store, CONFIG.with_training(epochs=8, learning_rate=0.5), device="cpu")
    history = [*long.run()]
    result = long.result()
    assert result.epoch == min(range(2, 9), key=lambda e: trailing_criterion(history[:e], 2).item())
    assert result.epoch < 8, "choose a learning rate for which the last epoch is not the best"
    short = FinalTraining(store, CONFIG.with_training(epochs=result.epoch, learning_rate=0.5), device="cpu")
    assert [event.validation_loss for event in short.run()] == [e.validation_loss for e in history][
        : result.epoch
    ]
    assert same_weights(short.result(), result)
    last = long.trainer.weights()["primary.weight"][0]
    assert not torch.equal(last, weights(result)["primary.weight"])


def test_without_a_validation_set_the_last_epoch_is_kept(store: GraphStore) -> None:
    result = train_final(store, CONFIG, validation=0, device="cpu")
    assert (result.epoch, result.training["rule"], result.training["train_graphs"]) == (
        4,
        "the last epoch",
        30,
    )
    assert result.training["validation_accuracy"] is None
    assert result.history[0].validation_loss == []


# ---------------------------------------------------------------------- the result
def test_a_saved_model_predicts_the_same_and_keeps_its_training_record(
    store: GraphStore, tmp_path: Path
) -> None:
    seen: list[EpochEnd] = []
    result = train_final(store, CONFIG, seed=2, device="cpu", on_epoch=seen.append)
    assert tuple(seen) == result.history
    result.model.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    assert isinstance(loaded, FittedModel)
    assert torch.equal(loaded.scores(store), result.model.scores(store))
    training = loaded.training
    assert (training["seed"], training["epochs"], training["epoch"], training["dataset"]) == (
        2,
        4,
        4,
        store.name,
    )
    assert (training["graphs"], training["train_graphs"], training["validation_graphs"]) == (30, 27, 3)
    accuracy = result.history[3].validation_accuracy[0]
    assert training["validation_accuracy"] == accuracy
    split = validation_split(store.y, 0.1, 2)
    correct = loaded.predict(store) == [store.class_names[c] for c in store.y]
    assert correct[split.validation.numpy()].mean() == accuracy


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_the_same_seed_gives_identical_weights(store: GraphStore, model: str) -> None:
    config = CONFIG if model == "hgcn" else replace(CONFIG, model="gin", model_arguments={"hidden": 8})
    one = train_final(store, config, device="cpu")
    torch.rand(7)  # torch's global generator has no influence
    assert same_weights(train_final(store, config, device="cpu"), one)
    assert not same_weights(train_final(store, config, seed=1, device="cpu"), one)


def test_planted_parts_are_learned() -> None:
    config = CONFIG.with_training(epochs=12)
    config = replace(config, model_arguments={"capsule_dim": 16, "num_capsules": (6,)})
    result = train_final(planted_parts(num_graphs=60), config, device="cpu")
    assert result.training["train_accuracy"] > 0.6  # a third at random


def test_the_training_accuracy_is_that_of_the_kept_model(store: GraphStore) -> None:
    """Without dropout, and with the kept weights: what ``predict`` gives for the same graphs."""
    config = replace(CONFIG, model_arguments=CONFIG.model_arguments | {"dropout": 0.3})
    training = FinalTraining(store, config, seed=5, device="cpu")
    events = list(training.run())
    result = training.result()
    graphs = store[training.holdout.train]
    assert graphs.y is not None
    names = np.array(store.class_names)[graphs.y.numpy()]
    accuracy = float((result.model.predict(graphs) == names).mean())
    assert result.training["train_accuracy"] == accuracy
    assert events[result.epoch - 1].train_accuracy[0] != accuracy


# ---------------------------------------------------------------------- interrupting and resuming
@pytest.mark.parametrize(
    ("trunk", "rate", "stop"),
    [(None, 0.2, 0), (None, 0.2, 6), (None, 0.2, 8), ("sage", 0.05, 1)],
)
def test_resumed_training_equals_an_uninterrupted_one(
    store: GraphStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
    trunk: str | None,
    rate: float,
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = CONFIG.with_training(epochs=8, learning_rate=rate).with_model(trunk=trunk)
    uninterrupted = train_final(store[:12], config, device="cpu")
    interrupted = FinalTraining(store[:12], config, device="cpu")
    for _ in range(stop):
        next(interrupted.run())
    interrupted.save(tmp_path / "c")
    resumed = FinalTraining(store[:12], config, device="cpu")
    resumed.resume(tmp_path / "c")
    assert resumed.epoch == stop
    assert len([*resumed.run()]) == 8 - stop
    result = resumed.result()
    assert result.epoch == uninterrupted.epoch < 6, (
        "choose a learning rate for which an epoch before some of the stops is kept"
    )
    assert same_weights(result, uninterrupted)
    assert [e.train_loss for e in result.history] == [e.train_loss for e in uninterrupted.history]


@pytest.mark.parametrize(("validation", "average_epochs"), [(0, 3), (0.1, 1)])
def test_an_interrupted_epoch_is_not_saved(
    average_epochs: int,
    validation: float,
    store: GraphStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = CONFIG.with_training(average_epochs=average_epochs)
    uninterrupted = train_final(store, config, validation=validation, device="cpu")
    training = FinalTraining(store, config, validation=validation, device="cpu")
    next(training.run(tmp_path / "c"))
    steps = iter(range(100))
    step = training.trainer.adam.step

    def step_then_interrupt(**arguments: Any) -> None:
        step(**arguments)
        if next(steps) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.trainer.adam, "step", step_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(training.run(tmp_path / "c"))
    assert training.save(tmp_path / "c") == 1
    with pytest.raises(TrainingError, match="The last epoch was interrupted; resume from a checkpoint"):
        training.result()
    resumed = FinalTraining(store, config, validation=validation, device="cpu")
    resumed.resume(tmp_path / "c")
    assert [event.epoch for event in resumed.run()] == [2, 3, 4]
    assert same_weights(resumed.result(), uninterrupted)


def test_an_interrupted_first_epoch_leaves_no_checkpoint(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    training = FinalTraining(store, CONFIG, device="cpu")
    monkeypatch.setattr(training.trainer.adam, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(training.run(tmp_path / "c"))
    assert training.save(tmp_path / "c") == 0
    assert not (tmp_path / "c").exists()
    unsaved = FinalTraining(store, CONFIG, device="cpu")
    monkeypatch.setattr(unsaved.trainer.adam, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(unsaved.run())
    with pytest.raises(TrainingError, match=r"An epoch was interrupted; name a checkpoint file in run\(\)"):
        unsaved.save(tmp_path / "c")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_state_is_copied_only_for_checkpoints(
    checkpoint: bool, store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.training.checkpoint_writer.COPY_SECONDS", 600.0)  # on a busy machine too
    training = FinalTraining(store, CONFIG, device="cpu")
    states: list[int] = []
    state = training.trainer.state
    monkeypatch.setattr(training.trainer, "state", lambda: states.append(training.epoch) or state())
    for _ in training.run(tmp_path / "c" if checkpoint else None):
        pass
    training.result()
    assert states == ([1] if checkpoint else [])  # the copy that an interrupted epoch falls back to


@pytest.mark.parametrize(("stop", "average_epochs"), [(1, 1), (3, 3), (5, 1)])
def test_a_resumed_training_stops_at_the_same_epoch(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, average_epochs: int
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = CONFIG.with_training(epochs=30, learning_rate=0.2, average_epochs=average_epochs)
    uninterrupted = train_final(store, config, device="cpu", patience=3)
    assert 5 < len(uninterrupted.history) < 30
    interrupted = FinalTraining(store, config, device="cpu", patience=3)
    for _ in range(stop):
        next(interrupted.run())
    interrupted.save(tmp_path / "c")
    resumed = FinalTraining(store, config, device="cpu", patience=3)
    resumed.resume(tmp_path / "c")
    for _ in resumed.run():
        pass
    result = resumed.result()
    assert same_weights(result, uninterrupted)
    assert (result.epoch, len(result.history)) == (uninterrupted.epoch, len(uninterrupted.history))


def test_fine_tuning_a_model_with_a_trunk(store: GraphStore) -> None:
    config = CONFIG.with_model(trunk="gin")
    first = train_final(store, config, device="cpu")
    tuned = FinalTraining(store, config, device="cpu", start=first.model)
    started = replica_model(tuned.trainer.weights(), tuned._factory, 0).state_dict()
    assert all(torch.equal(value, weights(first)[name]) for name, value in started.items())
    for _ in tuned.run():
        pass
    assert not same_weights(tuned.result(), first)
    other = CONFIG.with_model(trunk="sage")
    with pytest.raises(ArgumentError, match="'start' must be a model of the same sizes, got another"):
        FinalTraining(store, other, device="cpu", start=first.model)


def test_resuming_accepts_more_epochs_but_not_fewer(store: GraphStore, tmp_path: Path) -> None:
    first = FinalTraining(store, CONFIG, device="cpu")
    assert len([*first.run()]) == 4
    first.save(tmp_path / "c")
    longer = FinalTraining(store, CONFIG.with_training(epochs=6), device="cpu")
    longer.resume(tmp_path / "c")
    assert [event.epoch for event in longer.run()] == [5, 6]
    assert same_weights(longer.result(), train_final(store, CONFIG.with_training(epochs=6), device="cpu"))
    shorter = FinalTraining(store, CONFIG.with_training(epochs=3), device="cpu")
    with pytest.raises(
        DataError, match=r"expected a checkpoint of at most 3 epochs, found one of 4. Increase"
    ):
        shorter.resume(tmp_path / "c")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed 0 (here 1)"),
        ({"validation": 0.3}, "other training or validation graphs"),
        ({"config": CONFIG.with_training(batch_size=9)}, "training.batch_size 8 (here 9)"),
        ({"config": replace(CONFIG, model="gin", model_arguments={})}, "model.name hgcn (here gin)"),
        ({"labels": torch.ones(1032, 1, dtype=torch.long)}, "another run: other graphs. Use the values"),
    ],
    ids=["seed", "validation", "batch size", "model", "data"],
)
def test_a_checkpoint_of_another_run_is_refused(store, tmp_path, changes, message) -> None:
    FinalTraining(store, CONFIG, device="cpu").save(tmp_path / "c")
    arguments = {"config": CONFIG} | changes
    other_store = replace(store, node_labels=arguments.pop("labels", None))
    other = FinalTraining(other_store, arguments.pop("config"), device="cpu", **arguments)
    with pytest.raises(DataError) as caught:
        other.resume(tmp_path / "c")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("every", "seconds", "written"), [(2, 0, [2, 4]), (None, 0, [1]), (None, 11, [1, 3])]
)
def test_checkpoints_are_written_by_epochs_or_by_time(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every, seconds, written
) -> None:
    """An epoch takes ``seconds`` of a fake clock; without ``every`` one is due after an epoch, then after 20 s."""
    training = FinalTraining(store[:12], CONFIG, device="cpu")
    monkeypatch.setattr(checkpoint_writer, "monotonic", lambda: float(seconds * training.epoch))
    saved = []
    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", lambda *_: saved.append(training.epoch))
    for _ in training.run(tmp_path / "c", every):
        pass
    assert saved == written


# ---------------------------------------------------------------------- failures
def test_a_nan_loss_stops_the_training(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "graphcaps.data.features.compatibility._MAX_FLOAT32", torch.inf
    )  # else they are refused
    overflowing = replace(store, node_attributes=torch.full((store.num_nodes, 1), 1e38))
    with pytest.raises(TrainingError, match=r"Training stopped in epoch 1: the .* loss is not a number"):
        train_final(overflowing, replace(CONFIG, model="gin", model_arguments={}), device="cpu")


def test_out_of_memory_message_names_what_to_lower() -> None:
    with pytest.raises(OutOfMemoryError) as caught, explain_out_of_memory(CONFIG):
        torch.empty(1 << 60)  # torch's error message
    assert str(caught.value) == (
        "The computer ran out of memory: lower the batch size (now 8), num_capsules (now 3), capsule_dim "
        "(now 8), or set max_nodes, which keeps the best connected nodes of large graphs."
    )
    gin = replace(CONFIG, model="gin", model_arguments={})
    message = r"The GPU ran out .* \(now 8\), hidden \(now \d+\), or set"
    with pytest.raises(OutOfMemoryError, match=message), explain_out_of_memory(gin, "cuda"):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError, match="another error"), explain_out_of_memory(CONFIG):
        raise RuntimeError("another error")


def test_out_of_memory_in_a_step_is_explained(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    training = FinalTraining(store, CONFIG, device="cpu")
    monkeypatch.setattr(training.trainer.adam, "step", lambda **_: torch.empty(1 << 60))
    with pytest.raises(OutOfMemoryError, match="lower the batch size"):
        next(training.run())


def test_choose_device() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ArgumentError, match="'device' must be cpu, cuda or auto, got 'tpu'"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="No CUDA device is available; use device='cpu' or 'auto'"):
            choose_device("cuda")


# ---------------------------------------------------------------------- early stopping, calibration, class weights
def test_patience_counts_epochs_of_ten_steps(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """All epochs are compared, nothing is progress, and an epoch has two steps: two epochs of patience are ten."""
    for name, value in (("WINDOW", 1), ("MIN_DELTA", 10.0), ("MIN_STEPS", 10)):
        monkeypatch.setattr(f"graphcaps.training.early_stopping.{name}", value)
    config = CONFIG.with_training(epochs=30, batch_size=12)  # of 24 graphs
    result = train_final(store, config, validation=0.2, device="cpu", patience=2)
    assert len(result.history) == 15  # they count from epoch 5 on
    assert str(result.training["rule"]).endswith(
        "stopped: no progress above 10.0 in 10 epochs, 2 epochs of 10 steps"
    )


def test_patience_stops_the_run_and_is_part_of_the_fingerprint() -> None:
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
        training=TrainConfig(epochs=80, learning_rate=0.01),
    )
    store = planted_parts(num_graphs=30)
    training = FinalTraining(store, config, validation=0.2, device="cpu", patience=4)
    seen = [event.epoch for event in training.run()]
    result = training.result()
    assert training.ended
    assert result.epoch <= seen[-1] < 80
    assert result.training["epochs_run"] == seen[-1]
    assert training.fingerprint["patience"] == 4
    without_patience = FinalTraining(store, config, validation=0.2, device="cpu")
    assert "patience" not in without_patience.fingerprint
    assert without_patience.run_digest != training.run_digest
    with pytest.raises(ArgumentError, match="'patience' must be a whole number from 1 on, got 0"):
        FinalTraining(store, config, device="cpu", patience=0)


def test_the_model_is_calibrated_on_its_validation_set() -> None:
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
        training=TrainConfig(epochs=2),
    )
    store = planted_parts(num_graphs=30)
    calibrated = train_final(store, config, validation=0.2, device="cpu")
    uncalibrated = train_final(store, config, validation=0.2, device="cpu", calibrate=None)
    validation = validation_split(store.y, 0.2, 0).validation
    expected = calibrate(uncalibrated.model.scores(store[validation]), store.y[validation].numpy())
    assert calibrated.model.calibration.temperature == pytest.approx(expected.temperature)
    assert calibrated.model.calibration.graphs == 6
    assert uncalibrated.model.calibration is None
    assert (
        uncalibrated.training["validation_metrics"]["accuracy"]
        == uncalibrated.training["validation_accuracy"]
    )
    assert calibrated.model.profile.graphs == 30
    without_validation = train_final(store, config, validation=0, device="cpu")
    assert without_validation.model.calibration is None
    assert without_validation.model.profile is not None


def test_class_weights_of_one_equal_no_weights() -> None:
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
        training=TrainConfig(epochs=2),
    )
    store = planted_parts(num_graphs=30)
    plain = train_final(store, config, device="cpu")
    ones = train_final(store, config, device="cpu", class_weight=torch.ones(3))
    assert plain.history[-1].train_loss == pytest.approx(ones.history[-1].train_loss)
    weight = torch.tensor([4.0, 1.0, 1.0])
    heavy = train_final(store, config, device="cpu", class_weight=weight)
    validation = validation_split(store.y, 0.1, 0).validation
    expected = margin_loss(heavy.model.scores(store[validation]), store.y[validation], class_weight=weight)
    assert heavy.history[-1].validation_loss[0] == pytest.approx(float(expected), rel=1e-4)


# ---------------------------------------------------------------------- metric
def test_the_epoch_is_selected_by_the_metric(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of an epoch do not depend on the metric, and another epoch may be kept."""
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = CONFIG.with_training(epochs=8)
    by_loss, by_metric = train_final(store, config), train_final(store, config, metric="roc-auc")
    losses = [[event.validation_loss for event in result.history] for result in (by_loss, by_metric)]
    assert losses[0] == losses[1]
    assert all(event.validation_metric == [] for event in by_loss.history)
    values = [event.validation_metric[0] for event in by_metric.history]
    means = [(values[e - 1] + values[e]) / 2 for e in range(1, 8)]
    assert by_metric.epoch == 2 + int(np.argmax(means))
    info = by_metric.model.info()["training"]
    assert info["metric"] == "roc-auc"
    assert info["rule"] == "highest validation ROC-AUC, mean of the last 2 epochs"
    assert info["validation_metric"] == values[by_metric.epoch - 1]
    assert info["validation_metrics"]["roc_auc"] == pytest.approx(info["validation_metric"], abs=1e-6)
    assert by_loss.model.info()["training"]["metric"] == "loss"


def test_a_resumed_training_by_a_metric_equals_an_unbroken_one(store: GraphStore, tmp_path: Path) -> None:
    whole = FinalTraining(store, CONFIG, metric="mcc")
    list(whole.run())
    half = FinalTraining(store, CONFIG, metric="mcc")
    for event in half.run():
        if event.epoch == 2:
            break
    half.save(tmp_path / "half.checkpoint")
    again = FinalTraining(store, CONFIG, metric="mcc")
    again.resume(tmp_path / "half.checkpoint")
    list(again.run())
    assert [e.validation_metric for e in again.history] == [e.validation_metric for e in whole.history]
    assert same_weights(again.result(), whole.result())
    other = FinalTraining(store, CONFIG)
    with pytest.raises(DataError, match="metric mcc \\(here none\\)"):
        other.resume(tmp_path / "half.checkpoint")


def test_a_metric_without_validation_graphs_is_refused(store: GraphStore) -> None:
    with pytest.raises(ArgumentError, match="train: 'metric' must be 'loss' without a validation set"):
        FinalTraining(store, CONFIG, metric="roc-auc", validation=0)
    with pytest.raises(ArgumentError, match="'metric' must be left out with the model 'wl-forest'"):
        train_final(store, RunConfig(model="wl-forest"), metric="roc-auc")
