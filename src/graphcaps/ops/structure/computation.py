"""Runs a precomputation on many graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from threadpoolctl import threadpool_limits

from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph, Precomputation

__all__ = ["compute_graphs"]


def compute_graphs(
    precomputation: Precomputation, graphs: Iterable[PlainGraph]
) -> Iterator[GraphStructure | None]:
    """The structures of graphs, in their order; ``None`` for a graph without nodes.

    As many threads as torch uses work on graphs at a time: most of the time of a computation on large graphs is spent
    in linear algebra, which does not hold the interpreter. The library of linear algebra has one thread meanwhile. Its
    own threads would compete with these, and the number of threads would change how it rounds.
    """

    def compute(graph: PlainGraph) -> GraphStructure | None:
        return precomputation.compute(graph) if graph.num_nodes else None

    pool = ThreadPoolExecutor(torch.get_num_threads())
    try:
        with threadpool_limits(1, user_api="blas"):
            yield from pool.map(compute, graphs)
    finally:
        pool.shutdown(cancel_futures=True)
