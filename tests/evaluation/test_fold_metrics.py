"""Metrics of test folds: values, cautions about few graphs of a class, and reading back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcaps.errors import DataError
from graphcaps.evaluation.fold_metrics import FOLD_METRICS, FoldMetrics, cautions
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.metrics import class_metrics


def predictions(counts: list[tuple[int, int]]) -> GraphPredictions:
    """Random probabilities of test folds with these numbers of graphs of two classes, and of validation graphs."""
    draw = np.random.default_rng(0)
    y = np.concatenate([np.repeat([0, 1], each) for each in counts])
    fold = np.repeat(np.arange(len(counts)), [sum(each) for each in counts])
    p = draw.uniform(size=2 * len(y))
    return GraphPredictions(
        np.arange(2 * len(y)),
        np.tile(fold, 2),
        np.repeat([0, 1], len(y)),
        np.concatenate([1 - y, y]),
        np.stack([1 - p, p], 1),
    )


def test_metrics_are_those_of_the_test_rows_of_each_fold() -> None:
    found = predictions([(12, 20), (11, 10)])
    metrics = FoldMetrics.from_predictions(found, ("a", "b"))
    assert metrics.class_counts == ((12, 20), (11, 10))
    for fold in (0, 1):
        rows = (found.fold == fold) & (found.part == 1)
        expected = class_metrics(found.y[rows], found.probabilities[rows])
        for name in FOLD_METRICS:
            assert metrics.values[name][fold] == expected[name]
    assert metrics.fold_values("mcc") is not None
    assert cautions([metrics]) == []


def test_few_graphs_of_a_class_are_cautioned_with_their_number() -> None:
    metrics = FoldMetrics.from_predictions(predictions([(12, 20), (11, 1)]), ("a", "b"))
    assert cautions([metrics, metrics]) == [
        "Caution: test fold 2 has only 1 graph of class 'b', so ROC-AUC, PR-AUC, balanced accuracy and MCC are "
        "imprecise."
    ]
    assert cautions([metrics], "split")[0].startswith("Caution: test split 2 has only 1 graph")
    single = FoldMetrics.from_predictions(predictions([(9, 20)]), ("a", "b"))
    assert cautions([single])[0].startswith("Caution: the test set has only 9 graphs of class 'a'")


def test_one_class_gives_no_value_and_the_reason() -> None:
    metrics = FoldMetrics.from_predictions(predictions([(12, 20), (11, 0), (0, 3)]), ("a", "b"))
    for name in ("roc_auc", "pr_auc", "mcc"):
        assert metrics.fold_values(name) is None
        assert metrics.values[name][0] is not None
    assert metrics.fold_values("balanced_accuracy") is not None
    assert cautions([metrics]) == [
        "ROC-AUC, PR-AUC and MCC are not defined: test fold 2 (and 1 more) has graphs of one class only."
    ]


def test_what_is_written_is_read_back() -> None:
    metrics = FoldMetrics.from_predictions(predictions([(12, 20), (11, 0)]), ("a", "b"))
    assert FoldMetrics.from_dict(metrics.as_dict(), 2, "file") == metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_names": "a"}, "a list of names under 'class_names'"),
        ({"test_class_counts": [[1, 2]]}, "2 lists of counts"),
        ({"test_class_counts": [[1], [2]]}, "2 lists of counts"),
        ({"roc_auc": [0.5]}, "2 numbers from -1 to 1 under 'roc_auc'"),
        ({"mcc": [0.5, 2]}, "2 numbers from -1 to 1 under 'mcc'"),
    ],
)
def test_a_damaged_entry_is_refused(change: dict[str, Any], message: str) -> None:
    metrics = FoldMetrics.from_predictions(predictions([(12, 20), (11, 10)]), ("a", "b"))
    with pytest.raises(DataError, match=message):
        FoldMetrics.from_dict(metrics.as_dict() | change, 2, "file")


def test_twin_free_counts_leave_out_the_twins_of_each_fold() -> None:
    found = predictions([(12, 20), (11, 10)])
    test = [found.graph[(found.fold == fold) & (found.part == 1)] for fold in (0, 1)]
    twins = {0: test[0][:30], 1: test[1]}
    metrics = FoldMetrics.from_predictions(found, ("a", "b"), twins)
    rows = np.flatnonzero((found.fold == 0) & (found.part == 1))[30:]
    right = int((found.probabilities[rows].argmax(1) == found.y[rows]).sum())
    assert metrics.twin_free == ((right, 2), (0, 0))
    accuracy = metrics.twin_free_accuracy
    assert accuracy is not None
    assert accuracy[0] == right / 2
    assert np.isnan(accuracy[1])
    assert FoldMetrics.from_dict(metrics.as_dict(), 2, "file") == metrics
    for damaged in ([[1, 2]], [[3, 2], [0, 0]], [[1, 2], [0]]):
        with pytest.raises(DataError, match="2 pairs of counts under 'twin_free'"):
            FoldMetrics.from_dict(metrics.as_dict() | {"twin_free": damaged}, 2, "file")
