"""Weights of graphs in the losses of a training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, ShapeError
from graphcaps.nn import margin_loss
from graphcaps.training import FinalTraining, Trainer, stack_replicas, train_final
from graphcaps.training.sample_weight import batch_weights, check_sample_weight, normalise_weights
from tests.graphs import assert_equal, with_empty_graphs
from tests.training.test_trainer import CONFIG as TRAINING
from tests.training.test_trainer import _graphs, _maker, _replicas

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.0},
    training=TrainConfig(epochs=2, batch_size=64, learning_rate=0.01),
)
FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 20})


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


def state(store: GraphStore, **options: Any) -> dict[str, Tensor]:
    return train_final(store, CONFIG, device="cpu", **options).model.model.state_dict()


def equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_weights_have_mean_one_over_each_set() -> None:
    weight = torch.tensor([1.0, 2.0, 3.0, 10.0])
    scaled = normalise_weights(
        weight, [torch.tensor([0, 1]), torch.tensor([1, 2, 3]), torch.empty(0, dtype=torch.long)]
    )
    assert_equal(scaled[0, :2], torch.tensor([2 / 3, 4 / 3]), tolerance=1e-6)
    assert float(scaled[1, 1:].mean()) == pytest.approx(1)
    assert scaled[2].tolist() == weight.tolist()  # a replica without graphs of this set
    graphs = torch.tensor([[1, -1], [3, 2], [0, 0]])
    assert batch_weights(scaled, graphs)[1].tolist() == pytest.approx([2.0, 0.6])


def test_equal_weights_train_the_same_bits(store: GraphStore) -> None:
    plain = state(store)
    for weight in (np.ones(30), np.full(30, 0.3), [2] * 30):
        assert equal(state(store, sample_weight=weight), plain)
    assert not equal(state(store, sample_weight=np.arange(1, 31)), plain)


def test_a_common_factor_changes_nothing(store: GraphStore) -> None:
    weight = np.linspace(1, 4, 30)
    assert equal(state(store, sample_weight=weight), state(store, sample_weight=torch.tensor(4 * weight)))


def test_integer_weights_give_the_validation_loss_of_repeated_graphs(store: GraphStore) -> None:
    """In training, a batch normalisation sees repeated graphs; the check of the loss is in the model contract."""
    counts = torch.where(torch.arange(30) >= 20, torch.arange(30) % 3 + 1, 1)
    validation = torch.arange(20, 30)
    order = torch.arange(30).repeat_interleave(counts)
    repeats = (order >= 20).nonzero().squeeze(-1)
    weighted = train_final(store, CONFIG, validation=validation, device="cpu", sample_weight=counts)
    repeated = train_final(store[order], CONFIG, validation=repeats, device="cpu")
    plain = train_final(store, CONFIG, validation=validation, device="cpu")
    for one, two, three in zip(weighted.history, repeated.history, plain.history, strict=True):
        assert one.train_loss == three.train_loss
        assert one.train_loss == pytest.approx(two.train_loss, rel=1e-5)
        assert one.validation_loss == pytest.approx(two.validation_loss, rel=1e-5)
        assert one.validation_loss != pytest.approx(three.validation_loss, rel=1e-4)


def test_the_validation_loss_is_weighted(store: GraphStore) -> None:
    validation, weight = torch.arange(0, 30, 3), torch.linspace(1, 5, 30)
    result = train_final(store, CONFIG, device="cpu", validation=validation, sample_weight=weight)
    scores, y = result.model.scores(store[validation]), store.y[validation]
    scaled = weight[validation] / weight[validation].mean()
    expected = margin_loss(scores, y, graph_weight=scaled)
    assert result.history[-1].validation_loss[0] == pytest.approx(float(expected), rel=1e-4)
    plain = margin_loss(scores, y)
    assert abs(float(plain - expected)) > 1e-5


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_replicas_and_padded_steps_use_the_same_weights(kind: str) -> None:
    graphs, replicas = _graphs(), _replicas()
    weight = torch.linspace(0.5, 3, len(graphs.as_store()), dtype=torch.float64)

    def trainer(step_mode: Any, chosen: list[Any]) -> Trainer:
        model = stack_replicas(_maker(kind, 0.3), chosen, torch.float64)
        return Trainer(
            model, graphs.as_store(), graphs.x, chosen, TRAINING, step_mode=step_mode, sample_weight=weight
        )

    exact, padded, alone = (
        trainer("eager", replicas),
        trainer("bucketed", replicas),
        trainer("eager", replicas[1:2]),
    )
    for one, other, single in zip(exact.run(), padded.run(), alone.run(), strict=True):
        for name in ("train_loss", "validation_loss", "test_accuracy"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-7), name
            if getattr(single, name):
                assert getattr(one, name)[1:2] == pytest.approx(getattr(single, name), abs=1e-7), name


def test_graphs_without_nodes_have_weights_too(store: GraphStore) -> None:
    enlarged, kept = with_empty_graphs(store, [6] + [0] * 30)
    weight = np.linspace(1, 2, len(enlarged))
    light = train_final(enlarged, CONFIG, device="cpu", sample_weight=weight, validation=0.2)
    weight[np.setdiff1d(np.arange(len(enlarged)), kept)] = 50
    heavy = train_final(enlarged, CONFIG, device="cpu", sample_weight=weight, validation=0.2)
    assert light.history[0].train_loss != heavy.history[0].train_loss


def test_a_forest_takes_weights(store: GraphStore) -> None:
    weight = np.where(store.y.numpy() == 0, 20.0, 1.0)
    plain, heavy = (
        train_final(store, FOREST, validation=0, sample_weight=each).model.predict_proba(store)[:, 0].mean()
        for each in (None, weight)
    )
    assert heavy > plain


def test_weights_are_checked(store: GraphStore) -> None:
    assert check_sample_weight("train", None, 3) is None
    assert check_sample_weight("train", [2, 2, 2], 3) is None
    with pytest.raises(
        ShapeError, match=r"'sample_weight' must have one weight per graph, \[30\], got \[3\]"
    ):
        train_final(store, CONFIG, device="cpu", sample_weight=[1, 2, 3])
    for wrong in (0.0, -1.0, np.nan, np.inf):
        weight = np.ones(30)
        weight[3] = wrong
        with pytest.raises(ArgumentError, match="'sample_weight' must hold positive, finite numbers, got"):
            train_final(store, CONFIG, device="cpu", sample_weight=weight)
    with pytest.raises(ArgumentError, match="'sample_weight' must hold numbers"):
        train_final(store, CONFIG, device="cpu", sample_weight=["a"] * 30)


def test_a_checkpoint_of_other_weights_is_refused(store: GraphStore, tmp_path: Any) -> None:
    path = tmp_path / "checkpoint"
    first = FinalTraining(store, CONFIG, device="cpu", sample_weight=np.arange(1, 31))
    next(first.run())
    first.save(path)
    with pytest.raises(DataError, match="other weights of graphs"):
        FinalTraining(store, CONFIG, device="cpu", sample_weight=np.arange(2, 32)).resume(path)


def test_the_validation_set_can_be_named(store: GraphStore) -> None:
    validation = torch.arange(0, 30, 3)
    result = train_final(store, CONFIG, device="cpu", validation=validation)
    assert result.training["train_graphs"] == 20
    assert result.training["validation_graphs"] == 10
    assert result.training["validation_share"] is None
    with pytest.raises(ArgumentError, match="no validation graph of class"):
        train_final(store, CONFIG, device="cpu", validation=(store.y == 0).nonzero().squeeze(-1)[:3])
    only = torch.cat([(store.y == 0).nonzero().squeeze(-1), (store.y > 0).nonzero().squeeze(-1)[:8]])
    with pytest.raises(ArgumentError, match="no training graph of class"):
        train_final(store, CONFIG, device="cpu", validation=only)
    for wrong in (torch.tensor([30]), torch.tensor([0, 0]), torch.tensor([0.5]), torch.empty(0).long()):
        with pytest.raises(ArgumentError, match="different graph indices from 0 to 29"):
            train_final(store, CONFIG, device="cpu", validation=wrong)
