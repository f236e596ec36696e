"""Held-out data of a single training: the validation set it draws and the test set a user defines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.class_names import describe_quantities, describe_spellings
from graphcaps.data.splits.class_counts import ClassCounts, count_classes, require_classes
from graphcaps.data.splits.folds import Split, split_codes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.metrics import class_counts, class_metrics

__all__ = [
    "MEND_SPLIT",
    "HoldoutData",
    "check_labels",
    "check_nodes",
    "evaluate_test_set",
    "label_column_hint",
    "split_holdout",
    "validation_split",
]


MEND_SPLIT = (
    "Move graphs between the parts; of a random split choose another seed (--seed) or other fractions "
    "(--fractions)."
)
"""The way out where a part of a split lacks one of the classes."""


@dataclass(frozen=True, eq=False)
class HoldoutData:
    """The graphs of a training, separated from its test graphs.

    Args:
        store (GraphStore): Training and validation graphs.
        train, validation (Tensor): Their indices in ``store``.
        test_store (GraphStore, optional): Test graphs; feature encoding, sizes and calibration do not use them.
        split (str): Description of the split, "" without one.
        share (float, optional): Fraction of each class that was drawn as validation set; ``None`` if the split has one.
        kept (Tensor, optional): Indices of the graphs of ``store`` among all graphs; ``None`` if it has all of them.
        class_counts (ClassCounts, optional): Graphs of each class in each part of the split; ``None`` without one.
    """

    store: GraphStore
    train: Tensor
    validation: Tensor
    test_store: GraphStore | None = None
    split: str = ""
    share: float | None = None
    kept: Tensor | None = None
    class_counts: ClassCounts | None = None

    def describe_draw(self) -> str:
        """A sentence on training graphs of a split that were drawn as its validation part; "" if there are none."""
        drawn = self.validation.numel()
        if self.test_store is None or not self.share or not drawn:
            return ""
        return (
            f"The split has no validation part: {drawn:,} of its {drawn + self.train.numel():,} training graphs were "
            f"drawn for it, {100 * self.share:g} % of each class (--validation)."
        )

    def describe(self) -> dict[str, Any]:
        """Sizes and origin of the split, JSON-safe."""
        counts = {"train_graphs": self.train.numel(), "validation_graphs": self.validation.numel()}
        shares = {"validation_share": self.share}
        if self.test_store is None:
            return counts | shares
        assert self.class_counts is not None
        parts = {"split": self.split, "split_class_counts": self.class_counts.as_dict()}
        return counts | {"test_graphs": len(self.test_store)} | shares | parts


def check_labels(store: GraphStore, seed: int) -> Tensor:
    """The labels of a store, after the checks that a training of one model needs.

    Raises:
        ArgumentError: If the graphs are of fewer than two classes, or the seed is out of range.
        UsageError: If the graphs have no labels.
    """
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ArgumentError("train", "seed", "be a whole number from 0 to 2³² − 1", seed)
    if store.y is None:
        raise UsageError(f"train: '{store.name}' has no class labels; add graph labels to train on it.")
    present = store.y.unique()
    if present.numel() < 2:
        got = f"only class '{store.class_names[int(present[0])]}'" if present.numel() else "no graphs"
        raise ArgumentError("train", "source", "hold graphs of at least two classes", got)
    return store.y


Select = Callable[[GraphStore, Tensor], GraphStore]


def split_holdout(
    store: GraphStore,
    y: Tensor,
    split: Split | None,
    share: float | Tensor,
    seed: int,
    select: Select = GraphStore.__getitem__,
) -> HoldoutData:
    """Separates the test graphs of a split, and draws a validation set if the split has none.

    Args:
        store (GraphStore): All graphs.
        y (Tensor): Class of each graph, ``[G]``.
        split (Split, optional): Training, validation and test graphs. (default: no test set)
        share (float or Tensor): Fraction of each class to draw as validation set, or the indices of the validation
            graphs.
        seed (int): Seed of that draw.
        select (callable): Returns a store of some graphs. (default: by index)

    Raises:
        ArgumentError: If a graph is in two parts, a part lacks one of the classes, validation graphs are named beside a
            split that has some, or no training graph has nodes.
    """
    holdout = _separate(store, y, split, share, seed, select)
    check_nodes(holdout.store, holdout.train, "train", "source")
    return holdout


def check_nodes(store: GraphStore, train: Tensor, owner: str, name: str) -> None:
    """Rejects training graphs of which none has nodes.

    Args:
        store (GraphStore): All graphs.
        train (Tensor): Indices of the training graphs, ``[n]``.
        owner, name (str): The caller and its argument, for the message.

    Raises:
        ArgumentError: If no training graph has nodes.
    """
    sizes = store.sizes.cpu()[train.cpu()]
    if not bool(sizes.any()):
        raise ArgumentError(
            owner,
            name,
            "hold at least one training graph with nodes",
            f"{sizes.numel():,} training graphs without nodes",
            "Add graphs with nodes, or correct the source if they should have nodes.",
        )


def _separate(
    store: GraphStore, y: Tensor, split: Split | None, share: float | Tensor, seed: int, select: Select
) -> HoldoutData:
    """The result of :func:`split_holdout`, before the check for nodes."""
    if isinstance(share, Tensor):
        if split is not None:
            expected = "be a fraction beside a split"
            raise ArgumentError("train", "validation", expected, f"{share.numel():,} graphs")
        return _named_validation_set(store, y.cpu(), share.cpu())
    if split is None:
        drawn = validation_split(y, share, seed, store.class_names)
        return HoldoutData(store, drawn.train, _or_empty(drawn.validation), share=share)
    codes = split_codes(split, len(store))
    require_classes(count_classes(split, y, store.class_names), "train", "split", split.title, MEND_SPLIT)
    if y.cpu()[split.train].unique().numel() < 2:
        expected = "leave graphs of at least two classes to learn from"
        raise ArgumentError("train", "split", expected, f"one ({split.title})")
    kept = ((codes == 0) | (codes == 1)).nonzero().squeeze(-1)
    train_store, test_store = select(store, kept), select(store, split.test)
    if split.validation is None or not split.validation.numel():
        drawn = validation_split(y.cpu()[kept], share, seed, store.class_names)
        train, validation, drawn_share = drawn.train, _or_empty(drawn.validation), share
    else:
        train, validation = ((codes[kept] == code).nonzero().squeeze(-1) for code in (0, 1))
        drawn_share = None
    parts = Split(kept[train], kept[validation] if validation.numel() else None, split.test)
    counts = count_classes(parts, y, store.class_names)
    return HoldoutData(train_store, train, validation, test_store, split.title, drawn_share, kept, counts)


def _named_validation_set(store: GraphStore, y: Tensor, validation: Tensor) -> HoldoutData:
    """All graphs, with the validation set that the caller names; both parts must have graphs of every class."""
    is_validation = torch.zeros(len(store), dtype=torch.bool)
    integers = validation.dim() == 1 and not validation.is_floating_point() and validation.dtype != torch.bool
    in_range = (
        integers and validation.numel() and 0 <= int(validation.min()) <= int(validation.max()) < len(store)
    )
    if not in_range or validation.unique().numel() < validation.numel():
        expected = f"be a fraction, or different graph indices from 0 to {len(store) - 1}"
        raise ArgumentError("train", "validation", expected, f"{validation.dtype} {list(validation.shape)}")
    is_validation[validation] = True
    train, held_out = ((is_validation == part).nonzero().squeeze(-1) for part in (False, True))
    for part, other, name in ((train, held_out, "training"), (held_out, train, "validation")):
        missing = set(y[other].tolist()) - set(y[part].tolist())
        if missing:
            classes = ", ".join(f"'{store.class_names[label]}'" for label in sorted(missing))
            expected = "leave the same classes to training and validation"
            raise ArgumentError("train", "validation", expected, f"no {name} graph of class {classes}")
    return HoldoutData(store, train, held_out)


def validation_split(y: Tensor, share: float, seed: int, class_names: Sequence[str] = ()) -> Split:
    """A stratified random split into a training and a validation set.

    Of a class with n graphs, ``share · n`` are drawn, rounded, at least one and at most n − 1.

    Args:
        y (Tensor): Class of each graph, ``[G]``.
        share (float): Fraction of each class, from 0 (no validation set) to below 1.
        seed (int): Seed of the draw.
        class_names (sequence): Names of the classes for messages. (default: their indices)

    Raises:
        ArgumentError: If the fraction is out of range, or is above 0 and a class has a single graph.
    """
    owner = "validation_split"
    if not 0 <= share < 1:
        raise ArgumentError(owner, "validation", "be at least 0 and below 1", share)
    y = y.cpu()
    drawn = torch.zeros(y.numel(), dtype=torch.bool)
    generator = torch.Generator().manual_seed(seed)
    for label in y.unique().tolist() if share else []:
        graphs = (y == label).nonzero().squeeze(-1)
        n = graphs.numel()
        if n < 2:
            name = f"'{class_names[label]}'" if class_names else label
            hint = label_column_hint(y, class_names) or describe_spellings(class_names)
            raise ArgumentError(
                owner,
                "validation",
                "leave a training graph and a validation graph of every class",
                f"1 graph of class {name} in all",
                f"{f'{hint} Else add' if hint else 'Add'} graphs of that class, "
                "or train with a validation share of 0.",
            )
        count = min(max(math.floor(share * n + 0.5), 1), n - 1)
        drawn[graphs[torch.randperm(n, generator=generator)[:count]]] = True
    no_test = torch.empty(0, dtype=torch.long)
    return Split((~drawn).nonzero().squeeze(-1), drawn.nonzero().squeeze(-1), no_test)


def label_column_hint(y: Tensor, class_names: Sequence[str] = ()) -> str:
    """A hint for messages if classes are a quantity, or most have a single graph: names, perhaps. Otherwise ""."""
    if quantities := describe_quantities(class_names):
        return quantities
    counts = y.unique(return_counts=True)[1]
    if 2 * int((counts == 1).sum()) <= counts.numel():
        return ""
    return f"{counts.numel():,} classes for {y.numel():,} graphs: is --label right?"


def evaluate_test_set(fitted: FittedModel, test_store: GraphStore) -> FittedModel:
    """The model with metrics of its test graphs added to ``training``.

    Labels that do not occur in the training graphs are encoded as zeros, or as "other" in molecules; graphs with such
    labels are counted.
    """
    checked = fitted.check(test_store, unseen="ignore", owner="train")
    scores = fitted.member_scores(checked.without_warnings())  # unseen labels are counted below
    results: dict[str, Any] = {"test_accuracy": None, "test_metrics": None}
    if bool(scores.isfinite().all()):
        assert test_store.y is not None
        members = fitted.calibrate_scores(scores, test_store.empty_graphs)
        p = fitted.mix(members, checked).probabilities
        y = np.asarray(test_store.y.cpu())
        metrics = class_metrics(y, p)
        results = {
            "test_accuracy": metrics["accuracy"],
            "test_metrics": metrics,
            "test_class_counts": class_counts(y, fitted.class_names),
        }
    if checked.unseen or checked.others:
        results["test_graphs_with_new_labels"] = len(checked.unseen | checked.others)
    return replace(fitted, training=fitted.training | results)


def _or_empty(graphs: Tensor | None) -> Tensor:
    return torch.empty(0, dtype=torch.long) if graphs is None else graphs
