"""What a scikit-learn user does with a classifier, done with :class:`graphcaps.HGCNClassifier`; one test per habit.

The sets are small and the epochs few: the tests are about the interface, not about accuracy.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import joblib
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    RocCurveDisplay,
    classification_report,
    f1_score,
    get_scorer,
    make_scorer,
)
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    LeaveOneGroupOut,
    ParameterGrid,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    train_test_split,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelEncoder, StandardScaler
from sklearn.utils import estimator_html_repr
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.training import Callback, EpochEnd, TrainingLoop
from graphcaps.training.device import available_cores

pd = pytest.importorskip("pandas", reason="the extra 'tables' is not installed")

SIZES = range(3, 15)
GRAPHS = [maker(size) for size in SIZES for maker in (nx.cycle_graph, nx.path_graph)]  # rings and chains
Y = np.array([0, 1] * len(SIZES))
NAMES = np.array(["ring", "chain"])[Y]
GROUPS = np.arange(len(Y)) // 8  # three groups of four sizes
SMALL: dict[str, Any] = {
    "capsule_dim": 8,
    "num_capsules": 3,
    "num_factors": 2,
    "epochs": 2,
    "batch_size": 16,
    "validation": 0.2,
    "device": "cpu",
    "random_state": 0,
}


def small(**changes: Any) -> HGCNClassifier:
    return HGCNClassifier(**(SMALL | changes))


@pytest.fixture(scope="module")
def fitted() -> HGCNClassifier:
    return small().fit(GRAPHS, NAMES)


@pytest.fixture(scope="module")
def smiles() -> list[str]:
    """Alcohols and amines of chains, where networkx has rings and chains."""
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    return [f"{'C' * size}{end}" for size in SIZES for end in ("O", "N")]


def objects(values: list[Any]) -> np.ndarray:
    """An array of objects, as numpy users keep graphs."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def same(one: HGCNClassifier, two: HGCNClassifier, X: Any = GRAPHS) -> bool:
    return bool(np.array_equal(one.predict_proba(X), two.predict_proba(X)))


# ---------------------------------------------------------------------- fit and predict
def test_fit_returns_the_estimator() -> None:
    model = small()
    assert model.fit(GRAPHS, Y) is model


def test_predict_gives_a_label_per_graph(fitted: HGCNClassifier) -> None:
    predicted = fitted.predict(GRAPHS)
    assert predicted.shape == (len(Y),)
    assert set(predicted) <= {"ring", "chain"}


def test_probabilities_sum_to_one(fitted: HGCNClassifier) -> None:
    p = fitted.predict_proba(GRAPHS)
    assert p.shape == (len(Y), 2)
    np.testing.assert_allclose(p.sum(1), 1)


def test_predict_is_the_most_probable_class(fitted: HGCNClassifier) -> None:
    p = fitted.predict_proba(GRAPHS)
    assert (fitted.predict(GRAPHS) == fitted.classes_[p.argmax(1)]).all()


def test_score_is_the_accuracy(fitted: HGCNClassifier) -> None:
    assert fitted.score(GRAPHS, NAMES) == np.mean(fitted.predict(GRAPHS) == NAMES)


def test_decision_function_of_two_classes_is_one_column(fitted: HGCNClassifier) -> None:
    p, decision = fitted.predict_proba(GRAPHS), fitted.decision_function(GRAPHS)
    np.testing.assert_allclose(decision, np.log(p[:, 1] / p[:, 0]))
    assert (fitted.classes_[(decision > 0).astype(int)] == fitted.predict(GRAPHS)).all()


def test_decision_function_of_three_classes_has_three_columns() -> None:
    three = np.arange(len(Y)) % 3
    model = small(validation=0).fit(GRAPHS, three)
    decision = model.decision_function(GRAPHS)
    assert decision.shape == (len(Y), 3)
    assert (model.classes_[decision.argmax(1)] == model.predict(GRAPHS)).all()


@pytest.mark.parametrize("labels", [NAMES, Y, Y.astype(bool), Y + 0.5 - 0.5, NAMES.astype(object)])
def test_classes_keep_their_type(labels: np.ndarray) -> None:
    model = small().fit(GRAPHS, labels)
    assert model.classes_.tolist() == sorted(set(labels.tolist()))
    assert model.predict(GRAPHS[:3]).dtype == model.classes_.dtype == labels.dtype


