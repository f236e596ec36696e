"""Three graph classifiers put together from torch-geometric's own layers.

torch-geometric takes seconds to import: this module is imported only where a rival is made.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import (
    DenseSAGEConv,
    GCNConv,
    GINConv,
    SAGPooling,
    dense_diff_pool,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import to_dense_adj, to_dense_batch

__all__ = ["DiffPoolNet", "GINNet", "SAGPoolNet"]


class GINNet(nn.Module):
    """Graph Isomorphism Network (https://arxiv.org/abs/1810.00826) of :class:`GINConv` layers.

    Each layer is a network of two linear maps with BatchNorm and ReLU after both; nodes are summed, and two
    more linear maps classify: the same model as :class:`graphcaps.baselines.GIN`.
    """

    def __init__(self, in_channels: int, num_classes: int, hidden: int = 128, num_layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GINConv(
                nn.Sequential(
                    *(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()),
                    *(nn.Linear(b, b), nn.BatchNorm1d(b), nn.ReLU()),
                ),
                train_eps=True,
            )
            for a, b in pairwise([in_channels] + [hidden] * num_layers)
        )
        self.inner, self.outer = nn.Linear(hidden, hidden), nn.Linear(hidden, num_classes)

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        """Logits ``[B, O]``, and 0 as a further loss."""
        x = data.x
        for layer in self.layers:
            x = layer(x, data.edge_index)
        pooled = self.inner(global_add_pool(x, data.batch, data.num_graphs)).relu()
        return self.outer(F.dropout(pooled, 0.5, self.training)), x.new_zeros(())


class SAGPoolNet(nn.Module):
    """Self-attention pooling (https://arxiv.org/abs/1904.08082), the hierarchical form.

    After each graph convolution the better half of the nodes is kept; mean and maximum over the kept nodes
    of each level are added up and classified.
    """

    def __init__(
        self, in_channels: int, num_classes: int, hidden: int = 128, num_layers: int = 3, ratio: float = 0.5
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden] * num_layers
        self.convolutions = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
        self.pools = nn.ModuleList(SAGPooling(hidden, ratio, GNN=GCNConv) for _ in range(num_layers))
        self.inner, self.outer = nn.Linear(2 * hidden, hidden), nn.Linear(hidden, num_classes)

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        """Logits ``[B, O]``, and 0 as a further loss."""
        x, edge_index, batch, B = data.x, data.edge_index, data.batch, data.num_graphs
        read = x.new_zeros(())
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            x = convolution(x, edge_index).relu()
            x, edge_index, _, batch, *_ = pool(x, edge_index, batch=batch)
            read = read + torch.cat([global_mean_pool(x, batch, B), global_max_pool(x, batch, B)], -1)
        hidden = F.dropout(self.inner(read).relu(), 0.5, self.training)
        return self.outer(hidden), x.new_zeros(())


class DiffPoolNet(nn.Module):
    """Differentiable pooling (https://arxiv.org/abs/1806.08804): nodes to clusters, to fewer clusters, to one.

    At each of the two poolings one :class:`DenseSAGEConv` embeds nodes and another assigns them to clusters;
    a last one embeds the last clusters, whose mean is classified. Link-prediction and entropy losses of both
    poolings are added to the loss. Two choices are in favour of its speed: a single layer where the paper
    stacks up to three, and graphs padded to the largest of their batch, not of the data set.

    Args:
        in_channels (int): Length of a feature row.
        num_classes (int): Classes.
        max_nodes (int): Nodes of the largest graph, of which a quarter is the first number of clusters.
        hidden (int): Width. (default: 64)
    """

    def __init__(self, in_channels: int, num_classes: int, max_nodes: int, hidden: int = 64) -> None:
        super().__init__()
        first = ceil(max_nodes / 4)
        second = ceil(first / 4)
        self.embed = nn.ModuleList(DenseSAGEConv(width, hidden) for width in (in_channels, hidden, hidden))
        self.assign = nn.ModuleList([DenseSAGEConv(in_channels, first), DenseSAGEConv(hidden, second)])
        self.inner, self.outer = nn.Linear(hidden, hidden), nn.Linear(hidden, num_classes)

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        """Logits ``[B, O]``, and the sum of the four pooling losses."""
        B = data.num_graphs
        x, mask = to_dense_batch(data.x, data.batch, batch_size=B)
        A = to_dense_adj(data.edge_index, data.batch, max_num_nodes=x.size(1), batch_size=B).to(x.dtype)
        further = x.new_zeros(())
        rows = mask
        for embed, assign in zip(self.embed, self.assign, strict=False):
            s, embedded = assign(x, A, rows), embed(x, A, rows).relu()
            x, A, link, entropy = dense_diff_pool(embedded, A, s, rows)
            further, rows = further + link + entropy, None
        pooled = self.inner(self.embed[-1](x, A).relu().mean(1)).relu()
        return self.outer(F.dropout(pooled, 0.5, self.training)), further
