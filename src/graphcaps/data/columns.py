"""What a ``FeatureRecipe`` reads from a store, with its checks, and the powers of the adjacency."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array

from graphcaps.data.elements import label_words
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["finite_attributes", "label_columns", "powers", "report_unseen"]

_DIAGONAL = 1e-8  # keeps the row sum of an isolated node above zero, so that the node keeps its own x


def powers(store: GraphStore, x: np.ndarray, count: int) -> Iterator[np.ndarray]:
    r"""Yields :math:`Ax, A^2x, \dots` with :math:`A = D^{-1/2}(\mathrm{Adj} + 10^{-8}I)D^{-1/2}`, in float64.

    Args:
        store (GraphStore): N nodes with their edges; weights are not used.
        x (numpy.ndarray): float64, ``[N, k]``.
        count (int): How many powers.
    """
    adjacency = _adjacency(store)
    scale = (store.degree.cpu().numpy() + _DIAGONAL)[:, None] ** -0.5
    for _ in range(count):
        x = x * scale
        x = (adjacency @ x + _DIAGONAL * x) * scale
        yield x


def _adjacency(store: GraphStore) -> csr_array:
    """Adjacency of all graphs side by side, entries 1 in float64, ``[N, N]``."""
    N, degree = store.num_nodes, store.degree.cpu()
    first = store.node_ptr[:-1].repeat_interleave(store.sizes).cpu()  # first node of each node's graph
    wide = torch.int32 if max(N, store.neighbours.numel()) < 2**31 else torch.int64
    column = store.neighbours.cpu().to(wide) + first.to(wide).repeat_interleave(degree)
    ones = np.ones(column.numel())
    return csr_array((ones, column.numpy(), store.edge_ptr.cpu().to(wide).numpy()), shape=(N, N))


def finite_attributes(store: GraphStore, owner: str, dtype: torch.dtype) -> np.ndarray | None:
    """The node attributes in float64, ``[N, A]``, refused where one is not a finite number in ``dtype``."""
    if store.node_attributes is None:
        return None
    values = store.node_attributes.cpu()
    wrong = ~torch.isfinite(values.to(dtype))
    if wrong.any():
        row, column = (int(part) for part in wrong.nonzero()[0])
        place = f"attribute {column} of {_node(store, row)} of {store.name}"
        raise ArgumentError(
            owner, "store", "hold finite node attributes", f"{float(values[row, column])} in {place}"
        )
    return values.double().numpy()


def label_columns(store: GraphStore) -> list[np.ndarray]:
    """The columns of the node labels, ``[N]`` each."""
    if store.node_labels is None:
        return []
    return list(store.node_labels.cpu().long().T.numpy())


def report_unseen(
    store: GraphStore, column: int, values: np.ndarray, wrong: np.ndarray, unseen: Literal["refuse", "ignore"]
) -> None:
    """Raises, or warns, about labels that have no input column: which, on how many nodes, and where first."""
    strangers = np.unique(values[wrong])
    molecules = "element" in store.truth  # their labels have names
    named = ", ".join(str(value) for value in strangers[:3]) + (", …" if len(strangers) > 3 else "")
    named = label_words(store, column, strangers) if molecules else named
    unit, count = "atom" if molecules else "node", int(wrong.sum())
    first = _node(store, int(np.flatnonzero(wrong)[0]))
    found = f"{named} on {count} {unit}{'' if count == 1 else 's'}, first on {first} of {store.name}"
    if unseen == "ignore":
        warnings.warn(
            f"FeatureRecipe.apply: labels that have no input column are encoded as zeros: {found}.",
            stacklevel=4,
        )
        return
    raise ArgumentError(
        "FeatureRecipe.apply",
        "store",
        "hold only atoms as seen in training"
        if molecules
        else f"hold only node labels that have an input column, in label column {column}",
        found,
        "Train on molecules that have them, or pass unseen='ignore'."
        if molecules
        else "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
    )


def _node(store: GraphStore, row: int) -> str:
    first = store.node_ptr.cpu()
    graph = int(torch.searchsorted(first, row, right=True)) - 1
    return f"node {row - int(first[graph])} of graph {graph}"
