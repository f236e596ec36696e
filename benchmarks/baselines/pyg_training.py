"""GIN, DiffPool and SAGPool of torch-geometric, trained with its DataLoader: baselines in speed."""

from __future__ import annotations

import copy
from itertools import pairwise
from math import ceil
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
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

from benchmarks.baselines.baseline import Baseline
from graphcaps.bench import CheckError
from graphcaps.data.convert.pyg_graphs import to_pyg
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["DiffPoolNet", "GINNet", "PygKind", "PygTraining", "SAGPoolNet", "pyg_graphs"]

PygKind = Literal["gin", "diffpool", "sagpool"]
_MAX_NODES = 150  # of DiffPool
_CHECK_STEPS = 30


class GINNet(nn.Module):
    """Graph Isomorphism Network (https://arxiv.org/abs/1810.00826) of :class:`GINConv` layers.

    Each layer is an MLP of two linear maps, each followed by BatchNorm and ReLU. Nodes are summed once, after the last
    layer, and two more linear maps classify: fewer operations than the published network, which
    :class:`graphcaps.models.gin.GIN` is.
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
        """Logits ``[B, O]``, and an auxiliary loss of 0."""
        x = data.x
        for layer in self.layers:
            x = layer(x, data.edge_index)
        pooled = self.inner(global_add_pool(x, data.batch, data.num_graphs)).relu()
        return self.outer(F.dropout(pooled, 0.5, self.training)), x.new_zeros(())


class SAGPoolNet(nn.Module):
    """Self-attention pooling (https://arxiv.org/abs/1904.08082), the hierarchical form.

    After each graph convolution the half of the nodes with the highest scores is kept. Mean and maximum over the
    kept nodes are summed over levels and classified.
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
        """Logits ``[B, O]``, and an auxiliary loss of 0."""
        x, edge_index, batch, B = data.x, data.edge_index, data.batch, data.num_graphs
        readout = x.new_zeros(())
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            x = convolution(x, edge_index).relu()
            x, edge_index, _, batch, *_ = pool(x, edge_index, batch=batch)
            readout = readout + torch.cat([global_mean_pool(x, batch, B), global_max_pool(x, batch, B)], -1)
        hidden = F.dropout(self.inner(readout).relu(), 0.5, self.training)
        return self.outer(hidden), x.new_zeros(())


class DiffPoolNet(nn.Module):
    """Differentiable pooling (https://arxiv.org/abs/1806.08804): nodes to clusters, to fewer clusters, to one.

    At each of the two poolings one :class:`DenseSAGEConv` embeds nodes and another assigns them to clusters;
    a last one embeds the last clusters, whose mean is classified. Link-prediction and entropy losses of both
    poolings are added to the loss. Two choices make it faster than the paper's: a single layer in place of up to
    three, and graphs padded to the largest of their batch, not of the data set.

    Args:
        in_channels (int): Length of a feature row.
        num_classes (int): Number of classes.
        max_nodes (int): Nodes of the largest graph; the first pooling has a quarter as many clusters.
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
        auxiliary = x.new_zeros(())
        rows = mask
        for embed, assign in zip(self.embed, self.assign, strict=False):
            s, embedded = assign(x, A, rows), embed(x, A, rows).relu()
            x, A, link, entropy = dense_diff_pool(embedded, A, s, rows)
            auxiliary, rows = auxiliary + link + entropy, None
        pooled = self.inner(self.embed[-1](x, A).relu().mean(1)).relu()
        return self.outer(F.dropout(pooled, 0.5, self.training)), auxiliary


class PygTraining(Baseline):
    """Trains one fold of a torch-geometric model as its examples do: DataLoader, Adam, cross-entropy.

    ======== =========================================================================================
    gin      3 layers of 128, BatchNorm, sum over nodes
    diffpool hidden 64; clusters a quarter of the largest graph (150 nodes at most), then a quarter of that
    sagpool  3 layers of 128, each followed by pooling that keeps half of the nodes
    ======== =========================================================================================

    One ``Data`` per graph stays on the host. The DataLoader collates a batch in this process, and the batch is then
    copied to the device. DiffPool skips graphs of more than 150 nodes, as torch-geometric's examples do, which makes
    it faster. ``num_skipped`` is their number (0 for MUTAG, ENZYMES and NCI1).

    Args:
        kind (str): ``"gin"``, ``"diffpool"`` or ``"sagpool"``.
        store (GraphStore): All graphs, on the host.
        x (Tensor): Features of all nodes, ``[N, in]``.
        train, test (Tensor): Indices of training and test graphs.
        batch_size (int): Graphs per step; the last, smaller batch of an epoch is used.
        device (str or device): Device of the training. (default: "cpu")
        learning_rate, weight_decay (float): Options of Adam. (default: 0.001, 0.0)
        seed (int): Seed of the weights and of the order of graphs. (default: 0)
    """

    def __init__(
        self,
        kind: PygKind,
        store: GraphStore,
        x: Tensor,
        train: Tensor,
        test: Tensor,
        batch_size: int,
        device: str | torch.device = "cpu",
        *,
        learning_rate: float = 0.001,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        if kind not in get_args(PygKind):
            raise ArgumentError(
                "PygTraining", "kind", f"be one of {', '.join(get_args(PygKind))}", repr(kind)
            )
        self.kind, self.device = kind, torch.device(device)
        self.name = f"torch-geometric {kind}"
        self.num_classes = store.num_classes
        max_nodes = _MAX_NODES if kind == "diffpool" else store.max_size
        small = store.sizes <= max_nodes
        self.train, self.test = train[small[train]], test[small[test]]
        self.num_skipped = len(train) + len(test) - len(self.train) - len(self.test)
        if not len(self.train):
            raise ArgumentError("PygTraining", "train", f"hold a graph of at most {max_nodes} nodes", "none")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = _make(kind, x.size(-1), self.num_classes, min(store.max_size, max_nodes)).to(
                self.device
            )
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.optimiser = self._adam(self.model)
        self.order = torch.Generator().manual_seed(seed)
        self.train_graphs = pyg_graphs(store, x, self.train)
        self.train_loader: DataLoader = DataLoader(
            self.train_graphs, batch_size, shuffle=True, generator=self.order
        )
        self.test_loader: DataLoader = DataLoader(pyg_graphs(store, x, self.test), batch_size)
        self.train_loss = float("nan")

    def _adam(self, model: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    def _loss(self, model: nn.Module, batch: Any) -> Tensor:
        logits, auxiliary = model(batch)
        return F.cross_entropy(logits, batch.y) + auxiliary

    def _epoch(self) -> float:
        self.model.train()
        total = torch.zeros((), device=self.device)
        for batch in self.train_loader:
            batch = batch.to(self.device)
            self.optimiser.zero_grad()
            loss = self._loss(self.model, batch)
            loss.backward()
            self.optimiser.step()
            total += loss.detach() * batch.num_graphs
        self.train_loss = float(total) / len(self.train)
        return self.accuracy()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Accuracy on the test graphs."""
        self.model.eval()
        correct = torch.zeros((), dtype=torch.long, device=self.device)
        for batch in self.test_loader:
            batch = batch.to(self.device)
            correct += (self.model(batch)[0].argmax(-1) == batch.y).sum()
        return int(correct) / max(len(self.test), 1)

    def _check(self) -> None:
        """Every graph once per epoch, logits of the right shape, and a falling loss on eight graphs."""
        state = self.order.get_state()
        for part, loader, graphs in (
            ("training", self.train_loader, self.train),
            ("test", self.test_loader, self.test),
        ):
            visited = sorted(int(each) for batch in loader for each in batch.number)
            if visited != sorted(graphs.tolist()):
                raise CheckError(
                    f"{self.name}: an epoch must visit each of {len(graphs)} {part} graphs once."
                )
        self.order.set_state(state)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self._check_learning()

    def _check_learning(self) -> None:
        """Trains a copy of the model on eight graphs, so that the training itself is not affected."""
        model = copy.deepcopy(self.model).train()
        batch = Batch.from_data_list(_mixed(self.train_graphs, 8)).to(self.device)
        logits = model(batch)[0]
        if logits.shape != (batch.num_graphs, self.num_classes) or not bool(logits.isfinite().all()):
            expected = f"finite logits [{batch.num_graphs}, {self.num_classes}]"
            raise CheckError(f"{self.name}: the model must give {expected}, got {list(logits.shape)}.")
        adam, losses = self._adam(model), []
        for _ in range(_CHECK_STEPS):
            adam.zero_grad()
            loss = self._loss(model, batch)
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
        start, end = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
        if not end < 0.99 * start:
            raise CheckError(
                f"{self.name}: the loss of eight graphs must fall, got {start:.3g} to {end:.3g}."
            )


def pyg_graphs(store: GraphStore, x: Tensor, graphs: Tensor) -> list[Data]:
    """One ``Data`` per graph of ``graphs``: ``x``, ``edge_index``, ``y`` and its ``number`` in the store."""
    if x.size(0) != store.num_nodes:
        raise ShapeError("pyg_graphs", "x", f"have one row per node, {store.num_nodes}", x.size(0))
    if store.y is None:
        raise ArgumentError("pyg_graphs", "store", "have a class for every graph", "none", "Add labels.")
    first = store.node_ptr.tolist()
    return [
        Data(x=x[first[g] : first[g + 1]], edge_index=data.edge_index, y=data.y, number=torch.tensor([g]))
        for g, data in zip(graphs.tolist(), to_pyg(store, graphs), strict=True)
    ]


def _make(kind: PygKind, in_channels: int, num_classes: int, max_nodes: int) -> nn.Module:
    if kind == "diffpool":
        return DiffPoolNet(in_channels, num_classes, max_nodes)
    return GINNet(in_channels, num_classes) if kind == "gin" else SAGPoolNet(in_channels, num_classes)


def _mixed(graphs: list[Data], count: int) -> list[Data]:
    """The first graphs of each class in turn, at most ``count``."""
    by_class: dict[int, list[Data]] = {}
    for graph in graphs:
        by_class.setdefault(int(graph.y), []).append(graph)
    ranked = sorted((rank, y) for y, members in by_class.items() for rank in range(len(members)))
    return [by_class[y][rank] for rank, y in ranked[:count]]
