"""Sums over neighbours: sparse at the level of nodes, dense above it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from graphcaps.types import EdgeTable

__all__ = ["degrees", "dense_propagate", "edge_index_of", "neighbour_sum", "propagate"]


def propagate(x: Tensor, edges: EdgeTable) -> Tensor:
    r"""One hop of a graph convolution without its weights.

    .. math:: \hat A x, \quad \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}, \quad
        \tilde D_{ii} = \max\Big(1, 1 + \sum_j A_{ij}\Big)

    Args:
        x (Tensor): One row per slot of the batch, ``[*lead, V, d]``.
        edges (EdgeTable): Its edges; weights, where given, stand in A.

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows hold no neighbour's value.
    """
    scale = (degrees(edges).to(x.dtype) + 1).clamp_min(1).rsqrt().unsqueeze(-1)
    scaled = x * scale
    return (neighbour_sum(scaled, edges) + scaled) * scale


def dense_propagate(x: Tensor, adjacency: Tensor) -> Tensor:
    """The same hop on small dense graphs, ``x [*lead, B, J, d]``, ``adjacency [*lead, B, J, J]``."""
    scale = (adjacency.sum(-1) + 1).clamp_min(1).rsqrt().unsqueeze(-1)
    scaled = x * scale
    return (adjacency @ scaled + scaled) * scale


def neighbour_sum(x: Tensor, edges: EdgeTable) -> Tensor:
    """A x: for each slot the (weighted) sum over its neighbours' rows, ``[*lead, V, d]`` to the same.

    A is symmetric, so the gradient is one more product with A. Weights that ask for a gradient get one.
    """
    flat = x.reshape(-1, x.size(-1))
    ptr, column, weight = _flat_csr(edges)
    if weight is not None and weight.requires_grad:
        row = _rows(ptr, column.numel())
        total = torch.zeros_like(flat).index_add(0, row, flat[column] * weight.to(x.dtype).unsqueeze(-1))
    else:
        total = _NeighbourSum.apply(flat, edges)
    return total.reshape(x.shape)


def degrees(edges: EdgeTable) -> Tensor:
    """Sum of the weights at each slot, 0 at padding, ``[*lead, V]``."""
    if "degrees" in edges.memo:
        cached: Tensor = edges.memo["degrees"]
        return cached
    if edges.weight is None:
        count = edges.ptr[1:] - edges.ptr[:-1]
        found = count[edges.node.clamp_min(0)].masked_fill(edges.node < 0, 0)
    else:
        ptr, column, weight = _flat_csr(edges)
        assert weight is not None
        total = weight.new_zeros(edges.node.numel())
        found = total.index_add(0, _rows(ptr, column.numel()), weight).reshape(edges.node.shape)
    if not found.requires_grad:  # a gradient belongs to one backward pass
        edges.memo["degrees"] = found
    return found


def edge_index_of(edges: EdgeTable) -> Tensor:
    """Both directions of every edge as ``[2, E]`` over the flattened slots, for torch-geometric's layers."""
    ptr, column, _ = _flat_csr(edges)
    return torch.stack([column, _rows(ptr, column.numel())])


class _NeighbourSum(torch.autograd.Function):
    """Product with the symmetric sparse A; its own transpose in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: EdgeTable) -> Tensor:
        ctx.edges = edges
        return _matrix(edges, x.dtype) @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _NeighbourSum.apply(grad, ctx.edges), None


def _matrix(edges: EdgeTable, dtype: torch.dtype) -> Tensor:
    """A over the flattened slots as a CSR matrix, kept for the batch."""
    key = ("matrix", dtype)
    if key not in edges.memo:
        ptr, column, weight = _flat_csr(edges)
        values = column.new_ones(column.numel(), dtype=dtype) if weight is None else weight.to(dtype)
        size = edges.node.numel()
        with warnings.catch_warnings():
            # Said once per process by some versions of torch; the arrays are right by construction.
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            edges.memo[key] = torch.sparse_csr_tensor(
                ptr, column, values.detach(), (size, size), check_invariants=False
            )
    return edges.memo[key]


def _flat_csr(edges: EdgeTable) -> tuple[Tensor, Tensor, Tensor | None]:
    """Entries of all slots, read out of the store's arrays by index arithmetic, kept for the batch."""
    if "csr" not in edges.memo:
        *lead, V = edges.node.shape
        node = edges.node.reshape(-1)
        known = node.clamp_min(0)
        start = edges.ptr[known]
        count = (edges.ptr[known + 1] - start).masked_fill(node < 0, 0)
        ptr = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        total = edges.num_entries if edges.num_entries is not None else int(ptr[-1])
        row = _rows(ptr, total)
        entry = torch.arange(total, device=node.device) - ptr[row] + start[row]
        first = edges.first.reshape(-1)
        if lead:  # neighbours stay inside their own replica
            first = first + torch.arange(node.numel(), device=node.device) // V * V
        column = edges.neighbours[entry] + first[row]
        weight = None if edges.weight is None else edges.weight[entry]
        edges.memo["csr"] = (ptr, column, weight)
    found: tuple[Tensor, Tensor, Tensor | None] = edges.memo["csr"]
    return found


def _rows(ptr: Tensor, total: int) -> Tensor:
    """Row of each CSR entry."""
    count = ptr[1:] - ptr[:-1]
    return torch.arange(count.numel(), device=ptr.device).repeat_interleave(count, output_size=total)
