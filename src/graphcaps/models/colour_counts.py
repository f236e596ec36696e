"""Counts of Weisfeiler-Lehman colours: the columns of WL kernels and of forests on WL counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.quality.weisfeiler_lehman import wl_node_colours
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.state_arrays import read_integers

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # imported late: every command imports this module to look a model up

__all__ = ["COLOUR_ARRAYS", "ColourCounts", "ColourVocabulary", "count_colours"]

COLOUR_ARRAYS = ("colour_iteration", "colour")
"""Names of the arrays of a vocabulary in the state of a model."""


@dataclass(frozen=True, eq=False)
class ColourVocabulary:
    """The colours that have a column, ordered by iteration and then by value.

    Args:
        iteration (ndarray): Iteration of each colour, from 0 on, int64 ``[C]``.
        colour (ndarray): Value of each colour, uint64 ``[C]``.
    """

    iteration: NDArray[np.int64]
    colour: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.colour)

    @property
    def is_ordered(self) -> bool:
        """Whether the colours have the order that lookups rely on."""
        later, same = np.diff(self.iteration) > 0, np.diff(self.iteration) == 0
        return bool((later | (same & (self.colour[1:] > self.colour[:-1]))).all())

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """First column of each iteration, then C."""
        last = int(self.iteration[-1]) if len(self) else 0
        return np.searchsorted(self.iteration, np.arange(last + 2)).astype(np.int64)

    def state(self) -> dict[str, Tensor]:
        """The arrays :data:`COLOUR_ARRAYS`; :meth:`from_state` reads them."""
        # torch has no arithmetic for uint64: the same bits as signed numbers.
        arrays = (self.iteration, self.colour.view(np.int64))
        copies = (torch.from_numpy(values.copy()) for values in arrays)
        return dict(zip(COLOUR_ARRAYS, copies, strict=True))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], iterations: int, owner: str) -> ColourVocabulary:
        """Reads the result of :meth:`state`.

        Args:
            state (mapping): Arrays by name.
            iterations (int): Largest iteration of a colour.
            owner (str): Name of the model, for messages.

        Raises:
            ArgumentError: If an array is missing, or they are not an ordered vocabulary of these iterations.
        """
        iteration, colour = (read_integers(state, name, owner) for name in COLOUR_ARRAYS)
        vocabulary = cls(iteration, colour.view(np.uint64))
        valid = len(iteration) == len(colour) > 0 and vocabulary.is_ordered
        if not valid or iteration[0] < 0 or iteration[-1] > iterations:
            expected = f"be ascending colours of iterations 0 to {iterations}"
            raise ArgumentError(owner, COLOUR_ARRAYS[1], expected, "other values")
        return vocabulary

    def columns_of(self, other: ColourVocabulary) -> NDArray[np.int64]:
        """Column of each colour of another vocabulary, −1 for a colour that has none, ``[len(other)]``."""
        columns = np.full(len(other), -1, dtype=np.int64)
        for iteration in range(min(len(self._bounds), len(other._bounds)) - 1):
            first, end = self._bounds[iteration : iteration + 2]
            rows = slice(*other._bounds[iteration : iteration + 2])
            values, wanted = self.colour[first:end], other.colour[rows]
            if not len(values):
                continue
            index = np.searchsorted(values, wanted).clip(max=len(values) - 1)
            columns[rows] = np.where(values[index] == wanted, first + index, -1)
        return columns


@dataclass(frozen=True, eq=False)
class ColourCounts:
    """How often each colour occurs in each graph.

    Args:
        counts (csr_array): Counts, float32 ``[G, C]``.
        vocabulary (ColourVocabulary): The C colours.
    """

    counts: csr_array
    vocabulary: ColourVocabulary

    def frequent(self, graphs: NDArray[np.int64], min_graphs: float, max_columns: int) -> ColourVocabulary:
        """The colours that occur in at least ``min_graphs`` of some graphs, at most ``max_columns`` of them.

        Of more colours, those that occur in the most graphs are kept; ties go to the first column.

        Args:
            graphs (ndarray): Indices of the graphs that are counted.
            min_graphs (float): Least number of graphs.
            max_columns (int): Largest number of colours.
        """
        occurs = np.bincount(self.counts[graphs].indices, minlength=len(self.vocabulary))
        kept = np.flatnonzero(occurs >= min_graphs)
        kept = np.sort(kept[np.argsort(-occurs[kept], kind="stable")[:max_columns]])
        return ColourVocabulary(self.vocabulary.iteration[kept], self.vocabulary.colour[kept])

    def select(self, graphs: NDArray[np.int64], vocabulary: ColourVocabulary) -> csr_array:
        """Counts of the colours of ``vocabulary`` in some graphs, float32 ``[len(graphs), len(vocabulary)]``."""
        from scipy.sparse import csr_array

        columns = self.vocabulary.columns_of(vocabulary)
        present = np.flatnonzero(columns >= 0)
        ones = np.ones(len(present), np.float32)
        shape = (len(self.vocabulary), len(vocabulary))
        selection = csr_array((ones, (columns[present], present)), shape=shape)
        selected = csr_array(self.counts[graphs] @ selection)
        selected.sort_indices()
        # scikit-learn's trees take 32-bit indices.
        indices = selected.indices.astype(np.int32), selected.indptr.astype(np.int32)
        return csr_array((selected.data, *indices), shape=selected.shape)


_counted: WeakKeyDictionary[GraphStore, dict[int, ColourCounts]] = WeakKeyDictionary()


def count_colours(store: GraphStore, iterations: int) -> ColourCounts:
    """Counts the colours of all graphs of a store after 0, 1, … and ``iterations`` rounds of refinement.

    The result is kept as long as the store exists: the folds of a cross-validation share it.

    Args:
        store (GraphStore): Graphs.
        iterations (int): Number of rounds, at least 0.
    """
    kept = _counted.setdefault(store, {})
    if iterations not in kept:
        kept[iterations] = _count(store, iterations)
    return kept[iterations]


def _count(store: GraphStore, iterations: int) -> ColourCounts:
    from scipy.sparse import csr_array, hstack

    graph = store.node_graph.cpu().numpy()
    blocks, values, rounds = [], [], []
    for iteration, colours in enumerate(wl_node_colours(store, iterations)):
        distinct, column = np.unique(colours, return_inverse=True)
        ones = np.ones(len(colours), np.float32)
        shape = (len(store), len(distinct))
        blocks.append(csr_array((ones, (graph, column.reshape(-1))), shape=shape))
        values.append(distinct)
        rounds.append(np.full(len(distinct), iteration, dtype=np.int64))
    vocabulary = ColourVocabulary(np.concatenate(rounds), np.concatenate(values))
    return ColourCounts(csr_array(hstack(blocks, format="csr")), vocabulary)
