"""``HGCNClassifier``: fit, predict and explain in the words of scikit-learn."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.coerce import GraphInput, coerce_graphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.fitted_model import FittedModel, load
from graphcaps.inference.probabilities import abstain
from graphcaps.training.final_training import FinalTraining, balanced_class_weights
from graphcaps.training.trainer import EpochEnd

__all__ = [
    "HGCNClassifier",
    "check_parameters",
    "class_weights",
    "default_config",
    "load_estimator",
    "run_config",
    "save_estimator",
    "with_classes",
]


_OWNER = "HGCNClassifier"


def with_classes(read: GraphInput, y: Any) -> tuple[np.ndarray, GraphStore]:
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


# Least value and most of whole numbers; of numbers the same, and whether the ends belong to it.
_WHOLE: dict[str, tuple[int, bool]] = {  # least, and whether None is allowed
    "capsule_dim": (1, False),
    "num_factors": (1, False),
    "routing_iterations": (1, False),
    "epochs": (1, False),
    "batch_size": (1, True),
    "halve_every": (1, False),
    "average_epochs": (1, False),
    "patience": (1, True),
    "max_nodes": (1, True),
    "verbose": (0, False),
}
_REAL: dict[str, tuple[float, float, str]] = {  # least, most, in words
    "dropout": (0, 1, "be at least 0 and below 1, or None"),
    "learning_rate": (0, math.inf, "be above 0 and finite"),
    "weight_decay": (0, math.inf, "be at least 0 and finite"),
    "reconstruction_weight": (0, math.inf, "be at least 0 and finite"),
    "validation": (0, 1, "be at least 0 and below 1"),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "parts": (None, "blocks"),
    "calibrate": (True, False, "temperature", "isotonic"),
    "unseen": ("ignore", "refuse"),
    "warm_start": (True, False),
}
_MODEL_PARAMETERS = ("capsule_dim", "num_factors", "routing_iterations", "dropout", "parts")
_TRAINING_PARAMETERS = (
    *("epochs", "batch_size", "learning_rate", "halve_every", "weight_decay"),
    *("reconstruction_weight", "average_epochs"),
)


@cache
def default_config() -> RunConfig:
    """The preset ``default``: the one place where default values stand."""
    file = resources.files("graphcaps").joinpath("presets", "default.toml")
    return RunConfig.from_toml(file.read_text("utf-8"), "default")


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuses arguments that cannot be meant; called by ``fit``, as scikit-learn wants it.

    Raises:
        ArgumentError: Which argument, what it may be, and what it is.
    """
    for name, (least, optional) in _WHOLE.items():
        value = given[name]
        if not (optional and value is None) and not (_is_whole(value) and value >= least):
            words = f"be a whole number from {least} on" + (", or None" if optional else "")
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, (low, high, words) in _REAL.items():
        value = given[name]
        if name == "dropout" and value is None:
            continue  # the graphs decide
        sound = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high
        if not sound or (name == "learning_rate" and not value > 0):
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, known in _CHOICES.items():
        if not any(given[name] is choice or given[name] == choice for choice in known):
            raise ArgumentError(_OWNER, name, f"be one of {', '.join(map(repr, known))}", repr(given[name]))
    capsules = given["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    if not listed or not all(_is_whole(count) and count >= 1 for count in listed):
        words = "be a whole number from 1 on, or several, one per level"
        raise ArgumentError(_OWNER, "num_capsules", words, repr(capsules))
    if given["capsule_dim"] % given["num_factors"]:
        words = f"divide 'capsule_dim', {given['capsule_dim']}, without remainder"
        raise ArgumentError(_OWNER, "num_factors", words, given["num_factors"])
    weights = given["class_weight"]
    if not (
        weights is None
        or isinstance(weights, Mapping)
        or (isinstance(weights, str) and weights == "balanced")
    ):
        words = "be None, 'balanced' or a dictionary from class to weight"
        raise ArgumentError(_OWNER, "class_weight", words, repr(weights))
    if given["on_epoch"] is not None and not callable(given["on_epoch"]):
        raise ArgumentError(_OWNER, "on_epoch", "be a function or None", repr(given["on_epoch"]))
    if not isinstance(given["device"], str):
        raise ArgumentError(
            _OWNER, "device", "be a text such as 'cpu', 'cuda' or 'auto'", repr(given["device"])
        )


def run_config(given: Mapping[str, Any], name: str) -> RunConfig:
    """The default preset with the given arguments in the place of its own."""
    base = default_config()
    capsules = given["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    features = replace(base.features, max_nodes=_plain_parameters(given["max_nodes"]))
    changed = replace(base, dataset=name, features=features)
    changed = changed.with_model(
        num_capsules=tuple(int(count) for count in listed),
        **{key: _plain_parameters(given[key]) for key in _MODEL_PARAMETERS},
    )
    changed = changed.with_training(**{key: _plain_parameters(given[key]) for key in _TRAINING_PARAMETERS})
    same = replace(changed, dataset=base.dataset) == base
    return changed if same else replace(changed, source="default, changed by arguments")


def class_weights(given: Any, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """What a graph of each class counts, ``[O]``, or ``None`` where all count 1.

    Raises:
        ArgumentError: If a dictionary names a class that is not there, or a weight is not a number above 0.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return balanced_class_weights(y, len(classes))
    known = classes.tolist()
    for name in given:
        if name not in known:
            found = ", ".join(map(repr, known[:5]))
            raise ArgumentError(_OWNER, "class_weight", f"name classes among {found}", repr(name))
    weights = [given.get(name, 1.0) for name in known]
    for weight in weights:
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise ArgumentError(_OWNER, "class_weight", "hold numbers above 0", repr(weight))
    return torch.tensor([float(weight) for weight in weights])


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _plain_parameters(value: Any) -> Any:
    """A numpy number, as searches over parameters give, as Python's own."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value


_ENTRY = "estimator"


def save_estimator(model: HGCNClassifier, path: str | Path) -> None:
    """Writes the model file of a fitted classifier.

    Raises:
        ArgumentError: If the classes are neither numbers, text nor truth values.
    """
    classes = model.classes_
    listed = classes.tolist()
    if not all(isinstance(name, str | int | float | bool) for name in listed):
        kind = type(listed[0]).__name__
        raise ArgumentError("HGCNClassifier.save", "classes_", "be numbers or text to be saved", kind)
    told = {
        "parameters": {name: _plain(value) for name, value in model.get_params(deep=False).items()},
        "classes": listed,
        "dtype": classes.dtype.str if classes.dtype.kind != "O" else "O",
        "label_codes": model._label_codes,
        "attributes": model._asks_attributes,
        "features": model.n_features_in_,
        "history": model.history_,
    }
    fitted = model.model_
    replace(fitted, training=fitted.training | {_ENTRY: told}).save(path)


def load_estimator(kind: type[HGCNClassifier], path: str | Path) -> HGCNClassifier:
    """A fitted classifier from a model file; one of ``graphcaps train`` calls its classes as the file does.

    Raises:
        DataError: If the file is not sound, or its model is no HGCN.
    """
    fitted = load(path)
    if fitted.config.model != "hgcn":
        fix = "Use graphcaps.load for it."
        raise DataError(path, "a model 'hgcn'", f"a model '{fitted.config.model}'", fix=fix)
    told = fitted.training.get(_ENTRY, {})
    try:
        return _build(kind, fitted, told)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(path, f"what HGCNClassifier.save writes under '{_ENTRY}'", f"'{error}'") from error


def _build(kind: type[HGCNClassifier], fitted: FittedModel, told: dict[str, Any]) -> HGCNClassifier:
    parameters = told["parameters"] if told else _parameters_of(fitted)
    known = inspect.signature(kind).parameters
    made = {name: value for name, value in parameters.items() if name in known}
    if isinstance(made.get("num_capsules"), list):
        made["num_capsules"] = tuple(made["num_capsules"])
    model = kind(**made)
    model.model_ = replace(
        fitted, training={name: value for name, value in fitted.training.items() if name != _ENTRY}
    )
    names = np.array(told["classes"], dtype=told["dtype"]) if told else np.array(fitted.class_names)
    if len(names) != len(fitted.class_names):
        raise ValueError(f"{len(names)} classes for {len(fitted.class_names)}")
    model.classes_ = names
    model._label_codes = {str(name): int(code) for name, code in told.get("label_codes", {}).items()}
    columns = (fitted.recipe.num_attributes or 0) + len(fitted.recipe.label_values or ())
    model._asks_attributes = bool(told.get("attributes", fitted.recipe.num_attributes))
    model.n_features_in_ = int(told.get("features", columns))
    model.history_ = list(told.get("history", []))
    model.n_iter_ = int(fitted.training.get("epochs_run", fitted.training.get("epochs", 0)))
    return model


def _parameters_of(fitted: FittedModel) -> dict[str, Any]:
    """Arguments that would train such a model, of a file that no classifier wrote."""
    training = fitted.config.as_dict()["training"]
    return fitted.config.model_arguments | training | {"max_nodes": fitted.config.features.max_nodes}


def _plain(value: Any) -> Any:
    """What JSON can hold; functions and generators are left out."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        keys = all(isinstance(key, str) for key in value)  # JSON has no others: the weights cannot be kept
        return {key: _plain(item) for key, item in value.items()} if keys else None
    return value if value is None or isinstance(value, str | int | float | bool) else None


_MODEL, _TRAINING = default_config().model_arguments, default_config().training
_FEATURES = default_config().features


class HGCNClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Classifies graphs with a Hierarchical Graph Capsule Network, as a scikit-learn classifier.

    Graphs are a ``GraphStore``, or a list of torch-geometric ``Data``, of networkx graphs or of SMILES. Default
    values are those of the preset ``default``; docs/estimator.md has the reason for each. Arguments are only
    kept by the constructor, and checked by ``fit``.

    Args:
        capsule_dim (int): Length of a capsule.
        num_capsules (int or tuple): Wholes of each hidden level, from nodes upwards.
        num_factors (int): Factors of a primary capsule; divides ``capsule_dim``.
        routing_iterations (int): Rounds of routing.
        parts ("blocks" or None): Whether the lowest capsules are asked to be parts of the graph (docs/parts.md).
        dropout (float, optional): Share of numbers dropped while training; ``None`` takes a half up to
            1,500 graphs and a tenth above.
        epochs (int): Most passes over the training graphs.
        batch_size (int, optional): Graphs a step; ``None`` takes about a fortieth of them, from 16 to 128.
        learning_rate (float): Adam's rate at the start.
        halve_every (int): Epochs after which the rate is halved, again and again.
        weight_decay (float): Share of the weights added to their gradient.
        reconstruction_weight (float): Weight of the reconstruction loss.
        average_epochs (int): Epochs whose weights are averaged for what is scored and kept; 1 keeps the last.
        max_nodes (int, optional): Larger graphs keep their nodes of highest degree; ``None`` keeps all.
        validation (float): Share of every class that is held out: its loss chooses the epoch and ends the
            training, and probabilities are calibrated on it. 0 trains on all graphs to the last epoch, without
            calibration. (default: 0.1)
        patience (int, optional): Epochs without progress, a loss lower by 0.0005, after which the training
            ends; ``None`` trains all. (default: 50)
        class_weight ("balanced", dict or None): What a graph of each class counts. (default: 1 each)
        calibrate (bool or str): Whether probabilities are calibrated: ``True`` or ``"temperature"``,
            ``"isotonic"``, ``False``. (default: ``True``)
        unseen (str): Node labels that training never saw: ``"ignore"`` reads them as zeros with a warning,
            ``"refuse"`` raises. (default: "ignore")
        random_state (int, RandomState or None): Of the hold-out, the starting weights, the order of graphs and
            dropout. The same number gives the same bits on a CPU.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        warm_start (bool): Whether a second ``fit`` goes on from the weights of the first. (default: ``False``)
        verbose (int): 0 is silent; n writes a line to the error stream every n epochs. (default: 0)
        on_epoch (callable, optional): Is handed an :class:`graphcaps.training.EpochEnd` after every epoch.

    Attributes:
        classes_ (ndarray): The classes, ascending.
        n_features_in_ (int): Columns of the nodes: attributes and labels.
        model_ (FittedModel): The trained model; ``model_.info()`` describes it.
        history_ (list): A dictionary per epoch: losses and accuracies of training and hold-out.
        n_iter_ (int): Epochs trained.

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
        max_nodes: int | None = _FEATURES.max_nodes,
        validation: float = 0.1,
        patience: int | None = 50,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool | Literal["temperature", "isotonic"] = True,
        unseen: Literal["ignore", "refuse"] = "ignore",
        random_state: Any = None,
        device: str = "auto",
        warm_start: bool = False,
        verbose: int = 0,
        on_epoch: Callable[[EpochEnd], object] | None = None,
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
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.unseen = unseen
        self.random_state = random_state
        self.device = device
        self.warm_start = warm_start
        self.verbose = verbose
        self.on_epoch = on_epoch

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle of an earlier version lacks arguments that have come since.
        super().__setstate__(type(self)().get_params(deep=False) | state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # graphs, not rows of numbers
        tags.input_tags.string = True  # SMILES
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    # ------------------------------------------------------------------ fitting
    def fit(self, X: Any, y: Any = None) -> HGCNClassifier:
        """Trains on graphs.

        Args:
            X: Graphs.
            y (array, optional): Class of each graph. (default: those of the store, of ``Data.y``, or of
                ``graph.graph["y"]``)

        Raises:
            ArgumentError: If an argument, a graph or a class does not fit.
        """
        given = self.get_params(deep=False)
        check_parameters(given)
        goes_on = self.warm_start and hasattr(self, "model_")
        read = self._read(X, fitting=not goes_on)
        self.classes_, store = with_classes(read, y)
        attributes, labels = store.node_attributes, store.node_labels
        self.n_features_in_ = sum(0 if part is None else part.size(1) for part in (attributes, labels))
        self._label_codes, self._asks_attributes = read.codes, read.attributes
        assert store.y is not None
        training = FinalTraining(
            store,
            run_config(given, store.name),
            seed=self._seed(),
            validation=float(self.validation),
            device=self.device,
            patience=self.patience,
            class_weight=class_weights(self.class_weight, self.classes_, store.y),
            calibrate="temperature" if self.calibrate is True else self.calibrate or None,
            start=self.model_ if goes_on else None,
        )
        for event in training.run():
            self._tell(event)
        result = training.result()
        self.model_ = result.model
        self.n_iter_ = len(result.history)
        self.history_ = [_row(event) for event in result.history]
        return self

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer) and not isinstance(self.random_state, bool):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _tell(self, event: EpochEnd) -> None:
        if self.on_epoch is not None:
            self.on_epoch(event)
        if self.verbose and event.epoch % self.verbose == 0:
            figures = ", ".join(f"{name} {value:.4f}" for name, value in _row(event).items() if "_" in name)
            sys.stderr.write(f"epoch {event.epoch} of {event.epochs}: {figures}\n")

    def _read(self, X: Any, *, fitting: bool = False) -> GraphInput:
        """The graphs as a store; those to classify are read as those that were learned from."""
        if fitting:
            return coerce_graphs(X)
        return coerce_graphs(X, codes=self._label_codes, attributes=self._asks_attributes)

    # ------------------------------------------------------------------ using
    def _store(self, X: Any) -> GraphStore:
        check_is_fitted(self, "model_")
        return self._read(X).store

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, ``[G, O]``, in the order of ``classes_``; calibrated unless asked otherwise."""
        store = self._store(X)
        return self.model_.predict_proba(store, unseen=self.unseen)

    def predict(self, X: Any, *, abstain_below: float | None = None) -> np.ndarray:
        """Class of each graph, ``[G]``.

        Args:
            X: Graphs.
            abstain_below (float, optional): A graph whose most probable class is less probable than this gets
                ``None``; the result then holds objects.
        """
        shares = self.predict_proba(X)
        return abstain(self.classes_[shares.argmax(-1)], shares, abstain_below)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of graphs whose class is found; without ``y``, against the classes that the graphs carry."""
        y = self._read(X).y if y is None else y
        if y is None:
            raise ArgumentError(_OWNER, "y", "hold the class of each graph", "None")
        return float(super().score(X, y, sample_weight))

    def transform(self, X: Any) -> np.ndarray:
        """Each graph as a row of numbers: its class capsules one after another, ``[G, O · capsule_dim]``."""
        store = self._store(X)
        return self.model_.embed(store, unseen=self.unseen).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of :meth:`transform`: class and place in its capsule."""
        check_is_fitted(self, "model_")
        width = range(int(self.model_.config.model_arguments["capsule_dim"]))
        return np.array([f"{name}[{place}]" for name in self.classes_ for place in width], dtype=object)

    def out_of_distribution(self, X: Any) -> tuple[str, ...]:
        """For each graph the reason why it lies outside the applicability domain, or "" if it lies inside."""
        store = self._store(X)
        return self.model_.out_of_distribution(store)

    def explain(self, X: Any, *, target: Any = None) -> Any:
        """Which parts the decisions were made from, see :func:`graphcaps.explain`; ``target`` is a class."""
        store = self._store([X] if isinstance(X, str) else X)
        if target is not None:
            (place,) = np.flatnonzero(self.classes_ == target)[:1].tolist() or [None]
            if place is None:
                known = ", ".join(map(str, self.classes_[:5]))
                raise ArgumentError(_OWNER, "target", f"be a class among {known}", repr(target))
            target = place
        return self.model_.explain(store, target=target, unseen=self.unseen)

    # ------------------------------------------------------------------ files
    def save(self, path: Any) -> None:
        """Writes a model file, which :meth:`load` and :func:`graphcaps.load` read."""
        check_is_fitted(self, "model_")
        save_estimator(self, path)

    @classmethod
    def load(cls, path: Any) -> HGCNClassifier:
        """Reads a model file of :meth:`save` or of ``graphcaps train``; no code from the file is run."""
        return load_estimator(cls, path)


def _row(event: EpochEnd) -> dict[str, float]:
    """An epoch as plain numbers."""
    row: dict[str, float] = {"epoch": event.epoch, "seconds": event.seconds}
    for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy"):
        values = getattr(event, name)
        if values:
            row[name] = values[0]
    return row
