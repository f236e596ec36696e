"""What ``HGCNClassifier.fit`` trains on: graphs with class indices, weights and a validation set."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from graphcaps.data.class_names import class_name, is_missing_label
from graphcaps.data.coercion import GraphInput
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.estimator.parameters import OWNER
from graphcaps.training.class_weights import balanced_class_weights

__all__ = ["class_weights", "drop_weightless", "encode_classes", "encode_like", "join_validation"]


def encode_classes(graphs: GraphInput, y: Any) -> tuple[np.ndarray, GraphStore]:
    """The class labels, ascending, and the store with the class index of each graph.

    Args:
        graphs (GraphInput): The graphs.
        y (array, optional): Class label of each graph. (default: those of the graphs)

    Raises:
        ArgumentError: If there is not one class label per graph, or fewer than two classes.
    """
    if y is None:
        y = graphs.y
    if y is None:
        fix = (
            "Fitting requires y to be passed, but the target y is None, and the graphs have no class labels."
        )
        raise ArgumentError(OWNER, "y", "hold the class of each graph", "none", fix)
    y = _one_dimensional(y, len(graphs.store), "y")
    if len(y) != len(graphs.store):
        raise ArgumentError(OWNER, "y", f"have one class per graph, {len(graphs.store)}", len(y))
    _refuse_missing(y)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    classes, index = np.unique(_one_notation(y), return_inverse=True)
    if len(classes) < 2:
        got = f"1 class, {classes.tolist()[0]!r}" if len(classes) else "none"
        raise ArgumentError(OWNER, "y", "hold at least two classes", got)
    names = tuple(class_name(label) for label in classes.tolist())
    codes = torch.from_numpy(index.astype(np.int64))
    return classes, replace(graphs.store, y=codes, class_names=names)


def _one_dimensional(y: Any, num_graphs: int, argument: str) -> np.ndarray:
    """The class labels as an array ``[G]``; a single label is refused, other shapes as scikit-learn does."""
    if np.isscalar(y):  # not np.ndim, which array-likes of scikit-learn do not allow
        expected = f"have one class per graph, {num_graphs}"
        raise ArgumentError(OWNER, argument, expected, f"a single value, {repr(y)[:60]}")
    labels: np.ndarray = column_or_1d(y, warn=True)
    return labels


def _refuse_missing(y: np.ndarray, argument: str = "y") -> None:
    """Rejects missing classes, also as text: numpy and pandas write NaN among text as ``"nan"``."""
    missing = [graph for graph, label in enumerate(y.tolist()) if is_missing_label(label)]
    if missing:
        more = f" ({len(missing):,} such graphs)" if len(missing) > 1 else ""
        got = f"{y.tolist()[missing[0]]!r} for graph {missing[0]}{more}"
        fix = (
            "Leave out graphs without a class; coerce(frame, label='…', bad='skip') does so for a DataFrame."
        )
        raise ArgumentError(OWNER, argument, "hold the class of each graph", got, fix)


def _one_notation(y: np.ndarray) -> np.ndarray:
    """Labels as they are, or their class names where one class is written in several ways, as "1" and "1.0"."""
    values = set(y.tolist())
    names = {class_name(value) for value in values}
    return y if len(names) == len(values) else np.array([class_name(value) for value in y.tolist()])


def encode_like(graphs: GraphInput, y: Any, store: GraphStore) -> GraphStore:
    """The graphs of a validation set, with the class indices of the training graphs.

    Args:
        graphs (GraphInput): The graphs.
        y (array, optional): Class label of each graph. (default: those of the graphs)
        store (GraphStore): The training graphs.

    Raises:
        ArgumentError: If there is not one class label per graph, or the two sets have different classes.
    """
    y = graphs.y if y is None else _one_dimensional(y, len(graphs.store), "validation")
    if y is None or len(y) != len(graphs.store):
        expected = f"have one class per graph, {len(graphs.store)}"
        raise ArgumentError(OWNER, "validation", expected, "none" if y is None else len(y))
    _refuse_missing(y, "validation")
    names = [class_name(label) for label in y.tolist()]
    assert store.y is not None
    trained = {store.class_names[index] for index in store.y.unique().tolist()}
    if set(names) != trained:
        only = sorted(set(names) ^ trained)[0]
        where = "validation" if only in names else "training"
        expected = f"have the classes of the training graphs, {', '.join(map(repr, sorted(trained)[:5]))}"
        raise ArgumentError(OWNER, "validation", expected, f"{only!r} in the {where} graphs only")
    codes = torch.tensor([store.class_names.index(name) for name in names])
    return replace(graphs.store, y=codes, class_names=store.class_names)


def join_validation(store: GraphStore, validation: GraphStore) -> GraphStore:
    """The training graphs and then the validation graphs.

    Raises:
        ArgumentError: If one of them has labels or attributes that the other has not.
    """
    try:
        return concat_stores([store, validation])
    except ArgumentError as error:
        expected = error.expected.replace("hold stores", "hold graphs, like X,")
        raise ArgumentError(OWNER, "validation", expected, error.got) from error


def drop_weightless(store: GraphStore, sample_weight: Any) -> tuple[GraphStore, np.ndarray | None]:
    """The graphs whose weight is above 0, and their weights, float64; ``None`` without weights.

    Raises:
        ArgumentError: If there is not one weight per graph, a weight is negative or no number, or fewer than two
            classes are left.
    """
    if sample_weight is None:
        return store, None
    weights = np.asarray(sample_weight)
    if weights.ndim == 0 and weights.dtype.kind in "biuf":  # one weight for all, as scikit-learn allows
        weights = np.full(len(store), weights.item())
    if weights.shape != (len(store),):
        expected = f"have one weight per graph, [{len(store)}]"
        raise ShapeError(OWNER, "sample_weight", expected, list(weights.shape))
    try:
        weights = weights.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(OWNER, "sample_weight", "hold numbers", str(weights.dtype)) from error
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise ArgumentError(OWNER, "sample_weight", "hold numbers from 0 on", wrong[0])
    kept = np.flatnonzero(weights)
    if len(kept) < len(weights):
        store, weights = store[torch.from_numpy(kept)], weights[kept]
    assert store.y is not None
    left = store.y.unique().numel()
    if left < 2:
        expected = "be above zero for graphs of at least two classes"
        raise ArgumentError(OWNER, "sample_weight", expected, "one class" if left else "all zero")
    return store, weights


def class_weights(class_weight: Any, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """Weight of a graph of each class, ``[O]``; ``None`` if all are 1.

    Raises:
        ArgumentError: If a dictionary has an unknown class, or a weight is not a positive number.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        return balanced_class_weights(y, len(classes))
    labels = classes.tolist()
    for label in class_weight:
        if label not in labels:
            some = ", ".join(map(repr, labels[:5]))
            raise ArgumentError(OWNER, "class_weight", f"have classes among {some} as keys", repr(label))
    weights = [class_weight.get(label, 1.0) for label in labels]
    for weight in weights:
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise ArgumentError(OWNER, "class_weight", "have positive numbers as values", repr(weight))
    return torch.tensor([float(weight) for weight in weights])
