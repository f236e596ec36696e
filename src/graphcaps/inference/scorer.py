"""What a fitted model needs of its members: class scores of graphs, whichever kind of model computes them.

Networks (:class:`graphcaps.nn.GraphModel`) read input columns batch by batch, on any device. Classical models
(:class:`graphcaps.models.classical.ClassicalModel`) read the graphs of a store, on the CPU. :func:`make_scorer` is the
only place of a prediction that tells them apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.batching import size_chunks
from graphcaps.data.features.encoding import EncodedGraphs, encode_checked
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.classical import ClassicalModel
from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.capsule_use import CapsuleUse, measure_capsule_use
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hard_assignment import MeanCoefficients
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.part_loss import measure_block_loss
from graphcaps.nn.prepared_hgcn import MAX_PADDED_ROWS, MAX_SMALL_NODES, PreparedHGCN, SmallGraphs
from graphcaps.ops._triton.dispatch import uses_reference
from graphcaps.types import GraphBatch, HGCNOutput, ModelOutput

__all__ = ["ClassicalScorer", "NetworkScorer", "Scorer", "make_scorer"]

# Limits of a prediction batch, in nodes and edge entries: its memory stays at a few hundred megabytes.
_BATCH_NODES = 1 << 14
_BATCH_ENTRIES = 1 << 18
# Threads that encode batches on the host while a GPU works on the ones before: encoding takes the longer time.
_ENCODING_THREADS = 4

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Scorer(ABC):
    """Class scores of graphs by the M members of a fitted model: one, or those of a committee."""

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
        """Number of fitted values of all members."""

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
        """Moves the members to a device."""

    @abstractmethod
    def scores(self, store: GraphStore) -> Tensor:
        """Class scores of each member on the CPU, ``[M, G, O]``, of graphs that are already checked."""

    def capsules(self, store: GraphStore, level: int) -> Tensor:
        """Capsules of one level on the CPU, one member after another, ``[G, M · J · d]``.

        Raises:
            ArgumentError: If the model has no capsules.
        """
        raise ArgumentError("FittedModel", "model", "have capsules", "a model without")

    def mean_coefficients(self, stores: Iterable[GraphStore]) -> list[tuple[Tensor, ...] | None]:
        """Mean routing coefficients of each member over all graphs of some stores; empty without capsules.

        They are those of :attr:`graphcaps.nn.HGCN.mean_coefficients`.

        Args:
            stores (iterable): Training graphs with nodes.
        """
        return []

    def capsule_use(self, store: GraphStore) -> CapsuleUse | None:
        """Capsules in use of the lowest level over graphs with nodes; ``None`` without capsules or graphs.

        Of a committee, that of the member with the fewest.
        """
        return None

    def block_losses(self, store: GraphStore) -> list[float]:
        """Loss of parts of each member over graphs with nodes; empty without ``parts="blocks"`` or graphs."""
        return []


class NetworkScorer(Scorer):
    """Scores of networks.

    Args:
        members (sequence): Networks of one class and the same sizes, without leading axes; they are put into evaluation
            mode.
        recipe (FeatureRecipe): The fitted recipe of their input columns.
        max_nodes (int, optional): Graphs are truncated to this number of nodes.

    Raises:
        ArgumentError: If members and recipe do not match.
    """

    def __init__(self, members: Sequence[GraphModel], recipe: FeatureRecipe, max_nodes: int | None) -> None:
        owner = "FittedModel"
        for model in members:
            if tuple(model.lead):
                raise ArgumentError(owner, "model", "be a single model", f"{model.lead[0]} replicas")
            if recipe.num_columns != model.in_channels:
                expected = f"produce the model's {model.in_channels} input columns"
                raise ArgumentError(owner, "recipe", expected, recipe.num_columns)
            if model.edge_kinds not in ((), recipe.edge_kinds):
                expected = f"have the edge labels of the model, {model.edge_kinds}"
                raise ArgumentError(owner, "recipe", expected, recipe.edge_kinds)
        self.members, self.recipe, self.max_nodes = [model.eval() for model in members], recipe, max_nodes
        self.model = self.members[0]  # what sizes, device and type are read from
        self._prepared: list[PreparedHGCN] = []
        types = {str(next(model.parameters()).dtype).removeprefix("torch.") for model in members}
        if len(types) > 1:
            raise ArgumentError(
                owner, "others", "have weights of the type of 'model'", ", ".join(sorted(types))
            )

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def num_parameters(self) -> int:
        return sum(value.numel() for model in self.members for value in model.parameters())

    @property
    def formulation(self) -> str | None:
        return self.model.formulation if isinstance(self.model, HGCN) else None

    @property
    def num_levels(self) -> int:
        return len(self.model.layers) if isinstance(self.model, HGCN) else 0

    def to(self, device: str | torch.device) -> None:
        for model in self.members:
            model.to(device)

    def scores(self, store: GraphStore) -> Tensor:
        """Unseen labels are encoded as zeros."""
        parts = [self._class_scores(part) for part in self._encoded(store)]
        if not parts:
            return torch.empty(len(self.members), 0, self.model.num_classes, dtype=self.dtype)
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def capsules(self, store: GraphStore, level: int) -> Tensor:
        if not isinstance(self.model, HGCN):
            return super().capsules(store, level)
        layer = cast(CapsuleLayer, self.model.layers[level])
        width = len(self.members) * layer.num_capsules * layer.capsule_dim
        rows = [torch.empty(0, width, dtype=self.dtype)]
        for outputs in self._outputs(store):
            capsules = [
                output.levels[level].capsules.flatten(1)
                for output in outputs
                if isinstance(output, HGCNOutput)
            ]
            rows.append(torch.cat(capsules, 1).cpu())
        return torch.cat(rows)

    @torch.no_grad()
    def mean_coefficients(self, stores: Iterable[GraphStore]) -> list[tuple[Tensor, ...] | None]:
        if not isinstance(self.model, HGCN):
            return []
        means = [MeanCoefficients() for _ in self.members]
        for store in stores:
            for batch in self._batches(store):
                for model, mean in zip(self.members, means, strict=True):
                    mean.add(cast(HGCN, model).eval().forward_batch(batch, trace=True), batch.segments)
        return [mean.means() for mean in means]

    def capsule_use(self, store: GraphStore) -> CapsuleUse | None:
        if not self.model.has_capsules or not len(store):
            return None
        uses = [use for model in self.members for use in measure_capsule_use(model, self._batches(store), ())]
        return min(uses, key=lambda use: use.in_use)

    def block_losses(self, store: GraphStore) -> list[float]:
        if not isinstance(self.model, HGCN) or self.model.parts != "blocks" or not len(store):
            return []
        return [measure_block_loss(model, self._batches(store)) for model in self.members]

    @torch.no_grad()
    def _class_scores(self, part: EncodedGraphs) -> Tensor:
        """Scores of a batch of encoded graphs on the CPU, ``[M, B, O]``."""
        small = _small_graphs(part) if self._is_prepared else None
        if small is None:
            outputs = self._member_outputs(self._batch(part))
            return torch.stack([output.class_scores for output in outputs]).cpu()
        self._prepared = [
            PreparedHGCN.prepare(cast(HGCN, model), before)
            for model, before in zip_longest(self.members, self._prepared)
        ]
        return torch.stack([prepared.class_scores(small) for prepared in self._prepared])

    @property
    def _is_prepared(self) -> bool:
        """Whether the members are networks that :class:`PreparedHGCN` computes."""
        return isinstance(self.model, HGCN) and PreparedHGCN.supports(self.model) and not uses_reference()

    @torch.no_grad()
    def _outputs(self, store: GraphStore) -> Iterator[list[ModelOutput]]:
        """Outputs of the members, batch by batch."""
        for batch in self._batches(store):
            yield self._member_outputs(batch)

    def _member_outputs(self, batch: GraphBatch) -> list[ModelOutput]:
        return [model.eval().forward_batch(batch) for model in self.members]

    def _batches(self, store: GraphStore) -> Iterator[GraphBatch]:
        """The graphs, encoded, in batches of bounded size."""
        return map(self._batch, self._encoded(store))

    def _batch(self, part: EncodedGraphs) -> GraphBatch:
        return part.store.to(self.device).batch(part.x.to(self.device))

    def _encoded(self, store: GraphStore) -> Iterator[EncodedGraphs]:
        """The graphs on the host, encoded, in parts of bounded size."""
        chunks = size_chunks(store, _BATCH_NODES, _BATCH_ENTRIES)
        threads = 0 if self.device.type == "cpu" else _ENCODING_THREADS
        return _map_ahead(partial(self._encode, store), chunks, threads)

    def _encode(self, store: GraphStore, chunk: tuple[int, int]) -> EncodedGraphs:
        """Some of the graphs on the host, with their columns and what the model needs of them."""
        graphs = store if chunk == (0, len(store)) else store[torch.arange(*chunk)]
        part = encode_checked(graphs, self.recipe, max_nodes=self.max_nodes, dtype=self.dtype)
        return replace(part, store=precompute(part.store, self.model.precomputation, dtype=self.dtype))


def _small_graphs(part: EncodedGraphs) -> SmallGraphs | None:
    """The graphs in the form of :class:`PreparedHGCN`, or ``None`` if they are too many or too large for it."""
    store = part.store
    is_small = store.max_size <= MAX_SMALL_NODES and store.max_size * len(store) <= MAX_PADDED_ROWS
    if not is_small or store.edge_weight is not None or store.empty_graphs.numel():
        return None
    arrays = (store.node_ptr.numpy(), store.edge_ptr.numpy(), store.neighbours.numpy())
    return SmallGraphs(part.x, *arrays, store.edge_kind)


class ClassicalScorer(Scorer):
    """Probabilities of classical models, as their scores.

    Args:
        members (sequence): Fitted models of one class.
    """

    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, members: Sequence[ClassicalModel]) -> None:
        self.members = members

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(sorted(self.members[0].inputs))

    @property
    def num_parameters(self) -> int:
        return sum(value.numel() for model in self.members for value in model.state().values())

    def to(self, device: str | torch.device) -> None:
        """Accepts the CPU only."""
        if torch.device(device).type != "cpu":
            name = type(self.members[0]).__name__
            raise UsageError(f"{name} runs on the CPU; use device='cpu' or 'auto'.")

    def scores(self, store: GraphStore) -> Tensor:
        graphs = np.arange(len(store))
        return torch.from_numpy(np.stack([model.predict_proba(store, graphs) for model in self.members]))


def _map_ahead(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """Results in the order of the items, computed ahead in threads while the caller uses the ones before.

    Args:
        function (callable): Computes a result; with threads, several at the same time.
        items (iterable): Its arguments.
        threads (int): Number of threads, and of results that are kept ahead; 0 computes each when it is asked for.
    """
    if not threads:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[_Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def make_scorer(
    members: Sequence[GraphModel | ClassicalModel], recipe: FeatureRecipe, max_nodes: int | None = None
) -> Scorer:
    """The scorer of the members of a fitted model, at least one; arguments as in :class:`NetworkScorer`.

    Raises:
        ArgumentError: If the members are of different classes, or do not match the recipe.
    """
    kinds = {type(model) for model in members}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ArgumentError("FittedModel", "others", "be of the class of 'model'", names)
    networks = [model for model in members if isinstance(model, GraphModel)]
    if networks:
        return NetworkScorer(networks, recipe, max_nodes)
    return ClassicalScorer([model for model in members if isinstance(model, ClassicalModel)])
