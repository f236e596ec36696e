"""Sums over neighbours of messages that a ReLU and the labels of the edges shape."""

from __future__ import annotations

from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.propagation.modulated_hop import kind_table
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import EdgeTable

__all__ = ["edge_relu_sum"]


@full_precision
def edge_relu_sum(x: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]) -> Tensor:
    r"""Sum over neighbours of the messages of a graph isomorphism network with edge features (GINE).

    .. math::
        y_i = \sum_{j \in N(i)} w_{ij}\, \mathrm{ReLU}(x_j + \beta_{k(ij)}), \quad
        \beta_k = \sum_c \mathrm{shift}_{c, k_c}

    with edge weights :math:`w`, kinds :math:`k` of :mod:`graphcaps.ops.edge_kinds` and :math:`k_c` the value of kind k
    in label column c. A value that is not among the :math:`n_c` of its column adds nothing.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        shift (Tensor): A row for each value of each label column, one column after another,
            ``[*lead, n_1 + … + n_C, d]``.
        edges (EdgeTable): The edges, with kinds.
        edge_kinds (tuple): Number of values n_c of each label column.

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows have no neighbours.

    Raises:
        ShapeError: If the edges have no kinds.
    """
    if edges.kind is None:
        fix = "Pass edge_attr, or graphs that a recipe with edge_labels='messages' encoded."
        raise ShapeError("edge_relu_sum", "edges", "have kinds", "none", fix)
    form = select("edge_relu_sum", _edge_relu_sum, x, shift, edges.node, edges.weight)
    return form(x, shift, edges, edge_kinds)


def _edge_relu_sum(x: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]) -> Tensor:
    """Every message is stored."""
    V, d = x.shape[-2:]
    rows, pairs, table = x.reshape(-1, d), edge_list(edges), kind_table(shift, edge_kinds)
    assert pairs.kind is not None
    kind = pairs.kind + pairs.target // max(V, 1) * table.size(-2)  # in the tables of all replicas
    messages = (select_rows(rows, pairs.source) + select_rows(table.reshape(-1, d), kind)).relu()
    if pairs.weight is not None:
        messages = messages * pairs.weight.to(x.dtype).unsqueeze(-1)
    return sum_rows(messages, pairs.target, rows.size(0)).reshape(x.shape)