def test_a_list_of_labels_equals_an_array() -> None:
    assert same(small().fit(GRAPHS, NAMES), small().fit(GRAPHS, NAMES.tolist()))


def test_a_column_of_labels_is_read_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = small().fit(GRAPHS, Y.reshape(-1, 1))
    assert same(model, small().fit(GRAPHS, Y))


def test_label_encoder_is_not_needed_but_works() -> None:
    encoder = LabelEncoder().fit(NAMES)
    model = small().fit(GRAPHS, encoder.transform(NAMES))
    assert set(encoder.inverse_transform(model.predict(GRAPHS))) <= {"ring", "chain"}


def test_fitting_twice_starts_again() -> None:
    model = small().fit(GRAPHS[:16], Y[:16])
    assert same(model.fit(GRAPHS, Y), small().fit(GRAPHS, Y))


def test_warm_start_continues() -> None:
    model = small(warm_start=True).fit(GRAPHS, Y)
    first = model.predict_proba(GRAPHS)
    assert not np.array_equal(model.fit(GRAPHS, Y).predict_proba(GRAPHS), first)


def test_random_state_is_reproducible() -> None:
    assert same(small(random_state=3).fit(GRAPHS, Y), small(random_state=3).fit(GRAPHS, Y))
    generators = [np.random.RandomState(3) for _ in range(2)]
    assert same(*(small(random_state=each).fit(GRAPHS, Y) for each in generators))
    assert not same(small(random_state=3).fit(GRAPHS, Y), small(random_state=4).fit(GRAPHS, Y))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "transform", "score"])
def test_an_unfitted_estimator_says_so(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(small(), method)(GRAPHS)


def test_check_is_fitted(fitted: HGCNClassifier) -> None:
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(small())


def test_fitted_attributes_end_in_an_underscore(fitted: HGCNClassifier) -> None:
    assert fitted.n_features_in_ == 0  # networkx graphs without labels or attributes of nodes
    assert fitted.n_iter_ == len(fitted.history_) == 2
    assert not hasattr(fitted, "feature_names_in_")  # a sample is a graph, not a row of columns


def test_partial_fit_is_absent_and_says_what_to_do(fitted: HGCNClassifier) -> None:
    assert not hasattr(fitted, "partial_fit")
    with pytest.raises(AttributeError, match=r"no partial_fit: .* use warm_start=True and fit again"):
        fitted.partial_fit(GRAPHS, Y)


# ---------------------------------------------------------------------- kinds of X
def test_smiles_in_a_list_an_array_and_a_column(smiles: list[str]) -> None:
    expected = small().fit(smiles, Y)
    frame = pd.DataFrame({"smiles": smiles, "weight": np.arange(len(smiles))})
    for X in (
        np.array(smiles),
        np.array(smiles, dtype=object),
        np.array(smiles).reshape(-1, 1),
        pd.Series(smiles, index=range(100, 100 + len(smiles))),
        frame["smiles"],
        frame[["smiles"]],
        frame,
    ):
        unread = pytest.warns(ReadingWarning, match="1 column of the DataFrame is not read: 'weight'")
        with unread if X is frame else nullcontext():
            assert same(small().fit(X, Y), expected, smiles)
            assert np.array_equal(expected.predict_proba(X), expected.predict_proba(smiles))


def test_a_data_frame_is_not_read_as_its_column_names(smiles: list[str]) -> None:
    frame = pd.DataFrame({"CCO": smiles})  # a column name that is itself SMILES
    assert small().fit(frame, Y).predict(frame).shape == (len(smiles),)


@pytest.mark.filterwarnings("ignore:.*not read:graphcaps.data.readers.graph_metadata.ReadingWarning")
def test_a_data_frame_without_the_column_of_the_training_is_refused(
    smiles: list[str], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"smiles": smiles, "name": "x"})
    fitted = small().fit(frame, Y)
    assert fitted.graph_column_ == "smiles"
    fitted.save(tmp_path / "m.safetensors")
    expected = fitted.predict(smiles)
    for model in (fitted, HGCNClassifier.load(tmp_path / "m.safetensors")):
        with pytest.raises(
            ValueError, match=r"'X' must have the column 'smiles', .* got the columns 'SMI', 'name'"
        ):
            model.predict(frame.rename(columns={"smiles": "SMI"}))
        renamed = frame[["smiles"]].rename(
            columns={"smiles": "SMI"}
        )  # a single column is what the user chose
        assert np.array_equal(model.predict(renamed), expected)
        assert np.array_equal(model.predict(frame[["name", "smiles"]]), expected)


