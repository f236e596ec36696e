"""Class scores of :class:`HGCN` for a few small graphs: the same function in a third of the operations.

The time of a forward pass over one molecule is that of its operations, whatever their sizes. Here everything that
depends on the weights alone is computed once, and the graphs are padded to the size of the largest, so that no table of
rows and entries has to be made. Many or large graphs are faster in :meth:`HGCN.forward_batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.primary_capsules import PrimaryCapsules
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.propagation.modulated_hop import kind_table
from graphcaps.ops.squash import RELEASED_EPSILON

__all__ = ["MAX_PADDED_ROWS", "MAX_SMALL_NODES", "PreparedHGCN", "SmallGraphs"]

MAX_SMALL_NODES = 128
"""Most nodes of a small graph."""
MAX_PADDED_ROWS = 4096
"""Most rows of small graphs together, each padded to the size of the largest. Up to more than twice as many,
:class:`PreparedHGCN` takes less time than :meth:`HGCN.forward_batch`."""


@dataclass(frozen=True, eq=False)
class SmallGraphs:
    """B graphs without edge weights, each with at least one node, on the CPU.

    Args:
        x (Tensor): Features of all V nodes, ``[V, in]``.
        node_ptr (ndarray): First node of each graph, then V, ``[B + 1]``.
        edge_ptr (ndarray): First edge entry of each node, then E, ``[V + 1]``.
        neighbours (ndarray): Neighbours as indices within their graph, ``[E]``.
        kind (Tensor, optional): Kind of each entry (:mod:`graphcaps.ops.edge_kinds`), ``[E]``.
    """

    x: Tensor
    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    kind: Tensor | None = None


class PreparedHGCN:
    """A network in evaluation mode with its constants; :meth:`prepare` makes it.

    Args:
        model (HGCN): A network that :meth:`supports` holds for.
    """

    def __init__(self, model: HGCN) -> None:
        self._model, self._modules = model, list(model.modules())
        self._state = _state(self._modules)
        primary = cast(PrimaryCapsules, model.primary)
        scale, _ = _affine(primary.norm)
        assert primary.norm is not None
        # (x − μ) γ / σ W + β W + e: subtracting μ first keeps the digits of a column that is almost constant.
        self._mean = primary.norm.running_mean
        self._weight = scale.unsqueeze(-1) * primary.weight
        self._bias = primary.norm.bias @ primary.weight + primary.bias
        self._layers = [_PreparedLayer(cast(CapsuleLayer, layer)) for layer in model.layers]

    @staticmethod
    def supports(model: HGCN) -> bool:
        """Whether the network is of the released formulation, with a hop or :class:`EdgeModulation`, on the CPU.

        A derived class may compute something else.
        """
        primary, first = model.primary, cast(CapsuleLayer, model.layers[0])
        return (
            type(model) is HGCN
            and model.formulation == "released"
            and isinstance(primary, PrimaryCapsules)
            and primary.factor_squash == "joined"
            and first.trunk is None
            and first.context is None
            and not model.lead
            and primary.weight.device.type == "cpu"
            and primary.weight.dtype in (torch.float32, torch.float64)
        )

    @classmethod
    def prepare(cls, model: HGCN, before: PreparedHGCN | None = None) -> PreparedHGCN:
        """The constants of a network: those of ``before`` if its weights are still the same."""
        if before is not None and before._model is model and before._state == _state(before._modules):
            return before
        with torch.inference_mode():
            return cls(model)

    @np.errstate(over="ignore", invalid="ignore")  # as torch: scores that are not finite are for the caller
    @torch.inference_mode()
    def class_scores(self, graphs: SmallGraphs) -> Tensor:
        """Lengths of the class capsules, ``[B, O]``; those of :meth:`HGCN.forward_batch` up to rounding."""
        layout = _Layout(graphs)
        z = torch.addmm(self._bias, graphs.x - self._mean, self._weight).relu_()
        first, *above = self._layers
        u = first.normalise(_squash(z))  # [V, d]
        residual = None
        if first.residual:
            total = embedding_bag(layout.nodes, u, layout.first_nodes, mode="sum")
            residual = total / (first.divisor or layout.sizes)  # [B, d]
        h = layout.pad(_append_ones(first.hop(u, layout, graphs.kind)))
        u, c = first.route(h, residual)
        A = layout.adjacency(h.dtype)
        for layer in above:
            A = torch.bmm(torch.bmm(c, A), c.mT).clamp_max_(1)  # [B, J, J]
            A.diagonal(dim1=-2, dim2=-1).zero_()
            u = layer.normalise(u.transpose(0, 1))  # [B, J, d]
            residual = u.mean(1) if layer.residual else None
            scale = (A.sum(-1, keepdim=True) + 1).rsqrt_()
            scaled = u * scale
            h = torch.baddbmm(scaled, A, scaled).mul_(scale)
            u, c = layer.route(_append_ones(h), residual)
        return torch.linalg.vector_norm(u, dim=-1).mT.contiguous()


class _PreparedLayer:
    """A capsule layer: BatchNorm as a factor and a term, and W with e as one more row."""

    def __init__(self, layer: CapsuleLayer) -> None:
        self.residual, self.iterations = layer.residual, layer.routing_iterations
        self.divisor = None if layer.residual_nodes is None else float(layer.residual_nodes)
        self._scale, self._shift = _affine(layer.norm)
        self._W = torch.cat([layer.weight, layer.bias.unsqueeze(-2)], -2)  # [J, d + 1, d']
        self._kinds = None
        if layer.modulation is not None:
            tables = (layer.modulation.scale, layer.modulation.shift)
            scale, shift = (kind_table(table, layer.edge_kinds) for table in tables)
            self._kinds = scale + 1, shift  # [R, d] each

    def normalise(self, u: Tensor) -> Tensor:
        return torch.addcmul(self._shift, u, self._scale)

    def hop(self, u: Tensor, layout: _Layout, kind: Tensor | None) -> Tensor:
        """The hop of the normalised capsules of the nodes, ``[V, d]``."""
        own, value = layout.hop_values(u.dtype)
        if self._kinds is None:
            messages = embedding_bag(
                layout.source, u, layout.first_entries, mode="sum", per_sample_weights=value
            )
            return torch.addcmul(messages, u, own)
        assert kind is not None, "a layer that reads edge labels needs the kinds of the edges"
        factor, term = self._kinds
        rows = u.index_select(0, layout.source)
        rows = torch.addcmul(term.index_select(0, kind), rows, factor.index_select(0, kind))
        messages = embedding_bag(
            layout.entries, rows, layout.first_entries, mode="sum", per_sample_weights=value
        )
        return torch.addcmul(messages, u, own)

    def route(self, h: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Output capsules ``[J, B, d']`` and assignments ``[B, J, n]`` of ``h [B, n, d + 1]``, whose last column is 1.

        Padding rows of h are zero: they add nothing to any sum, whatever their assignments are.
        """
        W, J = self._W, self._W.size(0)
        transposed = W.mT
        G = (h.sum(1) / J).expand(J, -1, -1)
        T = None
        c = h.new_full((), 1 / J).expand(h.size(0), J, h.size(1))
        for _ in range(self.iterations - 1):
            u = _squash(torch.bmm(G, W))
            T = torch.bmm(u, transposed) if T is None else T.baddbmm_(u, transposed)  # [J, B, d + 1]
            c = torch.bmm(T.transpose(0, 1), h.mT).softmax(1)
            G = torch.bmm(c, h).transpose(0, 1)
        s = torch.bmm(G, W) if residual is None else torch.baddbmm(residual.unsqueeze(0), G, W)
        return _squash(s), c


