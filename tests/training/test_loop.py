"""The training loop: a resumed loop equals an uninterrupted one, and weights are copied only where they are needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.training import Replica, TrainingError, checkpoint_writer, early_stopping
from graphcaps.training.checkpoint import load_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.early_stopping import BestWeights, EarlyStopping, epoch_scale, trailing_criterion
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.multiprocess import ProcessPoolTrainer, TrainerFactory, make_trainer
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import slice_replicas
from graphcaps.training.trainer import Trainer
from tests.graphs import Graphs
from tests.training.test_trainer import _graphs, _maker, _replicas

CONFIG = TrainConfig(epochs=10, batch_size=4, learning_rate=0.01)
FINGERPRINT = {"test": 1}
CPU = torch.device("cpu")
processes = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are used on Linux only")


@pytest.fixture(autouse=True)
def short_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Epochs from the second on are candidates; the loops may set other numbers of threads."""
    monkeypatch.setattr(early_stopping, "WINDOW", 2)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Run:
    """A loop with early stopping and best weights."""

    def __init__(
        self,
        kind: str = "hgcn",
        replicas: list[Replica] | None = None,
        *,
        threads: int = 1,
        patience: int | None = None,
        path: Path | None = None,
        config: TrainConfig = CONFIG,
        graphs: Graphs | None = None,
    ) -> None:
        graphs, replicas = graphs or _graphs(), replicas or _replicas()
        torch.set_num_threads(threads)
        build = TrainerFactory(_maker(kind, 0.3), graphs.as_store(), graphs.x.float(), config, CPU)
        trainer = make_trainer(build, replicas)
        assert isinstance(trainer, ProcessPoolTrainer if threads > 1 else Trainer)
        scale = epoch_scale(replicas, config)
        self.best = BestWeights(True, config.epochs, scale)
        callbacks: list[Callback] = [] if patience is None else [EarlyStopping(patience, scale)]
        callbacks.append(self.best)
        if path is not None:
            callbacks.append(CheckpointWriter(path, FINGERPRINT))
        self.loop = TrainingLoop(trainer, callbacks)

    def finish(self) -> dict[str, Any]:
        """Everything that a run computes, without durations."""
        history = [replace(event, seconds=0.0) for event in self.loop.run_all()]
        result = {
            "history": history,
            "best epochs": self.best.best_epochs.tolist(),
            "stopped": self.loop.stopped.tolist(),
            "epochs run": self.loop.epochs_run.tolist(),
            "weights": self.best.weights(self.loop),
            "state": self.loop.trainer.state(),
        }
        self.loop.close()
        return result


def same(one: Any, other: Any) -> bool:
    """Equal bits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


class Stop:
    """Ctrl-C after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, event: EpochEnd) -> None:
        if event.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "patience", "average", "threads"),
    [
        ("gin", None, 3, 1),
        pytest.param("hgcn", 2, 3, 2, marks=[processes, pytest.mark.slow]),
        pytest.param("hgcn", 2, 1, 1, marks=pytest.mark.slow),
        pytest.param("hgcn, sage", 2, 1, 2, marks=[processes, pytest.mark.slow]),
        pytest.param("hgcn", None, 1, 1, marks=pytest.mark.exhaustive),
        pytest.param("hgcn", None, 1, 2, marks=[processes, pytest.mark.exhaustive]),
        pytest.param("hgcn", 2, 1, 2, marks=[processes, pytest.mark.exhaustive]),
        pytest.param("hgcn", 2, 3, 1, marks=pytest.mark.exhaustive),
        pytest.param("hgcn, sage", 2, 1, 1, marks=pytest.mark.exhaustive),
        pytest.param("gin", None, 3, 2, marks=[processes, pytest.mark.exhaustive]),
    ],
)
def test_a_loop_that_is_resumed_three_times_equals_an_uninterrupted_one(
    tmp_path: Path, kind: str, patience: int | None, average: int, threads: int
) -> None:
    settings: dict[str, Any] = {
        "threads": threads,
        "patience": patience,
        "config": replace(CONFIG, average_epochs=average),
    }
    whole = Run(kind, **settings).finish()
    assert len(set(whole["best epochs"])) > 1, "choose a learning rate with different best epochs"
    run = Run(kind, **settings, path=tmp_path / "c")
    for stop in (1, 4, 6):
        with pytest.raises(KeyboardInterrupt):
            run.loop.run_all(Stop(stop))
        run.loop.close()
        run = Run(kind, **settings, path=tmp_path / "c")
        run.loop.resume(load_checkpoint(tmp_path / "c", FINGERPRINT))
        assert run.loop.epoch == stop
    assert same(run.finish(), whole)


