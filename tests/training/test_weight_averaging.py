"""Averaged weights: the average is scored and kept, and training itself does not change."""

from dataclasses import replace

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.training import Trainer, stack_replicas
from graphcaps.training.evaluator import Evaluator
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas


def _trainer(average_epochs: int, kind: str = "hgcn") -> Trainer:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, 0.3), _replicas())
    config = replace(CONFIG, epochs=5, average_epochs=average_epochs)
    return Trainer(model, graphs.as_store(), graphs.x.float(), _replicas(), config)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_the_average_is_over_the_weights_of_a_training_without_averaging(kind: str) -> None:
    plain, averaged = _trainer(1, kind), _trainer(3, kind)
    mean: dict[str, torch.Tensor] = {}
    for epoch in range(1, 6):
        one, other = plain.run_epoch(), averaged.run_epoch()
        assert one.train_loss == other.train_loss  # training itself is the same
        for name, value in plain.model.state_dict().items():
            weight = max(1 / epoch, 1 / 3)
            before = mean.get(name, torch.zeros_like(value, dtype=torch.float64))
            expected = (
                value if not value.is_floating_point() else before * (1 - weight) + value.double() * weight
            )
            mean[name] = expected
            actual = averaged.model.state_dict()[name]
            assert torch.allclose(actual.double(), expected.double(), atol=1e-6), name
        if epoch == 3:  # the mean of the first three epochs, without the initial weights
            assert one.validation_loss != other.validation_loss


def test_the_average_is_scored() -> None:
    averaged, graphs = _trainer(3), _graphs()
    for _ in range(4):
        event = averaged.run_epoch()
    parts = [replica.validation for replica in _replicas()]
    scorer = Evaluator(averaged.model, graphs.as_store(), graphs.x.float(), parts, 128)
    scorer.run()
    assert event.validation_loss == pytest.approx(scorer.read().loss.tolist(), abs=1e-7, nan_ok=True)


@pytest.mark.parametrize("after", [0, 2, 4])
def test_resumed_training_equals_an_uninterrupted_one(after: int) -> None:
    uninterrupted, interrupted, resumed = _trainer(3), _trainer(3), _trainer(3)
    for _ in range(after):
        interrupted.run_epoch()
    resumed.load_state({name: value.clone() for name, value in interrupted.state().items()})
    one, two = [*uninterrupted.run()], [*resumed.run()]
    assert [event.validation_loss for event in one[after:]] == [event.validation_loss for event in two]
    for name, value in uninterrupted.state().items():
        assert torch.equal(resumed.state()[name], value), name


def test_average_epochs_is_stored_in_the_configuration() -> None:
    assert RunConfig().as_dict()["training"]["average_epochs"] == 1
    averaged = RunConfig(training=TrainConfig(average_epochs=10))
    assert RunConfig.from_dict(averaged.as_dict()) == averaged
    with pytest.raises(ArgumentError, match="'average_epochs' must be at least 1, got 0"):
        TrainConfig(average_epochs=0)
