"""Loss and scores of small graphs in one operation equal the layers: values, gradients, statistics; float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.data.step_batches import collate_steps
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.fused_loss.written_out_loss import WrittenOutLoss
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.types import GraphBatch, HGCNOutput, LossOptions, ModelOutput, TrainingLoss
from tests.graphs import assert_equal, with_empty_graphs
from tests.ops.test_written_gradients import SIZES, small_store

IN = 3
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "dropout": {"dropout": 0.4, "residual_nodes": 7},
    "two levels": {"num_capsules": (5, 3), "class_residual": False},
    "no residual": {"residual": False},
    "no decoder": {"reconstruction": False},
    "one iteration": {"routing_iterations": 1},
    "margins": {"upper_margin": 0.8, "lower_margin": 0.3},
}
LOSSES = {
    "plain": LossOptions(),
    "no reconstruction": LossOptions(reconstruction_weight=0.0),
    "weighted": LossOptions(torch.tensor([0.3, 2.0]), 0.7, torch.tensor([[0.2, 1.0, 1.7]])),
    "weight as a tensor": LossOptions(reconstruction_weight=torch.tensor([0.2], dtype=torch.float64)),
}


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


REPLICA_OPTIONS = OPTIONS | {
    "dropout of each": {"dropout": column(0.0, 0.4, 0.6)},
    "margins of each": {"upper_margin": column(0.8, 0.9, 0.7), "lower_margin": column(0.3, 0.1, 0.2)},
}
REPLICA_LOSSES = {
    "plain": LossOptions(),
    "no reconstruction": LossOptions(reconstruction_weight=0.0),
    "weight of each": LossOptions(reconstruction_weight=column(0.2, 0.0, 1.3)),
    "weighted": LossOptions(torch.tensor([[0.3, 2.0], [1.0, 0.4], [0.7, 1.1]]), 0.7, torch.rand(3, 3)),
}


def make_model(lead: tuple[int, ...] = (1,), **options: Any) -> HGCN:
    torch.manual_seed(0)
    defaults: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}
    model = HGCN(IN, 2, **(defaults | options), lead=lead).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def make_features(sizes: list[int] = SIZES) -> Tensor:
    return torch.randn(sum(sizes), IN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def make_batches() -> list[GraphBatch]:
    """Two batches whose tiles are higher than some graphs, and one that is collated alone."""
    store, x = small_store(), make_features()
    steps = [torch.tensor([[0, 4, 2]]), torch.tensor([[3, 1, 5]])]
    return [*collate_steps(store, x, steps), store.batch(x, torch.tensor([[5, 2, 0]]))]


def make_replica_batches() -> list[GraphBatch]:
    """Batches of three replicas: rows of one length, of different lengths, and different numbers of graphs."""
    store, x = small_store(), make_features()
    steps = [
        [[4, 2, 1], [1, 4, 2], [2, 1, 4]],
        [[0, 4, 2], [3, 1, 5], [1, 0, 3]],
        [[4, -1, -1], [3, 1, 5], [1, 0, -1]],
    ]
    return [store.batch(x, torch.tensor(graphs)) for graphs in steps]


def run(model: HGCN, batch: GraphBatch, options: LossOptions = LossOptions()) -> TrainingLoss:
    return model.training_function()(batch, options)


def check_equal(layers: HGCN, batches: list[GraphBatch], options: LossOptions) -> None:
    """The operation computes these batches, with the values, gradients and buffers of the layers."""
    fused = copy.deepcopy(layers)
    for batch in batches:
        expected, found = layers.training_loss(batch, options), run(fused, batch, options)
        assert isinstance(found, WrittenOutLoss)
        assert batch.y is not None
        real = batch.y >= 0
        assert_equal(found.class_scores[real], expected.class_scores[real])
        assert_equal(found.terms.total, expected.terms.total.detach())
        assert list(found.terms.terms) == list(expected.terms.terms)
        for name, term in expected.terms.terms.items():
            assert_equal(found.terms.terms[name], term.detach(), name)
        expected.backward()
        found.backward()  # the gradients of all batches add up
    for (name, one), (_, other) in zip(layers.named_parameters(), fused.named_parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name  # Adam leaves out what has none
        if one.grad is not None and other.grad is not None:
            assert_equal(other.grad, one.grad, name)
    for (name, one), (_, other) in zip(layers.named_buffers(), fused.named_buffers(), strict=True):
        assert_equal(other, one, name)  # running statistics and steps of the dropout


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("loss_options", LOSSES.values(), ids=LOSSES)
def test_equals_the_layers(options: dict[str, Any], loss_options: LossOptions) -> None:
    check_equal(make_model(**options), make_batches(), loss_options)


@pytest.mark.parametrize("options", REPLICA_OPTIONS.values(), ids=REPLICA_OPTIONS)
@pytest.mark.parametrize("loss_options", REPLICA_LOSSES.values(), ids=REPLICA_LOSSES)
def test_replicas_equal_the_layers(options: dict[str, Any], loss_options: LossOptions) -> None:
    check_equal(make_model((3,), **options), make_replica_batches(), loss_options)


def test_two_leading_axes() -> None:
    graphs = torch.tensor([[[0, 4, 2]], [[3, 1, 5]]])
    check_equal(make_model((2, 1)), [small_store().batch(make_features(), graphs)], LossOptions())


def test_without_leading_axes() -> None:
    """A model without an axis of replicas, and graphs of one node and of no edge among the others."""
    layers = make_model(lead=())
    fused = copy.deepcopy(layers)
    batch = small_store().batch(make_features(), torch.tensor([4, 2, 0]))
    expected, found = layers.training_loss(batch, LossOptions()), run(fused, batch)
    assert isinstance(found, WrittenOutLoss)
    assert found.class_scores.shape == expected.class_scores.shape
    assert_equal(found.terms.total, expected.terms.total.detach())
    expected.backward()
    found.backward()
    for one, other in zip(layers.parameters(), fused.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert_equal(other.grad, one.grad)


def test_gradients_equal_finite_differences() -> None:
    """With one iteration the assignments are 1 / J, so that the gradient is the derivative of the loss."""
    model = make_model(routing_iterations=1, num_capsules=(4, 3))
    batch = make_batches()[0]
    run(model, batch).backward()
    step = 1e-6
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        direction = torch.randn(
            parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
        )
        losses = []
        for sign in (1, -1):
            moved = copy.deepcopy(model)
            moved.get_parameter(name).data.add_(direction, alpha=sign * step)
            losses.append(run(moved, batch).terms.total)
        difference = (losses[0] - losses[1]).sum() / (2 * step)
        assert float(difference) == pytest.approx(
            float((parameter.grad * direction).sum()), rel=1e-5, abs=1e-8
        ), name


def make_evaluated(lead: tuple[int, ...], **options: Any) -> HGCN:
    """A model in evaluation mode whose running statistics are not those of the start."""
    model = make_model(lead, **options)
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.3, 2, generator=torch.Generator().manual_seed(4))
    return model.eval()


@pytest.mark.parametrize("lead", [(), (1,)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scores_in_evaluation_equal_the_layers(options: dict[str, Any], lead: tuple[int, ...]) -> None:
    model = make_evaluated(lead, **options)
    before = copy.deepcopy(model.state_dict())
    batch = small_store().batch(make_features(), torch.tensor([4, 2, 0, 5]).reshape(*lead, 4))
    score = model.scoring_function()
    with torch.no_grad():
        found, expected = score(batch), model.forward_batch(batch)
    assert type(found) is ModelOutput  # without levels: not the output of the layers
    assert_equal(found.class_scores, expected.class_scores)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(score(batch), HGCNOutput)  # with a gradient
    with torch.no_grad():
        assert isinstance(model.train().scoring_function()(batch), HGCNOutput)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scores_of_replicas_equal_the_layers(options: dict[str, Any]) -> None:
    model = make_evaluated((3,), **options)
    score = model.scoring_function()
    for batch in make_replica_batches():
        with torch.no_grad():
            found, expected = score(batch), model.forward_batch(batch)
        assert type(found) is ModelOutput
        assert batch.y is not None
        real = batch.y >= 0
        assert found.class_scores.shape == expected.class_scores.shape
        assert_equal(found.class_scores[real], expected.class_scores[real])
        assert not found.class_scores[~real].any()  # as of a graph without nodes


def test_a_frozen_parameter_gets_no_gradient() -> None:
    model = make_model()
    model.primary.requires_grad_(False)
    run(model, make_batches()[0]).backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == {
        "primary.weight", "primary.bias", "primary.norm.weight", "primary.norm.bias",
    }  # fmt: skip


class _OwnLoss(HGCN):
    def loss(self, *arguments: Any, **options: Any) -> Any:
        return super().loss(*arguments, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"formulation": "paper"},
        {"factor_squash": "separate"},
        {"disentangle": False},
        {"parts": "blocks"},
        {"context": "gin"},
        {"reconstruct_up_to": 5},
        {"routing": "naive"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_models_with_other_options_keep_their_layers(options: dict[str, Any]) -> None:
    model = make_model(**options)
    assert model.training_function() == model.training_loss
    assert model.scoring_function() == model.forward_batch


def test_a_subclass_with_its_own_loss_keeps_its_layers() -> None:
    model = _OwnLoss(IN, 2, capsule_dim=8, num_capsules=(4,), num_factors=2)
    assert model.training_function() == model.training_loss


def test_other_batches_are_computed_by_the_layers() -> None:
    model = make_model()
    store, x = small_store([*SIZES, 40]), make_features([*SIZES, 40])
    plain = store.batch(x, torch.tensor([[0, 4, 2]]))
    assert isinstance(run(model, plain), WrittenOutLoss)
    assert plain.y is not None
    others = [
        store.batch(x, torch.tensor([[0, 6, 2]])),  # a graph that is no tile
        store.batch(x, torch.tensor([[0, -1, 2]])),  # padding
        replace(plain, y=torch.tensor([[0, -1, 1]])),  # a graph without a class
    ]
    for batch in others:
        assert not isinstance(run(model, batch), WrittenOutLoss)
    with use_kernels("reference"):
        assert not isinstance(run(model, plain), WrittenOutLoss)
    model.layers[0].norm.eval()
    assert not isinstance(run(model, plain), WrittenOutLoss)


def test_other_batches_of_replicas_are_computed_by_the_layers() -> None:
    model = make_model((2,))
    store, _ = with_empty_graphs(small_store([*SIZES, 40]), [0] * 7 + [1])
    x = make_features([*SIZES, 40])
    plain = store.batch(x, torch.tensor([[0, 4, 2], [3, 1, -1]]))
    assert isinstance(run(model, plain), WrittenOutLoss)
    others = [
        store.batch(x, torch.tensor([[0, 4, 2], [3, 6, 1]])),  # a graph of one replica is no tile
        store.batch(x, torch.tensor([[0, 4, 2], [3, -1, 1]])),  # padding between graphs
        store.batch(x, torch.tensor([[0, 4, 2], [-1, -1, -1]])),  # a replica without a graph
        store.batch(x, torch.tensor([[0, 4, 2], [2, -1, -1]])),  # a replica of one row
        store.batch(x, torch.tensor([[0, 4, 2], [3, 1, 7]])),  # a graph without nodes has a class
        replace(plain, y=torch.tensor([[0, 1, -1], [1, 0, -1]])),  # a graph of one replica has none
    ]
    for batch in others:
        assert not isinstance(run(model, batch), WrittenOutLoss)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("average", [1, 3])
def test_a_training_equals_that_of_the_layers(average: int, replicas: int) -> None:
    """Weights after a few epochs of the trainer: Adam divides by small numbers, so the tolerance is wider.

    Replicas differ in their order of graphs and in the number of graphs; only one has a graph in the last step.
    """
    sizes = [9, 12, 20, 7, 5, 11, 13, 8]
    store, x = small_store(sizes), make_features(sizes)
    config = TrainConfig(epochs=4, batch_size=3, weight_decay=0.001, average_epochs=average)
    none = torch.empty(0, dtype=torch.long)
    listed = [
        Replica(torch.arange(count), torch.arange(count, 8), none, seed=count)
        for count in (7, 6, 5)[:replicas]
    ]
    results, losses = [], []
    for plain in (False, True):
        torch.manual_seed(3)
        model = stack_replicas(
            lambda lead: HGCN(IN, 2, capsule_dim=8, num_capsules=(4,), dropout=0.5, lead=lead), listed
        ).double()
        trainer = Trainer(model, store, x, listed, config)
        if plain:
            assert trainer._runner.step._loss != model.training_loss
            trainer._runner.step._loss = model.training_loss
        losses.append([loss for event in trainer.run() for loss in event.train_loss])
        results.append(trainer.weights())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=1e-7, atol=1e-9, msg=name)
