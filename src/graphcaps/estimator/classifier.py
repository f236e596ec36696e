"""``HGCNClassifier``: fit, predict and explain in the words of scikit-learn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_random_state

from graphcaps.data.store import GraphStore
from graphcaps.engine.fit import EpochEnd
from graphcaps.errors import ArgumentError
from graphcaps.estimator.classes import with_classes
from graphcaps.estimator.files import load_estimator, save_estimator
from graphcaps.estimator.inputs import GraphsRead, read_graphs
from graphcaps.estimator.parameters import check_parameters, class_weights, default_config, run_config
from graphcaps.evaluation.final import FinalTraining
from graphcaps.fitted import FittedModel
from graphcaps.probability import abstain

__all__ = ["HGCNClassifier"]

_OWNER = "HGCNClassifier"
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
        on_epoch (callable, optional): Is handed an :class:`graphcaps.engine.EpochEnd` after every epoch.

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

    def _read(self, X: Any, *, fitting: bool = False) -> GraphsRead:
        """The graphs as a store; those to classify are read as those that were learned from."""
        if fitting:
            return read_graphs(X)
        return read_graphs(X, codes=self._label_codes, attributes=self._asks_attributes)

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

    def unlike(self, X: Any) -> tuple[str, ...]:
        """How each graph is unlike the training graphs, in words; "" where it is not."""
        store = self._store(X)
        return self.model_.unlike(store)

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
