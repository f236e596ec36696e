"""Trainers on several streams equal one trainer: same metrics, same states; on a CPU they are trained in turn."""

from dataclasses import replace

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.training import Trainer, stack_replicas
from graphcaps.training.divided_trainer import divide_replicas
from graphcaps.training.stream_trainer import StreamTrainer
from graphcaps.training.trainer import StepMode
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas


def _together(kind: str = "hgcn", config: TrainConfig = CONFIG, step_mode: StepMode = "auto") -> Trainer:
    return _shard(kind, config, step_mode, range(3))


def _shard(kind: str, config: TrainConfig, step_mode: StepMode, numbers: range) -> Trainer:
    graphs, replicas = _graphs(), [_replicas()[f] for f in numbers]
    model = stack_replicas(_maker(kind, 0.3), replicas)
    return Trainer(model, graphs.as_store(), graphs.x.float(), replicas, config, step_mode=step_mode)


def _streams(kind: str = "hgcn", config: TrainConfig = CONFIG, step_mode: StepMode = "auto") -> StreamTrainer:
    shards = [_shard(kind, config, step_mode, numbers) for numbers in (range(1), range(1, 3))]
    return StreamTrainer(shards, config)


@pytest.mark.parametrize("step_mode", ["eager", "bucketed"])
@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_streams_equal_one_trainer(kind: str, step_mode: StepMode) -> None:
    config = replace(CONFIG, average_epochs=2)
    single, streams = _together(kind, config, step_mode), _streams(kind, config, step_mode)
    assert [replica.fold for replica in streams.replicas] == [replica.fold for replica in _replicas()]
    for _ in range(3):
        one, other = single.run_epoch(), streams.run_epoch()
        assert one.epoch == other.epoch == streams.epoch
        for name in ("train_loss", "train_accuracy", "validation_loss", "test_accuracy"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=2e-4), name
    assert {name: value.shape for name, value in single.state().items()} == {
        name: value.shape for name, value in streams.state().items()
    }
    assert len(streams.capsule_use()) == len(single.capsule_use())


def test_steps_of_the_trainers_are_launched_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer queue of a trainer ends after the other's."""
    streams, order = _streams(), []
    queues = [["a", "b", "c"], ["d", "e"]]
    for trainer, queue in zip(streams._trainers, queues, strict=True):
        launches = [lambda name=name: order.append(name) for name in queue]
        monkeypatch.setattr(trainer, "launches", lambda launches=launches: launches)
        monkeypatch.setattr(trainer, "finish_epoch", lambda: order.append("end"))
    streams._run_epochs()
    assert order == ["a", "d", "b", "e", "c", "end", "end"]


def test_states_and_kept_weights_are_interchangeable_with_one_trainer() -> None:
    single, streams = _together(), _streams()
    for replicas in ([0, 1, 2], [2], [0, 1]):
        single.run_epoch()
        streams.load_state({name: value.clone() for name, value in single.state().items()})
        single.keep(replicas)
        streams.keep(replicas)
        kept = streams.kept()
        assert all(torch.equal(value, kept[name]) for name, value in single.kept().items())
    one, other = single.run_epoch(), streams.run_epoch()
    assert other.epoch == 4
    assert one.train_loss == pytest.approx(other.train_loss, abs=2e-4)


def test_only_the_first_trainer_compiles_kernels() -> None:
    assert [trainer.compiles_kernels for trainer in _streams()._trainers] == [True, False]


def test_shards_have_nearly_equal_size() -> None:
    replicas = _replicas() * 4
    assert [len(shard) for shard in divide_replicas(replicas[:10], 3)] == [3, 3, 4]
    assert [len(shard) for shard in divide_replicas(replicas[:2], 2)] == [1, 1]


def test_a_closed_trainer_releases_its_models() -> None:
    streams = _streams()
    trainers = list(streams._trainers)
    streams.close()
    assert not any(hasattr(trainer, "model") for trainer in trainers)
