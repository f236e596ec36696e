"""One fit of a classical model to the training graphs of a replica.

A fit has no epochs. Its metrics are those of a training of one epoch, so that records, files and reports are the same
for all models: losses are log losses, and no epoch is selected. A model with options to select, such as a kernel,
selects them on the validation graphs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.inference.probabilities import MIN_PROBABILITY, class_prior
from graphcaps.models.builder import build_classical
from graphcaps.models.classical import ClassicalModel, ValidationGraphs
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica

__all__ = ["ClassicalFit", "describe_fit", "fit_replica", "selecting_graphs"]


def describe_fit(model: ClassicalModel, *, has_validation: bool) -> str:
    """What a fit did, in place of the rule by which other models select an epoch.

    Args:
        model (ClassicalModel): The fitted model.
        has_validation (bool): Whether there were validation graphs.
    """
    rule = "fitted once to the training graphs"
    if not model.selected:
        return rule
    values = ", ".join(f"{name} {value:g}" for name, value in model.selected.items())
    return f"{rule}, with {values}, selected on {selecting_graphs(has_validation)}"


def selecting_graphs(has_validation: bool) -> str:
    """The graphs on which a model selects its options, in words."""
    return "the validation graphs" if has_validation else "a tenth of the training graphs"


@dataclass(frozen=True, eq=False)
class ClassicalFit:
    """The fit of one replica.

    Args:
        model (ClassicalModel): The fitted model.
        event (EpochEnd): Its metrics, as those of the only epoch.
        probabilities (ndarray): Those of the validation graphs, then of the test graphs, ``[n, O]``.
    """

    model: ClassicalModel
    event: EpochEnd
    probabilities: NDArray[np.float64]


def fit_replica(
    store: GraphStore,
    config: RunConfig,
    replica: Replica,
    *,
    jobs: int | None = None,
    sample_weight: Tensor | None = None,
) -> ClassicalFit:
    """Fits the model of one replica and measures it.

    Args:
        store (GraphStore): All graphs, with labels.
        config (RunConfig): Names the model and its arguments.
        replica (Replica): Training, validation and test graphs, and the seed. The model is fitted to the training
            graphs with nodes, and selects options on the validation graphs with nodes, if it has such options; a graph
            without nodes is predicted by the class frequencies of the training graphs.
        jobs (int, optional): Number of threads; results do not depend on it. (default: that of torch)
        sample_weight (Tensor, optional): Weight of each graph in the fit, ``[G]``. (default: 1 each)

    Returns:
        ClassicalFit: The fitted model, its metrics as those of the only epoch, and its predictions.
    """
    assert store.y is not None
    y = store.y.cpu().numpy()
    began = time.perf_counter()
    jobs = torch.get_num_threads() if jobs is None else jobs
    model = build_classical(config, store.num_classes, seed=replica.seed, jobs=jobs)
    train = _indices(replica.train)
    has_nodes = store.sizes.cpu().numpy() > 0
    fitted = train[has_nodes[train]]
    judges = _indices(replica.validation)
    judges = judges[has_nodes[judges]]

    def weights_of(graphs: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return None if sample_weight is None else sample_weight.double().cpu().numpy()[graphs]

    model.fit(
        store, fitted, y[fitted], weights_of(fitted), ValidationGraphs(judges, y[judges], weights_of(judges))
    )
    prior = class_prior(store.y[replica.train.to(store.y.device)], store.num_classes).numpy()
    metrics, predicted = {}, {}
    for name, part in (
        ("train", train),
        ("validation", _indices(replica.validation)),
        ("test", _indices(replica.test)),
    ):
        p = np.tile(prior, (len(part), 1))  # stays for graphs without nodes, as in other models
        p[has_nodes[part]] = model.predict_proba(store, part[has_nodes[part]])
        metrics[name], predicted[name] = _loss_and_accuracy(p, y[part]), p
    event = EpochEnd(
        epoch=1,
        epochs=1,
        seconds=time.perf_counter() - began,
        train_loss=metrics["train"][0],
        train_accuracy=metrics["train"][1],
        validation_loss=metrics["validation"][0],
        validation_accuracy=metrics["validation"][1],
        test_accuracy=metrics["test"][1],
    )
    return ClassicalFit(model, event, np.concatenate([predicted["validation"], predicted["test"]]))


def _indices(graphs: Tensor) -> NDArray[np.int64]:
    return graphs.cpu().numpy().astype(np.int64)


def _loss_and_accuracy(
    probability: NDArray[np.float64], y: NDArray[np.int64]
) -> tuple[list[float], list[float]]:
    """Log loss and accuracy as lists of one number; empty without graphs."""
    if not len(y):
        return [], []
    true_class = probability[np.arange(len(y)), y]
    loss = -np.log(np.maximum(true_class, MIN_PROBABILITY)).mean()
    return [float(loss)], [float((probability.argmax(1) == y).mean())]
