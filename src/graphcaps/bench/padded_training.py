"""Training of the padded program, one fold at a time, and the proof that it computes what ours does."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from graphcaps.bench.padded import PaddedHGCN
from graphcaps.bench.rival import Rival, RivalError
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN

__all__ = ["PaddedGraphs", "PaddedTraining", "check_padded", "padded_bytes"]

Place = Literal["host", "device"]
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

    def __getitem__(self, graphs: Tensor) -> PaddedGraphs:
        """The named graphs, copied together."""
        return PaddedGraphs(self.x[graphs], self.adjacency[graphs], self.mask[graphs], self.y[graphs])


class PaddedTraining(Rival):
    """Trains one fold of :class:`PaddedHGCN` as the published program does: plain PyTorch, one step after another.

    All graphs are padded once to the largest of the store and kept; a step picks its graphs out of them,
    one copy of ``[B, n, in]`` and ``[B, n, n]``, and with ``keep="host"`` sends them to the device (20 MB a
    step for NCI1).

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
        keep (str): Where padded graphs are kept, ``"host"`` or ``"device"``. (default: "host")
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
        keep: Place = "host",
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> None:
        if keep not in get_args(Place):
            raise ArgumentError("PaddedTraining", "keep", "be 'host' or 'device'", repr(keep))
        self.reference, self.store, self.x = model, store, x
        self.train, self.test, self.batch_size = train, test, batch_size
        self.reconstruction_weight, self.device = reconstruction_weight, torch.device(device)
        self.model = PaddedHGCN.from_hgcn(model).to(self.device)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=learning_rate, weight_decay=weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimiser, halve_every, 0.5)
        self.order = torch.Generator().manual_seed(seed)
        padded = PaddedGraphs.from_store(store, x)
        self.graphs = padded.to(self.device) if keep == "device" else padded
        self.train_loss = float("nan")

    def _check(self) -> None:
        largest = int(self.store.sizes.argmax())
        few = dict.fromkeys([largest, int(self.store.sizes.argmin()), *self.train[:6].tolist()])
        check_padded(self.reference, self.store, self.x, torch.tensor(list(few)), self.device)

    def _epoch(self) -> float:
        self.model.train()
        total = torch.zeros((), device=self.device)
        mixed = self.train[torch.randperm(len(self.train), generator=self.order)]
        for graphs in mixed.split(self.batch_size):
            batch = self._batch(graphs)
            self.optimiser.zero_grad()
            output = self.model(batch.x, batch.adjacency, batch.mask, batch.y)
            loss = self.model.loss(output, batch.y, reconstruction_weight=self.reconstruction_weight).total
            loss.backward()
            self.optimiser.step()
            total += loss.detach() * len(graphs)
        self.schedule.step()
        self.train_loss = float(total) / len(self.train)
        return self.accuracy()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of the test part that is classified rightly."""
        self.model.eval()
        right = torch.zeros((), dtype=torch.long, device=self.device)
        for graphs in self.test.split(self.batch_size):
            batch = self._batch(graphs)
            scores = self.model(batch.x, batch.adjacency, batch.mask).class_scores
            right += (scores.argmax(-1) == batch.y).sum()
        return int(right) / max(len(self.test), 1)

    def _batch(self, graphs: Tensor) -> PaddedGraphs:
        return self.graphs[graphs.to(self.graphs.x.device)].to(self.device)


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
