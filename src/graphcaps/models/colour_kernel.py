"""The base of kernels on Weisfeiler-Lehman colours: rows of colour counts, and sums over the iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import RawInput
from graphcaps.models.colour_counts import COLOUR_ARRAYS, ColourCounts, ColourVocabulary, count_colours
from graphcaps.models.kernel_svm import COSTS, KernelSVM, Setting
from graphcaps.models.state_arrays import read_floats, read_integers

__all__ = ["ColourKernelSVM", "ColourRows", "count_products", "kernel_vocabulary", "split_iterations"]

_DENSE_FRACTION = 0.1  # columns that more of the rows have are multiplied densely, which is faster
_STEP_ENTRIES = 1 << 22  # of a sparse product that are in memory at a time


def count_products(left: csr_array, right: csr_array) -> NDArray[np.float64]:
    """Scalar product of each row of ``left`` with each row of ``right``, float64 ``[n, m]``.

    For whole numbers below 2⁵³ it is exact, so that its bits do not depend on other rows. Columns that many rows have
    go through a dense product, the others through a sparse one, in steps of rows.

    Args:
        left, right (csr_array): Counts, ``[n, C]`` and ``[m, C]``.
    """
    (n, C), m = left.shape, right.shape[0]
    has = [np.bincount(each.indices, minlength=C) / max(each.shape[0], 1) for each in (left, right)]
    dense = np.sqrt(has[0] * has[1]) > _DENSE_FRACTION
    # Entries of the other columns are 0 in one factor, and products with them are skipped.
    products = np.zeros((n, m))
    if dense.any():
        products += left[:, dense].toarray() @ right[:, dense].toarray().T
    if not dense.all():
        rest, transposed = left[:, ~dense], csr_array(right[:, ~dense].T)
        step = max(1, _STEP_ENTRIES // max(m, 1))
        for first in range(0, n, step):
            products[first : first + step] += (rest[first : first + step] @ transposed).toarray()
    return products


def kernel_vocabulary(
    colours: ColourCounts, graphs: NDArray[np.int64], min_graphs: int = 1
) -> ColourVocabulary:
    """The colours that at least ``min_graphs`` of some graphs have; if there are none, one that no graph has.

    Args:
        colours (ColourCounts): Counts of colours.
        graphs (ndarray): Indices of the graphs.
        min_graphs (int): Least number of graphs with a colour. (default: 1)
    """
    vocabulary = colours.frequent(graphs, min_graphs, len(colours.vocabulary))
    # A vocabulary in a model file has at least one colour.
    nothing = ColourVocabulary(np.zeros(1, np.int64), np.zeros(1, np.uint64))
    return vocabulary if len(vocabulary) else nothing


def split_iterations(
    counts: csr_array, vocabulary: ColourVocabulary, iterations: int
) -> tuple[csr_array, ...]:
    """The columns of each iteration, float64 ``[n, C_t]``.

    Args:
        counts (csr_array): Counts of the colours of a vocabulary, ``[n, C]``.
        vocabulary (ColourVocabulary): The C colours.
        iterations (int): Number of parts; there may be none of the last colours.
    """
    counts = csr_array(counts, dtype=np.float64)
    bounds = np.searchsorted(vocabulary.iteration, np.arange(iterations + 1))
    return tuple(csr_array(counts[:, first:end]) for first, end in pairwise(bounds.tolist()))


@dataclass(frozen=True, eq=False)
class ColourRows:
    """Counts of colours of n graphs.

    Args:
        blocks (tuple): Counts after each iteration, float64 ``[n, C_t]``.
        squares (ndarray): Unnormalised kernel of each graph with itself, with 0, 1, … iterations, over all its
            colours, those without a column included, float64 ``[n, iterations + 1]``.
    """

    blocks: tuple[csr_array, ...]
    squares: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.squares)


class ColourKernelSVM(KernelSVM[ColourVocabulary, ColourRows]):
    r"""Support vector machines on a kernel that is a sum over the iterations of colour refinement, normalised.

    .. math:: K(G, G') = \frac{k(G, G')}{\sqrt{k(G, G)\, k(G', G')}}, \qquad
        k(G, G') = \sum_{t=0}^{h} k_t(\phi_t(G), \phi_t(G'))

    with the counts :math:`\phi_t` of the colours after t iterations, which start from the node labels, or from one
    colour where there are none. The kernel of a graph without nodes is 0. A subclass implements
    :meth:`_block_products`, the :math:`k_t` of whole numbers, and :meth:`_self_products`.

    Args:
        num_classes (int): Number of classes.
        iterations (tuple): Numbers of iterations h to select among. (default: 0 to 5)
        C (tuple): Values of C to select among. (default: 0.001, 0.01, … 1000)
        max_gigabytes (float): Largest memory of the Gram matrices, in GB. (default: 8)
        seed (int): Seed of the graphs that are held out without validation graphs. (default: 0)
        jobs (int): Number of threads that fit machines. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    uses_seed: ClassVar[bool] = False
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels"})
    selected_options: ClassVar[tuple[str, ...]] = ("iterations", "C")
    column_arrays: ClassVar[tuple[str, ...]] = COLOUR_ARRAYS
    row_arrays: ClassVar[tuple[str, ...]] = (
        "support_ptr",
        "support_columns",
        "support_counts",
        "support_squares",
    )

    def __init__(
        self,
        num_classes: int,
        *,
        iterations: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
        C: tuple[float, ...] = COSTS,
        max_gigabytes: float = 8.0,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, C=C, max_gigabytes=max_gigabytes, seed=seed, jobs=jobs)
        self._require_values("iterations", iterations)
        self._require_at_least(0, iterations=min(iterations))
        self.iterations = tuple(sorted(iterations))

    @abstractmethod
    def _block_products(self, left: csr_array, right: csr_array) -> NDArray[np.float64]:
        """The kernel of the counts of one iteration, ``[n, m]``, exact."""

    @abstractmethod
    def _self_products(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each count adds to the kernel of a graph with itself, elementwise."""

    @property
    def settings(self) -> Sequence[Setting]:
        return [(h,) for h in self.iterations]

    @property
    def _most_iterations(self) -> int:
        return self.iterations[-1]

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> ColourVocabulary:
        return kernel_vocabulary(count_colours(store, self._most_iterations), indices)

    def _rows(self, store: GraphStore, indices: NDArray[np.int64], columns: ColourVocabulary) -> ColourRows:
        colours = count_colours(store, self._most_iterations)
        counts, T = csr_array(colours.counts[indices], dtype=np.float64), self._most_iterations + 1
        graph = np.repeat(np.arange(len(indices)), np.diff(counts.indptr))
        cell = graph * T + colours.vocabulary.iteration[counts.indices]
        squares = np.bincount(cell, self._self_products(counts.data), len(indices) * T)
        blocks = split_iterations(colours.select(indices, columns), columns, T)
        return ColourRows(blocks, squares.reshape(-1, T).cumsum(1))

    def _take(self, rows: ColourRows, index: NDArray[np.int64]) -> ColourRows:
        return ColourRows(tuple(block[index] for block in rows.blocks), rows.squares[index])

    def _kernel(self, left: ColourRows, right: ColourRows, setting: Setting) -> NDArray[np.float64]:
        h = int(setting[0])
        blocks = zip(left.blocks[: h + 1], right.blocks[: h + 1], strict=True)
        products = np.zeros((len(left), len(right)))
        for block, other in blocks:
            products += self._block_products(block, other)
        return _normalise(products, left, right, h)

    def _kernels(self, lefts: Sequence[ColourRows], right: ColourRows) -> Iterator[list[NDArray[np.float64]]]:
        products = [np.zeros((len(left), len(right))) for left in lefts]
        for t, other in enumerate(right.blocks):
            for left, total in zip(lefts, products, strict=True):
                total += self._block_products(left.blocks[t], other)
            if t in self.iterations:
                yield [_normalise(total, left, right, t) for left, total in zip(lefts, products, strict=True)]

    def _compress(
        self, columns: ColourVocabulary, rows: ColourRows, setting: Setting
    ) -> tuple[ColourVocabulary, ColourRows]:
        h = int(setting[0])
        occurs = [np.bincount(block.indices, minlength=block.shape[1]) > 0 for block in rows.blocks[: h + 1]]
        kept = np.flatnonzero(np.concatenate(occurs))
        kept = kept if len(kept) else np.zeros(1, np.int64)
        vocabulary = ColourVocabulary(columns.iteration[kept], columns.colour[kept])
        counts = _join(rows.blocks[: h + 1])[:, kept]
        return vocabulary, ColourRows(split_iterations(counts, vocabulary, h + 1), rows.squares[:, : h + 1])

    # ------------------------------------------------------------------ saving
    def _column_state(self, columns: ColourVocabulary) -> dict[str, Tensor]:
        return columns.state()

    def _read_columns(self, state: Mapping[str, Tensor]) -> ColourVocabulary:
        return ColourVocabulary.from_state(state, self._most_iterations, type(self).__name__)

    def _row_state(self, rows: ColourRows) -> dict[str, Tensor]:
        counts = _join(rows.blocks)
        integers = (counts.indptr.astype(np.int64), counts.indices.astype(np.int64))
        arrays = (*integers, counts.data.astype(np.float64), rows.squares)
        return dict(zip(self.row_arrays, (torch.from_numpy(each.copy()) for each in arrays), strict=True))

    def _read_rows(self, state: Mapping[str, Tensor], columns: ColourVocabulary, num_rows: int) -> ColourRows:
        owner = type(self).__name__
        ptr, indices = (read_integers(state, name, owner) for name in self.row_arrays[:2])
        counts = read_floats(state, "support_counts", owner, (len(indices),))
        squares = read_floats(state, "support_squares", owner, (num_rows, -1))
        valid = len(ptr) == num_rows + 1 and ptr[0] == 0 and ptr[-1] == len(indices)
        if not valid or (np.diff(ptr) < 0).any():
            expected = f"ascend from 0 to {len(indices)} in {num_rows + 1} steps"
            raise ArgumentError(owner, "support_ptr", expected, "other values")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(columns):
            expected = f"be from 0 to {len(columns) - 1}"
            raise ArgumentError(owner, "support_columns", expected, "other values")
        T = squares.shape[1]
        if not columns.iteration[-1] < T <= self._most_iterations + 1 or (squares < 0).any():
            expected = f"be at least 0, for 0 to {columns.iteration[-1]} or more iterations"
            raise ArgumentError(owner, "support_squares", expected, "other values")
        if (counts < 1).any():
            raise ArgumentError(owner, "support_counts", "be at least 1", float(counts.min()))
        table = csr_array((counts, indices, ptr), shape=(num_rows, len(columns)))
        return ColourRows(split_iterations(table, columns, T), squares)


def _join(blocks: Sequence[csr_array]) -> csr_array:
    """The columns of all iterations side by side, with ascending columns in each row."""
    from scipy.sparse import hstack

    joined = csr_array(hstack(blocks, format="csr"))
    joined.sort_indices()
    return joined


def _normalise(
    products: NDArray[np.float64], left: ColourRows, right: ColourRows, h: int
) -> NDArray[np.float64]:
    """Products divided by the roots of both self-products; those of graphs without nodes stay 0."""
    roots = [np.sqrt(np.maximum(rows.squares[:, h], 1)) for rows in (left, right)]
    kernel: NDArray[np.float64] = products / roots[0][:, None]
    kernel /= roots[1]
    return kernel
