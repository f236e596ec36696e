"""``HGCNClassifier``: HGCN as a scikit-learn classifier for graphs."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.class_names import class_name, is_missing
from graphcaps.data.coercion import GraphInput, coerce, concat_stores
from graphcaps.data.features.compatibility import CheckedGraphs
from graphcaps.data.readers.featurizers import FEATURIZERS
from graphcaps.data.readers.graph_metadata import warn_of_notes
from graphcaps.data.readers.row_rules import describe_fragments, find_repeated
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, ShapeError
from graphcaps.inference.fitted_model import FittedModel, load
from graphcaps.inference.probabilities import MIN_PROBABILITY, abstain
from graphcaps.metrics import SelectionMetric
from graphcaps.nn import HGCN
from graphcaps.training.class_weights import balanced_class_weights
from graphcaps.training.device import use_threads
from graphcaps.training.final_training import FinalTraining
from graphcaps.training.loop import Callback
from graphcaps.training.trainer import EpochEnd

__all__ = [
    "HGCNClassifier",
    "check_parameters",
    "class_weights",
    "default_config",
    "encode_classes",
    "fit_notes",
    "load_estimator",
    "run_config",
    "save_estimator",
]


_OWNER = "HGCNClassifier"
_FILE_ENTRY = "estimator"  # entry of the model file's training record that save writes


@cache
def default_config(preset: str = "default") -> RunConfig:
    """The preset ``default``, the single source of default values, or ``molecules``."""
    file = resources.files("graphcaps").joinpath("presets", f"{preset}.toml")
    return RunConfig.from_toml(file.read_text("utf-8"), preset)


_MODEL, _TRAINING = default_config().model_arguments, default_config().training


class HGCNClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Classifies graphs with a Hierarchical Graph Capsule Network.

    Graphs are of any kind that :func:`graphcaps.data.coerce` accepts: a ``GraphStore``, a list of torch-geometric
    ``Data``, networkx graphs, SMILES, molecules or matrices, a column of a ``DataFrame``, or a path. Defaults are those
    of the preset ``default``; docs/estimator.md gives the reason for each. For molecules from SMILES, parameters that
    are left at their default take the values of the preset ``molecules``, whose model reads the bonds. As in
    scikit-learn, the constructor only stores its arguments and ``fit`` checks them.

    Args:
        capsule_dim (int): Length of a capsule.
        num_capsules (int or tuple): Number of capsules of each hidden level, from the nodes upwards.
        num_factors (int): Number of factors of a primary capsule; divides ``capsule_dim``.
        routing_iterations (int): Number of routing iterations.
        parts ("blocks" or None): With ``"blocks"``, a loss trains the lowest capsules to be parts of the graph
            (docs/parts.md).
        dropout (float, optional): Dropout rate in training; ``None`` is 0.5 up to 1,500 graphs and 0.1 above.
        epochs (int): Largest number of epochs.
        batch_size (int, optional): Graphs per step; ``None`` is about a fortieth of them, from 16 to 128.
        learning_rate (float): Initial learning rate of Adam.
        halve_every (int): Number of epochs after which the learning rate is halved, repeatedly.
        weight_decay (float): Factor of the weights that is added to their gradient.
        reconstruction_weight (float): Weight of the reconstruction loss.
        average_epochs (int): Number of epochs whose weights are averaged for evaluation and for the fitted model;
            1 uses the weights of the last epoch.
        max_nodes (int, optional): Larger graphs are truncated to their nodes of highest degree. ``None`` and 0 keep
            all nodes, ``None`` except those of a data set of the catalogue above 1000, as in the paper.
        validation (float): Fraction of every class that is held out for early stopping and calibration. 0 trains on
            all graphs for all epochs, without calibration. (default: 0.1)
        patience (int, optional): Number of epochs without an improvement of ``metric`` by 0.0005, after which training
            stops; ``None`` trains all epochs. (default: 50)
        metric (str): Metric of the validation graphs that selects the epoch: ``"loss"``, ``"accuracy"``,
            ``"balanced-accuracy"``, ``"roc-auc"``, ``"pr-auc"`` or ``"mcc"``. (default: "loss")
        class_weight ("balanced", dict or None): Weight of a graph of each class. (default: 1 each)
        calibrate (bool or str): Calibration of the probabilities: ``True`` or ``"temperature"``, ``"isotonic"``,
            ``False``. (default: ``True``)
        featurizer (str, optional): Properties of atoms and bonds that are read from SMILES, ``"standard"`` or
            ``"elements"`` (docs/featurizers.md); for molecules only. (default: ``"standard"``)
        unseen (str): Handling of labels that were not in the training graphs: ``"ignore"`` encodes them as zeros with
            a warning, ``"refuse"`` raises. (default: "ignore")
        random_state (int, RandomState or None): Seed of the hold-out, the initial weights, the order of graphs and
            dropout. On a CPU, equal seeds give bit-identical models.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        n_jobs (int, optional): Number of CPU threads of ``fit`` and of predictions; −1 uses all cores. ``None`` is
            torch's own setting. The last bits of the weights may depend on it.
        warm_start (bool): Whether a second ``fit`` continues from the weights of the first. (default: ``False``)
        verbose (int): 0 is silent; n writes a line to stderr every n epochs. (default: 0)
        callbacks (list, optional): :class:`graphcaps.training.Callback` objects, for trackers (docs/tracking.md).

    Attributes:
        classes_ (ndarray): The class labels, ascending.
        n_features_in_ (int): Number of node columns: attributes and labels.
        model_ (FittedModel): The trained model; ``model_.info()`` describes it.
        history_ (list): A dictionary per epoch: losses and accuracies on training and validation graphs.
        n_iter_ (int): Number of epochs trained.

    Example:
        >>> model = HGCNClassifier(random_state=0).fit(graphs, y)                  # doctest: +SKIP
        >>> model.predict_proba(new_graphs)                                        # doctest: +SKIP
    """

    classes_: np.ndarray
    n_features_in_: int
    model_: FittedModel
    history_: list[dict[str, float]]
    n_iter_: int

    def __init__(
        self,
        *,
        capsule_dim: int = _MODEL["capsule_dim"],
        num_capsules: int | tuple[int, ...] = _MODEL["num_capsules"],
        num_factors: int = _MODEL["num_factors"],
        routing_iterations: int = _MODEL["routing_iterations"],
        parts: Literal["blocks"] | None = None,
        dropout: float | None = None,
        epochs: int = _TRAINING.epochs,
        batch_size: int | None = None,
        learning_rate: float = _TRAINING.learning_rate,
        halve_every: int = _TRAINING.halve_every,
        weight_decay: float = _TRAINING.weight_decay,
        reconstruction_weight: float = _TRAINING.reconstruction_weight,
        average_epochs: int = _TRAINING.average_epochs,
        max_nodes: int | None = None,
        validation: float = 0.1,
        patience: int | None = 50,
        metric: SelectionMetric = "loss",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool | Literal["temperature", "isotonic"] = True,
        featurizer: Literal["standard", "elements"] | None = None,
        unseen: Literal["ignore", "refuse"] = "ignore",
        random_state: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.capsule_dim = capsule_dim
        self.num_capsules = num_capsules
        self.num_factors = num_factors
        self.routing_iterations = routing_iterations
        self.parts = parts
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.halve_every = halve_every
        self.weight_decay = weight_decay
        self.reconstruction_weight = reconstruction_weight
        self.average_epochs = average_epochs
        self.max_nodes = max_nodes
        self.validation = validation
        self.patience = patience
        self.metric = metric
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.featurizer = featurizer
        self.unseen = unseen
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # graphs, not rows of numbers
        tags.input_tags.string = True  # SMILES
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    # ------------------------------------------------------------------ fitting
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, validation: tuple[Any, Any] | None = None
    ) -> HGCNClassifier:
        """Trains the model.

        Args:
            X: Graphs.
            y (array, optional): Class label of each graph. (default: the classes of the store or file, ``Data.y`` or
                ``graph.graph["y"]``)
            sample_weight (array, optional): Weight of each graph in the training and the validation loss. Only ratios
                matter, and graphs of weight 0 are left out. (default: 1 each)
            validation (tuple, optional): Graphs and class labels ``(X, y)`` of a validation set, in place of the
                fraction ``validation`` of the constructor. They weigh 1 each.

        Warns:
            ReadingWarning: Once for each of rows that were left out, salts and mixtures, and copies of a molecule
                with different classes.

        Raises:
            ArgumentError: If a parameter, a graph, a class label or a weight is invalid, or the validation set has
                other classes than ``y``.

        Warns:
            CapsuleCollapseWarning: If one capsule holds almost all nodes (docs/parts.md).
        """
        parameters = self.get_params(deep=False)
        check_parameters(parameters)
        continues = self.warm_start and hasattr(self, "model_")
        graphs = self._read(X, fitting=not continues)
        self.classes_, store = encode_classes(graphs, y)
        warn_of_notes(
            _OWNER, fit_notes(graphs, store, is_read=not isinstance(X, GraphStore), has_y=y is not None)
        )
        store, weights = drop_weightless(store, sample_weight)
        attributes, labels = store.node_attributes, store.node_labels
        self.n_features_in_ = sum(0 if part is None else part.size(1) for part in (attributes, labels))
        assert store.y is not None
        class_weight = class_weights(self.class_weight, self.classes_, store.y)
        held_out: float | Tensor = float(self.validation)
        if validation is not None:
            added = self._read_validation(validation, store, fitting=not continues)
            held_out = torch.arange(len(store), len(store) + len(added))
            weights = None if weights is None else np.concatenate([weights, np.ones(len(added))])
            store = join_validation(store, added)
        with use_threads(self.n_jobs):
            training = FinalTraining(
                store,
                run_config(parameters, store),
                seed=self._seed(),
                validation=held_out,
                device=self.device,
                patience=self.patience,
                metric=self.metric,
                class_weight=class_weight,
                sample_weight=weights,
                calibrate="temperature" if self.calibrate is True else self.calibrate or None,
                start=self.model_ if continues else None,
                callbacks=self.callbacks or (),
            )
            with closing(training.run()) as events:
                for event in events:
                    self._report(event)
            result = training.result()
        result.warn()
        self.model_ = result.model
        self.n_iter_ = len(result.history)
        self.history_ = [_row(event) for event in result.history]
        return self

    @property
    def partial_fit(self) -> Any:
        """Does not exist: a property, so that ``hasattr`` is false and the message says what to use instead."""
        raise AttributeError(
            "HGCNClassifier has no partial_fit: the validation set, the input columns and the number of epochs are "
            "chosen for all graphs together. Fit all graphs at once; to continue a fitted model on further graphs, "
            "use warm_start=True and fit again."
        )

    def _read_validation(self, validation: Any, store: GraphStore, *, fitting: bool) -> GraphStore:
        """The validation set of :meth:`fit`, with the class indices of the training graphs."""
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            expected = "be a pair of graphs and class labels, (X, y)"
            raise ArgumentError(_OWNER, "validation", expected, type(validation).__name__)
        graphs = self._read(validation[0], fitting=fitting, argument="validation")
        return encode_like(graphs, validation[1], store)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer) and not isinstance(self.random_state, bool):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _report(self, event: EpochEnd) -> None:
        if self.verbose and event.epoch % self.verbose == 0:
            metrics = ", ".join(f"{name} {value:.4f}" for name, value in _row(event).items() if "_" in name)
            sys.stderr.write(f"epoch {event.epoch} of {event.epochs}: {metrics}\n")

    def _read(self, X: Any, *, fitting: bool = False, argument: str = "X") -> GraphInput:
        """Converts graphs; molecules to classify are read with the featurizer of the training graphs."""
        recipe = None if fitting else self.model_.recipe
        options = {"featurizer": self.featurizer} if fitting and self.featurizer is not None else {}
        return coerce(X, owner=_OWNER, argument=argument, recipe=recipe, samples=True, **options)

    # ------------------------------------------------------------------ predicting
    def _checked(self, X: Any) -> CheckedGraphs:
        check_is_fitted(self, "model_")
        return self.model_.check(self._read(X).store, unseen=self.unseen, owner=_OWNER, argument="X")

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, ``[G, O]``, in the order of ``classes_``; calibrated if ``calibrate`` is set."""
        checked = self._checked(X)
        with use_threads(self.n_jobs):
            return self.model_.predict_proba(checked)

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-odds of the second class, ``[G]``, for two classes; log-probability of each class, ``[G, O]``, for more.

        They order graphs and classes as :meth:`predict_proba` does.
        """
        logarithms = np.log(np.maximum(self.predict_proba(X), MIN_PROBABILITY))
        return logarithms[:, 1] - logarithms[:, 0] if len(self.classes_) == 2 else logarithms

    def predict(self, X: Any, *, abstain_below: float | None = None) -> np.ndarray:
        """Predicted class label of each graph, ``[G]``.

        Args:
            X: Graphs.
            abstain_below (float, optional): Probability below which the prediction for a graph is ``None``; the
                result then has dtype object.
        """
        probabilities = self.predict_proba(X)
        return abstain(self.classes_[probabilities.argmax(-1)], probabilities, abstain_below)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; without ``y``, with respect to the class labels of the graphs."""
        if y is None:
            check_is_fitted(self, "model_")
            y = self._read(X).y
        if y is None:
            raise ArgumentError(_OWNER, "y", "hold the class of each graph", "None")
        true = [class_name(label) for label in column_or_1d(y, warn=True).tolist()]
        predicted = [class_name(label) for label in self.predict(X).tolist()]
        return float(accuracy_score(true, predicted, sample_weight=sample_weight))

    def transform(self, X: Any) -> np.ndarray:
        """Embedding of each graph: its class capsules, concatenated, ``[G, O · capsule_dim]``."""
        checked = self._checked(X)
        with use_threads(self.n_jobs):
            return self.model_.embed(checked).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of :meth:`transform`: class and index within its capsule."""
        check_is_fitted(self, "model_")
        width = range(int(self.model_.config.model_arguments["capsule_dim"]))
        return np.array([f"{name}[{index}]" for name in self.classes_ for index in width], dtype=object)

    def out_of_distribution(self, X: Any) -> tuple[str, ...]:
        """For each graph the reason why it lies outside the applicability domain, or "" if it lies inside."""
        checked = self._checked(X)
        return self.model_.out_of_distribution(checked)

    def explain(self, X: Any, *, target: Any = None) -> Any:
        """Explains predictions, see :func:`graphcaps.explain`; ``target`` is the class label to explain."""
        check_is_fitted(self, "model_")
        store = coerce(X, owner=_OWNER, argument="X", recipe=self.model_.recipe).store
        checked = self.model_.check(store, unseen=self.unseen, owner=_OWNER, argument="X")
        if target is not None:
            names = [class_name(label) for label in self.classes_.tolist()]
            index = names.index(class_name(target)) if class_name(target) in names else None
            if index is None:
                labels = ", ".join(map(str, self.classes_[:5]))
                raise ArgumentError(_OWNER, "target", f"be a class among {labels}", repr(target))
            target = index
        return self.model_.explain(checked, target=target)

    # ------------------------------------------------------------------ files
    def save(self, path: Any) -> None:
        """Writes a model file for :meth:`load` and :func:`graphcaps.load`."""
        check_is_fitted(self, "model_")
        save_estimator(self, path)

    @classmethod
    def load(cls, path: Any) -> HGCNClassifier:
        """Reads a model file of :meth:`save` or of ``graphcaps train``; runs no code from the file."""
        return load_estimator(cls, path)


