"""One hop of a graph convolution whose messages depend on the labels of the edges."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.errors import ShapeError
from graphcaps.memo import remember
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced
from graphcaps.ops.propagation.propagation import csr_matrix, degrees, edge_list, flat_csr
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import EdgeTable

__all__ = ["kind_table", "modulated_hop"]


@full_precision
def modulated_hop(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    edges: EdgeTable,
    edge_kinds: tuple[int, ...],
    normalised: bool = True,
) -> Tensor:
    r"""One hop of :func:`propagate`, with a factor and a term for each label of the edge that a message passes.

    .. math::
        y_i = \hat A_{ii} x_i + \sum_{j \ne i} \hat A_{ij} (\gamma_{k(ij)} \odot x_j + \beta_{k(ij)}), \quad
        \gamma_k = 1 + \sum_c \mathrm{scale}_{c, k_c}, \quad \beta_k = \sum_c \mathrm{shift}_{c, k_c}

    with :math:`\hat A` of :func:`graphcaps.ops.propagate`, kinds :math:`k` of :mod:`graphcaps.ops.edge_kinds` and
    :math:`k_c` the value of kind k in label column c. A value that is not among the :math:`n_c` of its column adds
    nothing. With scale and shift zero it equals :func:`propagate`. Without normalisation, :math:`A + I` replaces
    :math:`\hat A`, and with scale and shift zero the result is x plus :func:`neighbour_sum`.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        scale, shift (Tensor): A row for each value of each label column, one column after another,
            ``[*lead, n_1 + … + n_C, d]``.
        edges (EdgeTable): The edges, with kinds.
        edge_kinds (tuple): Number of values n_c of each label column.
        normalised (bool): Whether the matrix is :math:`\hat A`, or :math:`A + I`. (default: True)

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows have no neighbours.

    Raises:
        ShapeError: If the edges have no kinds.
    """
    if edges.kind is None:
        fix = "Pass edge_attr, or graphs that a recipe with edge_labels='messages' encoded."
        raise ShapeError("modulated_hop", "edges", "have kinds", "none", fix)
    tensors = (x, scale, shift, edges.node, edges.weight)
    form = select("modulated_hop", _modulated_hop, *tensors, reference=_modulated_hop_reference)
    return form(x, scale, shift, edges, edge_kinds, normalised)


def kind_table(rows: Tensor, edge_kinds: tuple[int, ...]) -> Tensor:
    """Sum over the label columns of the row of each kind's value: ``[*lead, n_1 + … + n_C, d]`` to ``[*lead, R, d]``.

    A sum of broadcast blocks, so that the gradient is a sum over axes, in a fixed order.
    """
    *lead, _, d = rows.shape
    table = rows.new_zeros(*lead, 1, d)
    for block in rows.split(edge_kinds, -2):
        other = rows.new_zeros(*lead, 1, d)
        values = torch.cat([other, block], -2)
        table = (table.unsqueeze(-2) + values.unsqueeze(-3)).flatten(-3, -2)
    return table


def _modulated_hop(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    edges: EdgeTable,
    edge_kinds: tuple[int, ...],
    normalised: bool = True,
) -> Tensor:
    """Sparse products; the rows of neighbours are gathered, and no message is kept for the backward pass."""
    learned = edges.weight is not None and edges.weight.requires_grad
    half = x.element_size() < torch.float32.itemsize  # a CPU has no sparse products in half precision
    if learned or half or is_traced():
        return _modulated_hop_reference(x, scale, shift, edges, edge_kinds, normalised)
    d = x.size(-1)
    gamma, beta = kind_table(scale, edge_kinds) + 1, kind_table(shift, edge_kinds)
    product = _product(edges, gamma.size(-2), x.dtype, normalised)
    hop: Tensor = _ModulatedHop.apply(x.reshape(-1, d), gamma.reshape(-1, d), beta.reshape(-1, d), product)
    return hop.reshape(x.shape)


def _modulated_hop_reference(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    edges: EdgeTable,
    edge_kinds: tuple[int, ...],
    normalised: bool = True,
) -> Tensor:
    """Every message is stored."""
    V, d = x.shape[-2:]
    flat, pairs = x.reshape(-1, d), edge_list(edges)
    assert pairs.kind is not None
    gamma, beta = kind_table(scale, edge_kinds) + 1, kind_table(shift, edge_kinds)
    row = pairs.kind + pairs.target // max(V, 1) * gamma.size(-2)  # of the kind in the tables of all replicas
    root = _root(edges, x.dtype, normalised)
    weight = root[pairs.source] * root[pairs.target]
    if pairs.weight is not None:
        weight = weight * pairs.weight.to(x.dtype)
    factor, term = (select_rows(table.reshape(-1, d), row) for table in (gamma, beta))
    messages = (select_rows(flat, pairs.source) * factor + term) * weight.unsqueeze(-1)
    own = flat * root.square().unsqueeze(-1)
    if is_traced():
        return (own + sum_rows(messages, pairs.target, flat.size(0))).reshape(x.shape)
    return own.index_add(0, pairs.target, messages).reshape(x.shape)


class _Product:
    """The entries of Â over the flattened rows of a batch, in the order of the rows and in the order of the kinds.

    The latter are for gradients, and made when the first one is computed.

    Args:
        edges (EdgeTable): E entries with kinds; weights, if there are any, need no gradient.
        num_kinds (int): Number of kinds R; kind k of replica f is row f R + k of a table.
        dtype (torch.dtype): Type of the entries.
        normalised (bool): Whether they are those of Â, or of A + I.
    """

    def __init__(self, edges: EdgeTable, num_kinds: int, dtype: torch.dtype, normalised: bool) -> None:
        ptr, self.source, entry = flat_csr(edges)
        V = max(edges.node.size(-1), 1)
        size, total = ptr.numel() - 1, self.source.numel()
        count = ptr.diff()
        self.target = torch.arange(size, device=ptr.device).repeat_interleave(count, output_size=total)
        assert edges.kind is not None
        self.kind = edges.kind[entry] + self.target // V * num_kinds
        root = _root(edges, dtype, normalised)
        self.diagonal = root.square().unsqueeze(-1)
        self._values = root[self.source] * root[self.target]
        if edges.weight is not None:
            self._values = self._values * edges.weight[entry].to(dtype)
        self._size, self._tables = size, size // V * num_kinds
        entries = torch.arange(total, device=ptr.device)
        # Sums of messages over rows, and of kinds over rows.
        self.messages_to_rows = csr_matrix(ptr, entries, self._values, (size, total))
        self.kinds_to_rows = csr_matrix(ptr, self.kind, self._values, (size, self._tables))

    @cached_property
    def _by_kind(self) -> tuple[Tensor, Tensor]:
        """First entry of each kind, and the entries in the order of their kinds."""
        count = torch.bincount(self.kind, minlength=self._tables)
        return torch.nn.functional.pad(count.cumsum(0), (1, 0)), self.kind.argsort(stable=True)

    @cached_property
    def entries_to_kinds(self) -> Tensor:
        """Sums of entries over kinds."""
        first, order = self._by_kind
        return csr_matrix(first, order, self._values[order], (self._tables, self.source.numel()))

    @cached_property
    def rows_to_kinds(self) -> Tensor:
        """Sums of rows over kinds."""
        first, order = self._by_kind
        return csr_matrix(first, self.target[order], self._values[order], (self._tables, self._size))

    def hop(self, x: Tensor, gamma: Tensor) -> Tensor:
        messages = x.index_select(0, self.source).mul_(gamma.index_select(0, self.kind))
        return (x * self.diagonal).addmm_(self.messages_to_rows, messages)


def _root(edges: EdgeTable, dtype: torch.dtype, normalised: bool) -> Tensor:
    r"""Diagonal :math:`\tilde D^{-1/2}` over the flattened rows, or ones without normalisation."""
    if not normalised:
        return torch.ones(edges.node.numel(), dtype=dtype, device=edges.node.device)
    return (degrees(edges).reshape(-1).to(dtype) + 1).clamp_min(1).rsqrt()


def _product(edges: EdgeTable, num_kinds: int, dtype: torch.dtype, normalised: bool) -> _Product:
    """The entries, cached for the batch if there are no weights."""

    def make() -> _Product:
        return _Product(edges, num_kinds, dtype, normalised)

    key = ("modulated hop", num_kinds, dtype, normalised)
    return remember(edges.memo, key, make) if edges.weight is None else make()


class _ModulatedHop(torch.autograd.Function):
    """The hop with γ and β of every kind; kinds are symmetric, so the gradient of x is the hop of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, product: _Product) -> Tensor:
        ctx.save_for_backward(x, gamma)
        ctx.product = product
        return product.hop(x, gamma).addmm_(product.kinds_to_rows, beta)

    @staticmethod
    @once_differentiable
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gamma = ctx.saved_tensors
        p: _Product = ctx.product
        grad_x = p.hop(grad, gamma) if ctx.needs_input_grad[0] else None
        products = x.index_select(0, p.source).mul_(grad.index_select(0, p.target))
        grad_gamma = torch.zeros_like(gamma).addmm_(p.entries_to_kinds, products)
        grad_beta = torch.zeros_like(gamma).addmm_(p.rows_to_kinds, grad)
        return grad_x, grad_gamma, grad_beta, None
