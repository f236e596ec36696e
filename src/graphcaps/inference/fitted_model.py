"""A trained model with all it needs to read new graphs: what a model file holds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps._io.provenance import library_versions
from graphcaps.config import RunConfig
from graphcaps.data.batching import size_chunks
from graphcaps.data.coerce import as_store
from graphcaps.data.features.compatibility import UnseenPolicy, check_compatible
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.probabilities import Calibration, abstain, probabilities

__all__ = ["FittedModel", "probabilities", "training_summary"]

# A batch ends before it has more than so many nodes or edge entries: some hundred megabytes at most.
_BATCH_NODES = 1 << 14
_BATCH_ENTRIES = 1 << 18


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model, the recipe of its input, and its classes.

    Args:
        model (Module): A single model (no leading axes); it is put into evaluation mode.
        config (RunConfig): What made it.
        recipe (FeatureRecipe): The fitted recipe of its input columns.
        class_names (tuple): What the classes are called, in the order of the model's outputs.
        training (dict): What it was trained on and how it went, in JSON's own types; see
            :func:`training_summary`.
        versions (dict): Libraries that trained it. (default: those of this process)
        calibration (Calibration, optional): How its probabilities are made to agree with frequencies.
        profile (TrainingProfile, optional): What its training graphs are like.

    Raises:
        ArgumentError: If the parts do not belong together.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
        >>> model.predict(graphcaps.load_dataset("MUTAG"))               # doctest: +SKIP
    """

    model: nn.Module
    config: RunConfig
    recipe: FeatureRecipe
    class_names: tuple[str, ...]
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=library_versions)
    calibration: Calibration | None = None
    profile: TrainingProfile | None = None

    def __post_init__(self) -> None:
        model: Any = self.model
        if tuple(model.lead):
            raise ArgumentError("FittedModel", "model", "be a single one", f"{model.lead[0]} replicas")
        if not self.recipe.is_fitted:
            raise ArgumentError("FittedModel", "recipe", "be fitted", "one that is not")
        if self.recipe.num_columns != model.in_channels:
            columns = f"make the {model.in_channels} columns that the model reads"
            raise ArgumentError("FittedModel", "recipe", columns, self.recipe.num_columns)
        if len(self.class_names) != model.num_classes or len(set(self.class_names)) != model.num_classes:
            names = f"name the {model.num_classes} classes of the model, each differently"
            raise ArgumentError("FittedModel", "class_names", names, self.class_names)
        self.model.eval()

    def __repr__(self) -> str:
        classes = ", ".join(self.class_names[:5]) + (", …" if len(self.class_names) > 5 else "")
        return f"FittedModel('{self.config.model}', classes=({classes}), columns={self.recipe.num_columns})"

    @property
    def scores_are(self) -> str:
        """``"lengths"`` of class capsules, or ``"logits"``."""
        return str(getattr(self.model, "scores_are", "logits"))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, and so of the input columns."""
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> FittedModel:
        """The same object, its weights on another device; graphs follow by themselves."""
        self.model.to(device)
        return self

    # ------------------------------------------------------------------ predicting
    def scores(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> Tensor:
        """What the model gives each class, on the CPU, ``[G, O]``: lengths of class capsules, or logits.

        Graphs are encoded and scored in batches of bounded size; how they are batched changes nothing but
        the last bits.

        Args:
            graphs: A ``GraphStore``, or what :func:`graphcaps.data.coerce.as_store` takes: torch-geometric
                ``Data`` or networkx graphs, one or several.
            unseen (str): ``"refuse"`` raises on a node label that was not seen in training; ``"ignore"``
                gives such a node zeros there, and warns with counts. (default: ``"refuse"``)

        Raises:
            ArgumentError: If a graph does not fit the recipe.
        """
        store = as_store(graphs, attributes=bool(self.recipe.num_attributes))
        check_compatible(store, self.recipe, unseen=unseen, dtype=self.dtype)
        return self._scores(store)

    def predict_proba(self, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> np.ndarray:
        """Probability of each class, float64 ``[G, O]``: calibrated where the model has a calibration, and else
        as :func:`probabilities` makes them."""
        scores = self.scores(graphs, unseen=unseen)
        broken = (~scores.isfinite().all(-1)).nonzero()
        if broken.numel():
            raise ArgumentError(
                "FittedModel",
                "graphs",
                "give scores that are numbers",
                f"none for graph {int(broken[0])}",
                "Check its attributes for extreme values.",
            )
        return self.shares(scores)

    def shares(self, scores: Tensor) -> np.ndarray:
        """Probabilities, float64 ``[G, O]``, from what :meth:`scores` gave."""
        plain = probabilities(scores, self.scores_are)
        return plain if self.calibration is None else self.calibration.apply(plain)

    def predict(
        self, graphs: Any, *, unseen: UnseenPolicy = "refuse", abstain_below: float | None = None
    ) -> np.ndarray:
        """Name of the class of each graph, ``[G]``.

        Args:
            graphs, unseen: As in :meth:`scores`.
            abstain_below (float, optional): A graph whose most probable class is less probable than this gets
                ``None``; the result then holds objects. (default: every graph gets a class)
        """
        shares = self.predict_proba(graphs, unseen=unseen)
        return abstain(np.array(self.class_names)[shares.argmax(-1)], shares, abstain_below)

    def unlike(self, graphs: Any) -> tuple[str, ...]:
        """How each graph is unlike the training graphs, in words, "" where it is not; see
        :class:`graphcaps.inference.applicability.TrainingProfile`.

        Raises:
            ArgumentError: If the model file is of an older version and knows nothing of its training graphs.
        """
        if self.profile is None:
            fix = "Train the model again."
            raise ArgumentError("FittedModel", "profile", "be known", "a model that has none", fix)
        return self.profile.reasons(as_store(graphs, attributes=bool(self.recipe.num_attributes)))

    def embed(self, graphs: Any, *, level: int = -1, unseen: UnseenPolicy = "refuse") -> Tensor:
        """Each graph as one row: its capsules of a level one after another, on the CPU, ``[G, J · d]``.

        Args:
            graphs, unseen: As in :meth:`scores`.
            level (int): 0 for the lowest wholes, −1 for the class capsules. (default: −1)

        Raises:
            ArgumentError: If the model has no capsules, or no such level.
        """
        store = as_store(graphs, attributes=bool(self.recipe.num_attributes))
        check_compatible(store, self.recipe, unseen=unseen, dtype=self.dtype)
        count = len(getattr(self.model, "layers", ())) if self.scores_are == "lengths" else 0
        if not -count <= level < count:
            raise ArgumentError("FittedModel", "level", f"name one of {count} levels of capsules", level)
        return torch.cat([out.levels[level].capsules.flatten(1).cpu() for out in self._outputs(store)])

    def explain(
        self, graph: Any, *, target: int | str | Tensor | None = None, unseen: UnseenPolicy = "refuse"
    ) -> Any:
        """Which parts the decision was made from, see :func:`graphcaps.explain`."""
        from graphcaps.explanation import explain

        return explain(self, graph, target=target, unseen=unseen)

    @torch.no_grad()
    def _scores(self, store: GraphStore) -> Tensor:
        """Scores of graphs that are known to fit (labels without a column are encoded as zeros)."""
        found = [torch.empty(0, len(self.class_names), dtype=self.dtype)]
        return torch.cat([*found, *(output.class_scores.cpu() for output in self._outputs(store))])

    @torch.no_grad()
    def _outputs(self, store: GraphStore) -> Iterator[Any]:
        """What the model gives, batch by batch."""
        self.model.eval()
        scorer: Any = self.model
        for first, end in _spans(store):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # check_compatible has told it, once and for the whole store
                part = encode_graphs(
                    store[torch.arange(first, end)],
                    self.recipe,
                    max_nodes=self.config.features.max_nodes,
                    unseen="ignore",
                    dtype=self.dtype,
                )
            on_device = part.store.to(self.device)
            yield scorer.forward_batch(on_device.batch(part.x.to(self.device)))

    # ------------------------------------------------------------------ describing and saving
    def info(self) -> dict[str, Any]:
        """What the model is, was trained on and expects, in JSON's own types."""
        model: Any = self.model
        plain = self.config.as_dict()
        arguments = {name: value for name, value in plain["model"].items() if name != "name"}
        return {
            "model": {
                "name": self.config.model,
                "formulation": getattr(model, "formulation", None),
                "arguments": arguments,
                "in_channels": int(model.in_channels),
                "num_classes": int(model.num_classes),
                "parameters": sum(value.numel() for value in self.model.parameters()),
                "dtype": str(self.dtype).removeprefix("torch."),
                "scores": self.scores_are,
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
            "config": plain,
            "versions": self.versions,
        }

    def save(self, path: str | Path) -> None:
        """Writes the model file; it appears whole or not at all."""
        from graphcaps.inference.model_file import save  # which needs this module

        save(self, path)

    def export(self, path: str | Path) -> None:
        """Writes the model for other programs, ``.pt2`` or ``.onnx``, see :func:`graphcaps.inference.export.export`."""
        from graphcaps.inference.export import export

        export(self, path)


def training_summary(store: GraphStore, **figures: Any) -> dict[str, Any]:
    """What a model was trained on, for ``FittedModel.training``: counts of the store, and figures given.

    Args:
        store (GraphStore): The graphs learnt from, with classes.
        figures: What else is known, in JSON's own types: ``epochs``, ``seed``, ``seconds``, ``train_loss``,
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
    } | figures


def _spans(store: GraphStore) -> Iterator[tuple[int, int]]:
    """Consecutive graphs of bounded size together, at least one: first graph and end."""
    return size_chunks(store, _BATCH_NODES, _BATCH_ENTRIES)
