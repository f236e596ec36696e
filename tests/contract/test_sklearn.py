"""scikit-learn's estimator checks.

The classifier takes graphs, and the checks pass numeric arrays. They run twice: on the class itself, where each check
that passes an array is listed as an expected failure; and on a subclass whose input method reads a row as a graph of
one node, where all checks pass but one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from graphcaps import HGCNClassifier
from graphcaps.data.coercion import GraphInput
from graphcaps.data.store import GraphStore

SMALL: dict[str, Any] = {
    "capsule_dim": 8,
    "num_capsules": 3,
    "num_factors": 2,
    "epochs": 2,
    "batch_size": 64,
    "dropout": 0.0,
    "device": "cpu",
    "random_state": 0,
}


class TaggedForArrays(HGCNClassifier):
    """The class with a tag that declares numeric arrays as input; without it scikit-learn skips most checks."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.string = False
        tags.classifier_tags.poor_score = True  # two epochs: the checks are not about accuracy
        return tags


class RowsAsGraphs(TaggedForArrays):
    """Reads each row of an array as a graph of one node with these attributes."""

    def _read(self, X: Any, *, fitting: bool = False, samples: bool = True) -> GraphInput:
        X = validate_data(self, X, reset=fitting, dtype=np.float64)
        node_ptr = torch.arange(len(X) + 1)
        empty = torch.empty(0, dtype=torch.int32)
        store = GraphStore(
            "rows", node_ptr, torch.zeros(len(X) + 1, dtype=torch.long), empty,
            node_attributes=torch.from_numpy(np.array(X)),
        )  # fmt: skip
        return GraphInput(store)


NO_ARRAYS = "the check passes a numeric array, which fit refuses with a message"
EXPECTED = dict.fromkeys(
    [
        "check_fit_score_takes_y",
        "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit",
        "check_estimators_dtypes",
        "check_complex_data",
        "check_dtype_object",
        "check_estimators_empty_data_messages",
        "check_pipeline_consistency",
        "check_estimators_nan_inf",
        "check_estimator_sparse_tag",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_classifier_data_not_an_array",
        "check_classifiers_one_label",
        "check_classifiers_classes",
        "check_classifiers_train",
        "check_classifiers_regression_target",
        "check_supervised_y_2d",
        "check_class_weight_classifiers",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1sample",
        "check_fit2d_1feature",
        "check_dict_unchanged",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
        "check_fit2d_predict1d",
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_all_zero_sample_weights_error",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
        "check_classifiers_one_label_sample_weights",
        "check_decision_proba_consistency",
    ],
    NO_ARRAYS,
) | {"check_requires_y_none": "the numeric array is refused before y is checked"}
NOT_REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "a weighted graph is drawn once, for one batch, and is either a "
    "training or a validation graph; a repeated one is drawn several times. tests/training/test_sample_weight.py "
    "compares weighted and repeated graphs where both are defined"
}


@parametrize_with_checks([TaggedForArrays(**SMALL)], expected_failed_checks=lambda _: EXPECTED | NOT_REPEATED)
def test_estimator_checks_of_the_class(estimator, check):
    check(estimator)


@parametrize_with_checks([RowsAsGraphs(**SMALL)], expected_failed_checks=lambda _: NOT_REPEATED)
def test_estimator_checks_with_rows_as_graphs(estimator, check):
    check(estimator)


def test_tags_declare_no_numeric_arrays():
    tags = HGCNClassifier().__sklearn_tags__()
    assert not tags.input_tags.two_d_array
    assert tags.estimator_type == "classifier"
    assert tags.target_tags.required


@pytest.mark.parametrize("rows", [np.zeros((4, 3)), [[1.0, 2.0], [3.0, 4.0]], [1, 2, 3]])
def test_a_numeric_array_is_refused(rows):
    with pytest.raises(ValueError, match="'X' must be a GraphStore or a list of torch-geometric Data"):
        HGCNClassifier(**SMALL).fit(rows, [0, 1, 0, 1][: len(rows)])
