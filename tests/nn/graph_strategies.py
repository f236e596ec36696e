"""Random small graphs for property tests: isolated nodes, graphs without edges and weighted edges."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.graphs import Graphs

__all__ = ["graphs_with_weights"]


@st.composite
def graphs_with_weights(draw: st.DrawFn) -> tuple[Graphs, Tensor]:
    """Undirected simple graphs, and a weight above 0 for each edge of the first half of ``edge_index``."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    pairs, weights, first = [], [], 0
    for n in sizes:
        possible = [(first + i, first + j) for i in range(n) for j in range(i)]
        chosen = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
        pairs += chosen
        weights += [draw(st.floats(0.1, 4)) for _ in chosen]
        first += n
    one_way = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    x = torch.randn(first, 4, generator=generator, dtype=torch.float64)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    graphs = Graphs(x, torch.cat([one_way, one_way.flip(0)], 1), batch, torch.zeros(len(sizes)).long())
    return graphs, torch.tensor(weights, dtype=torch.float64)
