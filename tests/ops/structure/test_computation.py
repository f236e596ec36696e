"""Precomputations of many graphs: in order, with one thread of linear algebra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_info

from graphcaps.ops.structure.computation import compute_graphs
from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph, Precomputation


@dataclass(frozen=True)
class Threads(Precomputation):
    """Columns with the number of threads of linear algebra."""

    kind: ClassVar[str] = "threads"

    def compute(self, graph: PlainGraph) -> GraphStructure:
        most = max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return GraphStructure(columns=np.full((graph.num_nodes, 1), float(most)))


def empty(n: int) -> PlainGraph:
    return PlainGraph(np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))


def test_structures_come_in_the_order_of_graphs() -> None:
    results = list(compute_graphs(Threads(), map(empty, (3, 0, 5, 1))))
    assert [None if result is None else result.columns.tolist() for result in results] == [
        [[1.0]] * 3, None, [[1.0]] * 5, [[1.0]],
    ]  # fmt: skip
