"""Class scores and metrics of an evaluation: of every replica, in the order of its graphs, also from processes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from graphcaps.inference.probabilities import probabilities
from graphcaps.metrics import SelectionMetric, class_metrics
from graphcaps.training import Replica, Trainer, pick_replica, stack_replicas
from graphcaps.training.evaluator import Evaluator
from graphcaps.training.multiprocess import ProcessPoolTrainer, TrainerFactory, make_trainer
from tests.training.test_empty_graphs import CONFIGS, store_with_empty, train
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas, _scores


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("capturable", [False, True])
def test_scores_and_metrics_with_graphs_without_nodes(name: str, capturable: bool) -> None:
    """The graphs are in no order, replicas have unequal numbers of them, and there are several batches."""
    store, kept, empty = store_with_empty()
    assert store.y is not None
    none = torch.empty(0, dtype=torch.long)
    trainer, _ = train(store, [Replica(kept[:10], none, none), Replica(kept[5:], none, none, fold=1)], name)
    graphs = [torch.cat([empty[:2], kept[[12, 3, 17, 9, 1, 0]], empty[4:]]), kept[[2, 5, 16]]]
    priors = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.2, 0.7]], dtype=torch.float64)
    for metric in get_args(SelectionMetric):
        evaluator = Evaluator(
            trainer.model, store, trainer.x, graphs, 4, priors=priors, metric=metric, keep_scores=True
        )
        for _ in range(2):  # a second run overwrites the first
            (evaluator.capturable() if capturable else evaluator.run)()
        scores, read = evaluator.read_scores(), evaluator.read()
        for f, indices in enumerate(graphs):
            assert scores[f].shape == (len(indices), 3)
            p, y = probabilities(scores[f], trainer.model.scores), store.y[indices].numpy()
            expected = class_metrics(y, p)
            assert read.accuracy[f].item() == pytest.approx(expected["accuracy"])
            assert np.allclose(p[torch.isin(indices, empty).numpy()], priors[f].numpy(), atol=1e-6)
            if metric == "loss":
                assert read.metric is None
            else:
                assert read.metric is not None
                assert read.metric[f].item() == pytest.approx(expected[metric.replace("-", "_")], abs=1e-12)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_scores_are_those_of_each_replica_alone(kind: str) -> None:
    graphs, replicas = _graphs(), _replicas()
    model = stack_replicas(_maker(kind, 0.3), replicas, torch.float64)
    trainer = Trainer(model, graphs.as_store(), graphs.x, replicas, CONFIG, keep_scores=True)
    trainer.run_epoch()
    for f, (replica, rows) in enumerate(zip(replicas, trainer.scores(), strict=True)):
        alone = _scores(pick_replica(trainer.model, _maker(kind, 0.3), f))
        expected = alone[torch.cat([replica.validation, replica.test])]
        torch.testing.assert_close(rows, expected.detach(), atol=1e-9, rtol=0)


def test_a_pool_of_processes_gives_the_scores_and_metrics_of_one() -> None:
    graphs, replicas = _graphs(), _replicas()
    options = {"metric": "balanced-accuracy", "keep_scores": True}
    store, x = graphs.as_store(), graphs.x.float()
    single = Trainer(stack_replicas(_maker("hgcn", 0.3), replicas), store, x, replicas, CONFIG, **options)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        build = TrainerFactory(_maker("hgcn", 0.3), store, x, CONFIG, torch.device("cpu"), **options)
        pool = make_trainer(build, replicas)
    finally:
        torch.set_num_threads(before)
    assert isinstance(pool, ProcessPoolTrainer)
    try:
        for _ in range(2):
            one, other = single.run_epoch(), pool.run_epoch()
            assert len(one.validation_metric) == len(replicas)
            assert one.validation_metric == other.validation_metric
            assert one.criterion == [1 - value for value in one.validation_metric]
            for expected, rows in zip(single.scores(), pool.scores(), strict=True):
                torch.testing.assert_close(rows, expected, atol=2e-4, rtol=0)
    finally:
        pool.close()
