"""Training and evaluation with graphs without nodes: weights do not change, and metrics count the class prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.probabilities import class_prior, prior_scores, probabilities
from graphcaps.models.builder import model_factory
from graphcaps.training.evaluator import Evaluator, prior_metrics
from graphcaps.training.final_training import FinalTraining, train_final
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.trainer import StepMode, Trainer
from graphcaps.types import LossOptions, ModelOutput
from tests.graphs import with_empty_graphs

TRAINING = TrainConfig(epochs=3, batch_size=4, learning_rate=0.01)
CONFIGS = {
    "hgcn": RunConfig(
        model="hgcn",
        model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.3},
        training=TRAINING,
    ),
    "gin": RunConfig(model="gin", model_arguments={"hidden": 8}, training=TRAINING),
}
NOTE = (
    "5 of 23 graphs have no nodes (graphs 1, 11, 12, 22, 23): training leaves them out, and their prediction is the "
    "most frequent class of the training graphs."
)
NONE = torch.empty(0, dtype=torch.long)


def plain_store() -> GraphStore:
    return planted_parts(num_graphs=18)


def store_with_empty() -> tuple[GraphStore, Tensor, Tensor]:
    """18 graphs and five without nodes, of class 2; and the indices of both."""
    store, kept = with_empty_graphs(plain_store(), [1, *[0] * 8, 2, *[0] * 8, 2], y=2)
    return store, torch.tensor(kept), store.empty_graphs


def train(
    store: GraphStore, replicas: list[Replica], name: str, mode: StepMode = "eager"
) -> tuple[Trainer, list[EpochEnd]]:
    config = CONFIGS[name]
    encoded = encode_graphs(store, FeatureRecipe(degree_onehot=5))
    make = model_factory(config, encoded.x.size(-1), store.num_classes)
    model = stack_replicas(make, replicas)
    trainer = Trainer(model, encoded.store, encoded.x, replicas, config.training, step_mode=mode)
    return trainer, list(trainer.run())


# ---------------------------------------------------------------------- weights
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("mode", ["eager", "bucketed"])
def test_the_weights_are_those_of_a_training_without_them(name: str, mode: StepMode) -> None:
    store, kept, empty = store_with_empty()
    splits = [
        (list(range(10)), list(range(10, 14)), list(range(14, 18))),
        (list(range(8, 18)), [0, 1], [2, 3]),
    ]
    expected, actual = [], []
    for fold, (first, second, third) in enumerate(splits):
        expected.append(Replica(torch.tensor(first), torch.tensor(second), torch.tensor(third), fold=fold))
        sets = [torch.cat([kept[part], empty[fold : fold + 2]]) for part in (first, second, third)]
        actual.append(Replica(*sets, fold=fold))
    before, plain_events = train(plain_store(), expected, name, mode)
    after, events = train(store, actual, name, mode)
    for key, value in before.model.state_dict().items():
        assert torch.equal(after.model.state_dict()[key], value), key
    for event, plain in zip(events, plain_events, strict=True):
        for part, sizes in (("train", (10, 10)), ("validation", (4, 2)), ("test", (4, 2))):
            right = np.array(getattr(plain, f"{part}_accuracy")) * sizes
            # Graphs without nodes are of class 2, which has more of the training graphs than the others.
            counted = (right + 2) / (np.array(sizes) + 2)
            assert np.allclose(getattr(event, f"{part}_accuracy"), counted, atol=1e-12), part


def test_a_training_set_of_nothing_else_is_refused() -> None:
    store, kept, empty = store_with_empty()
    with pytest.raises(ArgumentError, match=r"at least one training graph, got graphs without nodes only\."):
        train(store, [Replica(empty, kept, NONE)], "hgcn")


@pytest.mark.parametrize("config", [*CONFIGS.values(), RunConfig(model="majority")])
def test_a_source_of_nothing_else_is_refused_in_one_sentence(config: RunConfig) -> None:
    store, kept, empty = store_with_empty()
    assert store.y is not None
    only_empty = replace(store[empty], y=torch.tensor([0, 0, 1, 1, 1]))
    problem = (
        r"^train: 'source' must hold at least one training graph with nodes, got {} training graphs without"
    )
    for validation, count in ((0.0, 5), (0.4, 3)):
        with pytest.raises(ArgumentError, match=problem.format(count)):
            train_final(only_empty, config, validation=validation, device="cpu")
    y = store.y.clone()
    y[empty] = torch.tensor([0, 1, 2, 0, 1])  # every part of the split needs every class
    split = Split(empty[:4], kept[:9], kept[9:])
    with pytest.raises(ArgumentError, match=problem.format(4)):
        train_final(replace(store, y=y), config, split=split, device="cpu")


def test_folds_of_nothing_else_are_refused_in_one_sentence() -> None:
    store, _, empty = store_with_empty()
    only_empty = store[empty.repeat(3)]
    only_empty = replace(only_empty, y=torch.arange(15) % 3)
    problem = (
        "^{}: 'store' must hold at least one training graph with nodes, got {} training graphs without nodes"
    )
    for config in (CONFIGS["gin"], RunConfig(model="majority")):
        for protocol, count in (("held-out", 5), ("paper", 10)):
            with pytest.raises(ArgumentError, match=problem.format("cross_validate", count)):
                graphcaps.cross_validate(only_empty, config, folds=3, protocol=protocol, device="cpu")


# ---------------------------------------------------------------------- metrics
def test_scores_of_a_prior() -> None:
    prior = class_prior(torch.tensor([0, 2, 2, 2]), 4)
    assert prior.tolist() == [0.25, 0, 0.75, 0]
    for kind in ("lengths", "logits", "probabilities"):
        p = probabilities(prior_scores(prior, kind).unsqueeze(0), kind)
        assert np.allclose(p, prior.numpy(), atol=1e-11)
    assert class_prior(torch.zeros(0, dtype=torch.long), 4).tolist() == [0.25] * 4


@pytest.mark.parametrize("name", CONFIGS)
def test_metrics_of_an_evaluation(name: str) -> None:
    store, kept, empty = store_with_empty()
    assert store.y is not None
    replicas = [Replica(kept[:10], NONE, NONE), Replica(kept[5:], NONE, NONE, fold=1)]
    trainer, _ = train(store, replicas, name)
    model = trainer.model
    graphs = [torch.cat([kept[10:], empty]), empty[:2]]
    priors = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.2, 0.7]], dtype=torch.float64)
    options = LossOptions(torch.tensor([1.0, 2.0, 3.0]))
    evaluators = [
        Evaluator(model, store, trainer.x, part, 4, options, priors)
        for part in (graphs, [part[~torch.isin(part, empty)] for part in graphs])
    ]
    for evaluator in evaluators:
        evaluator.run()
    counted, others = (evaluator.read() for evaluator in evaluators)
    prior_loss = [
        float(
            model.loss(
                ModelOutput(prior_scores(prior, model.scores).expand(1, 1, -1)), torch.tensor([[2]]), options
            ).total
        )
        for prior in priors
    ]
    assert float(counted.loss[0]) == pytest.approx((8 * float(others.loss[0]) + 5 * prior_loss[0]) / 13)
    assert float(counted.accuracy[0]) == pytest.approx(
        8 * float(others.accuracy[0]) / 13
    )  # class 0 is predicted
    assert float(counted.loss[1]) == pytest.approx(prior_loss[1])
    assert float(counted.accuracy[1]) == 1
    assert prior_metrics(model, store, [kept, kept], priors, options).tolist() == [[0, 0], [0, 0]]


# ---------------------------------------------------------------------- final training and cross-validation
@pytest.mark.parametrize("name", CONFIGS)
def test_a_final_training(name: str) -> None:
    store, kept, empty = store_with_empty()
    split = Split(
        torch.cat([kept[:12], empty[:3]]),
        torch.cat([kept[12:15], empty[3:4]]),
        torch.cat([kept[15:], empty[4:]]),
    )
    result = train_final(store, CONFIGS[name], device="cpu", split=split)
    counts = result.training["class_counts"]
    assert sum(counts.values()) == 19
    assert result.training["notes"] == [NOTE]
    prior = result.model.class_prior
    assert prior.tolist() == [count / 19 for count in counts.values()]
    p = result.model.predict_proba(store)
    assert (p[empty] == prior).all()
    assert result.model.calibration is not None
    assert result.model.calibration.graphs == 3
    test = p[split.test].argmax(-1) == np.asarray(store.y)[split.test]
    assert result.training["test_accuracy"] == pytest.approx(test.mean())


def test_validation_graphs_without_nodes_only() -> None:
    store, kept, empty = store_with_empty()
    assert store.y is not None
    y = store.y.clone()
    y[empty[:3]] = torch.arange(3)
    split = Split(kept[:12], empty[:3], kept[12:])
    result = train_final(replace(store, y=y), CONFIGS["hgcn"], device="cpu", split=split)
    assert result.model.calibration is None
    assert result.training["validation_graphs"] == 3


def test_cross_validation_counts_and_names_them() -> None:
    store, _, _ = store_with_empty()
    ledger = graphcaps.cross_validate(store, CONFIGS["hgcn"], folds=3, device="cpu")
    assert ledger.notes == (NOTE,)
    curves = ledger.records[0].curves
    assert int(curves.test_graphs.sum()) == 23
    # All are of the most frequent class of every training set, so that every epoch counts them as right.
    assert int(curves.test_right.sum(0).min()) >= 5


def test_predictions_are_those_of_the_prior() -> None:
    store, _, empty = store_with_empty()
    ledger = graphcaps.cross_validate(store, CONFIGS["gin"], folds=3, predictions=True, device="cpu")
    found = ledger.records[0].predictions
    assert found is not None
    of_empty = np.isin(found.graph, empty.numpy())
    assert of_empty.sum() == 2 * len(empty)  # as validation and as test graphs
    assert (found.probabilities[of_empty].argmax(-1) == 2).all()


def test_resuming_equals_an_unbroken_training(tmp_path) -> None:
    store, _, _ = store_with_empty()
    whole = train_final(store, CONFIGS["hgcn"], device="cpu")
    first = FinalTraining(store, CONFIGS["hgcn"], device="cpu")
    next(first.run())
    first.save(tmp_path / "checkpoint")
    second = FinalTraining(store, CONFIGS["hgcn"], device="cpu")
    second.resume(tmp_path / "checkpoint")
    list(second.run())
    for name, value in whole.model.model.state_dict().items():
        assert torch.equal(second.result().model.model.state_dict()[name], value), name
