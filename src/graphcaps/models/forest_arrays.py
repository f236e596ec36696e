"""A fitted forest of decision trees as plain arrays, which a model file can hold, and its predictions in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

__all__ = ["ForestArrays", "ForestMethod"]

ForestMethod = Literal["random-forest", "extra-trees"]
"""Random forests (Breiman, 2001) or extremely randomised trees (Geurts et al., 2006)."""

_LEAF = -1
_STEP_ENTRIES = 1 << 20  # trees × rows that are traversed at a time
_STEP_ROWS = 1024  # rows of a sparse matrix that are dense at a time


@dataclass(frozen=True, eq=False)
class ForestArrays:
    r"""T decision trees with n nodes in all; the probabilities of a row are the mean over the trees' leaves.

    .. math:: p(x) = \frac{1}{T} \sum_t \mathrm{value}[\mathrm{leaf}_t(x)]

    From node k a row x goes on to ``children[k, 0]`` if ``x[feature[k]] <= threshold[k]``, else to ``children[k, 1]``.

    Args:
        tree_ptr (ndarray): First node of each tree, its root, then n, int64 ``[T + 1]``.
        feature (ndarray): Column that a node compares, −1 for a leaf, int32 ``[n]``.
        threshold (ndarray): Threshold of each node, float64 ``[n]``.
        children (ndarray): The two children of each node, counted from the root of its tree; −1 for a leaf,
            int32 ``[n, 2]``.
        value (ndarray): Class probabilities of each node, float64 ``[n, O]``.
    """

    tree_ptr: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    children: NDArray[np.int32]
    value: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float32] | csr_array | csr_matrix,
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        *,
        method: ForestMethod = "random-forest",
        num_classes: int,
        trees: int,
        seed: int,
        jobs: int,
        class_weight: str | None = None,
    ) -> ForestArrays:
        """Fits a forest of scikit-learn, with its defaults apart from the number of trees.

        Args:
            x (ndarray or sparse array): Rows, float32 ``[rows, columns]``.
            y (ndarray): Class index of each row, ``[rows]``.
            sample_weight (ndarray, optional): Weight of each row, ``[rows]``.
            method (str): ``"random-forest"``, or ``"extra-trees"`` for extremely randomised trees.
                (default: "random-forest")
            num_classes (int): Number of classes O.
            trees (int): Number of trees T.
            seed (int): Seed of the forest.
            jobs (int): Number of threads; the result does not depend on it.
            class_weight (str, optional): ``"balanced"`` weighs classes inversely to their frequency. (default: alike)
        """
        # Takes half a second: imported to fit, not to predict.
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        kind = RandomForestClassifier if method == "random-forest" else ExtraTreesClassifier
        forest = kind(trees, n_jobs=jobs, random_state=seed, class_weight=class_weight)
        return cls.from_sklearn(forest.fit(x, y, sample_weight), num_classes)

    @classmethod
    def from_sklearn(
        cls, forest: RandomForestClassifier | ExtraTreesClassifier, num_classes: int
    ) -> ForestArrays:
        """The arrays of a fitted forest.

        Args:
            forest (RandomForestClassifier or ExtraTreesClassifier): Fitted to class indices.
            num_classes (int): Number of classes O; a class without training rows has the probability 0.
        """
        trees = [estimator.tree_ for estimator in forest.estimators_]
        sizes = [tree.node_count for tree in trees]
        value = np.zeros((sum(sizes), num_classes))
        value[:, forest.classes_] = np.concatenate([tree.value[:, 0, :] for tree in trees])
        children = [np.stack([tree.children_left, tree.children_right], axis=1) for tree in trees]
        feature = np.concatenate([tree.feature for tree in trees])
        return cls(
            tree_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            feature=np.where(feature < 0, _LEAF, feature).astype(np.int32),
            threshold=np.concatenate([tree.threshold for tree in trees]),
            children=np.concatenate(children).astype(np.int32),
            value=value,
        )

    @property
    def num_trees(self) -> int:
        return len(self.tree_ptr) - 1

    @cached_property
    def _next(self) -> NDArray[np.int64]:
        """The two children of each node as indices into the concatenated arrays, ``[n, 2]``."""
        first = np.repeat(self.tree_ptr[:-1], np.diff(self.tree_ptr))[:, None]
        return self.children + first

    def predict_proba(self, x: NDArray[np.float32] | csr_array | csr_matrix) -> NDArray[np.float64]:
        """Class probabilities of each row, ``[rows, O]``; those of a row do not depend on the other rows.

        Equal to scikit-learn's ``predict_proba`` bit by bit: rows are float32, thresholds float64, and trees are
        summed in order.

        Args:
            x (ndarray or sparse array): float32 ``[rows, columns]``; of a sparse one 1,024 rows are dense at a time.
        """
        roots = self.tree_ptr[:-1]
        total = np.zeros((x.shape[0], self.value.shape[1]))
        step = max(1, _STEP_ENTRIES // max(self.num_trees, 1))
        if not isinstance(x, np.ndarray):
            step = min(step, _STEP_ROWS)
        for start in range(0, x.shape[0], step):
            part = x[start : start + step]
            rows = part if isinstance(part, np.ndarray) else part.toarray()
            node = np.repeat(roots, len(rows))  # tree by tree
            row = np.tile(np.arange(len(rows)), self.num_trees)
            moving = np.flatnonzero(self.feature[node] >= 0)
            while moving.size:
                at = node[moving]
                right = ~(rows[row[moving], self.feature[at]] <= self.threshold[at])
                node[moving] = self._next[at, right.astype(np.intp)]
                moving = moving[self.feature[node[moving]] >= 0]
            for leaves in node.reshape(self.num_trees, len(rows)):
                total[start : start + step] += self.value[leaves]
        total /= self.num_trees
        return total

    # ------------------------------------------------------------------ saving
    def state(self) -> dict[str, Tensor]:
        """The arrays by name; :meth:`from_state` reads them."""
        arrays = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: torch.from_numpy(values.copy()) for name, values in arrays.items()}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        num_classes: int,
        num_columns: int,
        owner: str = "ForestArrays",
        *,
        trees: int | None = None,
    ) -> ForestArrays:
        """Reads the result of :meth:`state`.

        Args:
            state (mapping): The arrays by name.
            num_classes (int): Number of classes O.
            num_columns (int): Number of columns of a row.
            owner (str): Name of the model, for messages.
            trees (int, optional): Number of trees that the forest must have. (default: any)

        Raises:
            ArgumentError: If an array is missing, or the arrays are not those of a forest of these sizes.
        """
        for name in sorted(_TYPES.keys() ^ state.keys()):
            got = "no such array" if name in _TYPES else "one more array"
            raise ArgumentError(owner, name, f"be one of the arrays {', '.join(_TYPES)}", got)
        arrays = {name: value.cpu().numpy() for name, value in state.items()}
        n = arrays["feature"].size
        shapes = {
            "tree_ptr": (arrays["tree_ptr"].size,),
            "feature": (n,),
            "threshold": (n,),
            "children": (n, 2),
            "value": (n, num_classes),
        }
        for name, dtype in _TYPES.items():
            array = arrays[name]
            if array.dtype != dtype or array.shape != shapes[name]:
                got = f"{array.dtype} {list(array.shape)}"
                raise ArgumentError(owner, name, f"be {np.dtype(dtype)} of {n} nodes", got)
        forest = cls(**arrays)
        forest._check(num_columns, owner)
        if trees is not None and forest.num_trees != trees:
            raise ArgumentError(owner, "tree_ptr", f"be of {trees} trees", forest.num_trees)
        return forest

    def _check(self, num_columns: int, owner: str) -> None:
        """Checks that every path from a root ends in a leaf of the same tree, whatever the row holds."""
        n, sizes = len(self.feature), np.diff(self.tree_ptr)
        if len(sizes) < 1 or (sizes < 1).any() or self.tree_ptr[0] != 0 or self.tree_ptr[-1] != n:
            raise ArgumentError(owner, "tree_ptr", f"ascend from 0 to {n}", "other values")
        leaf = self.feature == _LEAF
        if (self.feature < _LEAF).any() or (self.feature >= num_columns).any():
            raise ArgumentError(owner, "feature", f"be from −1 to {num_columns - 1}", "other values")
        local = np.arange(n) - np.repeat(self.tree_ptr[:-1], sizes)
        # A child comes after its parent, so that no path is a circle.
        inner = (self.children > local[:, None]) & (self.children < np.repeat(sizes, sizes)[:, None])
        if not np.where(leaf[:, None], self.children == _LEAF, inner).all():
            raise ArgumentError(owner, "children", "be later nodes of the same tree", "other values")
        if not np.isfinite(self.threshold).all():
            raise ArgumentError(owner, "threshold", "be finite", "NaN or infinity")
        if not ((self.value >= 0) & (self.value <= 1)).all():
            raise ArgumentError(owner, "value", "be from 0 to 1", "other values")


_TYPES = {
    "tree_ptr": np.int64,
    "feature": np.int32,
    "threshold": np.float64,
    "children": np.int32,
    "value": np.float64,
}
