"""Sums over neighbours: sparse for nodes, dense for the capsules of higher levels."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from graphcaps.memo import remember
from graphcaps.ops._triton.dispatch import needs_plain_operations, select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import EdgeList, EdgeTable

__all__ = [
    "csr_matrix",
    "degrees",
    "dense_hop",
    "dense_propagate",
    "edge_list",
    "flat_csr",
    "hop_with_skip",
    "induced_scale",
    "neighbour_count",
    "neighbour_mean",
    "neighbour_sum",
    "padded_entries",
    "propagate",
    "to_edge_index",
]


@full_precision
def propagate(x: Tensor, edges: EdgeTable, scale: Tensor | None = None) -> Tensor:
    r"""One hop of a graph convolution without its weights.

    .. math:: \hat A x, \quad \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}, \quad
        \tilde D_{ii} = \max\Big(1, 1 + \sum_j A_{ij}\Big)

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        edges (EdgeTable): Its edges; A has their weights if there are any.
        scale (Tensor, optional): Diagonal to use instead of :math:`\tilde D^{-1/2}`, ``[*lead, V]``, such as that of
            :func:`induced_scale`. It gets a gradient only where edge weights do. (default: that of all edges)

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows have no neighbours.
    """
    form = select("propagate", _propagate, x, edges.node, edges.weight, reference=_propagate_reference)
    return form(x, edges, scale)


@full_precision
def hop_with_skip(x: Tensor, edges: EdgeTable, *, normalised: bool = True) -> tuple[Tensor, Tensor]:
    """A hop, and its input for a skip connection.

    Equals ``propagate(x, edges), x``, or ``neighbour_sum(x, edges, with_self=True), x``. What else reads x should read
    the second result: its gradient then joins that of the hop without a further pass over the rows.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        edges (EdgeTable): Its edges; A has their weights if there are any.
        normalised (bool): Whether the hop is that of :func:`propagate`. (default: True)
    """
    form = select("hop_with_skip", _hop_with_skip, x, edges.node, edges.weight)
    return form(x, edges, normalised)


def _hop_with_skip(x: Tensor, edges: EdgeTable, normalised: bool) -> tuple[Tensor, Tensor]:
    return (propagate(x, edges) if normalised else neighbour_sum(x, edges, with_self=True)), x


def induced_scale(edges: EdgeTable, mask: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Diagonal :math:`\tilde D^{-1/2}` of the subgraph that some nodes induce, 0 at all other rows.

    With it, :func:`propagate` is the hop on that subgraph: rows of dropped nodes are neither read nor written. Shapes
    stay those of the whole batch.

    Args:
        edges (EdgeTable): Edges of the whole graphs.
        mask (Tensor): True at the nodes of the subgraph, False at padding, ``[*lead, V]``.
        dtype (torch.dtype): Type of the result.

    Returns:
        Tensor: ``[*lead, V]``.
    """
    kept = mask.to(dtype)
    degree = neighbour_sum(kept.unsqueeze(-1), edges).squeeze(-1)
    return (degree + 1).clamp_min(1).rsqrt() * kept


def _propagate(x: Tensor, edges: EdgeTable, scale: Tensor | None = None) -> Tensor:
    if edges.weight is None and scale is None and not is_traced():
        hop: Tensor = _Propagate.apply(x.reshape(-1, x.size(-1)), edges)
        return hop.reshape(x.shape)
    return _propagate_reference(x, edges, scale)


def _propagate_reference(x: Tensor, edges: EdgeTable, scale: Tensor | None = None) -> Tensor:
    if scale is None:
        scale = (degrees(edges).to(x.dtype) + 1).clamp_min(1).rsqrt()
    column = scale.to(x.dtype).unsqueeze(-1)
    scaled = x * column
    return (neighbour_sum(scaled, edges) + scaled) * column


@full_precision
def dense_propagate(x: Tensor, adjacency: Tensor) -> Tensor:
    """The same hop on small dense graphs, ``x [*lead, B, J, d]``, ``adjacency [*lead, B, J, J]``."""
    scale = (adjacency.sum(-1) + 1).clamp_min(1).rsqrt().unsqueeze(-1)
    scaled = x * scale
    return (adjacency @ scaled + scaled) * scale


