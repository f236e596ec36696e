"""What a fitted model needs of the model that it holds: class scores of graphs, whichever kind of model computes them.

Networks (:class:`graphcaps.nn.GraphModel`) read input columns batch by batch, on any device. Classical models
(:class:`graphcaps.models.classical.ClassicalModel`) read the graphs of a store, on the CPU. :func:`make_scorer` is the
only place of a prediction that tells them apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.batching import size_chunks
from graphcaps.data.features.encoding import encode_checked
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.classical import ClassicalModel
from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.capsule_use import CapsuleUse, measure_capsule_use
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.types import GraphBatch, HGCNOutput, ModelOutput

__all__ = ["ClassicalScorer", "NetworkScorer", "Scorer", "make_scorer"]

# Limits of a prediction batch, in nodes and edge entries: its memory stays at a few hundred megabytes.
_BATCH_NODES = 1 << 14
_BATCH_ENTRIES = 1 << 18


class Scorer(ABC):
    """Class scores of graphs by a single trained model."""

    @property
    def reads(self) -> tuple[str, ...] | None:
        """What a classical model reads of a graph; ``None`` for a network, which reads input columns."""
        return None

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of the scores, and of attributes that the model reads."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device that computes the scores."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of fitted values."""

    @property
    def formulation(self) -> str | None:
        """Formulation of an HGCN; ``None`` for other models."""
        return None

    @property
    def num_levels(self) -> int:
        """Number of capsule levels; 0 for a model without capsules."""
        return 0

    @abstractmethod
    def to(self, device: str | torch.device) -> None:
        """Moves the model to a device."""

    @abstractmethod
    def scores(self, store: GraphStore) -> Tensor:
        """Class scores on the CPU, ``[G, O]``, of graphs that are already checked."""

    def capsules(self, store: GraphStore, level: int) -> Tensor:
        """Capsules of one level on the CPU, ``[G, J · d]``.

        Raises:
            ArgumentError: If the model has no capsules.
        """
        raise ArgumentError("FittedModel", "model", "have capsules", "a model without")

    def capsule_use(self, store: GraphStore) -> CapsuleUse | None:
        """Capsules in use of the lowest level over graphs with nodes; ``None`` without capsules or graphs."""
        return None


class NetworkScorer(Scorer):
    """Scores of a network.

    Args:
        model (GraphModel): A single model, without leading axes; it is put into evaluation mode.
        recipe (FeatureRecipe): The fitted recipe of its input columns.
        max_nodes (int, optional): Graphs are truncated to this number of nodes.

    Raises:
        ArgumentError: If model and recipe do not match.
    """

    def __init__(self, model: GraphModel, recipe: FeatureRecipe, max_nodes: int | None) -> None:
        owner = "FittedModel"
        if tuple(model.lead):
            raise ArgumentError(owner, "model", "be a single model", f"{model.lead[0]} replicas")
        if recipe.num_columns != model.in_channels:
            expected = f"produce the model's {model.in_channels} input columns"
            raise ArgumentError(owner, "recipe", expected, recipe.num_columns)
        if model.edge_kinds not in ((), recipe.edge_kinds):
            expected = f"have the edge labels of the model, {model.edge_kinds}"
            raise ArgumentError(owner, "recipe", expected, recipe.edge_kinds)
        self.model, self.recipe, self.max_nodes = model.eval(), recipe, max_nodes

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def num_parameters(self) -> int:
        return sum(value.numel() for value in self.model.parameters())

    @property
    def formulation(self) -> str | None:
        return self.model.formulation if isinstance(self.model, HGCN) else None

    @property
    def num_levels(self) -> int:
        return len(self.model.layers) if isinstance(self.model, HGCN) else 0

    def to(self, device: str | torch.device) -> None:
        self.model.to(device)

    @torch.no_grad()
    def scores(self, store: GraphStore) -> Tensor:
        """Unseen labels are encoded as zeros."""
        empty = torch.empty(0, self.model.num_classes, dtype=self.dtype)
        return torch.cat([empty, *(output.class_scores.cpu() for output in self._outputs(store))])

    def capsules(self, store: GraphStore, level: int) -> Tensor:
        if not isinstance(self.model, HGCN):
            return super().capsules(store, level)
        layer = cast(CapsuleLayer, self.model.layers[level])
        rows = [torch.empty(0, layer.num_capsules * layer.capsule_dim, dtype=self.dtype)]
        for output in self._outputs(store):
            assert isinstance(output, HGCNOutput)
            rows.append(output.levels[level].capsules.flatten(1).cpu())
        return torch.cat(rows)

    def capsule_use(self, store: GraphStore) -> CapsuleUse | None:
        if not self.model.has_capsules or not len(store):
            return None
        (use,) = measure_capsule_use(self.model, self._batches(store))
        return use

    @torch.no_grad()
    def _outputs(self, store: GraphStore) -> Iterator[ModelOutput]:
        """Outputs of the model, batch by batch."""
        self.model.eval()
        for batch in self._batches(store):
            yield self.model.forward_batch(batch)

    def _batches(self, store: GraphStore) -> Iterator[GraphBatch]:
        """The graphs, encoded, in batches of bounded size."""
        for first, end in size_chunks(store, _BATCH_NODES, _BATCH_ENTRIES):
            graphs = store[torch.arange(first, end)]
            part = encode_checked(graphs, self.recipe, max_nodes=self.max_nodes, dtype=self.dtype)
            on_device = precompute(part.store, self.model.precomputation, dtype=self.dtype).to(self.device)
            yield on_device.batch(part.x.to(self.device))


class ClassicalScorer(Scorer):
    """Probabilities of a classical model, as its scores.

    Args:
        model (ClassicalModel): A fitted model.
    """

    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, model: ClassicalModel) -> None:
        self.model = model

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(sorted(self.model.inputs))

    @property
    def num_parameters(self) -> int:
        return sum(value.numel() for value in self.model.state().values())

    def to(self, device: str | torch.device) -> None:
        """Accepts the CPU only."""
        if torch.device(device).type != "cpu":
            raise UsageError(f"{type(self.model).__name__} runs on the CPU; use device='cpu' or 'auto'.")

    def scores(self, store: GraphStore) -> Tensor:
        return torch.from_numpy(self.model.predict_proba(store, np.arange(len(store))))


def make_scorer(
    model: GraphModel | ClassicalModel, recipe: FeatureRecipe, max_nodes: int | None = None
) -> Scorer:
    """The scorer of a model; arguments as in :class:`NetworkScorer`."""
    if isinstance(model, ClassicalModel):
        return ClassicalScorer(model)
    return NetworkScorer(model, recipe, max_nodes)
