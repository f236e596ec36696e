"""Training of the padded program, one fold at a time, and the proof that it computes what ours does."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from graphcaps.bench.rivals.padded import PaddedHGCN
from graphcaps.bench.rivals.rival import Rival, RivalError
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN

# torch-geometric takes seconds to import: only those who bench pay for it.
if TYPE_CHECKING:
    from torch_geometric.loader import DenseDataLoader

__all__ = ["PaddedGraphs", "PaddedTraining", "check_padded", "padded_bytes"]

_TOLERANCE = 1e-9


def padded_bytes(store: GraphStore, x: Tensor) -> int:
    """Bytes of all graphs of a store once padded: 0.7 GB for NCI1, 8 GB and more for REDDIT-BINARY."""
    return len(store) * store.max_size * (store.max_size + x.size(-1)) * x.element_size()


@dataclass(frozen=True, eq=False)
class PaddedGraphs:
    """Graphs padded to n nodes.

    Args:
        x (Tensor): Features, 0 at padding, ``[G, n, in]``.
        adjacency (Tensor): ``[G, n, n]``.
        mask (Tensor): True at real nodes, ``[G, n]``.
        y (Tensor): Classes, ``[G]``.
    """

    x: Tensor
    adjacency: Tensor
    mask: Tensor
    y: Tensor

    @classmethod
    def from_store(cls, store: GraphStore, x: Tensor) -> PaddedGraphs:
        """All graphs of a store, padded to its largest; computed where the store lies."""
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
        place = torch.arange(store.num_nodes, device=store.device) - store.node_ptr[graph]
        padded = x.new_zeros(G, n, x.size(-1))
        padded[graph, place] = x
        adjacency = x.new_zeros(G, n, n)
        degree = store.degree
        source_graph, source = graph.repeat_interleave(degree), place.repeat_interleave(degree)
        adjacency[source_graph, source, store.neighbours.long()] = 1
        mask = torch.arange(n, device=store.device) < store.sizes.unsqueeze(-1)
        return cls(padded, adjacency, mask, store.y)

    def to(self, device: str | torch.device) -> PaddedGraphs:
        """The same on another device."""
        return PaddedGraphs(
            self.x.to(device), self.adjacency.to(device), self.mask.to(device), self.y.to(device)
        )

    def listed(self, graphs: Tensor) -> list[Any]:
        """The named graphs one by one, as torch-geometric's dense ``Data``."""
        from torch_geometric.data import Data

        return [
            Data(x=self.x[g], adj=self.adjacency[g], mask=self.mask[g], y=self.y[g : g + 1])
            for g in graphs.tolist()
        ]


