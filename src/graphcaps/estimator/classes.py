"""The classes that a classifier learns: whatever ``y`` holds, as numbers from 0 and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.estimator.inputs import GraphsRead

__all__ = ["with_classes"]

_OWNER = "HGCNClassifier"


def with_classes(read: GraphsRead, y: Any) -> tuple[np.ndarray, GraphStore]:
    """The classes, ascending, and the store with the index of each graph's class.

    Raises:
        ArgumentError: If there is not one class for each graph, or fewer than two in all.
    """
    if y is None:
        y = read.y
    if y is None:
        fix = "Fitting requires y to be passed, but the target y is None, and the graphs carry no classes."
        raise ArgumentError(_OWNER, "y", "hold the class of each graph", "none", fix)
    y = column_or_1d(y, warn=True)
    if len(y) != len(read.store):
        raise ArgumentError(_OWNER, "y", f"have one class per graph, {len(read.store)}", len(y))
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        found = f"1 class, {classes.tolist()[0]!r}" if len(classes) else "none"
        raise ArgumentError(_OWNER, "y", "hold at least two classes", found)
    names = tuple(str(name) for name in classes.tolist())
    codes = torch.from_numpy(index.astype(np.int64))
    return classes, replace(read.store, y=codes, class_names=names)
