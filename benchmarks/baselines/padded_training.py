"""Training of the padded program, one fold at a time, and the check that it equals HGCN."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DenseDataLoader

from benchmarks.baselines.baseline import Baseline
from benchmarks.baselines.padded_hgcn import PaddedHGCN
from graphcaps.bench import CheckError
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN, ReplicaDropout

__all__ = ["PaddedGraphs", "PaddedTraining", "check_padded", "padded_bytes"]

_TOLERANCE = 1e-9


def padded_bytes(store: GraphStore, x: Tensor) -> int:
    """Bytes of all graphs of a store when padded: 0.7 GB for NCI1, more than 8 GB for REDDIT-BINARY."""
    return len(store) * store.max_size * (store.max_size + x.size(-1)) * x.element_size()


@dataclass(frozen=True, eq=False)
class PaddedGraphs:
    """Graphs padded to n nodes.

    Args:
        x (Tensor): Features, 0 at padding, ``[G, n, in]``.
        adjacency (Tensor): ``[G, n, n]``.
        mask (Tensor): True at real nodes, ``[G, n]``.
        y (Tensor): Class labels, ``[G]``.
    """

    x: Tensor
    adjacency: Tensor
    mask: Tensor
    y: Tensor

    @classmethod
    def from_store(cls, store: GraphStore, x: Tensor) -> PaddedGraphs:
        """All graphs of a store, padded to the largest, on the device of the store."""
        if x.size(0) != store.num_nodes:
            raise ShapeError("PaddedGraphs", "x", f"have one row per node, {store.num_nodes}", x.size(0))
        if store.y is None:
            raise ArgumentError(
                "PaddedGraphs", "store", "have a class for every graph", "none", "Add labels."
            )
        if store.edge_weight is not None:
            raise ArgumentError("PaddedGraphs", "store", "have no edge weights", "some")
        G, n = len(store), store.max_size
        graph = store.node_graph
        position = torch.arange(store.num_nodes, device=store.device) - store.node_ptr[graph]
        padded = x.new_zeros(G, n, x.size(-1))
        padded[graph, position] = x
        adjacency = x.new_zeros(G, n, n)
        degree = store.degree
        source_graph, source = graph.repeat_interleave(degree), position.repeat_interleave(degree)
        adjacency[source_graph, source, store.neighbours.long()] = 1
        mask = torch.arange(n, device=store.device) < store.sizes.unsqueeze(-1)
        return cls(padded, adjacency, mask, store.y)

    def to(self, device: str | torch.device) -> PaddedGraphs:
        """Copies to another device."""
        return PaddedGraphs(
            self.x.to(device), self.adjacency.to(device), self.mask.to(device), self.y.to(device)
        )

    def listed(self, graphs: Tensor) -> list[Any]:
        """One dense ``Data`` of torch-geometric per graph of ``graphs``."""
        return [
            Data(x=self.x[g], adj=self.adjacency[g], mask=self.mask[g], y=self.y[g : g + 1])
            for g in graphs.tolist()
        ]


class PaddedTraining(Baseline):
    """Trains one fold of :class:`PaddedHGCN` in plain PyTorch, as the published program does.

    An epoch of one fold does exactly the work of that program:

    - Graphs are padded once, to the largest of the store, and stay on the host, one ``Data`` each.
      torch-geometric's ``DenseDataLoader`` stacks features ``[B, n, in]``, adjacency ``[B, n, n]`` and mask of a
      step in this process, and they are copied to the device (20 MB per step for NCI1).
    - The host reads the number of nodes of every graph from the device, one graph at a time, and copies back the
      graph of every node. The published model receives this and does not use it; neither does this one.
    - A forward pass of :class:`PaddedHGCN`, its backward pass, and torch's Adam.
    - In every step the host reads the number of correct predictions, the loss, and its two terms for a log.
    - After the last step the test set is evaluated twice, reconstruction included: for a validation loss (the
      program validates on its test set) and for the accuracy.

    Only the writing of that log to a file is omitted.

    Args:
        model (HGCN): Reference without leading axes. Its weights are copied, ``check`` compares with it, and it is
            not modified.
        store (GraphStore): All graphs, after truncation to the maximal number of nodes, on the host.
        x (Tensor): Features of all nodes, ``[N, in]``.
        train, test (Tensor): Indices of training and test graphs.
        batch_size (int): Graphs per step; the last, smaller batch of an epoch is used.
        learning_rate, weight_decay (float): Options of Adam, L2 in the gradient. (default: 0.001, 0.0001)
        halve_every (int): Epochs after which the learning rate is halved. (default: 500)
        reconstruction_weight (float): β. (default: 0.1)
        device (str or device): Device of the training. (default: "cpu")
        seed (int): Seed of the order of graphs. (default: 0)
    """

    name = "padded"

    def __init__(
        self,
        model: HGCN,
        store: GraphStore,
        x: Tensor,
        train: Tensor,
        test: Tensor,
        batch_size: int,
        *,
        learning_rate: float = 0.001,
        weight_decay: float = 0.0001,
        halve_every: int = 500,
        reconstruction_weight: float = 0.1,
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> None:
        self.reference, self.store, self.x = model, store, x
        self.train, self.test = train, test
        self.reconstruction_weight, self.device = reconstruction_weight, torch.device(device)
        self.model = PaddedHGCN.from_hgcn(model).to(self.device)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=learning_rate, weight_decay=weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimiser, halve_every, 0.5)
        padded = PaddedGraphs.from_store(store, x)
        self.order = torch.Generator().manual_seed(seed)
        self.train_loader: DenseDataLoader = DenseDataLoader(
            padded.listed(train), batch_size, shuffle=True, generator=self.order
        )
        self.test_loader: DenseDataLoader = DenseDataLoader(padded.listed(test), batch_size)
        self.train_loss = self.train_accuracy = self.test_loss = float("nan")
        self.log: list[list[float]] = []  # loss terms of every step of the last epoch

    def _check(self) -> None:
        largest = int(self.store.sizes.argmax())
        few = dict.fromkeys([largest, int(self.store.sizes.argmin()), *self.train[:6].tolist()])
        check_padded(self.reference, self.store, self.x, torch.tensor(list(few)), self.device)

    def _epoch(self) -> float:
        self.model.train()
        self.log = []
        total, correct = 0.0, 0
        for data in self.train_loader:
            self.optimiser.zero_grad()
            batch = self._send(data)
            output = self.model(batch.x, batch.adjacency, batch.mask, batch.y)
            terms = self.model.loss(output, batch.y, reconstruction_weight=self.reconstruction_weight)
            correct += int((output.class_scores.max(1)[1] == batch.y).sum())
            terms.total.backward()
            total += float(terms.total.detach()) * len(batch.y)
            self.log.append([float(term.detach()) for term in terms.terms.values()])
            self.optimiser.step()
        self.train_loss, self.train_accuracy = total / len(self.train), correct / len(self.train)
        self.test_loss = self._test()[0]
        accuracy = self._test()[1]
        self.schedule.step()
        return accuracy

    def accuracy(self) -> float:
        """Accuracy on the test graphs."""
        return self._test()[1]

    @torch.no_grad()
    def _test(self) -> tuple[float, float]:
        """Loss and accuracy on the test graphs."""
        self.model.eval()
        total, correct = 0.0, 0
        for data in self.test_loader:
            batch = self._send(data)
            output = self.model(batch.x, batch.adjacency, batch.mask, batch.y)
            terms = self.model.loss(output, batch.y, reconstruction_weight=self.reconstruction_weight)
            correct += int((output.class_scores.max(1)[1] == batch.y).sum())
            total += float(terms.total) * len(batch.y)
        count = max(len(self.test), 1)
        return total / count, correct / count

    def _send(self, data: Any) -> PaddedGraphs:
        """Copies a batch to the device, and computes the graph of every node."""
        data = data.to(self.device)
        owner = [graph for graph, row in enumerate(data.mask) for _ in range(int(row.sum()))]
        data.batch = torch.tensor(owner).to(self.device)
        return PaddedGraphs(data.x, data.adj, data.mask, data.y.view(-1))


def check_padded(
    model: HGCN, store: GraphStore, x: Tensor, graphs: Tensor, device: str | torch.device = "cpu"
) -> None:
    """Compares scores, losses and gradients of the padded program with HGCN, in training and evaluation mode.

    In float64 without dropout, with every bias and norm moved from its initial value and graphs padded to the
    largest of the store. ``model`` is not modified.

    Raises:
        CheckError: If a tensor differs by more than 1e-9 of its largest absolute value (or of 1 if that is larger).
    """
    hgcn = copy.deepcopy(model).double().to(device)
    hgcn.primary.dropout = ReplicaDropout(0.0).to(device)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in hgcn.named_parameters():
            if "bias" in name or "norm" in name:
                shift = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
                parameter.add_(0.3 * shift.to(device))
    padded = PaddedHGCN.from_hgcn(hgcn)

    first = store.node_ptr.tolist()
    rows = torch.cat([torch.arange(first[g], first[g + 1]) for g in graphs.tolist()])
    subset, features = store[graphs], x[rows].double()
    dense = PaddedGraphs.from_store(subset, features)
    padding = store.max_size - subset.max_size
    pad = torch.nn.functional.pad
    dense = PaddedGraphs(
        pad(dense.x, (0, 0, 0, padding)),
        pad(dense.adjacency, (0, padding, 0, padding)),
        pad(dense.mask, (0, padding)),
        dense.y,
    ).to(device)
    batch = subset.to(device).batch(features.to(device))
    for training in (True, False):
        mode = "training" if training else "evaluation"
        output = hgcn.train(training).forward_batch(batch, dense.y)
        expected = hgcn.loss(output, dense.y)
        padded_output = padded.train(training)(dense.x, dense.adjacency, dense.mask, dense.y)
        terms = padded.loss(padded_output, dense.y)
        _compare(f"class scores in {mode}", padded_output.class_scores, output.class_scores)
        if terms.terms.keys() != expected.terms.keys():
            raise CheckError(f"padded: losses in {mode} are {[*terms.terms]}, expected {[*expected.terms]}.")
        for name, term in expected.terms.items():
            _compare(f"{name} loss in {mode}", terms.terms[name], term)
        hgcn.zero_grad()
        padded.zero_grad()
        expected.total.backward()
        terms.total.backward()
        gradients = padded.by_hgcn_names(lambda parameter: cast(Tensor, parameter.grad))
        for name, parameter in hgcn.named_parameters():
            assert parameter.grad is not None
            _compare(f"gradient of {name} in {mode}", gradients[name], parameter.grad)


def _compare(what: str, value: Tensor, expected: Tensor) -> None:
    scale = max(1.0, float(expected.detach().abs().max()))
    error = float((value.detach() - expected.detach()).abs().max()) if value.shape == expected.shape else None
    if error is None or not error <= _TOLERANCE * scale:  # negated, so that a NaN fails
        got = f"shape {list(value.shape)}" if error is None else f"a difference of {error:.3g}"
        raise CheckError(f"padded: {what} must equal HGCN's to {_TOLERANCE}, got {got}.")
