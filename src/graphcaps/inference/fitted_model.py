"""A trained model with everything that prediction on new graphs needs: :class:`FittedModel`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.provenance import library_versions
from graphcaps.config import RunConfig
from graphcaps.data.coercion import coerce_and_check
from graphcaps.data.features.compatibility import CheckedGraphs, UnseenPolicy, check_further
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import describe_cuts
from graphcaps.data.quality.graph_hashes import graph_hashes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.abstention import abstain
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.disagreement import DisagreementProfile, join_reasons, mutual_information
from graphcaps.inference.mixture import AnswerParts, Mixture
from graphcaps.inference.probabilities import Calibration, prior_scores, probabilities
from graphcaps.inference.scorer import Scorer, make_scorer
from graphcaps.inference.split_hashes import Part, SplitHashes
from graphcaps.models.classical import ClassicalModel
from graphcaps.nn.graph_model import GraphModel
from graphcaps.registry import ScoreKind

__all__ = ["Answer", "FittedModel", "training_summary"]


@dataclass(frozen=True, eq=False)
class Answer:
    """The probabilities of G graphs, and what they are computed from.

    Args:
        probabilities (ndarray): Those of the whole model, ``[G, O]``.
        members (ndarray): Those of each member of the network, ``[M, G, O]``.
        parts (AnswerParts, optional): Those of the network and of its companions; ``None`` without companions.
    """

    probabilities: np.ndarray
    members: np.ndarray
    parts: AnswerParts | None = None


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model, or a committee of them, with the feature recipe of its input and its class names.

    A committee has M members: models of one configuration that were trained with different seeds. Its probabilities are
    the mean of the members' calibrated probabilities, and its scores the mean of their scores.

    Args:
        model (GraphModel or ClassicalModel): A single network, without leading axes, which is put into evaluation
            mode, or a fitted classical model; the first member of a committee.
        config (RunConfig): The configuration that it was trained with.
        recipe (FeatureRecipe): The fitted recipe of its input columns. That of a classical model, which reads the
            graphs themselves, holds the labels and attributes of the training graphs.
        class_names (tuple): Class names, in the order of the model's outputs.
        training (dict): Training data and results as JSON values; see :func:`training_summary`.
        versions (dict): Versions of the libraries that trained it. (default: those of this process)
        calibration (Calibration, optional): Calibration of its probabilities.
        profile (TrainingProfile, optional): Statistics of its training graphs, for out-of-distribution warnings.
        split_hashes (SplitHashes, optional): Hashes of its training, validation and test graphs, for :meth:`used_in`.
        others (tuple): Further members of a committee. (default: none, a single model)
        disagreement_profile (DisagreementProfile, optional): Disagreement of the members on validation graphs, for
            out-of-distribution warnings.
        companions (tuple): Fitted classical models beside the network, each with its calibration (docs/companion.md).
            (default: none)
        mixture (Mixture, optional): Weights of the network and its companions.

    Raises:
        ArgumentError: If members, recipe and class names do not match, or companions and mixture do not.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
        >>> model.predict(graphcaps.load_dataset("MUTAG"))               # doctest: +SKIP
    """

    model: GraphModel | ClassicalModel
    config: RunConfig
    recipe: FeatureRecipe
    class_names: tuple[str, ...]
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=library_versions)
    calibration: Calibration | None = None
    profile: TrainingProfile | None = None
    split_hashes: SplitHashes | None = None
    others: tuple[GraphModel | ClassicalModel, ...] = ()
    disagreement_profile: DisagreementProfile | None = None
    companions: tuple[FittedModel, ...] = ()
    mixture: Mixture | None = None

    def __post_init__(self) -> None:
        owner, num_classes = "FittedModel", self.model.num_classes
        if any(member.num_classes != num_classes for member in self.others):
            expected = f"have the {num_classes} classes of 'model'"
            raise ArgumentError(owner, "others", expected, [each.num_classes for each in self.others])
        if not self.recipe.is_fitted:
            raise ArgumentError(owner, "recipe", "be fitted", "a recipe that is not")
        if len(self.class_names) != num_classes or len(set(self.class_names)) != num_classes:
            expected = f"be {num_classes} different names, one per class of the model"
            raise ArgumentError(owner, "class_names", expected, self.class_names)
        _ = self.scorer  # raises if model and recipe do not match
        weights = () if self.mixture is None else self.mixture.weights
        if len(weights) != (1 + len(self.companions) if self.companions else 0):
            expected = f"have a weight for the network and each of {len(self.companions)} companions"
            raise ArgumentError(owner, "mixture", expected, len(weights))
        for companion in self.companions:
            name = companion.config.model
            if not isinstance(companion.model, ClassicalModel) or companion.companions:
                raise ArgumentError(owner, "companions", "be classical models", f"'{name}'")
            if companion.class_names != self.class_names:
                expected = "have the classes of the network"
                raise ArgumentError(owner, "companions", expected, companion.class_names)

    def __repr__(self) -> str:
        classes = ", ".join(self.class_names[:5]) + (", …" if len(self.class_names) > 5 else "")
        members = f", members={len(self.members)}" if self.is_committee else ""
        names = ", ".join(companion.config.model for companion in self.companions)
        beside = f", companion='{names}'" if names else ""
        columns = self.recipe.num_columns
        return f"FittedModel('{self.config.model}', classes=({classes}), columns={columns}{members}{beside})"

    @property
    def members(self) -> tuple[GraphModel | ClassicalModel, ...]:
        """All members; of a single model the model alone."""
        return (self.model, *self.others)

    @property
    def is_committee(self) -> bool:
        """Whether there are several members."""
        return bool(self.others)

    def member(self, number: int) -> FittedModel:
        """One member of a committee as a single model, counted from 0, with the calibration of the committee.

        It has no companions.

        Raises:
            ArgumentError: If there is no such member.
        """
        if not 0 <= number < len(self.members):
            raise ArgumentError("FittedModel", "number", f"be from 0 to {len(self.members) - 1}", number)
        network = self.network
        return replace(network, model=self.members[number], others=(), disagreement_profile=None)

    @property
    def network(self) -> FittedModel:
        """The model without its companions: what explanations and an export are of."""
        return replace(self, companions=(), mixture=None) if self.companions else self

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the models that make up an answer, the network first."""
        return (self.config.model, *(companion.config.model for companion in self.companions))

    @cached_property
    def scorer(self) -> Scorer:
        """Computes the scores of graphs, in the way of the model's kind."""
        return make_scorer(self.members, self.recipe, self.config.features.max_nodes)

    @property
    def max_nodes(self) -> int | None:
        """Number of nodes that the model reads of a larger graph; ``None`` for all, as classical models do."""
        return None if isinstance(self.model, ClassicalModel) else self.config.features.max_nodes

    @property
    def score_kind(self) -> ScoreKind:
        """What the class scores are: ``"lengths"`` of class capsules, ``"logits"`` or ``"probabilities"``."""
        return self.model.scores

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of the input columns."""
        return self.scorer.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.scorer.device

    def to(self, device: str | torch.device) -> FittedModel:
        """Moves the weights to a device and returns the same object; graphs are moved when they are scored.

        Raises:
            UsageError: If the model is a classical one, which runs on the CPU, and the device is another one.
        """
        self.scorer.to(device)
        return self

    # ------------------------------------------------------------------ prediction
    def check(
        self,
        graphs: Any,
        *,
        unseen: UnseenPolicy = "refuse",
        owner: str = "FittedModel",
        argument: str = "graphs",
    ) -> CheckedGraphs:
        """Converts graphs and checks them against the feature recipe, once for all methods below.

        Args:
            graphs: Anything that :func:`graphcaps.data.coerce` accepts.
            unseen (str): As in :meth:`scores`.
            owner, argument (str): Owner and argument that messages name.

        Returns:
            CheckedGraphs: The graphs, with a reason for each that the model cannot read; the methods below accept it.

        Raises:
            ArgumentError: If the graphs have other columns than the training graphs.
        """
        if isinstance(graphs, CheckedGraphs):
            return graphs
        checked = coerce_and_check(
            graphs, self.recipe, unseen=unseen, dtype=self.dtype, owner=owner, argument=argument
        )
        for companion in self.companions:  # it may read other columns
            checked = check_further(checked, companion.recipe, dtype=companion.dtype)
        return replace(checked, truncated=describe_cuts(checked.store, self.max_nodes))

    def scores(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> Tensor:
        """Class scores of each graph on the CPU, ``[G, O]``; :attr:`score_kind` says what they are.

        Those of a committee are the mean over its members; its probabilities are computed from
        :meth:`member_scores`. Those of a model with companions are of the network alone.

        Graphs are encoded and scored in batches of bounded size. The batching changes scores by rounding only. The
        model does not see graphs without nodes: lengths are zero, and other scores are those of the class prior.

        Args:
            graphs: Anything that :func:`graphcaps.data.coerce` accepts (a ``GraphStore``, torch-geometric ``Data``,
                networkx graphs, SMILES, matrices, a path), or the result of :meth:`check`.
            unseen (str): For labels that did not occur in training: ``"refuse"`` raises an error; ``"ignore"`` encodes
                them as zeros and warns with counts. (default: ``"refuse"``)

        Warns:
            TruncationWarning: Once, if graphs have more nodes than :attr:`max_nodes`.

        Raises:
            ArgumentError: If a graph does not match the feature recipe.
        """
        return self.member_scores(graphs, unseen=unseen).mean(0)

    def member_scores(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> Tensor:
        """Class scores by each member on the CPU, ``[M, G, O]``; arguments as in :meth:`scores`."""
        store = self.check(graphs, unseen=unseen).require()
        rows = self.scorer.scores(store.with_nodes())
        if not store.empty_graphs.numel():
            return rows
        return torch.stack([_insert_empty(each, store, self.empty_scores) for each in rows])

    def predict_proba(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> np.ndarray:
        """Class probabilities of each graph, float64 ``[G, O]``, calibrated if the model has a calibration.

        A graph without nodes gets :attr:`class_prior`. Without a calibration the others are those of
        :func:`graphcaps.inference.probabilities.probabilities`. Those of a committee are the mean over its members, and
        with companions the :class:`graphcaps.inference.mixture.Mixture` of network and companions.

        Args:
            graphs, unseen: As in :meth:`scores`.

        Raises:
            ArgumentError: If a graph does not match the feature recipe, or its scores are not finite.
        """
        return self.answer(graphs, unseen=unseen).probabilities

    def answer(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> Answer:
        """The probabilities of :meth:`predict_proba`, with those of each member and of each companion.

        Args:
            graphs, unseen: As in :meth:`scores`.

        Raises:
            ArgumentError: As :meth:`predict_proba` does.
        """
        checked = self.check(graphs, unseen=unseen)
        return self.mix(self.member_probabilities(checked), checked)

    def mix(self, members: np.ndarray, checked: CheckedGraphs) -> Answer:
        """The answer for graphs whose probabilities by the members of the network are known.

        Args:
            members (ndarray): Calibrated probabilities, ``[M, G, O]``.
            checked (CheckedGraphs): The G graphs.
        """
        network = members.mean(0)
        if self.mixture is None:
            return Answer(network, members)
        graphs = checked.without_warnings()  # the network has warned
        beside = [companion.member_probabilities(graphs).mean(0) for companion in self.companions]
        p = self.mixture.apply([network, *beside])
        if checked.store.empty_graphs.numel():
            p = p.copy()
            p[checked.store.empty_graphs.cpu().numpy()] = self.class_prior
        parts = AnswerParts(self.part_names, self.mixture.weights, np.stack([network, *beside]))
        return Answer(p, members, parts)

    def member_probabilities(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> np.ndarray:
        """Class probabilities by each member, float64 ``[M, G, O]``, calibrated as in :meth:`predict_proba`.

        They are of the network alone, without its companions.

        Args:
            graphs, unseen: As in :meth:`scores`.

        Raises:
            ArgumentError: As :meth:`predict_proba` does.
        """
        checked = self.check(graphs, unseen=unseen)
        scores = self.member_scores(checked)
        non_finite = (~scores.isfinite().all(-1).all(0)).nonzero()
        if non_finite.numel():
            raise ArgumentError(
                checked.owner,
                checked.argument,
                "give finite scores",
                f"NaN or infinity for graph {int(non_finite[0])}",
                "Check its attributes for extreme values.",
            )
        return self.calibrate_scores(scores, checked.store.empty_graphs)

    def disagreement(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> np.ndarray:
        """Disagreement of the members on each graph, in nats, float64 ``[G]``; 0 for a single model.

        See :func:`graphcaps.inference.disagreement.mutual_information`.

        Args:
            graphs, unseen: As in :meth:`scores`.

        Raises:
            ArgumentError: As :meth:`predict_proba` does.
        """
        return mutual_information(self.member_probabilities(graphs, unseen=unseen))

    def to_probabilities(self, scores: Tensor, empty: Tensor | None = None) -> np.ndarray:
        """Probabilities of the network from the scores of :meth:`member_scores`, float64 ``[G, O]``.

        Args:
            scores (Tensor): ``[M, G, O]``; those of a single model may lack the first axis.
            empty (Tensor, optional): Indices of the rows of graphs without nodes, which get :attr:`class_prior`.
                (default: none)
        """
        return self.calibrate_scores(scores, empty).mean(0)

    def calibrate_scores(self, scores: Tensor, empty: Tensor | None = None) -> np.ndarray:
        """As :meth:`to_probabilities`, without the mean over members, float64 ``[M, G, O]``."""
        p = probabilities(scores if scores.dim() == 3 else scores.unsqueeze(0), self.score_kind)
        if self.calibration is not None:
            p = self.calibration.apply(p)
        if empty is not None and empty.numel():
            p[:, empty.cpu().numpy()] = self.class_prior
        return p

    @property
    def class_prior(self) -> np.ndarray:
        """Probabilities of a graph without nodes, float64 ``[O]``: the frequency of each class among the training and
        validation graphs, that is all graphs but test graphs.

        Cross-validation uses the training graphs of a fold alone, as do losses and accuracies of epochs
        (:func:`graphcaps.inference.probabilities.class_prior`). Equal frequencies if ``training`` has no
        ``class_counts``.
        """
        listed = self.training.get("class_counts")
        counts = listed if isinstance(listed, dict) else {}
        values = [counts.get(name, 0) for name in self.class_names]
        valid = all(type(value) is int and value >= 0 for value in values) and sum(values) > 0
        prior = np.array(values if valid else [1] * len(values), dtype=np.float64)
        return prior / prior.sum()

    @property
    def empty_scores(self) -> Tensor:
        """Scores of a graph without nodes, which the model does not see, ``[O]``: zero for lengths, otherwise those of
        :attr:`class_prior`."""
        prior = prior_scores(torch.from_numpy(self.class_prior), self.score_kind).to(self.dtype)
        return torch.zeros_like(prior) if self.score_kind == "lengths" else prior

    def predict(
        self,
        graphs: Any,
        *,
        unseen: UnseenPolicy = "refuse",
        abstain_below: float | None = None,
        max_disagreement: float | None = None,
    ) -> np.ndarray:
        """Predicted class name of each graph, ``[G]``.

        Args:
            graphs, unseen: As in :meth:`scores`.
            abstain_below (float, optional): Graphs whose highest probability is below this get ``None``; the result
                is then an object array. (default: every graph gets a class)
            max_disagreement (float, optional): Graphs on which the members of a committee disagree by more than this,
                in nats, get ``None``, likewise.

        Raises:
            ArgumentError: If a threshold is out of range, and as :meth:`predict_proba` does.
        """
        answer = self.answer(graphs, unseen=unseen)
        classes = np.array(self.class_names)[answer.probabilities.argmax(-1)]
        return abstain(classes, answer.probabilities, answer.members, abstain_below, max_disagreement)

    def out_of_distribution(self, graphs: Any) -> tuple[str, ...]:
        """For each graph the reason why it lies outside the applicability domain, or "" if it lies inside.

        See :class:`graphcaps.inference.applicability.TrainingProfile`. A graph also lies outside if the members of a
        committee disagree on it (:class:`graphcaps.inference.disagreement.DisagreementProfile`).

        Raises:
            ArgumentError: If the model has no profile of its training graphs.
        """
        if self.profile is None:
            expected, fix = "be stored with the model", "Train the model with graphcaps train."
            raise ArgumentError("FittedModel", "profile", expected, "None", fix)
        checked = self.check(graphs)
        names = self.recipe.source_columns.get("node_attributes")
        reasons = self.profile.reasons(checked.store, names)
        if self.disagreement_profile is None:
            return reasons
        return join_reasons(reasons, self.disagreement_profile.reasons(self.disagreement(checked)))

    def used_in(self, graphs: Any) -> tuple[Part | None, ...] | None:
        """For each graph the part that it was in when the model was trained, or ``None`` if it is new to the model.

        Graphs are compared as the model reads them, whatever the order of their nodes: a graph that equals a training
        graph is a training graph. Validation graphs selected the epoch and calibrated the probabilities. Test graphs
        are those of a split; training did not use them. ``"left-out"`` are molecules that training left out because of
        contradicting labels.

        Args:
            graphs: As in :meth:`scores`, or the result of :meth:`check`.

        Returns:
            tuple: One entry per graph; ``None`` if the model has no record of its graphs.
        """
        if self.split_hashes is None:
            return None
        return self.split_hashes.parts(graph_hashes(self.check(graphs).store, self.recipe))

    def embed(self, graphs: Any, *, level: int = -1, unseen: UnseenPolicy = "refuse") -> Tensor:
        """The concatenated capsules of one level as an embedding of each graph, on the CPU, ``[G, M · J · d]``.

        The capsules of the members of a committee follow one another. The embedding of a graph without nodes is zero.

        Args:
            graphs, unseen: As in :meth:`scores`.
            level (int): 0 for the lowest capsule level, −1 for the class capsules. (default: −1)

        Raises:
            ArgumentError: If the model has no capsules or no such level.
        """
        store = self.check(graphs, unseen=unseen).require()
        count = self.scorer.num_levels
        if count and not -count <= level < count:
            raise ArgumentError("FittedModel", "level", f"be one of the {count} capsule levels", level)
        rows = self.scorer.capsules(store.with_nodes(), level)
        return _insert_empty(rows, store, rows.new_zeros(rows.size(1)))

    def explain(
        self, graph: Any, *, target: int | str | Tensor | None = None, unseen: UnseenPolicy = "refuse"
    ) -> Any:
        """Explains the prediction for one or several graphs, see :func:`graphcaps.explain`."""
        from graphcaps.explanation import explain

        return explain(self, graph, target=target, unseen=unseen)

    # ------------------------------------------------------------------ description and files
    def info(self) -> dict[str, Any]:
        """Model, training data and expected inputs as JSON values."""
        config, reads = self.config.as_dict(), self.scorer.reads
        arguments = {name: value for name, value in config["model"].items() if name != "name"}
        return {
            "model": {
                "name": self.config.model,
                "formulation": self.scorer.formulation,
                "arguments": arguments,
                "in_channels": self.recipe.num_columns,
                "num_classes": self.model.num_classes,
                "parameters": self.scorer.num_parameters,
                **({"members": len(self.members)} if self.is_committee else {}),
                **self._companion_info(),
                "dtype": str(self.dtype).removeprefix("torch."),
                "scores": self.score_kind,
            },
            "class_names": list(self.class_names),
            "expects": {
                "reads": None if reads is None else list(reads),
                "node_labels": self.recipe.node_labels,
                "node_attributes": self.recipe.num_attributes,
                "max_nodes": self.config.features.max_nodes,
                "recipe": self.recipe.to_dict(),
            },
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "profile": None if self.profile is None else self.profile.to_dict(),
            **(
                {}
                if self.disagreement_profile is None
                else {"disagreement_profile": self.disagreement_profile.to_dict()}
            ),
            "recorded_graphs": None if self.split_hashes is None else self.split_hashes.counts(),
            "training": self.training,
            "config": config,
            "versions": self.versions,
        }

    def _companion_info(self) -> dict[str, Any]:
        """Companions and weights, under ``companion``; {} without any."""
        if self.mixture is None:
            return {}
        models = [
            {
                "name": each.config.model,
                "arguments": {
                    name: value for name, value in each.config.as_dict()["model"].items() if name != "name"
                },
                "parameters": each.scorer.num_parameters,
                "reads": list(each.scorer.reads or ()),
                "weight": weight,
                "calibration": None if each.calibration is None else each.calibration.to_dict(),
            }
            for each, weight in zip(self.companions, self.mixture.weights[1:], strict=True)
        ]
        mixture = self.mixture.to_dict()
        entries = {"network_weight": self.mixture.weights[0], "models": models}
        return {"companion": entries | {name: mixture[name] for name in ("graphs", "stacked", "calibration")}}

    def save(self, path: str | Path) -> None:
        """Writes the model file atomically; :func:`graphcaps.load` gives the same scores bit for bit.

        Raises:
            ArgumentError: If the configuration does not match the model, or a value cannot be written as JSON.
            DataError: If the file cannot be written.
        """
        from graphcaps.inference.model_file import write_model_file

        write_model_file(path, self)

    def export(self, path: str | Path) -> None:
        """Writes the model as ``.pt2`` or ``.onnx``, see :func:`graphcaps.inference.export.export`."""
        from graphcaps.inference.export import export

        export(self, path)


def training_summary(store: GraphStore, **results: Any) -> dict[str, Any]:
    """Facts about the graphs of a training, for ``FittedModel.training``.

    Args:
        store (GraphStore): The training and validation graphs, with classes.
        results: Further entries, as JSON values: ``epochs``, ``seed``, ``seconds``, ``train_loss``,
            ``train_accuracy``, ``validation_accuracy``, ``digest``.
    """
    counts = [] if store.y is None else torch.bincount(store.y.cpu(), minlength=store.num_classes).tolist()
    sizes = store.sizes.cpu()
    return {
        "dataset": store.name,
        "graphs": len(store),
        "nodes_mean": round(float(sizes.double().mean()), 4),
        "nodes_max": int(sizes.max()),
        "class_counts": dict(zip(store.class_names, counts, strict=False)),
    } | results


def _insert_empty(rows: Tensor, store: GraphStore, fill: Tensor) -> Tensor:
    """One row per graph of the store: ``rows`` of the graphs with nodes, and ``fill`` for the others."""
    if not store.empty_graphs.numel():
        return rows
    every = fill.repeat(len(store), 1)
    every[store.host_node_ptr.diff() > 0] = rows
    return every