class _Layout:
    """Where the nodes and edges of small graphs are: in the rows of all nodes, and padded, ``[B, n]``."""

    def __init__(self, graphs: SmallGraphs) -> None:
        node_ptr, edge_ptr = graphs.node_ptr, graphs.edge_ptr
        sizes, self._degree = np.diff(node_ptr), np.diff(edge_ptr)
        self._B, self._n = len(sizes), int(sizes.max())
        V = len(self._degree)
        row = np.arange(V)
        self._target = np.repeat(row, self._degree)  # of each entry
        if self._B == 1:
            self._first_padded, self._padded = None, row
            source = graphs.neighbours.astype(np.int64)
        else:
            shift = np.arange(self._B) * self._n - node_ptr[:-1]
            self._first_padded = np.repeat(shift, sizes)  # of each node
            self._padded = row + self._first_padded
            source = graphs.neighbours + np.repeat(node_ptr[:-1], sizes)[self._target]
        self._neighbours, self._source = graphs.neighbours, source
        self.source = torch.from_numpy(source)
        self.nodes, self.entries = torch.from_numpy(row), torch.arange(len(source))
        self.first_nodes = torch.from_numpy(node_ptr[:-1])
        self.first_entries = torch.from_numpy(edge_ptr[:-1])
        self.sizes = torch.from_numpy(sizes[:, None])

    def hop_values(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The diagonal of the hop ``[V, 1]``, and its value at each entry ``[E]``."""
        root: NDArray[np.floating] = 1 / np.sqrt(self._degree + 1.0)
        if dtype == torch.float32:
            root = root.astype(np.float32)
        value = root[self._source] * root[self._target]
        return torch.from_numpy((root * root)[:, None]), torch.from_numpy(value)

    def pad(self, rows: Tensor) -> Tensor:
        """Rows of all nodes, ``[V, k]``, as ``[B, n, k]`` with zeros behind the nodes of a graph."""
        if self._B == 1:
            return rows.unsqueeze(0)
        padded = rows.new_zeros(self._B * self._n, rows.size(1))
        padded.index_copy_(0, torch.from_numpy(self._padded), rows)
        return padded.view(self._B, self._n, -1)

    def adjacency(self, dtype: torch.dtype) -> Tensor:
        """Adjacency matrices, ``[B, n, n]``."""
        A = np.zeros((self._B * self._n, self._n), np.float64 if dtype == torch.float64 else np.float32)
        A[self._padded[self._target], self._neighbours] = 1
        return torch.from_numpy(A).view(self._B, self._n, self._n)


def _affine(norm: RaggedBatchNorm | None) -> tuple[Tensor, Tensor]:
    """BatchNorm in evaluation mode as a factor and a term."""
    assert norm is not None, "the released formulation has BatchNorm"
    scale = norm.weight * (norm.running_var + norm.epsilon).rsqrt()
    return scale, norm.bias - norm.running_mean * scale


def _squash(z: Tensor) -> Tensor:
    """:func:`graphcaps.ops.squash`; what has one number per vector is computed in numpy, whose calls are shorter."""
    squared = (z * z).sum(-1, keepdim=True).numpy()
    return z * torch.from_numpy(squared / ((1 + squared) * np.sqrt(squared + RELEASED_EPSILON)))


def _append_ones(h: Tensor) -> Tensor:
    return torch.cat([h, h.new_ones(*h.shape[:-1], 1)], -1)


def _state(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Changes whenever a weight does: address and number of changes of each."""
    return [
        (value.data_ptr(), 0 if value.is_inference() else value._version)
        for module in modules
        for values in (module._parameters.values(), module._buffers.values())
        for value in values
        if value is not None
    ]
