"""One training: which graphs choose, which epoch is kept, the same bits again, and going on after a stop."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.evaluation.epoch_selection import WINDOW
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn import margin_loss
from graphcaps.training import final_training
from graphcaps.training.calibration import calibrate
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import BestWeights, trailing_loss
from graphcaps.training.final_training import FinalResult, FinalTraining, train_final
from graphcaps.training.holdout import validation_split
from graphcaps.training.memory import OutOfMemoryError, explain_out_of_memory, is_out_of_memory
from graphcaps.training.trainer import EpochEnd, TrainingError

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.2},
    training=TrainConfig(epochs=4, batch_size=8, learning_rate=0.01),
)


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


def weights(result: FinalResult) -> dict[str, Tensor]:
    return result.model.model.state_dict()


def same(one: FinalResult, two: FinalResult) -> bool:
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---------------------------------------------------------------------- which graphs choose
def test_the_validation_part_holds_a_share_of_every_class() -> None:
    y = torch.tensor([0] * 50 + [1] * 24 + [2] * 3)
    split = validation_split(y, 0.1, seed=3)
    assert split.validation is not None
    assert torch.bincount(y[split.validation]).tolist() == [5, 2, 1]  # at least one
    assert torch.equal(torch.cat([split.train, split.validation]).sort().values, torch.arange(77))
    assert torch.equal(validation_split(y, 0.1, seed=3).train, split.train)
    assert not torch.equal(validation_split(y, 0.1, seed=4).train, split.train)
    assert torch.bincount(y[validation_split(y, 0.99, seed=0).train]).tolist() == [1, 1, 1]  # one is left
    assert validation_split(y, 0, seed=0).train.numel() == 77


def test_a_class_that_cannot_be_split_is_refused() -> None:
    y = torch.tensor([0, 0, 0, 1])
    with pytest.raises(ArgumentError, match=r"got 1 graph of class 1 in all. Add graphs of that class, or"):
        validation_split(y, 0.1, seed=0)
    assert validation_split(y, 0, seed=0).train.numel() == 4
    for share in (-0.1, 1, math.nan):
        with pytest.raises(ArgumentError, match="'validation' must be at least 0 and below 1, got"):
            validation_split(y, share, seed=0)


def test_graphs_that_cannot_be_learned_from_are_refused(store: GraphStore) -> None:
    with pytest.raises(UsageError, match=r"'planted.*' has no class labels; add graph labels"):
        FinalTraining(replace(store, y=None), CONFIG)
    with pytest.raises(ArgumentError, match="graphs of at least two classes, got only class 'ring-star'"):
        FinalTraining(store[store.y == 0], CONFIG)
    with pytest.raises(ArgumentError, match="'seed' must be a whole number"):
        FinalTraining(store, CONFIG, seed=-1)


# ---------------------------------------------------------------------- which epoch is kept
def events(*losses: float) -> list[EpochEnd]:
    return [EpochEnd(i, len(losses), 0.0, [0.0], [0.0], [v], [0.0], []) for i, v in enumerate(losses, 1)]


def chosen(losses: list[float], chooses: bool = True) -> tuple[int, float]:
    """The epoch kept, and what stood in the weights then: its number."""
    best, model = BestWeights(chooses, len(losses)), torch.nn.Linear(1, 1)
    history = events(*losses)
    for epoch in range(1, len(losses) + 1):
        torch.nn.init.constant_(model.weight, epoch)
        best.update(model, history[:epoch])
    return best.epoch, float(best.weights.get("weight", torch.tensor(math.nan)))


def test_the_lowest_mean_of_the_last_21_losses_is_kept() -> None:
    losses = [5.0] * 20 + [1.0] * 25 + [0.0] + [3.0] * 30  # one lucky epoch, 46, at the end of a good time
    assert chosen(losses) == (46, 46)
    assert trailing_loss(events(*losses)[:46], WINDOW) == pytest.approx(20 / 21)
    assert chosen([0.0] + [1.0] * 40) == (21, 21)  # a low first loss counts in a window of 21 only
    assert chosen([2.0] * 40) == (21, 21)  # the earliest of equals
    assert chosen([1.0, 0.5, 2.0]) == (3, 3)  # too short to choose
    assert chosen([1.0, 0.5, 2.0], chooses=False)[0] == 3
    assert chosen([math.nan] * 30)[0] == 0


def test_patience_ends_where_progress_does() -> None:
    best, model = BestWeights(True, 200), torch.nn.Linear(1, 1)
    history = events(*([1.0] * 30 + [0.9 - 1e-6 * i for i in range(130)]))
    stopped = 0
    for epoch in range(1, len(history) + 1):
        best.update(model, history[:epoch])
        if best.should_stop(history[:epoch], 10):
            stopped = epoch
            break
    # From epoch 51 on the window holds the lower losses alone; what follows is no progress, but is still kept.
    assert stopped == 61
    assert best.epoch == 61
    assert not BestWeights(False, 200).should_stop(history, 10)


def test_the_kept_weights_are_those_of_the_epoch(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    long = FinalTraining(store, CONFIG.with_training(epochs=8, learning_rate=0.5), device="cpu")
    history = [*long.run()]
    result = long.result()
    assert result.epoch == min(range(2, 9), key=lambda e: trailing_loss(history[:e], 2))
    assert result.epoch < 8, "pick a rate for which the last epoch is not the best"
    short = FinalTraining(store, CONFIG.with_training(epochs=result.epoch, learning_rate=0.5), device="cpu")
    assert [event.validation_loss for event in short.run()] == [e.validation_loss for e in history][
        : result.epoch
    ]
    assert same(short.result(), result)
    assert not torch.equal(
        long._last_epoch.state["model.primary.weight"][0], weights(result)["primary.weight"]
    )


def test_without_a_validation_part_the_last_epoch_is_kept(store: GraphStore) -> None:
    result = train_final(store, CONFIG, validation=0, device="cpu")
    assert (result.epoch, result.training["rule"], result.training["train_graphs"]) == (
        4,
        "the last epoch",
        30,
    )
    assert result.training["validation_accuracy"] is None
    assert result.history[0].validation_loss == []


# ---------------------------------------------------------------------- the result
def test_the_model_predicts_and_says_where_it_comes_from(store: GraphStore, tmp_path: Path) -> None:
    seen: list[EpochEnd] = []
    result = train_final(store, CONFIG, seed=2, device="cpu", on_epoch=seen.append)
    assert tuple(seen) == result.history
    result.model.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    assert isinstance(loaded, FittedModel)
    assert torch.equal(loaded.scores(store), result.model.scores(store))
    known = loaded.training
    assert (known["seed"], known["epochs"], known["epoch"], known["dataset"]) == (2, 4, 4, store.name)
    assert (known["graphs"], known["train_graphs"], known["validation_graphs"]) == (30, 27, 3)
    held = result.history[3].validation_accuracy[0]
    assert known["validation_accuracy"] == held
    split = validation_split(store.y, 0.1, 2)
    right = loaded.predict(store) == [store.class_names[c] for c in store.y]
    assert right[split.validation.numpy()].mean() == held


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_the_same_seed_gives_the_same_bits(store: GraphStore, model: str) -> None:
    config = CONFIG if model == "hgcn" else replace(CONFIG, model="gin", model_arguments={"hidden": 8})
    one = train_final(store, config, device="cpu")
    torch.rand(7)  # the state of torch's own generator plays no part
    assert same(train_final(store, config, device="cpu"), one)
    assert not same(train_final(store, config, seed=1, device="cpu"), one)


def test_planted_parts_are_learned() -> None:
    config = CONFIG.with_training(epochs=25)
    config = replace(config, model_arguments={"capsule_dim": 16, "num_capsules": (6,)})
    result = train_final(planted_parts(num_graphs=60), config, device="cpu")
    assert result.training["train_accuracy"] > 0.6  # a third by chance


# ---------------------------------------------------------------------- stopping and going on
@pytest.mark.parametrize("stop", [0, 1, 6, 8])
def test_going_on_is_the_unbroken_run(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = CONFIG.with_training(epochs=8, learning_rate=0.2)
    whole = train_final(store[:12], config, device="cpu")
    first = FinalTraining(store[:12], config, device="cpu")
    for _ in range(stop):
        next(first.run())
    first.save(tmp_path / "c")
    second = FinalTraining(store[:12], config, device="cpu")
    second.resume(tmp_path / "c")
    assert second.epoch == stop
    assert len([*second.run()]) == 8 - stop
    result = second.result()
    assert result.epoch == whole.epoch < 6, "pick a rate for which an epoch before some of the stops is kept"
    assert same(result, whole)
    assert [e.train_loss for e in result.history] == [e.train_loss for e in whole.history]


@pytest.mark.parametrize("average_epochs", [1, 3])
def test_an_epoch_broken_off_in_the_middle_is_not_saved(
    average_epochs: int, store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG.with_training(average_epochs=average_epochs)
    whole = train_final(store, config, validation=0, device="cpu")
    first = train_final(store, config.with_training(epochs=1), validation=0, device="cpu")
    broken = FinalTraining(store, config, validation=0, device="cpu")
    next(broken.run())
    steps = iter(range(100))
    step = broken.trainer.adam.step

    def interrupted(**arguments: Any) -> None:
        step(**arguments)
        if next(steps) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(broken.trainer.adam, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(broken.run())
    assert broken.save(tmp_path / "c") == 1
    assert same(broken.result(), first)  # who stops there has the last whole epoch's
    second = FinalTraining(store, config, validation=0, device="cpu")
    second.resume(tmp_path / "c")
    assert [event.epoch for event in second.run()] == [2, 3, 4]
    assert same(second.result(), whole)


def test_a_run_can_be_made_longer_but_not_shorter(store: GraphStore, tmp_path: Path) -> None:
    first = FinalTraining(store, CONFIG, device="cpu")
    assert len([*first.run()]) == 4
    first.save(tmp_path / "c")
    longer = FinalTraining(store, CONFIG.with_training(epochs=6), device="cpu")
    longer.resume(tmp_path / "c")
    assert [event.epoch for event in longer.run()] == [5, 6]
    assert same(longer.result(), train_final(store, CONFIG.with_training(epochs=6), device="cpu"))
    shorter = FinalTraining(store, CONFIG.with_training(epochs=3), device="cpu")
    with pytest.raises(
        DataError, match=r"expected a checkpoint of at most 3 epochs, found one of 4. Increase"
    ):
        shorter.resume(tmp_path / "c")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "seed 0 (here 1)"),
        ({"validation": 0.3}, "other training or validation graphs"),
        ({"config": CONFIG.with_training(batch_size=9)}, "training.batch_size 8 (here 9)"),
        ({"config": replace(CONFIG, model="gin", model_arguments={})}, "model.name hgcn (here gin)"),
        ({"labels": torch.ones(1032, 1, dtype=torch.long)}, "another run: other graphs. Use the values"),
    ],
    ids=["seed", "validation", "batch size", "model", "data"],
)
def test_another_run_s_checkpoint_is_refused(store, tmp_path, changes, told) -> None:
    FinalTraining(store, CONFIG, device="cpu").save(tmp_path / "c")
    given = {"config": CONFIG} | changes
    other_store = replace(store, node_labels=given.pop("labels", None))
    other = FinalTraining(other_store, given.pop("config"), device="cpu", **given)
    with pytest.raises(DataError) as caught:
        other.resume(tmp_path / "c")
    assert told in str(caught.value)


@pytest.mark.parametrize(("every", "clock", "written"), [(2, 0, [2, 4]), (None, 0, []), (None, 11, [2, 4])])
def test_checkpoints_come_by_epochs_or_by_the_clock(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every, clock, written
) -> None:
    """The clock moves by ``clock`` seconds an epoch; 20 seconds are the default."""
    training = FinalTraining(store[:12], CONFIG, device="cpu")
    monkeypatch.setattr(final_training.time, "monotonic", lambda: float(clock * training.epoch))
    saved = []
    monkeypatch.setattr(training, "save", lambda path: saved.append(training.epoch))
    for _ in training.run(tmp_path / "c", every):
        pass
    assert saved == written


# ---------------------------------------------------------------------- what can go wrong
def test_a_loss_that_is_no_number_stops_the_training(store: GraphStore) -> None:
    broken = replace(store, node_attributes=torch.full((store.num_nodes, 1), 1e38))
    with pytest.raises(TrainingError, match=r"Training stopped in epoch 1: the .* loss is not a number"):
        train_final(broken, replace(CONFIG, model="gin", model_arguments={}), device="cpu")


def test_running_out_of_memory_names_what_to_lower() -> None:
    with pytest.raises(OutOfMemoryError) as caught, explain_out_of_memory(CONFIG):
        torch.empty(1 << 60)  # torch's own words
    assert str(caught.value) == (
        "The computer ran out of memory: lower the batch size (now 8), num_capsules (now 3), capsule_dim "
        "(now 8), or set max_nodes, which keeps the best connected nodes of large graphs."
    )
    gin = replace(CONFIG, model="gin", model_arguments={})
    told = r"The GPU ran out .* \(now 8\), hidden \(now \d+\), or set"
    with pytest.raises(OutOfMemoryError, match=told), explain_out_of_memory(gin, "cuda"):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError, match="a defect"), explain_out_of_memory(CONFIG):
        raise RuntimeError("a defect")


def test_a_step_without_memory(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    training = FinalTraining(store, CONFIG, device="cpu")
    monkeypatch.setattr(training.trainer.adam, "step", lambda **_: torch.empty(1 << 60))
    with pytest.raises(OutOfMemoryError, match="lower the batch size"):
        next(training.run())


def test_devices() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ArgumentError, match="'device' must be cpu, cuda or auto, got 'tpu'"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="No CUDA device is available; use device='cpu' or 'auto'"):
            choose_device("cuda")


@pytest.mark.parametrize(
    ("chooses", "epochs", "rule"),
    [
        (False, 60, "the last epoch"),
        (True, 20, "the last epoch, since 21 are needed for a choice"),
        (True, 21, "lowest validation loss, mean of the last 21 epochs"),
    ],
)
def test_the_rule_in_words(chooses: bool, epochs: int, rule: str) -> None:
    assert BestWeights(chooses, epochs).rule == rule


# ---------------------------------------------------------------------- stopping early, weights, calibration
def test_patience_stops_the_run_and_names_it_in_the_fingerprint():
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
    whole = FinalTraining(store, config, validation=0.2, device="cpu")
    assert "patience" not in whole.fingerprint
    assert whole.run_digest != training.run_digest
    with pytest.raises(ArgumentError, match="'patience' must be a whole number from 1 on, got 0"):
        FinalTraining(store, config, device="cpu", patience=0)


def test_the_model_is_calibrated_on_its_validation_graphs():
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
        training=TrainConfig(epochs=2),
    )
    store = planted_parts(num_graphs=30)
    found = train_final(store, config, validation=0.2, device="cpu")
    bare = train_final(store, config, validation=0.2, device="cpu", calibrate=None)
    held = validation_split(store.y, 0.2, 0).validation
    again = calibrate(bare.model.scores(store[held]), store.y[held].numpy())
    assert found.model.calibration.temperature == pytest.approx(again.temperature)
    assert found.model.calibration.graphs == 6
    assert bare.model.calibration is None
    assert bare.training["validation_metrics"]["accuracy"] == bare.training["validation_accuracy"]
    assert found.model.profile.graphs == 30
    none = train_final(store, config, validation=0, device="cpu")
    assert none.model.calibration is None
    assert none.model.profile is not None


def test_class_weights_of_one_change_nothing():
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
    held = validation_split(store.y, 0.1, 0).validation
    expected = margin_loss(heavy.model.scores(store[held]), store.y[held], class_weight=weight)
    assert heavy.history[-1].validation_loss[0] == pytest.approx(float(expected), rel=1e-4)