# ---------------------------------------------------------------------- class labels
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
        raise ArgumentError(_OWNER, "y", "hold the class of each graph", "none", fix)
    y = column_or_1d(y, warn=True)
    if len(y) != len(graphs.store):
        raise ArgumentError(_OWNER, "y", f"have one class per graph, {len(graphs.store)}", len(y))
    _refuse_missing(y)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    classes, index = np.unique(_one_notation(y), return_inverse=True)
    if len(classes) < 2:
        got = f"1 class, {classes.tolist()[0]!r}" if len(classes) else "none"
        raise ArgumentError(_OWNER, "y", "hold at least two classes", got)
    names = tuple(class_name(label) for label in classes.tolist())
    codes = torch.from_numpy(index.astype(np.int64))
    return classes, replace(graphs.store, y=codes, class_names=names)


def _refuse_missing(y: np.ndarray, argument: str = "y") -> None:
    """Rejects classes with missing values, as pandas marks them, and empty text."""
    missing = [graph for graph, label in enumerate(y.tolist()) if is_missing(label) or label == ""]
    if missing:
        more = f" ({len(missing):,} such graphs)" if len(missing) > 1 else ""
        got = f"{y.tolist()[missing[0]]!r} for graph {missing[0]}{more}"
        fix = (
            "Leave out graphs without a class; coerce(frame, label='…', bad='skip') does so for a DataFrame."
        )
        raise ArgumentError(_OWNER, argument, "hold the class of each graph", got, fix)