@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        ("hgcn", 1),
        pytest.param("hgcn, sage", 2, marks=[processes, pytest.mark.slow]),
        pytest.param("hgcn", 2, marks=[processes, pytest.mark.exhaustive]),
        pytest.param("hgcn, sage", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_a_replica_stops_at_the_same_epoch_alone_and_among_others(kind: str, threads: int) -> None:
    # Weights of fewer graphs differ by more: small gradients, whose signs are random, make up more of their steps.
    graphs, indices = _graphs(25), torch.arange(25)
    replicas = [
        Replica(indices[:20], indices[20:23], indices[23:], seed=0, fold=0),
        Replica(indices[4:], indices[:2], indices[2:4], seed=0, fold=1),
        Replica(indices[:7], indices[7:9], indices[9:20], seed=1, fold=0),
    ]
    together = Run(kind, replicas, threads=threads, patience=2, graphs=graphs).finish()
    assert len(set(together["stopped"])) == 3, "choose a learning rate with different last epochs"
    for f, replica in enumerate(replicas):
        alone = Run(kind, [replica], patience=2, graphs=graphs).finish()
        assert len(alone["history"]) == together["stopped"][f]
        assert alone["best epochs"] == [together["best epochs"][f]]
        for name, value in slice_replicas(together["weights"], f, f + 1).items():
            torch.testing.assert_close(alone["weights"][name], value, atol=2e-3, rtol=1e-2)


def test_the_kept_weights_are_those_of_each_best_epoch() -> None:
    """Of every replica, in runs that end at that epoch."""
    whole = Run("hgcn, sage").finish()
    for f, epoch in enumerate(whole["best epochs"]):
        short = Run("hgcn, sage", config=replace(CONFIG, epochs=epoch))
        short.loop.run_all()
        expected = slice_replicas(short.loop.trainer.weights(), f, f + 1)
        assert same(slice_replicas(whole["weights"], f, f + 1), expected)


class _Copies:
    """Counts copies of weights and of whole states."""

    def __init__(self, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept: list[list[int]] = []
        self.states = 0
        keep, state = trainer.keep, trainer.state

        def counted_keep(replicas: list[int]) -> None:
            self.kept.append(list(replicas))
            keep(replicas)

        def counted_state() -> dict[str, Tensor]:
            self.states += 1
            return state()  # type: ignore[no-any-return]

        monkeypatch.setattr(trainer, "keep", counted_keep)
        monkeypatch.setattr(trainer, "state", counted_state)


def test_weights_are_copied_only_at_a_new_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(patience=2)
    copies = _Copies(run.loop.trainer, monkeypatch)
    expected = []
    best = np.full(3, np.inf)
    for event in run.loop.run():
        if event.epoch >= 2:
            loss = trailing_criterion(run.loop.history, 2)
            better = (loss < best) & run.loop.is_training(event.epoch)
            best = np.where(better, loss, best)
            expected += [np.flatnonzero(better).tolist()] if better.any() else []
    assert copies.kept == expected
    assert copies.kept[0] == [0, 1, 2]
    assert len(copies.kept) < len(run.loop.history) - 1
    assert copies.states == 0


def test_a_loop_without_callbacks_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = TrainingLoop(Run().loop.trainer)
    copies = _Copies(loop.trainer, monkeypatch)
    assert len(loop.run_all()) == 10
    assert (copies.kept, copies.states) == ([], 0)


def test_without_a_validation_set_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    none = torch.empty(0, dtype=torch.long)
    run = Run(replicas=[replace(replica, validation=none) for replica in _replicas()], patience=2)
    run.best.has_validation = False
    copies = _Copies(run.loop.trainer, monkeypatch)
    assert len(run.loop.run_all()) == 10  # and the patience has no effect
    assert run.best.best_epochs.tolist() == [10, 10, 10]
    assert copies.kept == []
    assert same(run.best.weights(run.loop), run.loop.trainer.weights())


def test_an_interrupted_epoch_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Run().finish()
    run = Run(path=tmp_path / "c")
    trainer = run.loop.trainer
    assert isinstance(trainer, Trainer)
    step, steps = trainer.adam.step, iter(range(10**6))

    def step_then_interrupt(**arguments: Any) -> None:
        step(**arguments)
        if next(steps) == 7:  # in the third epoch of three steps
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer.adam, "step", step_then_interrupt)
    monkeypatch.setattr(checkpoint_writer, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writer, "MAX_TIME_SHARE", 1e9)
    with pytest.raises(KeyboardInterrupt):
        run.loop.run_all()
    with pytest.raises(TrainingError, match=r"The last epoch was interrupted; resume from a checkpoint"):
        run.best.weights(run.loop)
    resumed = Run(path=tmp_path / "c")
    resumed.loop.resume(load_checkpoint(tmp_path / "c", FINGERPRINT))
    assert resumed.loop.epoch == 2
    assert same(resumed.finish(), whole)


def test_exceptions_are_explained_in_epochs_and_in_callbacks() -> None:
    @contextmanager
    def explain() -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            raise TrainingError("explained") from error

    class Fails(Callback):
        def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
            raise MemoryError

    loop = TrainingLoop(Run().loop.trainer, [Fails()], explain)
    with pytest.raises(TrainingError, match="explained"):
        loop.run_all()
    assert not loop.complete
