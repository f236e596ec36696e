"""``HGCNClassifier``: HGCN as a scikit-learn classifier for graphs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d
from torch import Tensor

from graphcaps.data.class_names import class_name
from graphcaps.data.coercion import GraphInput, coerce
from graphcaps.data.features.compatibility import CheckedGraphs
from graphcaps.data.readers.graph_metadata import warn_of_notes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, GraphcapsError, warn_user
from graphcaps.estimator.estimator_file import EstimatorState, load_estimator, save_estimator
from graphcaps.estimator.fit_inputs import (
    class_weights,
    drop_weightless,
    encode_classes,
    encode_like,
    join_validation,
)
from graphcaps.estimator.fit_notes import fit_notes, training_notes
from graphcaps.estimator.parameters import OWNER, check_parameters, committee, default_config, run_config
from graphcaps.inference.abstention import abstain
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import MIN_PROBABILITY
from graphcaps.metrics import SelectionMetric
from graphcaps.nn.context import ContextKind
from graphcaps.training.baseline import fit_baseline
from graphcaps.training.companion_weights import companion_configs
from graphcaps.training.device import use_threads
from graphcaps.training.final_training import FinalTraining
from graphcaps.training.learning_warning import LearningWarning, training_warning
from graphcaps.training.loop import Callback
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.restarts import check_restarts
from graphcaps.types import EdgeLabelUse

__all__ = ["HGCNClassifier"]

_MODEL, _TRAINING = default_config().model_arguments, default_config().training


class HGCNClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Classifies graphs with a Hierarchical Graph Capsule Network.

    Graphs are of any kind that :func:`graphcaps.data.coerce` accepts: a ``GraphStore``, a list of torch-geometric
    ``Data``, networkx graphs, SMILES, molecules or matrices, a column of a ``DataFrame``, or a path. Defaults are those
    of the preset ``default``; docs/estimator.md gives the reason for each. For molecules from SMILES, parameters that
    are left at their default take the values of the preset ``molecules``, whose model reads the bonds. As in
    scikit-learn, the constructor only stores its arguments and ``fit`` checks them.

    Args:
        preset ("default" or "best"): ``"best"`` adds a committee of five members and the companion ``wl-forest``
            (docs/presets.md). (default: "default")
        capsule_dim (int): Length of a capsule.
        num_capsules (int or tuple): Number of capsules of each hidden level, from the nodes upwards.
        num_factors (int): Number of factors of a primary capsule; divides ``capsule_dim``.
        routing_iterations (int): Number of routing iterations.
        parts ("blocks" or None): With ``"blocks"``, a loss trains the lowest capsules to be dense parts of the graph
            (docs/parts.md).
        context (str, optional): Message passing layers under the votes, ``"residual"``, ``"gated"``, ``"gin"`` or
            ``"none"`` (docs/method.md); ``None`` is the value of the preset. Excludes ``parts="blocks"``.
        context_layers (int, optional): Number of these layers; ``None`` is 2 unless the preset has a value.
        context_jumping (bool, optional): Whether the votes read all of these layers; ``None`` is ``False`` unless the
            preset has a value.
        dropout (float, optional): Dropout rate in training; ``None`` is 0.5 up to 1,500 graphs of at most 6 classes
            and 0.1 above.
        epochs (int): Largest number of epochs.
        batch_size (int, optional): Graphs per step; ``None`` is about a fortieth of them, from 16 to 128.
        learning_rate (float): Initial learning rate of Adam.
        halve_every (int): Number of epochs after which the learning rate is halved, repeatedly.
        weight_decay (float, optional): Factor of the weights that is added to their gradient; ``None`` is 0.001 for
            molecules from SMILES and 0.0003 for other graphs.
        reconstruction_weight (float): Weight of the reconstruction loss.
        average_epochs (int): Number of epochs whose weights are averaged for evaluation and for the fitted model;
            1 uses the weights of the last epoch.
        n_estimators (int, optional): Number of members of a committee: networks that are trained together with
            different seeds, and whose probabilities are averaged (docs/committees.md). ``None`` is that of the preset:
            1, a single network, with ``"default"``.
        n_init (int): Number of networks that are trained together with different seeds, of which the validation graphs
            choose one to keep: with ``parts="blocks"`` by the loss of parts, else by ``metric`` (docs/parts.md). For a
            single network. (default: 1)
        companion (str, optional): Name of a classical model, such as ``"wl-forest"``, that is fitted to the same graphs
            and mixed with the network, with a weight that validation graphs choose (docs/companion.md); or several
            with commas between them. ``None`` is that of the preset, which is none with ``"default"``; ``"none"`` is
            none.
        max_nodes (int, optional): Larger graphs are truncated to their nodes of highest degree. ``None`` and 0 keep
            all nodes, ``None`` except those of a data set of the catalogue above 1000, as in the paper.
        validation (float): Fraction of every class that is held out for early stopping and calibration. 0 trains on
            all graphs for all epochs, without calibration. (default: 0.1)
        patience (int, optional): Number of epochs without an improvement of ``metric`` by 0.0005, after which training
            stops; with few graphs, epochs of fewer than ten steps count in part. ``None`` trains all epochs.
            (default: 50)
        metric (str): Metric of the validation graphs that selects the epoch: ``"loss"``, ``"accuracy"``,
            ``"balanced-accuracy"``, ``"roc-auc"``, ``"pr-auc"`` or ``"mcc"``. (default: "loss")
        class_weight ("balanced", dict or None): Weight of a graph of each class. (default: 1 each)
        calibrate (bool or str): Calibration of the probabilities: ``True`` or ``"temperature"``, ``"isotonic"``,
            ``False``. (default: ``True``)
        featurizer (str, optional): Properties of atoms and bonds that are read from SMILES, ``"standard"`` or
            ``"elements"`` (docs/featurizers.md); for molecules only. (default: ``"standard"``)
        edge_labels (str or False, optional): How edge labels are used: ``"counts"`` adds their number at each node to
            its features, ``"messages"`` lets the message passing depend on them, ``"both"`` does both, ``False``
            ignores them (docs/inputs.md). ``None`` is ``"messages"`` for molecules from SMILES and ``False`` for other
            graphs. (default: ``None``)
        unseen (str): Handling of labels that were not in the training graphs: ``"ignore"`` encodes them as zeros with
            a warning, ``"refuse"`` raises. (default: "ignore")
        random_state (int, RandomState or None): Seed of the hold-out, the initial weights, the order of graphs and
            dropout. On a CPU, equal seeds give bit-identical models.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        n_jobs (int, optional): Number of CPU threads of ``fit`` and of predictions; −1 uses all cores. ``None`` is
            torch's own setting. The last bits of the weights may depend on it.
        warm_start (bool): Whether a second ``fit`` continues from the weights of the first. (default: ``False``)
        verbose (int): 0 is silent; n writes a line to stderr every n epochs, and at the end the accuracy of a forest
            on the same validation graphs (docs/training.md). (default: 0)
        callbacks (list, optional): :class:`graphcaps.training.Callback` objects, for trackers (docs/tracking.md).

    Attributes:
        classes_ (ndarray): The class labels, ascending.
        n_features_in_ (int): Number of node columns: attributes and labels.
        graph_column_ (str, optional): Column of the ``DataFrame`` that the graphs were read from, which a ``DataFrame``
            to classify must have; ``None`` for any other input.
        model_ (FittedModel): The trained model; ``model_.info()`` describes it.
        history_ (list): A dictionary per epoch: losses and accuracies on training and validation graphs; means over the
            members of a committee, and those of the kept network with ``n_init``.
        n_iter_ (int): Number of epochs trained.

    Example:
        >>> model = HGCNClassifier(random_state=0).fit(graphs, y)                  # doctest: +SKIP
        >>> model.predict_proba(new_graphs)                                        # doctest: +SKIP
    """

    classes_: np.ndarray
    n_features_in_: int
    graph_column_: str | None
    model_: FittedModel
    history_: list[dict[str, float]]
    n_iter_: int

    def __init__(
        self,
        *,
        preset: Literal["default", "best"] = "default",
        capsule_dim: int = _MODEL["capsule_dim"],
        num_capsules: int | tuple[int, ...] = _MODEL["num_capsules"],
        num_factors: int = _MODEL["num_factors"],
        routing_iterations: int = _MODEL["routing_iterations"],
        parts: Literal["blocks"] | None = None,
        context: ContextKind | Literal["none"] | None = None,
        context_layers: int | None = None,
        context_jumping: bool | None = None,
        dropout: float | None = None,
        epochs: int = _TRAINING.epochs,
        batch_size: int | None = None,
        learning_rate: float = _TRAINING.learning_rate,
        halve_every: int = _TRAINING.halve_every,
        weight_decay: float | None = None,
        reconstruction_weight: float = _TRAINING.reconstruction_weight,
        average_epochs: int = _TRAINING.average_epochs,
        n_estimators: int | None = None,
        n_init: int = 1,
        companion: str | None = None,
        max_nodes: int | None = None,
        validation: float = 0.1,
        patience: int | None = 50,
        metric: SelectionMetric = "loss",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool | Literal["temperature", "isotonic"] = True,
        featurizer: Literal["standard", "elements"] | None = None,
        edge_labels: EdgeLabelUse | Literal[False] | None = None,
        unseen: Literal["ignore", "refuse"] = "ignore",
        random_state: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.preset = preset
        self.capsule_dim = capsule_dim
        self.num_capsules = num_capsules
        self.num_factors = num_factors
        self.routing_iterations = routing_iterations
        self.parts = parts
        self.context = context
        self.context_layers = context_layers
        self.context_jumping = context_jumping
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.halve_every = halve_every
        self.weight_decay = weight_decay
        self.reconstruction_weight = reconstruction_weight
        self.average_epochs = average_epochs
        self.n_estimators = n_estimators
        self.n_init = n_init
        self.companion = companion
        self.max_nodes = max_nodes
        self.validation = validation
        self.patience = patience
        self.metric = metric
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.featurizer = featurizer
        self.edge_labels = edge_labels
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

        Raises:
            ArgumentError: If a parameter, a graph, a class label or a weight is invalid, or the validation set has
                other classes than ``y``.
            CallbackError: If a callback raises. After the last epoch, the classifier is fitted all the same.

        Warns:
            ReadingWarning: Once for each of rows that were left out, salts and mixtures, copies of a molecule with
                different classes, edge labels that are not used, nodes that are left out, a reconstruction loss that
                is estimated, and validation graphs that are training graphs.
            CapsuleCollapseWarning: If one capsule holds almost all nodes (docs/parts.md).
            LearningWarning: If predicting the largest class would be about as accurate on the training graphs.
        """
        parameters = self.get_params(deep=False)
        check_parameters(parameters)
        continues = self.warm_start and hasattr(self, "model_")
        chosen = committee(parameters)
        if continues and len(self.model_.members) != chosen.members:
            expected = f"be {len(self.model_.members)}, as in the fit that is continued"
            raise ArgumentError(OWNER, "n_estimators", expected, chosen.members)
        restarts = self._restarts(chosen.members, continues, has_validation=validation is not None)
        graphs = self._read(X, fitting=not continues)
        self.graph_column_ = graphs.column
        self.classes_, store = encode_classes(graphs, y)
        warn_of_notes(OWNER, fit_notes(store, is_read=not isinstance(X, GraphStore), has_y=y is not None))
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
        companion_configs(chosen.companion, "hgcn", store, OWNER)  # raises on an unknown name
        seed = self._seed()
        with use_threads(self.n_jobs):
            training = FinalTraining(
                store,
                run_config(parameters, store),
                seed=seed,
                validation=held_out,
                device=self.device,
                patience=self.patience,
                metric=self.metric,
                class_weight=class_weight,
                sample_weight=weights,
                calibrate="temperature" if self.calibrate is True else self.calibrate or None,
                start=self.model_ if continues else None,
                callbacks=self.callbacks or (),
                restarts=restarts,
            )
            notes = training_notes(
                training,
                has_own_validation=validation is not None,
                ignores_edges=self.edge_labels is not None,
            )
            warn_of_notes(OWNER, notes)
            with closing(training.run()) as events:
                for event in events:
                    self._report(event)
            result = training.result()
        result.warn()
        if warning := training_warning(training, result.training, epochs="epochs", patience="patience=None"):
            warn_user(f"{OWNER}: {warning}", LearningWarning)
        self.model_ = result.model
        self.n_iter_ = len(result.history)
        self.history_ = [_row(event) for event in result.history]
        if self.verbose:
            _report_baseline(store, seed, held_out)
        training.notify_callbacks(result)  # last: an exception in a callback leaves a fitted classifier
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
            raise ArgumentError(OWNER, "validation", expected, type(validation).__name__)
        graphs = self._read(validation[0], fitting=fitting, argument="validation")
        return encode_like(graphs, validation[1], store)

    def _restarts(self, members: int, continues: bool, *, has_validation: bool) -> int:
        """``n_init``, after a check that one of several networks can be kept."""
        restarts = int(self.n_init)
        of_preset = "" if self.n_estimators is not None else f" of the preset '{self.preset}'"
        check_restarts(
            restarts, members, owner=OWNER, name="n_init", single="n_estimators=1", members_of=of_preset
        )
        if restarts > 1 and continues:
            expected = "be 1 in a fit that continues (warm_start), which starts from the weights of the first"
            raise ArgumentError(OWNER, "n_init", expected, restarts)
        if restarts > 1 and not (has_validation or self.validation):
            expected = "be 1 without validation graphs, which choose the network to keep"
            raise ArgumentError(OWNER, "n_init", expected, restarts, "Set 'validation' above 0.")
        return restarts

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer) and not isinstance(self.random_state, bool):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _report(self, event: EpochEnd) -> None:
        if self.verbose and event.epoch % self.verbose == 0:
            names = {"train_accuracy": "train_accuracy (during the epoch, with dropout)"}
            row = {name: value for name, value in _row(event).items() if "_" in name}
            metrics = ", ".join(f"{names.get(name, name)} {value:.4f}" for name, value in row.items())
            sys.stderr.write(f"epoch {event.epoch} of {event.epochs}: {metrics}\n")

    def _read(
        self, X: Any, *, fitting: bool = False, argument: str = "X", samples: bool = True
    ) -> GraphInput:
        """Converts graphs; molecules to classify are read with the featurizer of the training graphs."""
        options = {"featurizer": self.featurizer} if fitting and self.featurizer is not None else {}
        return coerce(
            X,
            owner=OWNER,
            argument=argument,
            recipe=None if fitting else self.model_.recipe,
            samples=samples,
            column=None if fitting else self.graph_column_,
            **options,
        )

    # ------------------------------------------------------------------ predicting
    def _checked(self, X: Any, *, samples: bool = True) -> CheckedGraphs:
        check_is_fitted(self, "model_")
        store = self._read(X, samples=samples).store
        return self.model_.check(store, unseen=self.unseen, owner=OWNER, argument="X")

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

    def predict(
        self, X: Any, *, abstain_below: float | None = None, max_disagreement: float | None = None
    ) -> np.ndarray:
        """Predicted class label of each graph, ``[G]``.

        Args:
            X: Graphs.
            abstain_below (float, optional): Probability below which the prediction for a graph is ``None``; the
                result then has dtype object.
            max_disagreement (float, optional): Disagreement of the members, in nats, above which the prediction is
                ``None``, likewise. For a committee only.
        """
        checked = self._checked(X)
        with use_threads(self.n_jobs):
            answer = self.model_.answer(checked)
        classes = self.classes_[answer.probabilities.argmax(-1)]
        return abstain(classes, answer.probabilities, answer.members, abstain_below, max_disagreement)

    def disagreement(self, X: Any) -> np.ndarray:
        """Disagreement of the members on each graph, in nats, ``[G]``; 0 for a single network.

        See :func:`graphcaps.inference.disagreement.mutual_information`.
        """
        checked = self._checked(X)
        with use_threads(self.n_jobs):
            return self.model_.disagreement(checked)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; without ``y``, with respect to the class labels of the graphs."""
        if y is None:
            check_is_fitted(self, "model_")
            y = self._read(X).y
        if y is None:
            raise ArgumentError(OWNER, "y", "hold the class of each graph", "None")
        true = [class_name(label) for label in column_or_1d(y, warn=True).tolist()]
        predicted = [class_name(label) for label in self.predict(X).tolist()]
        return float(accuracy_score(true, predicted, sample_weight=sample_weight))

    def transform(self, X: Any) -> np.ndarray:
        """Embedding of each graph: its class capsules, concatenated, ``[G, O · capsule_dim]``.

        Those of the members of a committee follow one another, ``[G, n_estimators · O · capsule_dim]``.
        """
        checked = self._checked(X)
        with use_threads(self.n_jobs):
            return self.model_.embed(checked).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of :meth:`transform`: class and index within its capsule, and the member if several."""
        check_is_fitted(self, "model_")
        width = range(int(self.model_.config.model_arguments["capsule_dim"]))
        names = [f"{name}[{index}]" for name in self.classes_ for index in width]
        if self.model_.is_committee:
            members = range(1, len(self.model_.members) + 1)
            names = [f"member {member}: {name}" for member in members for name in names]
        return np.array(names, dtype=object)

    def out_of_distribution(self, X: Any) -> tuple[str, ...]:
        """For each graph the reason why it lies outside the applicability domain, or "" if it lies inside."""
        checked = self._checked(X)
        return self.model_.out_of_distribution(checked)

    def explain(self, X: Any, *, target: Any = None) -> Any:
        """Explains predictions, see :func:`graphcaps.explain`; ``target`` is the class label to explain."""
        checked = self._checked(X, samples=False)
        if target is not None:
            names = [class_name(label) for label in self.classes_.tolist()]
            index = names.index(class_name(target)) if class_name(target) in names else None
            if index is None:
                labels = ", ".join(map(str, self.classes_[:5]))
                raise ArgumentError(OWNER, "target", f"be a class among {labels}", repr(target))
            target = index
        return self.model_.explain(checked, target=target)

    # ------------------------------------------------------------------ files
    def save(self, path: Any) -> None:
        """Writes a model file for :meth:`load` and :func:`graphcaps.load`."""
        check_is_fitted(self, "model_")
        parameters = self.get_params(deep=False)
        fitted = (self.classes_, self.n_features_in_, self.n_iter_, self.history_, self.model_)
        save_estimator(EstimatorState(parameters, *fitted, self.graph_column_), path)

    @classmethod
    def load(cls, path: Any) -> HGCNClassifier:
        """Reads a model file of :meth:`save` or of ``graphcaps train``; runs no code from the file."""
        state = load_estimator(path, inspect.signature(cls).parameters)
        model = cls(**state.parameters)
        model.model_, model.classes_ = state.model, state.classes
        model.n_features_in_, model.history_ = state.num_features, state.history
        model.n_iter_, model.graph_column_ = state.num_epochs, state.graph_column
        return model


def _report_baseline(store: GraphStore, seed: int, validation: float | Tensor) -> None:
    """Writes what a simple model reaches on the same validation graphs, if there are any."""
    try:
        baseline = fit_baseline(store, seed=seed, validation=validation)
    except GraphcapsError as error:
        sys.stderr.write(f"The baseline could not be fitted: {error}\n")
        return
    if baseline is not None:
        sys.stderr.write(f"{baseline.sentence}\n")


def _row(event: EpochEnd) -> dict[str, float]:
    """The metrics of an epoch as a dictionary; means over the members of a committee."""
    return {"epoch": event.epoch, "seconds": event.seconds, **event.means()}
