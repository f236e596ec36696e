"""Companions of a training: which models they are, what they read, and the weights of the mixture with the network.

The weights minimise the log loss of the mixture on graphs that no part was fitted to: the validation graphs or, where
these are few, the training graphs, each predicted by models of which none was trained on it (stacking).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.close_names import close_names
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.mixture import Mixture, weighted_mean
from graphcaps.inference.probabilities import MIN_PROBABILITY, Calibration, CalibrationMethod
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import find_classical_model, is_classical, model_names
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.calibration import calibrate_probabilities

__all__ = [
    "MIN_VALIDATION",
    "PRIOR_GRAPHS",
    "STACKING_FOLDS",
    "companion_configs",
    "describe_companion",
    "fit_mixture",
    "fit_weights",
    "stacking_folds",
]

MIN_VALIDATION = 100
"""With fewer validation graphs the weights are chosen on out-of-fold predictions of the training graphs."""
STACKING_FOLDS = 5
"""Number of parts of the training graphs, each predicted by models that are fitted to the others."""
PRIOR_GRAPHS = 2.0
"""Graphs that are added for each part to the responsibilities of the parts: the prior of equal weights."""
_ITERATIONS = 10_000
_TOLERANCE = 1e-10
_WORDS = {
    "edges": "edges",
    "node_labels": "node labels",
    "node_attributes": "node attributes",
    "edge_labels": "edge labels",
    "smiles": "SMILES",
}


def companion_configs(
    names: str | None, model: str, store: GraphStore, owner: str, option: str = "companion"
) -> tuple[RunConfig, ...]:
    """The configurations of the companions of a model, resolved; () without companions.

    Args:
        names (str, optional): Name of a classical model, or several with commas between them.
        model (str): Name of the model that they accompany.
        store (GraphStore): The graphs.
        owner, option (str): Owner and option that messages name. (default of ``option``: "companion")

    Raises:
        ArgumentError: If a name is unknown, of a network, repeated, that of the model itself, or of a model that reads
            nothing of a graph, or if the graphs have nothing of what it reads.
    """
    if names is None:
        return ()
    if not isinstance(names, str):
        raise ArgumentError(owner, option, "be the name of a classical model, or None", repr(names)[:60])
    listed = [name.strip() for name in names.split(",")]
    allowed = [name for name in model_names() if is_classical(name) and find_classical_model(name).inputs]
    for number, name in enumerate(listed):
        if name == model:
            raise ArgumentError(owner, option, "differ from the model itself", f"'{name}' beside '{model}'")
        if name in listed[:number]:
            raise ArgumentError(owner, option, "name different models", f"'{name}' twice")
        if name not in allowed:
            near = close_names(name, allowed) or allowed
            is_model = name in model_names()
            why = "a network" if is_model and not is_classical(name) else "reads nothing of a graph"
            got = f"'{name}' ({why})" if is_model else repr(name)
            raise ArgumentError(owner, option, f"be one of {', '.join(near)}", got)
    configs = tuple(resolve_config(RunConfig(dataset=store.name, model=name), store) for name in listed)
    for config in configs:
        kind = find_classical_model(config.model)
        if not _present(kind, store):
            raise ArgumentError(
                owner,
                option,
                f"be a model that reads something that '{store.name}' has",
                f"'{config.model}', which reads {_listed(kind.inputs)}, and the graphs have none of these",
            )
    return configs


def describe_companion(config: RunConfig, store: GraphStore) -> str:
    """A sentence on what a companion reads of the graphs, and what it would read that they do not have."""
    kind = find_classical_model(config.model)
    present = _present(kind, store)
    missing = kind.inputs - present
    lacking = f"; the graphs have no {_listed(missing, 'or')}" if missing else ""
    return f"{store.name}: the companion {config.model} reads {_listed(present)}{lacking}."


def _present(kind: type[ClassicalModel], store: GraphStore) -> frozenset[str]:
    """What a model reads and the graphs have."""
    has = {
        "edges": store.num_edges > 0,
        "node_labels": store.node_labels is not None,
        "node_attributes": store.node_attributes is not None,
        "edge_labels": store.edge_labels is not None,
        "smiles": store.smiles is not None,
    }
    return frozenset(name for name in kind.inputs if has[name])


def _listed(names: frozenset[str], last: str = "and") -> str:
    """As in "edges and node labels"."""
    words = [text for name, text in _WORDS.items() if name in names]
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def stacking_folds(
    y: Tensor, train: Tensor, validation: Tensor, seed: int, groups: np.ndarray | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Parts of the training graphs for out-of-fold predictions; empty if the validation graphs suffice.

    Args:
        y (Tensor): Class of each graph, ``[G]``.
        train, validation (Tensor): Indices of the training and the validation graphs.
        seed (int): Seed of the division.
        groups (ndarray, optional): Group of each graph, ``[G]``; graphs of one group stay together.

    Returns:
        list: Graphs to fit to and graphs to predict of each part, as ascending indices. It is empty with at least
        :data:`MIN_VALIDATION` validation graphs, and if a part would lack a class, as with a single graph of it.
    """
    if validation.numel() >= MIN_VALIDATION:
        return []
    train = train.cpu().sort().values
    classes = y.cpu()[train]
    smallest = int(classes.unique(return_counts=True)[1].min())
    count = min(STACKING_FOLDS, smallest)
    if count < 2:
        return []
    of_train = None if groups is None else groups[train.numpy()]
    codes = torch.unique(classes, return_inverse=True)[1]
    try:
        folds = stratified_folds(codes, count, seed, groups=of_train)
    except ArgumentError:  # too few groups
        return []
    part = folds.assignment
    has_all = all(codes[part == number].unique().numel() == int(codes.max()) + 1 for number in range(count))
    return [(train[part != number], train[part == number]) for number in range(count)] if has_all else []


