"""Pooling of node features over graphs, and the nodes with the highest scores, for one model or many.

Each function takes ``batch`` in one of two forms: the sorted tensor ``[V]`` of torch-geometric, or the
:class:`graphcaps.types.Segments` of a batch, for replicas and padded batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.collate import collate_segments
from graphcaps.ops.ragged.reductions import segment_max, segment_mean
from graphcaps.ops.ragged.segment_sort import segment_sort
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.ops.ragged.top_k import TopK, segment_top_k
from graphcaps.types import Segments

__all__ = ["max_pool", "mean_pool", "sort_pool", "sum_pool", "top_k"]


def sum_pool(x: Tensor, batch: Tensor | Segments | None = None, *, num_graphs: int | None = None) -> Tensor:
    r"""Sum over the nodes of each graph, as :func:`torch_geometric.nn.global_add_pool`.

    .. math:: y_g = \sum_{i \in g} x_i

    Args:
        x (Tensor): Node features, ``[*lead, V, d]``.
        batch (Tensor or Segments, optional): Graph of each node. (default: one graph)
        num_graphs (int, optional): Number of graphs B, if the last ones may have no nodes; :class:`Segments` have
            their own.

    Returns:
        Tensor: ``[*lead, B, d]``; 0 for a graph without nodes.

    Example:
        >>> sum_pool(torch.ones(3, 2), torch.tensor([0, 0, 2]))
        tensor([[2., 2.],
                [0., 0.],
                [1., 1.]])
    """
    return segment_sum(x, _segments("sum_pool", x, batch, num_graphs))


def mean_pool(x: Tensor, batch: Tensor | Segments | None = None, *, num_graphs: int | None = None) -> Tensor:
    r"""Mean over the nodes of each graph, as :func:`torch_geometric.nn.global_mean_pool`.

    .. math:: y_g = \frac{1}{|g|} \sum_{i \in g} x_i

    Arguments and result as in :func:`sum_pool`.

    Example:
        >>> mean_pool(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
        tensor([[2.],
                [5.]])
    """
    return segment_mean(x, _segments("mean_pool", x, batch, num_graphs))


def max_pool(x: Tensor, batch: Tensor | Segments | None = None, *, num_graphs: int | None = None) -> Tensor:
    r"""Maximum of each feature over the nodes of each graph, as :func:`torch_geometric.nn.global_max_pool`.

    .. math:: y_g = \max_{i \in g} x_i

    Arguments and result as in :func:`sum_pool`. Nodes that share a maximum share its gradient equally.

    Example:
        >>> max_pool(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
        tensor([[3.],
                [5.]])
    """
    return segment_max(x, _segments("max_pool", x, batch, num_graphs))


def sort_pool(
    x: Tensor,
    batch: Tensor | Segments | None = None,
    *,
    k: int,
    keys: Sequence[int] = (-1,),
    num_graphs: int | None = None,
) -> Tensor:
    """The first k nodes of each graph in descending order of the last feature, as
    :class:`torch_geometric.nn.aggr.SortAggregation`.

    Shapes depend on B and k alone, so that a training step can be captured as a CUDA graph.

    Args:
        x (Tensor): Node features, ``[*lead, V, d]``.
        batch, num_graphs: As in :func:`sum_pool`.
        k (int): Number of nodes to keep, at least 1; graphs with fewer nodes are filled with zeros.
        keys (sequence of int): Features to sort by; among equal values of one, the next decides, and at last the
            order of nodes. (default: the last feature)

    Returns:
        Tensor: ``[*lead, B, k, d]``.

    Example:
        >>> sort_pool(torch.tensor([[5.0, 1.0], [6.0, 3.0], [7.0, 2.0]]), torch.tensor([0, 0, 1]), k=2)
        tensor([[[6., 3.],
                 [5., 1.]],
        <BLANKLINE>
                [[7., 2.],
                 [0., 0.]]])
    """
    return segment_sort(x, _segments("sort_pool", x, batch, num_graphs), k, keys)


def top_k(
    score: Tensor,
    batch: Tensor | Segments | None = None,
    *,
    k: int | None = None,
    ratio: float | None = None,
    num_graphs: int | None = None,
) -> TopK:
    r"""The nodes with the highest scores of each graph, as ``topk`` of :mod:`torch_geometric.nn.pool.select`.

    A graph of n nodes keeps :math:`\min(k, n)` nodes, or :math:`\lceil \mathrm{ratio} \cdot n \rceil`. Among equal
    scores the earlier node is kept first. Shapes depend on V, B and the arguments alone, so that a training step can be
    captured as a CUDA graph; rows after the last kept node are padding.

    Args:
        score (Tensor): Score of each node, ``[*lead, V]``.
        batch, num_graphs: As in :func:`sum_pool`.
        k (int, optional): Number of nodes to keep, at least 1.
        ratio (float, optional): Fraction of nodes to keep, above 0 and at most 1; instead of ``k``. 1 keeps all
            nodes; in torch-geometric a ratio of 1 keeps one.

    Returns:
        TopK: Index, score and graph of the kept nodes, and a mask over all nodes.

    Example:
        >>> best = top_k(torch.tensor([0.1, 0.9, 0.5, 0.3]), torch.tensor([0, 0, 0, 1]), k=2)
        >>> best.index[best.segments.row_mask]
        tensor([1, 2, 3])
        >>> best.mask
        tensor([False,  True,  True,  True])
    """
    segments = _segments("top_k", score.unsqueeze(-1), batch, num_graphs)
    return segment_top_k(score, segments, k=k, ratio=ratio)


def _segments(owner: str, x: Tensor, batch: Tensor | Segments | None, num_graphs: int | None) -> Segments:
    if not isinstance(batch, Segments):
        return collate_segments(owner, x, batch, num_graphs)
    if num_graphs is not None:
        raise ArgumentError(owner, "num_graphs", "be None if 'batch' is Segments", num_graphs)
    if x.shape[:-1] != batch.index.shape:
        expected = f"have one row per node of the batch, {list(batch.index.shape)}"
        raise ShapeError(owner, "x", expected, list(x.shape[:-1]))
    return batch
