"""What must hold between the tables of a TU data set; each breach names file, line, expected and found."""

from __future__ import annotations

from numpy.typing import NDArray

from graphcaps.errors import DataError

__all__ = ["check_edges", "check_indicator", "check_rows"]

_ROWS = 1 << 20  # rows looked at together, so that a large data set needs no second copy of its edges


def check_indicator(graph: NDArray, where: str) -> None:
    """Graphs of the nodes, ``[N]``, start at 1 and go up in steps of one."""
    if graph[0] != 1:
        raise DataError(where, "graph 1 on the first line", f"graph {graph[0]}", line=1)
    wrong = (graph[1:] < graph[:-1]) | (graph[1:] > graph[:-1] + 1)
    if wrong.any():
        row = int(wrong.argmax()) + 1
        before, here = int(graph[row - 1]), int(graph[row])
        trouble = "the numbers go backwards" if here < before else "a graph without nodes"
        raise DataError(where, f"graph {before} or {before + 1}", f"graph {here} ({trouble})", line=row + 1)


def check_rows(found: int, expected: int, unit: str, where: str) -> None:
    """A table has one row per graph, node or listed edge; the line is the first missing or surplus one."""
    if found != expected:
        raise DataError(where, f"{expected} rows, one per {unit}", f"{found}", line=min(found, expected) + 1)


def check_edges(edges: NDArray, graph: NDArray, where: str) -> None:
    """Edges, ``[E, 2]`` with ids from 1, join nodes that exist and lie in the same graph (``graph [N]``)."""
    for start in range(0, len(edges), _ROWS):
        block = edges[start : start + _ROWS]
        if block.min() < 1 or block.max() > len(graph):
            outside = (block < 1) | (block > len(graph))
            row, side = divmod(int(outside.argmax()), 2)
            expected = f"node ids from 1 to {len(graph)}"
            raise DataError(where, expected, int(block[row, side]), line=start + row + 1)
        ends = graph[block - 1]  # [rows, 2]
        across = ends[:, 0] != ends[:, 1]
        if across.any():
            row = int(across.argmax())
            source, target = block[row].tolist()
            first, second = ends[row].tolist()
            found = f"node {source} of graph {first} and node {target} of graph {second}"
            raise DataError(where, "two nodes of one graph", found, line=start + row + 1)