@full_precision
def dense_hop(x: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """The same hop and the mean of the rows of each graph, ``[*lead, B, J, d]`` and ``[*lead, B, 1, d]``."""
    return select("dense_hop", _dense_hop, x, adjacency)(x, adjacency)


def _dense_hop(x: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
    if adjacency.requires_grad or needs_plain_operations():
        return dense_propagate(x, adjacency), x.mean(-2, keepdim=True)
    # One matrix per graph: the rows are then read once, and so are their gradients.
    scale = (adjacency.sum(-1, keepdim=True) + 1).clamp_min_(1).rsqrt_()
    hop = adjacency * scale
    hop.diagonal(dim1=-2, dim2=-1).add_(scale.squeeze(-1))
    return (hop * scale.mT) @ x, x.mean(-2, keepdim=True)


@full_precision
def neighbour_sum(x: Tensor, edges: EdgeTable, with_self: bool = False) -> Tensor:
    """A x: for each row the (weighted) sum over the rows of its neighbours, ``[*lead, V, d]`` to the same shape.

    A is symmetric, so the gradient is one more product with A. Weights get a gradient if they require one.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        edges (EdgeTable): Its edges.
        with_self (bool): Whether the row itself is added: (A + I) x; padding rows may then be x or 0, and kernels may
            round it as its neighbours. (default: False)
    """
    tensors = (x, edges.node, edges.weight)
    form = select("neighbour_sum", _neighbour_sum, *tensors, reference=_neighbour_sum_reference)
    return form(x, edges, with_self)


def _neighbour_sum(x: Tensor, edges: EdgeTable, with_self: bool) -> Tensor:
    if is_traced() or (edges.weight is not None and edges.weight.requires_grad):
        return _neighbour_sum_reference(x, edges, with_self)
    total: Tensor = _NeighbourSum.apply(x.reshape(-1, x.size(-1)), edges)
    total = total.reshape(x.shape)
    return x + total if with_self else total


def _neighbour_sum_reference(x: Tensor, edges: EdgeTable, with_self: bool) -> Tensor:
    """Every product of a weight and a row is stored."""
    flat = x.reshape(-1, x.size(-1))
    pairs = edge_list(edges)
    # On a GPU the gradient of an index has a fixed order of summation, that of index_select has none.
    rows = select_rows(flat, pairs.source) if is_traced() else flat[pairs.source]
    if pairs.weight is not None:
        rows = rows * pairs.weight.to(x.dtype).unsqueeze(-1)
    total = sum_rows(rows, pairs.target, flat.size(0)).reshape(x.shape)
    return x + total if with_self else total


def neighbour_mean(x: Tensor, edges: EdgeTable) -> Tensor:
    """Mean over the rows of the neighbours, ``[*lead, V, d]`` to the same shape; 0 without neighbours.

    Edge weights, if there are any, multiply the rows; the divisor is the number of neighbours.
    """
    return neighbour_sum(x, edges) / neighbour_count(edges).to(x.dtype).clamp_min(1).unsqueeze(-1)


def neighbour_count(edges: EdgeTable) -> Tensor:
    """Number of neighbours of each row, 0 at padding, ``[*lead, V]``."""

    def make() -> Tensor:
        node = edges.node.clamp_min(0)  # offsets are of the whole store: only those of the batch are read
        count = edges.ptr[node + 1] - edges.ptr[node]
        return count.masked_fill(edges.node < 0, 0)

    return remember(edges.memo, "neighbour_count", make)


def degrees(edges: EdgeTable) -> Tensor:
    """Sum of the edge weights at each row, or number of neighbours, 0 at padding, ``[*lead, V]``."""
    if edges.weight is None:
        return neighbour_count(edges)
    # Weights may change or require a gradient: nothing that depends on them is cached.
    return select("weighted_degrees", _weighted_degrees, edges.weight)(edges, edges.weight)


def _weighted_degrees(edges: EdgeTable, weight: Tensor) -> Tensor:
    pairs = edge_list(edges)
    assert pairs.weight is not None
    return sum_rows(pairs.weight, pairs.target, edges.node.numel()).reshape(edges.node.shape)


def to_edge_index(edges: EdgeTable) -> Tensor:
    """Both directions of every edge as ``[2, E]`` over the flattened rows, for torch-geometric's layers."""
    pairs = edge_list(edges)
    return torch.stack([pairs.source, pairs.target])


def edge_list(edges: EdgeTable) -> EdgeList:
    """The edges as pairs of rows, in the order of the table's entries or as the table was made from a list."""
    if edges.pairs is not None:
        return edges.pairs
    ptr, column, entry = flat_csr(edges)
    weight = None if edges.weight is None else edges.weight[entry]
    kind = None if edges.kind is None else edges.kind[entry]
    return EdgeList(column, _rows(ptr, column.numel()), weight, kind)


class _NeighbourSum(torch.autograd.Function):
    """Product with the symmetric sparse A, which is its diagonal transpose in the backward pass."""

    @staticmethod
    @full_precision
    def forward(ctx: Any, x: Tensor, edges: EdgeTable) -> Tensor:
        ctx.edges = edges
        wide = x.to(_sparse_type(x))
        # In place: the operator @ would first copy a tensor of zeros.
        return torch.zeros_like(wide).addmm_(_matrix(edges, wide.dtype), wide).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _NeighbourSum.apply(grad, ctx.edges), None


class _Propagate(torch.autograd.Function):
    """Product with the symmetric normalised A of edges without weights, in one pass and without a temporary tensor."""

    @staticmethod
    @full_precision
    def forward(ctx: Any, x: Tensor, edges: EdgeTable) -> Tensor:
        ctx.edges = edges
        wide = x.to(_sparse_type(x))
        matrix, diagonal = _normalised(edges, wide.dtype)
        return (wide * diagonal).addmm_(matrix, wide).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Propagate.apply(grad, ctx.edges), None


def _sparse_type(x: Tensor) -> torch.dtype:
    """The type of a sparse product with ``x``: torch has none in half precision on a CPU, and sums lose digits."""
    return torch.promote_types(x.dtype, torch.float32)


def _normalised(edges: EdgeTable, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Â of edges without weights over the flattened rows: off-diagonal entries, and the diagonal ``[F·V, 1]``."""

    def make() -> tuple[Tensor, Tensor]:
        ptr, column, _ = flat_csr(edges)
        scale = (degrees(edges).reshape(-1).to(dtype) + 1).rsqrt_()
        values = scale.repeat_interleave(ptr[1:] - ptr[:-1], output_size=column.numel()) * scale[column]
        size = ptr.numel() - 1
        return csr_matrix(ptr, column, values, (size, size)), scale.square().unsqueeze(-1)

    return remember(edges.memo, ("normalised", dtype), make)


def _matrix(edges: EdgeTable, dtype: torch.dtype) -> Tensor:
    """A over the flattened rows as a CSR matrix, cached for the batch if there are no weights."""

    def make() -> Tensor:
        ptr, column, entry = flat_csr(edges)
        values = (
            column.new_ones(column.numel(), dtype=dtype)
            if edges.weight is None
            else edges.weight[entry].to(dtype)
        )
        size = ptr.numel() - 1
        return csr_matrix(ptr, column, values.detach(), (size, size))

    return remember(edges.memo, ("matrix", dtype), make) if edges.weight is None else make()


def csr_matrix(ptr: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix for products; columns of a row may be repeated and in any order."""
    with warnings.catch_warnings():
        # Some versions of torch warn once per process; the arrays are valid by construction.
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(ptr, column, values, shape, check_invariants=False)


def flat_csr(edges: EdgeTable) -> tuple[Tensor, Tensor, Tensor]:
    """Row offsets, and column and store entry of all entries, by index arithmetic, cached for the batch."""

    def make() -> tuple[Tensor, Tensor, Tensor]:
        *lead, V = edges.node.shape
        node = edges.node.reshape(-1)
        real_node = node.clamp_min(0)
        start = edges.ptr[real_node]
        count = (edges.ptr[real_node + 1] - start).masked_fill(node < 0, 0)
        ptr = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        total = edges.num_entries if edges.num_entries is not None else int(ptr[-1])
        row = _rows(ptr, total)
        entry = torch.arange(total, device=node.device) - ptr[row] + start[row]
        first = edges.first.reshape(-1)
        if lead:  # neighbours stay inside their diagonal replica
            first = first + torch.arange(node.numel(), device=node.device) // V * V
        column = edges.neighbours[entry] + first[row]
        return ptr, column, entry

    return remember(edges.memo, "csr", make)


def padded_entries(edges: EdgeTable, total: int, spare: int) -> tuple[Tensor, Tensor]:
    """The edges as pairs of flattened rows in a fixed number of entries, without host–device synchronisation.

    Args:
        edges (EdgeTable): The edges.
        total (int): Number of entries, at least that of the edges.
        spare (int): Padding entries have one of so many rows behind those of the batch as their target, in turn, and
            any row as their source.

    Returns:
        tuple: Source and target, ``[total]`` each.
    """
    *lead, V = edges.node.shape
    node, rows = edges.node.reshape(-1), edges.node.numel()
    real_node = node.clamp_min(0)
    start = edges.ptr[real_node]
    count = (edges.ptr[real_node + 1] - start).masked_fill(node < 0, 0)
    end = count.cumsum(0)
    position = torch.arange(total, device=node.device)
    row = torch.searchsorted(end, position, right=True)
    padding, row = row == rows, row.clamp_max(rows - 1)
    entry = (position - (end - count)[row] + start[row]).masked_fill(padding, 0)
    first = edges.first.reshape(-1)
    if lead:  # neighbours stay inside their replica
        first = first + torch.arange(rows, device=node.device) // V * V
    source = (edges.neighbours[entry] if edges.neighbours.numel() else entry) + first[row]
    return source.where(~padding, position % rows), row.where(~padding, rows + position % spare)


def _rows(ptr: Tensor, total: int) -> Tensor:
    """Row of each CSR entry."""
    count = ptr[1:] - ptr[:-1]
    return torch.arange(count.numel(), device=ptr.device).repeat_interleave(count, output_size=total)