@pytest.mark.filterwarnings("ignore:.*not read:graphcaps.data.readers.graph_metadata.ReadingWarning")
def test_explain_reads_the_column_of_the_fit(smiles: list[str]) -> None:
    frame = pd.DataFrame({"name": "x", "structure": smiles})
    fitted = small().fit(frame[["structure"]], Y)
    explained, expected = fitted.explain(frame), fitted.explain(smiles)
    assert torch.equal(explained.predicted, expected.predicted)
    assert len(explained) == len(smiles)


def test_a_polars_frame_and_series(smiles: list[str]) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    expected, frame = small().fit(smiles, Y), polars.DataFrame({"smiles": smiles, "y": Y})
    for X in (frame["smiles"], frame.select("smiles"), frame):
        assert same(small().fit(X, frame["y"].to_numpy()), expected, smiles)


def test_labels_in_a_series_with_another_index(smiles: list[str]) -> None:
    index = np.random.default_rng(0).permutation(len(smiles))
    frame = pd.DataFrame({"smiles": smiles, "y": NAMES}, index=index)
    assert same(small().fit(frame["smiles"], frame["y"]), small().fit(smiles, NAMES), smiles)


def test_categories_as_labels(smiles: list[str]) -> None:
    model = small().fit(smiles, pd.Series(NAMES, dtype="category"))
    assert model.classes_.tolist() == ["chain", "ring"]


def test_rdkit_molecules(smiles: list[str]) -> None:
    from rdkit import Chem

    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    model = small().fit(molecules, Y)
    assert same(model, small().fit(smiles, Y), smiles)
    assert np.array_equal(model.predict(pd.Series(molecules)), model.predict(smiles))


def test_adjacency_matrices_dense_and_sparse() -> None:
    matrices = [nx.to_numpy_array(graph) for graph in GRAPHS]
    expected = small().fit(GRAPHS, Y)
    for X in (
        matrices,
        objects(matrices),
        [scipy.sparse.csr_array(matrix) for matrix in matrices],
        [scipy.sparse.coo_matrix(matrix) for matrix in matrices],
        [torch.from_numpy(matrix) for matrix in matrices],
    ):
        assert np.array_equal(small().fit(X, Y).predict_proba(X), expected.predict_proba(GRAPHS))


def test_torch_geometric_graphs_and_stores() -> None:
    data = graphcaps.data.to_pyg(graphcaps.data.coerce(GRAPHS).store)
    store = graphcaps.data.from_pyg(data)
    assert same(small().fit(data, Y), small().fit(store, Y), store)


def test_an_array_of_objects() -> None:
    assert same(small().fit(objects(GRAPHS), Y), small().fit(GRAPHS, Y))


def test_rows_of_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="Rows of numbers are not graphs"):
        small().fit(np.zeros((len(Y), 4)), Y)


@pytest.mark.parametrize("wrap", [list, objects, pd.Series])
def test_train_test_split(wrap: Callable[[list[Any]], Any]) -> None:
    X_train, X_test, y_train, y_test = train_test_split(wrap(GRAPHS), Y, stratify=Y, random_state=0)
    assert 0 <= small().fit(X_train, y_train).score(X_test, y_test) <= 1


def test_train_test_split_of_a_store() -> None:
    store = graphcaps.data.coerce(GRAPHS).store
    X_train, X_test, y_train, y_test = train_test_split(store, Y, stratify=Y, random_state=0)
    assert small().fit(X_train, y_train).predict(X_test).shape == y_test.shape


# ---------------------------------------------------------------------- parameters
def test_get_and_set_params() -> None:
    model = small()
    assert model.get_params()["epochs"] == 2
    assert model.set_params(epochs=5, n_jobs=1) is model
    assert (model.epochs, model.n_jobs) == (5, 1)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=5)