def fit_notes(graphs: GraphInput, store: GraphStore, *, is_read: bool, has_y: bool) -> list[str]:
    """Sentences on what a training should know of its rows, as the command line prints them.

    Args:
        graphs (GraphInput): The graphs as they were converted.
        store (GraphStore): The same graphs with their classes.
        is_read (bool): Whether ``fit`` read them itself; the function that made a store has said the rest.
        has_y (bool): Whether the classes were passed beside the graphs, so that no reader could compare them.
    """
    notes: list[str] = []
    if is_read and graphs.metadata is not None:
        notes += [*graphs.metadata.notes, *graphs.metadata.skipped_notes]
    if store.smiles is None or store.y is None:
        return notes
    if is_read and store.fragments != "largest":
        count = sum("." in smiles for smiles in store.smiles)
        option = "coerce(X, fragments='largest')"
        notes.append(describe_fragments(count, len(store), "all", option))
    repeated = find_repeated(store.smiles, store.y.tolist())
    if repeated.contradicting and (is_read or has_y):  # copies with one class change no result in silence
        notes.append(repeated.describe("keep", has_options=False))
    return notes


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
    y = graphs.y if y is None else column_or_1d(y, warn=True)
    if y is None or len(y) != len(graphs.store):
        expected = f"have one class per graph, {len(graphs.store)}"
        raise ArgumentError(_OWNER, "validation", expected, "none" if y is None else len(y))
    _refuse_missing(y, "validation")
    names = [class_name(label) for label in y.tolist()]
    assert store.y is not None
    trained = {store.class_names[index] for index in store.y.unique().tolist()}
    if set(names) != trained:
        only = sorted(set(names) ^ trained)[0]
        where = "validation" if only in names else "training"
        expected = f"have the classes of the training graphs, {', '.join(map(repr, sorted(trained)[:5]))}"
        raise ArgumentError(_OWNER, "validation", expected, f"{only!r} in the {where} graphs only")
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
        raise ArgumentError(_OWNER, "validation", expected, error.got) from error


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
        raise ShapeError(_OWNER, "sample_weight", expected, list(weights.shape))
    try:
        weights = weights.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(_OWNER, "sample_weight", "hold numbers", str(weights.dtype)) from error
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise ArgumentError(_OWNER, "sample_weight", "hold numbers from 0 on", wrong[0])
    kept = np.flatnonzero(weights)
    if len(kept) < len(weights):
        store, weights = store[torch.from_numpy(kept)], weights[kept]
    assert store.y is not None
    left = store.y.unique().numel()
    if left < 2:
        expected = "be above zero for graphs of at least two classes"
        raise ArgumentError(_OWNER, "sample_weight", expected, "one class" if left else "all zero")
    return store, weights


