"""A training on the parts that a user gives: test graphs are set aside first, and asked when it has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.features.compatibility import find_incompatible
from graphcaps.data.splits.folds import Split, split_codes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.metrics import class_metrics
from graphcaps.training.early_stopping import validation_split

__all__ = ["HoldoutData", "evaluate_test_set", "split_holdout"]


@dataclass(frozen=True, eq=False)
class HoldoutData:
    """What a training may look at, and what it is tested on.

    Args:
        store (GraphStore): Graphs to learn from and to choose by.
        train, validation (Tensor): Which of them do what.
        test_store (GraphStore, optional): The others; input columns, sizes and calibration know nothing of them.
        split (str): Where the parts come from, in words, "" where none are given.
        share (float, optional): Share that was drawn to choose by; ``None`` where it is given.
    """

    store: GraphStore
    train: Tensor
    validation: Tensor
    test_store: GraphStore | None = None
    split: str = ""
    share: float | None = None

    def describe(self) -> dict[str, Any]:
        """How the graphs were parted, JSON-safe."""
        counts = {"train_graphs": self.train.numel(), "validation_graphs": self.validation.numel()}
        shares = {"validation_share": self.share}
        if self.test_store is None:
            return counts | shares
        return counts | {"test_graphs": len(self.test_store)} | shares | {"split": self.split}


def split_holdout(store: GraphStore, y: Tensor, split: Split | None, share: float, seed: int) -> HoldoutData:
    """Sets the test graphs of a split aside; where there are none to choose by, draws a share to do it.

    Args:
        store (GraphStore): All graphs.
        y (Tensor): Their classes.
        split (Split, optional): Its parts. (default: no graph tests)
        share (float): Share of every class to choose by, where the split has no validation part.
        seed (int): Of that draw.

    Raises:
        ArgumentError: If a graph stands in two parts, or one class or none is left to learn from.
    """
    if split is None:
        drawn = validation_split(y, share, seed, store.class_names)
        return HoldoutData(store, drawn.train, _there(drawn.validation), share=share)
    numbers = split_codes(split, len(store))
    if y.cpu()[split.train].unique().numel() < 2:
        expected = "leave graphs of at least two classes to learn from"
        raise ArgumentError("train", "split", expected, f"one ({split.name})")
    known = ((numbers == 0) | (numbers == 1)).nonzero().squeeze(-1)
    own, tested = store[known], store[split.test]
    if split.validation is None or not split.validation.numel():
        drawn = validation_split(y.cpu()[known], share, seed, store.class_names)
        return HoldoutData(own, drawn.train, _there(drawn.validation), tested, split.name, share)
    train, validation = ((numbers[known] == number).nonzero().squeeze(-1) for number in (0, 1))
    return HoldoutData(own, train, validation, tested, split.name)


def evaluate_test_set(fitted: FittedModel, tested: GraphStore) -> FittedModel:
    """The model with figures of its test graphs in ``training``: they had no part in its making.

    Labels that no training graph has are read as zeros, and graphs with such labels are counted.
    """
    strange = find_incompatible(tested, fitted.recipe, dtype=fitted.dtype)
    scores = fitted._scores(tested)
    figures: dict[str, Any] = {"test_accuracy": None, "test_metrics": None}
    if bool(scores.isfinite().all()):
        assert tested.y is not None
        found = class_metrics(np.asarray(tested.y.cpu()), fitted.to_probabilities(scores))
        figures = {"test_accuracy": found["accuracy"], "test_metrics": found}
    if strange:
        figures["test_graphs_with_new_labels"] = len(strange)
    return replace(fitted, training=fitted.training | figures)


def _there(graphs: Tensor | None) -> Tensor:
    return torch.empty(0, dtype=torch.long) if graphs is None else graphs