def test_clone_copies_the_parameters_and_not_the_fit(fitted: HGCNClassifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")


def test_repr_shows_what_was_changed() -> None:
    assert repr(HGCNClassifier(epochs=7)) == "HGCNClassifier(epochs=7)"


def test_html_repr(fitted: HGCNClassifier) -> None:
    assert "HGCNClassifier" in estimator_html_repr(make_pipeline(FunctionTransformer(), fitted))


def test_tags(fitted: HGCNClassifier) -> None:
    assert is_classifier(fitted)
    assert not fitted.__sklearn_tags__().input_tags.two_d_array


def test_grid_values_of_numpy() -> None:
    for point in ParameterGrid({"num_capsules": np.array([2, 3]), "learning_rate": np.array([0.01])}):
        assert small(**point).fit(GRAPHS, Y).predict(GRAPHS).shape == Y.shape


@pytest.mark.parametrize("jobs", [1, 2, -1])
def test_n_jobs_is_the_number_of_threads(jobs: int) -> None:
    seen, before = [], torch.get_num_threads()

    class Threads(Callback):
        def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
            seen.append(torch.get_num_threads())

    model = small(n_jobs=jobs, callbacks=[Threads()]).fit(GRAPHS, Y)
    assert set(seen) == {available_cores() if jobs == -1 else jobs}
    assert torch.get_num_threads() == before
    assert model.predict(GRAPHS).shape == Y.shape
    with pytest.raises(ValueError, match="'n_jobs' must be None, a positive integer, or −1"):
        small(n_jobs=0).fit(GRAPHS, Y)


# ---------------------------------------------------------------------- weights and validation
def test_sample_weight_changes_the_fit() -> None:
    weights = np.where(Y == 0, 10.0, 0.1)
    plain, heavy = small(epochs=20).fit(GRAPHS, Y), small(epochs=20).fit(GRAPHS, Y, sample_weight=weights)
    assert heavy.predict_proba(GRAPHS)[:, 0].mean() > plain.predict_proba(GRAPHS)[:, 0].mean()


@pytest.mark.parametrize("weights", [np.ones(len(Y)), np.full(len(Y), 3), [0.5] * len(Y), 2.0])
def test_equal_sample_weights_change_nothing(weights: Any) -> None:
    assert same(small().fit(GRAPHS, Y, sample_weight=weights), small().fit(GRAPHS, Y))


def test_sample_weights_of_zero_leave_graphs_out() -> None:
    weights = np.where(np.arange(len(Y)) < 16, 1.0, 0.0)
    assert same(small().fit(GRAPHS, Y, sample_weight=weights), small().fit(GRAPHS[:16], Y[:16]))


def test_sample_weights_of_pandas() -> None:
    weights = np.linspace(1, 2, len(Y))
    series = pd.Series(weights, index=np.arange(len(Y))[::-1])
    assert same(small().fit(GRAPHS, Y, series), small().fit(GRAPHS, Y, weights))


def test_wrong_sample_weights_are_refused() -> None:
    for weights, message in (
        ([1.0, 2.0], r"must have one weight per graph, \[24\], got \[2\]"),
        (np.ones((len(Y), 2)), "must have one weight per graph"),
        (np.where(Y == 0, -1.0, 1.0), "must hold numbers from 0 on, got -1.0"),
        (np.full(len(Y), np.nan), "must hold numbers from 0 on, got nan"),
        (np.where(Y == 0, 0.0, 1.0), "must be above zero for graphs of at least two classes, got one class"),
        (["heavy"] * len(Y), "must hold numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            small().fit(GRAPHS, Y, sample_weight=weights)


def test_sample_weight_in_score(fitted: HGCNClassifier) -> None:
    right = fitted.predict(GRAPHS) == NAMES
    weights = np.linspace(1, 5, len(Y))
    assert fitted.score(GRAPHS, NAMES, sample_weight=weights) == pytest.approx(
        np.average(right, weights=weights)
    )


def test_sample_weight_in_cross_validation() -> None:
    weights = np.linspace(1, 5, len(Y))
    scores = cross_val_score(small(), GRAPHS, Y, cv=2, params={"sample_weight": weights})
    assert np.isfinite(scores).all()


def test_metadata_routing_of_sample_weight() -> None:
    weights = np.linspace(1, 5, len(Y))
    with config_context(enable_metadata_routing=True):
        model = small().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"epochs": [1, 2]}, cv=2).fit(GRAPHS, Y, sample_weight=weights)
    assert search.best_params_["epochs"] in (1, 2)


@pytest.mark.parametrize("weight", ["balanced", {"ring": 3.0, "chain": 1.0}, {"ring": 2}])
def test_class_weight(weight: Any) -> None:
    assert small(class_weight=weight).fit(GRAPHS, NAMES).predict(GRAPHS).shape == Y.shape


def test_class_weights_are_sample_weights() -> None:
    """On the training graphs of one batch, up to the factor that makes the mean weight 1."""
    y = np.array([0] * 16 + [1] * 8)
    weights = compute_sample_weight("balanced", y)
    by_class = small(class_weight="balanced", validation=0).fit(GRAPHS, y)
    by_graph = small(validation=0).fit(GRAPHS, y, sample_weight=weights)
    np.testing.assert_allclose(by_class.predict_proba(GRAPHS), by_graph.predict_proba(GRAPHS), atol=1e-5)


def test_a_validation_set_of_ones_own() -> None:
    held_out = (GRAPHS[16:], NAMES[16:])
    model = small().fit(GRAPHS[:16], NAMES[:16], validation=held_out)
    assert model.model_.training["train_graphs"] == 16
    assert model.model_.training["validation_graphs"] == 8
    right = model.predict(held_out[0]) == held_out[1]
    assert model.model_.training["validation_accuracy"] == pytest.approx(right.mean())
    other = small().fit(GRAPHS[:16], NAMES[:16], validation=(GRAPHS[16:20], NAMES[16:20]))
    assert [row["train_loss"] for row in other.history_] == [row["train_loss"] for row in model.history_]


def test_a_validation_set_beside_sample_weights() -> None:
    weights = np.linspace(0, 2, 16)
    model = small().fit(GRAPHS[:16], Y[:16], sample_weight=weights, validation=(GRAPHS[16:], Y[16:]))
    assert model.model_.training["train_graphs"] == 15


def test_wrong_validation_sets_are_refused() -> None:
    for validation, message in (
        (
            (GRAPHS[16:], np.full(8, 2)),
            "'validation' must have the classes of the training graphs, '0', '1', got ",
        ),
        ((GRAPHS[16:18:2], [0]), "got '1' in the training graphs only"),
        ((GRAPHS[16:], Y[16:18]), "'validation' must have one class per graph, 8, got 2"),
        ((GRAPHS[16:],), r"'validation' must be a pair of graphs and class labels, \(X, y\)"),
        (0.5, "'validation' must be a pair"),
        ((np.zeros((8, 2)), Y[16:]), "'validation' must be a GraphStore or a list"),
    ):
        with pytest.raises(ValueError, match=message):
            small().fit(GRAPHS[:16], Y[:16], validation=validation)


# ---------------------------------------------------------------------- model selection
@pytest.mark.parametrize("scoring", ["roc_auc", "neg_log_loss", "balanced_accuracy", "average_precision"])
def test_scoring_by_name(fitted: HGCNClassifier, scoring: str) -> None:
    positive = {"pos_label": "ring"} if scoring == "average_precision" else {}
    scorer = make_scorer(get_scorer(scoring)._score_func, **_response(scoring), **positive)
    assert np.isfinite(scorer(fitted, GRAPHS, NAMES))
    assert np.isfinite(cross_val_score(small(), GRAPHS, Y, cv=2, scoring=scoring)).all()


def _response(scoring: str) -> dict[str, Any]:
    if scoring == "neg_log_loss":
        return {"response_method": "predict_proba", "greater_is_better": False}
    return {"response_method": "predict" if scoring == "balanced_accuracy" else "decision_function"}


def test_a_scorer_of_ones_own() -> None:
    scorer = make_scorer(f1_score, pos_label="ring")
    assert np.isfinite(cross_val_score(small(), GRAPHS, NAMES, cv=2, scoring=scorer)).all()


@pytest.mark.parametrize(
    "cv",
    [StratifiedKFold(2), GroupKFold(2), LeaveOneGroupOut(), RepeatedStratifiedKFold(n_splits=2, n_repeats=2)],
    ids=lambda cv: type(cv).__name__,
)
def test_cross_validation_splitters(cv: Any) -> None:
    groups = GROUPS if "Group" in type(cv).__name__ else None
    scores = cross_val_score(small(), GRAPHS, Y, cv=cv, groups=groups)
    assert len(scores) == cv.get_n_splits(GRAPHS, Y, GROUPS)


def test_cross_validate_with_several_metrics() -> None:
    result = cross_validate(
        small(),
        GRAPHS,
        Y,
        cv=2,
        scoring=["accuracy", "roc_auc"],
        return_estimator=True,
        return_train_score=True,
    )
    assert len(result["test_roc_auc"]) == len(result["train_accuracy"]) == 2
    assert all(isinstance(model, HGCNClassifier) for model in result["estimator"])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_cross_val_predict(method: str) -> None:
    predicted = cross_val_predict(small(), GRAPHS, Y, cv=2, method=method)
    assert predicted.shape == ((len(Y), 2) if method == "predict_proba" else (len(Y),))


def test_grid_search() -> None:
    search = GridSearchCV(small(), {"num_capsules": [2, (3, 2)], "dropout": [0.0, None]}, cv=2).fit(GRAPHS, Y)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict_proba(GRAPHS).shape == (len(Y), 2)


def test_grid_search_over_weights() -> None:
    weights = np.linspace(1, 2, len(Y))
    search = GridSearchCV(small(), {"epochs": [1, 2]}, cv=2).fit(GRAPHS, Y, sample_weight=weights)
    assert hasattr(search.best_estimator_, "model_")


def test_randomized_search() -> None:
    space = {"learning_rate": scipy.stats.loguniform(1e-3, 1e-1), "capsule_dim": [4, 8]}
    search = RandomizedSearchCV(small(), space, n_iter=2, cv=2, random_state=0).fit(GRAPHS, Y)
    assert search.best_params_["capsule_dim"] in (4, 8)


def test_halving_search_with_epochs_as_the_resource() -> None:
    search = HalvingGridSearchCV(
        small(),
        {"learning_rate": [0.001, 0.01, 0.1]},
        resource="epochs",
        max_resources=4,
        min_resources=1,
        cv=2,
    ).fit(GRAPHS, Y)
    assert search.best_params_["epochs"] <= 4


def test_learning_curve() -> None:
    sizes, _, scores = learning_curve(small(), GRAPHS, Y, cv=2, train_sizes=[0.7, 1.0])
    assert scores.shape == (len(sizes), 2)


def test_validation_curve() -> None:
    train, _ = validation_curve(small(), GRAPHS, Y, param_name="epochs", param_range=[1, 2], cv=2)
    assert train.shape == (2, 2)


def test_permutation_test_score() -> None:
    _, scores, p = permutation_test_score(small(epochs=1), GRAPHS, Y, cv=2, n_permutations=2, random_state=0)
    assert len(scores) == 2
    assert 0 < p <= 1


def test_a_dummy_classifier_beside() -> None:
    for model in (DummyClassifier(), small()):
        assert np.isfinite(cross_val_score(model, GRAPHS, Y, cv=2)).all()


# ---------------------------------------------------------------------- pipelines
def test_a_pipeline_that_ends_in_the_classifier(smiles: list[str]) -> None:
    frame = pd.DataFrame({"id": range(len(smiles)), "smiles": smiles})
    pick = FunctionTransformer(lambda table: table["smiles"])
    pipeline = Pipeline([("pick", pick), ("model", small())])
    pipeline.set_params(model__epochs=1).fit(frame, NAMES)
    assert pipeline.predict_proba(frame).shape == (len(smiles), 2)
    assert pipeline.classes_.tolist() == ["chain", "ring"]
    assert np.isfinite(cross_val_score(pipeline, frame, NAMES, cv=2, scoring="roc_auc")).all()


def test_the_embedding_as_a_step() -> None:
    pipeline = make_pipeline(small(), StandardScaler(), LogisticRegression()).fit(GRAPHS, Y)
    assert pipeline.predict(GRAPHS).shape == Y.shape


def test_one_column_of_a_column_transformer(smiles: list[str]) -> None:
    frame = pd.DataFrame({"smiles": smiles, "weight": np.linspace(0, 1, len(smiles))})
    for column in ("smiles", ["smiles"]):
        columns = ColumnTransformer([("graph", small(), column), ("weight", StandardScaler(), ["weight"])])
        rows = columns.fit_transform(frame, Y)
        assert rows.shape == (len(smiles), 2 * 8 + 1)
        assert "graph__0[0]" in columns.get_feature_names_out()
        assert make_pipeline(columns, LogisticRegression()).fit(frame, Y).predict(frame).shape == Y.shape


def test_set_output(smiles: list[str]) -> None:
    frame = pd.DataFrame({"smiles": smiles}, index=[f"m{row}" for row in range(len(smiles))])
    rows = small().set_output(transform="pandas").fit(frame, NAMES).transform(frame)
    assert list(rows.columns[:2]) == ["chain[0]", "chain[1]"]
    assert rows.index.tolist() == frame.index.tolist()


def test_fit_transform_equals_fit_and_transform() -> None:
    assert np.array_equal(small().fit_transform(GRAPHS, Y), small().fit(GRAPHS, Y).transform(GRAPHS))


# ---------------------------------------------------------------------- ensembles
def test_calibrated_classifier() -> None:
    model = CalibratedClassifierCV(small(calibrate=False), cv=2).fit(GRAPHS, NAMES)
    assert model.predict_proba(GRAPHS).shape == (len(Y), 2)


def test_calibrating_a_fitted_classifier(fitted: HGCNClassifier) -> None:
    model = CalibratedClassifierCV(FrozenEstimator(fitted), method="isotonic").fit(GRAPHS, NAMES)
    assert model.classes_.tolist() == ["chain", "ring"]


def test_tuned_threshold() -> None:
    model = TunedThresholdClassifierCV(small(), scoring="balanced_accuracy", cv=2).fit(GRAPHS, Y)
    assert 0 <= model.best_threshold_ <= 1


@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_voting_classifier(voting: str) -> None:
    members = [("a", small()), ("b", small(random_state=1)), ("dummy", DummyClassifier())]
    assert VotingClassifier(members, voting=voting).fit(GRAPHS, NAMES).predict(GRAPHS).shape == Y.shape


def test_stacking_classifier() -> None:
    model = StackingClassifier([("a", small()), ("b", small(random_state=1))], cv=2).fit(GRAPHS, Y)
    assert model.predict_proba(GRAPHS).shape == (len(Y), 2)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_bagging_classifier(smiles: list[str], bootstrap: bool) -> None:
    """scikit-learn's bagging takes two-dimensional X: one column of graphs."""
    frame = pd.DataFrame({"smiles": smiles})
    for X in (frame, objects(GRAPHS).reshape(-1, 1)):
        model = BaggingClassifier(
            small(validation=0), n_estimators=2, max_samples=0.9, bootstrap=bootstrap, random_state=0
        ).fit(X, NAMES)
        assert model.predict_proba(X).shape == (len(Y), 2)
        assert model.classes_.tolist() == ["chain", "ring"]


def test_one_vs_rest() -> None:
    three = np.arange(len(Y)) % 3
    model = OneVsRestClassifier(small()).fit(GRAPHS, three)
    assert model.predict(GRAPHS).shape == Y.shape
    assert model.predict_proba(GRAPHS).shape == (len(Y), 3)


# ---------------------------------------------------------------------- reports, files and processes
def test_classification_report(fitted: HGCNClassifier) -> None:
    report = classification_report(NAMES, fitted.predict(GRAPHS), output_dict=True, zero_division=0)
    assert {"ring", "chain"} <= set(report)


def test_displays(fitted: HGCNClassifier) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    matrix = ConfusionMatrixDisplay.from_estimator(fitted, GRAPHS, NAMES).confusion_matrix
    assert matrix.sum() == len(Y)
    assert 0 <= RocCurveDisplay.from_estimator(fitted, GRAPHS, NAMES).roc_auc <= 1
    plt.close("all")


def test_pickle_and_joblib(fitted: HGCNClassifier, tmp_path: Any) -> None:
    assert same(pickle.loads(pickle.dumps(fitted)), fitted)
    joblib.dump(fitted, tmp_path / "model.joblib")
    assert same(joblib.load(tmp_path / "model.joblib"), fitted)


def test_save_and_load_run_no_code(fitted: HGCNClassifier, tmp_path: Any) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    restored = HGCNClassifier.load(path)
    assert same(restored, fitted)
    assert restored.get_params() == fitted.get_params()


def test_threads_of_joblib(fitted: HGCNClassifier) -> None:
    halves = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(fitted.predict_proba)(part) for part in (GRAPHS[:12], GRAPHS[12:])
    )
    np.testing.assert_allclose(np.concatenate(halves), fitted.predict_proba(GRAPHS), atol=1e-6)


@pytest.mark.slow
def test_processes_of_joblib() -> None:
    model = small(n_jobs=1)
    assert np.array_equal(
        cross_val_score(model, GRAPHS, Y, cv=2, n_jobs=2), cross_val_score(model, GRAPHS, Y, cv=2)
    )