def fit_weights(parts: Sequence[np.ndarray], y: np.ndarray) -> np.ndarray:
    r"""Weights of the parts of a mixture, ``[K]``: they maximise the posterior

    .. math:: \sum_g \log \sum_k w_k\, q_k(y_g) + \alpha \sum_k \log w_k

    over the simplex, with :math:`\alpha` = :data:`PRIOR_GRAPHS`: the log likelihood of n graphs under the mixture and
    a Dirichlet prior of equal weights, which counts as :math:`\alpha` graphs that each part alone explains. The
    objective is concave. Each step of expectation maximisation sets a weight to the share of graphs that the part
    explains,

    .. math:: w_k \leftarrow \frac{\alpha + \sum_g r_{gk}}{K \alpha + n}, \qquad
        r_{gk} = \frac{w_k\, q_k(y_g)}{\sum_j w_j\, q_j(y_g)}.

    Args:
        parts (sequence): Calibrated probabilities of each of K parts, ``[n, O]``.
        y (ndarray): Class of each graph, ``[n]``.
    """
    rows = np.arange(len(y))
    q = np.stack([np.maximum(p[rows, y], MIN_PROBABILITY) for p in parts])  # [K, n]
    K, n = q.shape
    weights = np.full(K, 1 / K)
    for _ in range(_ITERATIONS):
        terms = weights[:, None] * q
        updated = (PRIOR_GRAPHS + (terms / terms.sum(0)).sum(1)) / (K * PRIOR_GRAPHS + n)
        change = float(np.abs(updated - weights).max())
        weights = updated
        if change < _TOLERANCE:
            break
    normalised: np.ndarray = weights / weights.sum()
    return normalised


def fit_mixture(
    parts: Sequence[np.ndarray],
    y: np.ndarray,
    method: CalibrationMethod | None,
    *,
    stacked: bool,
) -> Mixture:
    """Weights and calibration of a mixture.

    Args:
        parts (sequence): Probabilities of each part, ``[n, O]``: of validation graphs, calibrated; or out-of-fold
            predictions of training graphs, which are calibrated here, each part by itself.
        y (ndarray): Class of each graph, ``[n]``.
        method (str, optional): Calibration of the parts and of the mixture; ``None`` for none.
        stacked (bool): Whether they are out-of-fold predictions.
    """
    if not len(y):
        return Mixture((1 / len(parts),) * len(parts), 0, stacked)
    if stacked and method is not None:
        parts = [calibrate_probabilities(p, y, method).apply(p) for p in parts]
    weights = tuple(map(float, fit_weights(parts, y)))
    calibration: Calibration | None = None
    if method is not None:
        calibration = calibrate_probabilities(weighted_mean(parts, weights), y, method)
    return Mixture(weights, len(y), stacked, calibration)
