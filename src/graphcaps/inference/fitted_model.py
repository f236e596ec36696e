"""A trained model with everything that prediction on new graphs needs: :class:`FittedModel` and :func:`load`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.provenance import library_versions
from graphcaps.config import RunConfig
from graphcaps.data.batching import size_chunks
from graphcaps.data.coerce import as_store
from graphcaps.data.features.compatibility import check_compatible
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe, UnseenPolicy
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.model_file import ModelContents, read_model_file, reading, write_model_file
from graphcaps.inference.probabilities import Calibration, abstain, probabilities
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.registry import ScoreKind
from graphcaps.types import HGCNOutput, ModelOutput

__all__ = ["FittedModel", "load", "training_summary"]

# Limits of a prediction batch, in nodes and edge entries: its memory stays at a few hundred megabytes.
_BATCH_NODES = 1 << 14
_BATCH_ENTRIES = 1 << 18


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model with the feature recipe of its input and its class names.

    Args:
        model (GraphModel): A single model, without leading axes; it is put into evaluation mode.
        config (RunConfig): The configuration that it was trained with.
        recipe (FeatureRecipe): The fitted recipe of its input columns.
        class_names (tuple): Class names, in the order of the model's outputs.
        training (dict): Training data and results as JSON values; see :func:`training_summary`.
        versions (dict): Versions of the libraries that trained it. (default: those of this process)
        calibration (Calibration, optional): Calibration of its probabilities.
        profile (TrainingProfile, optional): Statistics of its training graphs, for out-of-distribution warnings.

    Raises:
        ArgumentError: If model, recipe and class names do not match.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
        >>> model.predict(graphcaps.load_dataset("MUTAG"))               # doctest: +SKIP
    """

    model: GraphModel
    config: RunConfig
    recipe: FeatureRecipe
    class_names: tuple[str, ...]
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=library_versions)
    calibration: Calibration | None = None
    profile: TrainingProfile | None = None

    def __post_init__(self) -> None:
        owner, model = "FittedModel", self.model
        if tuple(model.lead):
            raise ArgumentError(owner, "model", "be a single model", f"{model.lead[0]} replicas")
        if not self.recipe.is_fitted:
            raise ArgumentError(owner, "recipe", "be fitted", "a recipe that is not")
        if self.recipe.num_columns != model.in_channels:
            expected = f"produce the model's {model.in_channels} input columns"
            raise ArgumentError(owner, "recipe", expected, self.recipe.num_columns)
        if len(self.class_names) != model.num_classes or len(set(self.class_names)) != model.num_classes:
            expected = f"be {model.num_classes} different names, one per class of the model"
            raise ArgumentError(owner, "class_names", expected, self.class_names)
        self.model.eval()

    def __repr__(self) -> str:
        classes = ", ".join(self.class_names[:5]) + (", …" if len(self.class_names) > 5 else "")
        return f"FittedModel('{self.config.model}', classes=({classes}), columns={self.recipe.num_columns})"

    @property
    def score_kind(self) -> ScoreKind:
        """What the class scores are: ``"lengths"`` of class capsules, ``"logits"`` or ``"probabilities"``."""
        return self.model.scores

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of the input columns."""
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> FittedModel:
        """Moves the weights to a device and returns the same object; graphs are moved when they are scored."""
        self.model.to(device)
        return self

    # ------------------------------------------------------------------ prediction
    def scores(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> Tensor:
        """Class scores of each graph on the CPU, ``[G, O]``: lengths of class capsules, or logits.

        Graphs are encoded and scored in batches of bounded size. The batching changes scores by rounding only.

        Args:
            graphs: A ``GraphStore``, or anything that :func:`graphcaps.data.coerce.as_store` accepts: torch-geometric
                ``Data`` or networkx graphs, one or several.
            unseen (str): For node labels that did not occur in training: ``"refuse"`` raises an error; ``"ignore"``
                encodes them as zeros and warns with counts. (default: ``"refuse"``)

        Raises:
            ArgumentError: If a graph does not match the feature recipe.
        """
        return self._scores(self._checked_store(graphs, unseen))

    def predict_proba(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> np.ndarray:
        """Class probabilities of each graph, float64 ``[G, O]``, calibrated if the model has a calibration.

        Without one they are those of :func:`graphcaps.inference.probabilities.probabilities`.

        Args:
            graphs, unseen: As in :meth:`scores`.

        Raises:
            ArgumentError: If a graph does not match the feature recipe, or its scores are not finite.
        """
        scores = self.scores(graphs, unseen=unseen)
        non_finite = (~scores.isfinite().all(-1)).nonzero()
        if non_finite.numel():
            raise ArgumentError(
                "FittedModel",
                "graphs",
                "give finite scores",
                f"NaN or infinity for graph {int(non_finite[0])}",
                "Check its attributes for extreme values.",
            )
        return self.to_probabilities(scores)

    def to_probabilities(self, scores: Tensor) -> np.ndarray:
        """Probabilities from the scores of :meth:`scores`, float64 ``[G, O]``."""
        uncalibrated = probabilities(scores, self.score_kind)
        return uncalibrated if self.calibration is None else self.calibration.apply(uncalibrated)

    def predict(
        self, graphs: Any, *, unseen: UnseenPolicy = "refuse", abstain_below: float | None = None
    ) -> np.ndarray:
        """Predicted class name of each graph, ``[G]``.

        Args:
            graphs, unseen: As in :meth:`scores`.
            abstain_below (float, optional): Graphs whose highest probability is below this get ``None``; the result
                is then an object array. (default: every graph gets a class)
        """
        probability = self.predict_proba(graphs, unseen=unseen)
        return abstain(np.array(self.class_names)[probability.argmax(-1)], probability, abstain_below)

    def out_of_distribution(self, graphs: Any) -> tuple[str, ...]:
        """For each graph the reason why it lies outside the applicability domain, or "" if it lies inside.

        See :class:`graphcaps.inference.applicability.TrainingProfile`.

        Raises:
            ArgumentError: If the model has no profile of its training graphs.
        """
        if self.profile is None:
            expected, fix = "be stored with the model", "Train the model with graphcaps train."
            raise ArgumentError("FittedModel", "profile", expected, "None", fix)
        return self.profile.reasons(as_store(graphs, attributes=bool(self.recipe.num_attributes)))

    def embed(self, graphs: Any, *, level: int = -1, unseen: UnseenPolicy = "refuse") -> Tensor:
        """The concatenated capsules of one level as an embedding of each graph, on the CPU, ``[G, J · d]``.

        Args:
            graphs, unseen: As in :meth:`scores`.
            level (int): 0 for the lowest capsule level, −1 for the class capsules. (default: −1)

        Raises:
            ArgumentError: If the model has no capsules or no such level.
        """
        store = self._checked_store(graphs, unseen)
        count = len(self.model.layers) if isinstance(self.model, HGCN) else 0
        if not -count <= level < count:
            raise ArgumentError("FittedModel", "level", f"be one of the {count} capsule levels", level)
        outputs = (output for output in self._outputs(store) if isinstance(output, HGCNOutput))
        return torch.cat([output.levels[level].capsules.flatten(1).cpu() for output in outputs])

    def explain(
        self, graph: Any, *, target: int | str | Tensor | None = None, unseen: UnseenPolicy = "refuse"
    ) -> Any:
        """Explains the prediction for one or several graphs, see :func:`graphcaps.explain`."""
        from graphcaps.explanation import explain

        return explain(self, graph, target=target, unseen=unseen)

    def _checked_store(self, graphs: Any, unseen: UnseenPolicy) -> GraphStore:
        """The graphs as a store; raises if they do not match the feature recipe."""
        store = as_store(graphs, attributes=bool(self.recipe.num_attributes))
        check_compatible(store, self.recipe, unseen=unseen, dtype=self.dtype)
        return store

    @torch.no_grad()
    def _scores(self, store: GraphStore) -> Tensor:
        """Scores of graphs that are already checked; unseen labels are encoded as zeros."""
        empty = torch.empty(0, len(self.class_names), dtype=self.dtype)
        return torch.cat([empty, *(output.class_scores.cpu() for output in self._outputs(store))])

    @torch.no_grad()
    def _outputs(self, store: GraphStore) -> Iterator[ModelOutput]:
        """Outputs of the model, batch by batch."""
        self.model.eval()
        for first, end in _batch_spans(store):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # _checked_store warned once for the whole store
                part = encode_graphs(
                    store[torch.arange(first, end)],
                    self.recipe,
                    max_nodes=self.config.features.max_nodes,
                    unseen="ignore",
                    dtype=self.dtype,
                )
            on_device = part.store.to(self.device)
            yield self.model.forward_batch(on_device.batch(part.x.to(self.device)))

    # ------------------------------------------------------------------ description and files
    def info(self) -> dict[str, Any]:
        """Model, training data and expected inputs as JSON values."""
        model = self.model
        config = self.config.as_dict()
        arguments = {name: value for name, value in config["model"].items() if name != "name"}
        return {
            "model": {
                "name": self.config.model,
                "formulation": model.formulation if isinstance(model, HGCN) else None,
                "arguments": arguments,
                "in_channels": model.in_channels,
                "num_classes": model.num_classes,
                "parameters": sum(value.numel() for value in self.model.parameters()),
                "dtype": str(self.dtype).removeprefix("torch."),
                "scores": self.score_kind,
            },
            "class_names": list(self.class_names),
            "expects": {
                "node_labels": [list(block) for block in self.recipe.label_values or ()],
                "node_attributes": self.recipe.num_attributes,
                "max_nodes": self.config.features.max_nodes,
                "recipe": self.recipe.to_dict(),
            },
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "profile": None if self.profile is None else self.profile.to_dict(),
            "training": self.training,
            "config": config,
            "versions": self.versions,
        }

    def save(self, path: str | Path) -> None:
        """Writes the model file atomically; :func:`load` gives the same scores bit for bit.

        Raises:
            ArgumentError: If the configuration does not match the model, or a value cannot be written as JSON.
            DataError: If the file cannot be written.
        """
        contents = ModelContents(
            model=self.model,
            config=self.config,
            recipe=self.recipe,
            class_names=self.class_names,
            training=self.training,
            versions=self.versions,
            calibration=self.calibration,
            profile=self.profile,
        )
        write_model_file(path, contents)

    def export(self, path: str | Path) -> None:
        """Writes the model as ``.pt2`` or ``.onnx``, see :func:`graphcaps.inference.export.export`."""
        from graphcaps.inference.export import export

        export(self, path)


def load(path: str | Path) -> FittedModel:
    """Reads a model file; the model predicts on new graphs without further input.

    Args:
        path (str or Path): A file written by ``FittedModel.save`` or ``graphcaps train``.

    Raises:
        DataError: If the file is missing, of another kind, truncated, modified, of a newer version, or not valid.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
    """
    contents = read_model_file(path)
    with reading(path):
        return FittedModel(
            model=contents.model,
            config=contents.config,
            recipe=contents.recipe,
            class_names=contents.class_names,
            training=contents.training,
            versions=contents.versions,
            calibration=contents.calibration,
            profile=contents.profile,
        )


def training_summary(store: GraphStore, **results: Any) -> dict[str, Any]:
    """Facts about the training graphs, for ``FittedModel.training``.

    Args:
        store (GraphStore): The training graphs, with classes.
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


def _batch_spans(store: GraphStore) -> Iterator[tuple[int, int]]:
    """First graph and end of consecutive batches of bounded size, each with at least one graph."""
    return size_chunks(store, _BATCH_NODES, _BATCH_ENTRIES)
