"""Synthetic explanations from random numbers, of any size, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.ops.edges import clean_edges

__all__ = ["FakeModel", "make_explanations", "make_store"]


@dataclass(frozen=True)
class FakeModel:
    """A stand-in for a fitted model."""

    class_names: tuple[str, ...]
    training: dict[str, Any] = field(default_factory=dict)

    def info(self) -> dict[str, Any]:
        return {"model": {"name": "hgcn", "formulation": "released", "parameters": 12345}}


def make_store(
    num_graphs: int = 12,
    *,
    nodes: tuple[int, int] = (6, 14),
    class_names: Sequence[str] = ("yes", "no", "maybe"),
    labels: int = 3,
    seed: int = 0,
    name: str = "synthetic",
) -> GraphStore:
    """Random trees with a few more edges."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(nodes[0], nodes[1] + 1, (num_graphs,), generator=generator)
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    ends = []
    for first, n in zip(ptr[:-1].tolist(), sizes.tolist(), strict=True):
        before = (torch.rand(n - 1, generator=generator) * torch.arange(1, n)).long()
        more = torch.randint(0, n, (2, max(1, n // 6)), generator=generator)
        ends.append(torch.cat([torch.stack([torch.arange(1, n), before]), more], 1) + first)
    source, target = torch.cat(ends, 1)
    edges = clean_edges(source, target, int(ptr[-1]))
    return GraphStore.from_clean_edges(
        name,
        ptr,
        edges,
        y=torch.randint(0, len(class_names), (num_graphs,), generator=generator),
        class_names=tuple(class_names),
        node_labels=torch.randint(0, labels, (int(ptr[-1]), 1), generator=generator) if labels else None,
    )


def make_explanations(
    store: GraphStore,
    *,
    capsules: tuple[int, ...] = (4,),
    iterations: int = 3,
    seed: int = 1,
    right: float = 0.7,
) -> StoreExplanation:
    """As many explanations as graphs; a fraction ``right`` of them predict the true class."""
    generator = torch.Generator().manual_seed(seed)
    G, N, C = len(store), store.num_nodes, store.num_classes

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    assert store.y is not None
    scores = torch.rand(G, C, generator=generator, dtype=torch.float64) * 0.6
    hit = torch.rand(G, generator=generator) < right
    scores[hit, store.y[hit]] += 0.6
    source = torch.arange(N).repeat_interleave(store.degree)
    local = source - store.node_ptr[:-1][store.node_graph[source]]
    kept = local < store.neighbours
    edges = torch.stack([local[kept], store.neighbours[kept].long()])
    counts = torch.bincount(store.node_graph[source[kept]], minlength=G)
    weights, lengths, joined = [], [], []
    shapes = [(N,), *((G, J) for J in capsules)]
    for shape, J in zip(shapes, (*capsules, C), strict=True):
        logits = normal(*shape, J) * 2
        # Each iteration differs from the others, and the first knows no difference.
        weights.append(
            torch.stack([(r * (logits + normal(*shape, J))).softmax(-1) for r in range(iterations)])
        )
        lengths.append(torch.rand(G, J, generator=generator, dtype=torch.float64))
        square = torch.rand(G, J, J, generator=generator, dtype=torch.float64)
        joined.append(square + square.transpose(1, 2))
    lengths[-1] = scores
    contributions, residuals = [], []
    for level, length in enumerate(lengths):
        J = length.size(-1)
        raw = normal(N, J) if level == 0 else normal(G, lengths[level - 1].size(-1), J)
        residual = normal(G, J) * 0.1
        # Shifted so that contributions and residual add up to the length.
        if level == 0:
            total = torch.zeros(G, J, dtype=raw.dtype).index_add(0, store.node_graph, raw)
            missing = (length - total - residual) / store.sizes[:, None]
            contributions.append(raw + missing[store.node_graph])
        else:
            contributions.append(raw + ((length - raw.sum(1) - residual) / raw.size(1)).unsqueeze(1))
        residuals.append(residual)
    return StoreExplanation(
        class_names=store.class_names,
        class_scores=scores,
        probabilities=scores / scores.sum(-1, keepdim=True),
        target=scores.argmax(-1),
        true_class=store.y,
        node_ptr=store.node_ptr,
        edge_ptr=torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
        edges=edges,
        node_labels=store.node_labels,
        assignments=tuple(level[-1] for level in weights),
        iterations=tuple(weights),
        lengths=tuple(lengths),
        adjacency=(*joined[:-1], None),
        contributions=tuple(contributions),
        residual_contributions=tuple(residuals),
        node_scores=normal(N),
        edge_scores=normal(edges.size(1)),
        reconstruction_error=torch.rand(edges.size(1), generator=generator, dtype=torch.float64),
    )