# ---------------------------------------------------------------------- parameters
_INTEGERS: dict[str, tuple[int, bool]] = {  # minimum, and whether None is allowed
    "capsule_dim": (1, False),
    "num_factors": (1, False),
    "routing_iterations": (1, False),
    "epochs": (1, False),
    "batch_size": (1, True),
    "halve_every": (1, False),
    "average_epochs": (1, False),
    "patience": (1, True),
    "max_nodes": (0, True),
    "verbose": (0, False),
}
_REALS: dict[str, tuple[float, float, str]] = {  # minimum, excluded maximum, condition in words
    "dropout": (0, 1, "be at least 0 and below 1, or None"),
    "learning_rate": (0, math.inf, "be above 0 and finite"),
    "weight_decay": (0, math.inf, "be at least 0 and finite"),
    "reconstruction_weight": (0, math.inf, "be at least 0 and finite"),
    "validation": (0, 1, "be at least 0 and below 1"),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "parts": (None, "blocks"),
    "calibrate": (True, False, "temperature", "isotonic"),
    "featurizer": (None, *FEATURIZERS),
    "unseen": ("ignore", "refuse"),
    "warm_start": (True, False),
    "metric": get_args(SelectionMetric),
}
_MODEL_PARAMETERS = ("capsule_dim", "num_factors", "routing_iterations", "dropout", "parts")
_TRAINING_PARAMETERS = (
    *("epochs", "batch_size", "learning_rate", "halve_every", "weight_decay"),
    *("reconstruction_weight", "average_epochs"),
)


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Checks the parameters of :class:`HGCNClassifier`.

    Raises:
        ArgumentError: If a parameter is invalid.
    """
    for name, (minimum, optional) in _INTEGERS.items():
        value = parameters[name]
        if not (optional and value is None) and not (_is_integer(value) and value >= minimum):
            words = f"be an integer of at least {minimum}" + (", or None" if optional else "")
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, (low, high, words) in _REALS.items():
        value = parameters[name]
        if name == "dropout" and value is None:
            continue  # chosen by the number of graphs
        valid = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high
        if not valid or (name == "learning_rate" and not value > 0):
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, choices in _CHOICES.items():
        if not any(parameters[name] is choice or parameters[name] == choice for choice in choices):
            raise ArgumentError(
                _OWNER, name, f"be one of {', '.join(map(repr, choices))}", repr(parameters[name])
            )
    capsules = parameters["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    if not listed or not all(_is_integer(count) and count >= 1 for count in listed):
        words = "be a positive integer, or several, one per level"
        raise ArgumentError(_OWNER, "num_capsules", words, repr(capsules))
    if parameters["capsule_dim"] % parameters["num_factors"]:
        words = f"divide 'capsule_dim', {parameters['capsule_dim']}, without remainder"
        raise ArgumentError(_OWNER, "num_factors", words, parameters["num_factors"])
    weights = parameters["class_weight"]
    if not (
        weights is None
        or isinstance(weights, Mapping)
        or (isinstance(weights, str) and weights == "balanced")
    ):
        words = "be None, 'balanced' or a dictionary from class to weight"
        raise ArgumentError(_OWNER, "class_weight", words, repr(weights))
    callbacks = parameters["callbacks"]
    listed = callbacks if isinstance(callbacks, list | tuple) else (callbacks,)
    if callbacks is not None and not all(isinstance(each, Callback) for each in listed):
        words = "be None or a list of graphcaps.training.Callback"
        raise ArgumentError(_OWNER, "callbacks", words, repr(callbacks))
    if isinstance(callbacks, Callback):
        raise ArgumentError(_OWNER, "callbacks", "be a list", repr(callbacks), "Put it into a list.")
    jobs = parameters["n_jobs"]
    if not (jobs is None or (_is_integer(jobs) and jobs != 0)):
        raise ArgumentError(_OWNER, "n_jobs", "be None, a positive integer, or −1 for all cores", repr(jobs))
    if not isinstance(parameters["device"], str):
        raise ArgumentError(
            _OWNER, "device", "be a string such as 'cpu', 'cuda' or 'auto'", repr(parameters["device"])
        )


def run_config(parameters: Mapping[str, Any], store: GraphStore) -> RunConfig:
    """The preset for the graphs, changed by the parameters of :class:`HGCNClassifier`.

    Molecules from SMILES have the preset ``molecules``, other graphs ``default``. A parameter that has its default
    value, which is that of ``default``, leaves the value of the preset as it is.
    """
    base = default_config("default" if store.featurizer is None else "molecules")
    capsules = parameters["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    limit = _to_python(parameters["max_nodes"])
    changed = replace(base, dataset=store.name)
    changed = changed if limit is None else changed.with_features(max_nodes=limit or None)
    model = {key: _to_python(parameters[key]) for key in _MODEL_PARAMETERS}
    model["num_capsules"] = tuple(int(count) for count in listed)
    changed = changed.with_model(**_without_defaults(model, _MODEL))
    if parameters["parts"] is not None and "context" in changed.model_arguments:
        changed = changed.with_model(context=0)  # parts have message passing layers of their own
    training = {key: _to_python(parameters[key]) for key in _TRAINING_PARAMETERS}
    changed = changed.with_training(**_without_defaults(training, vars(_TRAINING)))
    same = replace(changed, dataset=base.dataset) == base
    return changed if same else replace(changed, source=f"{base.source}, changed by arguments")


def _without_defaults(values: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values that differ from those of the preset ``default``; what it derives from the data has none there."""
    by_data = default_config().by_data
    return {key: value for key, value in values.items() if key in by_data or value != defaults.get(key)}


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
            raise ArgumentError(_OWNER, "class_weight", f"have classes among {some} as keys", repr(label))
    weights = [class_weight.get(label, 1.0) for label in labels]
    for weight in weights:
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise ArgumentError(_OWNER, "class_weight", "have positive numbers as values", repr(weight))
    return torch.tensor([float(weight) for weight in weights])


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _to_python(value: Any) -> Any:
    """A numpy number, as parameter searches pass it, as a Python number."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value


# ---------------------------------------------------------------------- model files
def save_estimator(model: HGCNClassifier, path: str | Path) -> None:
    """Writes the model file of a fitted classifier.

    Raises:
        ArgumentError: If the class labels are neither numbers, strings nor booleans.
    """
    classes = model.classes_
    labels = classes.tolist()
    if not all(isinstance(label, str | int | float | bool) for label in labels):
        kind = type(labels[0]).__name__
        raise ArgumentError("HGCNClassifier.save", "classes_", "be numbers or strings to be saved", kind)
    record = {
        "parameters": {
            name: _to_json(value)
            for name, value in model.get_params(deep=False).items()
            if name != "callbacks"
        },
        "classes": labels,
        "dtype": classes.dtype.str if classes.dtype.kind != "O" else "O",
        "features": model.n_features_in_,
        "history": model.history_,
    }
    fitted = model.model_
    replace(fitted, training=fitted.training | {_FILE_ENTRY: record}).save(path)


def load_estimator(kind: type[HGCNClassifier], path: str | Path) -> HGCNClassifier:
    """Reads a fitted classifier from a model file.

    Class labels of a file that ``graphcaps train`` wrote are the class names in the file.

    Raises:
        DataError: If the file is invalid, or its model is not an HGCN.
    """
    fitted = load(path)
    if not isinstance(fitted.model, HGCN):
        fix = "Use graphcaps.load for it."
        raise DataError(path, "a model 'hgcn'", f"a model '{fitted.config.model}'", fix=fix)
    record = fitted.training.get(_FILE_ENTRY, {})
    try:
        return _restore(kind, fitted, record)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(
            path, f"an entry of HGCNClassifier.save under '{_FILE_ENTRY}'", f"'{error}'"
        ) from error


def _restore(kind: type[HGCNClassifier], fitted: FittedModel, record: dict[str, Any]) -> HGCNClassifier:
    parameters = record["parameters"] if record else _parameters_of(fitted)
    names = inspect.signature(kind).parameters
    arguments = {name: value for name, value in parameters.items() if name in names}
    if isinstance(arguments.get("num_capsules"), list):
        arguments["num_capsules"] = tuple(arguments["num_capsules"])
    model = kind(**arguments)
    model.model_ = replace(
        fitted, training={name: value for name, value in fitted.training.items() if name != _FILE_ENTRY}
    )
    labels = np.array(record["classes"], dtype=record["dtype"]) if record else np.array(fitted.class_names)
    if len(labels) != len(fitted.class_names):
        raise ValueError(f"{len(labels)} class labels for {len(fitted.class_names)} classes")
    model.classes_ = labels
    columns = (fitted.recipe.num_attributes or 0) + len(fitted.recipe.label_values or ())
    model.n_features_in_ = int(record.get("features", columns))
    model.history_ = list(record.get("history", []))
    model.n_iter_ = int(fitted.training.get("epochs_run", fitted.training.get("epochs", 0)))
    return model


def _parameters_of(fitted: FittedModel) -> dict[str, Any]:
    """Parameters of the configuration of a model that ``graphcaps train`` wrote."""
    training = fitted.config.as_dict()["training"]
    return fitted.config.model_arguments | training | {"max_nodes": fitted.config.features.max_nodes or 0}


def _to_json(value: Any) -> Any:
    """A value in JSON types; ``None`` for functions and random generators."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        keys = all(isinstance(key, str) for key in value)  # JSON has only string keys
        return {key: _to_json(item) for key, item in value.items()} if keys else None
    return value if value is None or isinstance(value, str | int | float | bool) else None


# ---------------------------------------------------------------------- events
def _row(event: EpochEnd) -> dict[str, float]:
    """The metrics of an epoch as a dictionary."""
    row: dict[str, float] = {"epoch": event.epoch, "seconds": event.seconds}
    for name in (
        "train_loss",
        "train_accuracy",
        "validation_loss",
        "validation_accuracy",
        "validation_metric",
    ):
        values = getattr(event, name)
        if values:
            row[name] = values[0]
    return row