class PaddedTraining(Rival):
    """Trains one fold of :class:`PaddedHGCN` as the published program does: plain PyTorch, one step after another.

    What an epoch of one fold pays, as that program does, no more and no less:

    - Graphs are padded once, to the largest of the store, and stay on the host, one ``Data`` each.
      torch-geometric's ``DenseDataLoader`` stacks those of a step, features ``[B, n, in]``, adjacency
      ``[B, n, n]`` and mask, in this process, and they are sent to the device (20 MB a step for NCI1).
    - The host reads the number of nodes of every graph from the device, one graph at a time, and sends
      back the graph of every node. The published model is handed that and does not use it; nor does ours.
    - A forward pass as :class:`PaddedHGCN` says, its backward pass, and torch's Adam.
    - Every step the host reads the right answers, the loss, and its two terms for a log.
    - After the last step the test part is gone through twice, reconstruction included: for a
      validation loss (the program's validation part is its test part) and for the accuracy.

    Left out is only the writing of that log to a file.

    Args:
        model (HGCN): One of ours, without leading axes; its weights are copied, and it is what
            ``check`` compares with. It is left as it is.
        store (GraphStore): All graphs, after the cap on nodes, on the host.
        x (Tensor): Features of all nodes, ``[N, in]``.
        train, test (Tensor): Graphs of the two parts.
        batch_size (int): Graphs a step; the last, smaller batch of an epoch is used.
        learning_rate, weight_decay (float): Of Adam, L2 inside the gradient. (default: 0.001, 0.0001)
        halve_every (int): Epochs after which the rate is halved. (default: 500)
        reconstruction_weight (float): β. (default: 0.1)
        device (str or device): Where to compute. (default: "cpu")
        seed (int): Of the order of graphs. (default: 0)
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
        from torch_geometric.loader import DenseDataLoader

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
        self.log: list[list[float]] = []  # terms of the loss of every step of the last epoch

    def _check(self) -> None:
        largest = int(self.store.sizes.argmax())
        few = dict.fromkeys([largest, int(self.store.sizes.argmin()), *self.train[:6].tolist()])
        check_padded(self.reference, self.store, self.x, torch.tensor(list(few)), self.device)

    def _epoch(self) -> float:
        self.model.train()
        self.log = []
        total, right = 0.0, 0
        for data in self.train_loader:
            self.optimiser.zero_grad()
            batch = self._send(data)
            output = self.model(batch.x, batch.adjacency, batch.mask, batch.y)
            terms = self.model.loss(output, batch.y, reconstruction_weight=self.reconstruction_weight)
            right += int((output.class_scores.max(1)[1] == batch.y).sum())
            terms.total.backward()
            total += float(terms.total.detach()) * len(batch.y)
            self.log.append([float(term.detach()) for term in terms.terms.values()])
            self.optimiser.step()
        self.train_loss, self.train_accuracy = total / len(self.train), right / len(self.train)
        self.test_loss = self._test()[0]
        accuracy = self._test()[1]
        self.schedule.step()
        return accuracy

    def accuracy(self) -> float:
        """Share of the test part that is classified rightly."""
        return self._test()[1]

    @torch.no_grad()
    def _test(self) -> tuple[float, float]:
        """Loss and accuracy over the test part."""
        self.model.eval()
        total, right = 0.0, 0
        for data in self.test_loader:
            batch = self._send(data)
            output = self.model(batch.x, batch.adjacency, batch.mask, batch.y)
            terms = self.model.loss(output, batch.y, reconstruction_weight=self.reconstruction_weight)
            right += int((output.class_scores.max(1)[1] == batch.y).sum())
            total += float(terms.total) * len(batch.y)
        count = max(len(self.test), 1)
        return total / count, right / count

    def _send(self, data: Any) -> PaddedGraphs:
        """A batch on the device, with the graph of every node beside it."""
        data = data.to(self.device)
        owner = [graph for graph, row in enumerate(data.mask) for _ in range(int(row.sum()))]
        data.batch = torch.tensor(owner).to(self.device)
        return PaddedGraphs(data.x, data.adj, data.mask, data.y.view(-1))


def check_padded(
    model: HGCN, store: GraphStore, x: Tensor, graphs: Tensor, device: str | torch.device = "cpu"
) -> None:
    """Compares scores, losses and gradients of the padded program with those of HGCN, training and not.

    In float64 without dropout, every bias and norm moved from its starting value, graphs padded to the
    largest of the store. ``model`` is left as it is.

    Raises:
        RivalError: If anything differs by more than 1e-9 of its largest number (at least of 1).
    """
    ours = copy.deepcopy(model).double().to(device)
    ours.primary.dropout.p = 0.0  # type: ignore[union-attr]
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if "bias" in name or "norm" in name:
                drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
                parameter.add_(0.3 * drawn.to(device))
    padded = PaddedHGCN.from_hgcn(ours)

    first = store.node_ptr.tolist()
    rows = torch.cat([torch.arange(first[g], first[g + 1]) for g in graphs.tolist()])
    few, wide = store[graphs], x[rows].double()
    whole = PaddedGraphs.from_store(few, wide)
    short = store.max_size - few.max_size
    pad = torch.nn.functional.pad
    whole = PaddedGraphs(
        pad(whole.x, (0, 0, 0, short)),
        pad(whole.adjacency, (0, short, 0, short)),
        pad(whole.mask, (0, short)),
        whole.y,
    ).to(device)
    batch = few.to(device).batch(wide.to(device))
    for training in (True, False):
        mode = "training" if training else "evaluation"
        output = ours.train(training).forward_batch(batch, whole.y)
        expected = ours.loss(output, whole.y)
        found_output = padded.train(training)(whole.x, whole.adjacency, whole.mask, whole.y)
        found = padded.loss(found_output, whole.y)
        _compare(f"class scores in {mode}", found_output.class_scores, output.class_scores)
        if found.terms.keys() != expected.terms.keys():
            raise RivalError(f"padded: losses in {mode} are {[*found.terms]}, expected {[*expected.terms]}.")
        for name, term in expected.terms.items():
            _compare(f"{name} loss in {mode}", found.terms[name], term)
        ours.zero_grad()
        padded.zero_grad()
        expected.total.backward()
        found.total.backward()
        slopes = padded.by_hgcn_names(lambda parameter: cast(Tensor, parameter.grad))
        for name, parameter in ours.named_parameters():
            assert parameter.grad is not None
            _compare(f"gradient of {name} in {mode}", slopes[name], parameter.grad)


def _compare(what: str, found: Tensor, expected: Tensor) -> None:
    scale = max(1.0, float(expected.detach().abs().max()))
    error = float((found.detach() - expected.detach()).abs().max()) if found.shape == expected.shape else None
    if error is None or not error <= _TOLERANCE * scale:  # not: a NaN is wrong too
        got = f"shape {list(found.shape)}" if error is None else f"a difference of {error:.3g}"
        raise RivalError(f"padded: {what} must equal HGCN's to {_TOLERANCE}, got {got}.")
