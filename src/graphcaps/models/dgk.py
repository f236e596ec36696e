"""The deep graph kernel on Weisfeiler-Lehman colours with a support vector machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.models.classical import RawInput
from graphcaps.models.colour_counts import COLOUR_ARRAYS, ColourVocabulary, count_colours
from graphcaps.models.colour_kernel import kernel_vocabulary, split_iterations
from graphcaps.models.colour_vectors import embed_colours
from graphcaps.models.fixed_point import exact_products, to_fixed_point
from graphcaps.models.kernel_svm import COSTS, SELECTED_ARRAYS, KernelSVM, Setting
from graphcaps.models.state_arrays import read_floats
from graphcaps.registry import MODELS

__all__ = ["DGK", "ColourVectors"]


@dataclass(frozen=True, eq=False)
class ColourVectors:
    """Vectors of colours.

    Args:
        vocabulary (ColourVocabulary): The C colours.
        vectors (ndarray): Vector of each colour, float64 ``[C, D]``.
        iterations (int): Largest iteration, which need not have a colour.
    """

    vocabulary: ColourVocabulary
    vectors: NDArray[np.float64]
    iterations: int


@MODELS.register("dgk")
class DGK(KernelSVM[ColourVectors, NDArray[np.float64]]):
    r"""Classifies graphs with a support vector machine on the deep Weisfeiler-Lehman kernel.

    The kernel compares colours by vectors E that are learned without classes: colours that occur in the same graphs
    have similar vectors (Yanardag and Vishwanathan, KDD 2015),

    .. math:: k(G, G') = \sum_{t=0}^{h} \phi_t(G)^\top E_t E_t^\top \phi_t(G'), \qquad
        K(G, G') = \frac{k(G, G')}{\sqrt{k(G, G)\, k(G', G')}}

    with the counts :math:`\phi_t` of the colours after t iterations, as in :class:`graphcaps.models.wl.WL`. As
    published, the colours of one graph at one iteration are a sentence. Vectors are learned from the training graphs,
    of colours that at least ``min_graphs`` of them have; other colours have the vector 0. h, the dimension of the
    vectors and C are selected on validation graphs, see :class:`graphcaps.models.kernel_svm.KernelSVM`. Edge labels
    and attributes are not read.

    Differs from the publication: in place of word2vec, whose result depends on the order of nodes, vectors come from a
    singular value decomposition (:func:`graphcaps.models.colour_vectors.embed_colours`), which is deterministic. The
    publication also has kernels of shortest paths and of graphlets, and its tables quote the best of the three.

    Args:
        num_classes (int): Number of classes.
        iterations (tuple): Numbers of iterations h to select among. (default: 0 to 5)
        dimension (tuple): Lengths of the vectors of an iteration to select among. (default: 50)
        min_graphs (int): Least number of training graphs with a colour that has a vector. (default: 2)
        C (tuple): Values of C to select among. (default: 0.001, 0.01, … 1000)
        max_gigabytes (float): Largest memory of the Gram matrices, in GB. (default: 8)
        seed (int): Seed of the graphs that are held out without validation graphs. (default: 0)
        jobs (int): Number of threads that fit machines. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    uses_seed: ClassVar[bool] = False
    reference: ClassVar[str] = "Deep Graph Kernels, KDD 2015, https://doi.org/10.1145/2783258.2783417"
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels"})
    selected_options: ClassVar[tuple[str, ...]] = ("iterations", "dimension", "C")
    column_arrays: ClassVar[tuple[str, ...]] = (*COLOUR_ARRAYS, "colour_vectors")
    row_arrays: ClassVar[tuple[str, ...]] = ("support_rows",)

    def __init__(
        self,
        num_classes: int,
        *,
        iterations: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
        dimension: tuple[int, ...] = (50,),
        min_graphs: int = 2,
        C: tuple[float, ...] = COSTS,
        max_gigabytes: float = 8.0,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, C=C, max_gigabytes=max_gigabytes, seed=seed, jobs=jobs)
        self._require_values("iterations", iterations)
        self._require_values("dimension", dimension)
        self._require_at_least(0, iterations=min(iterations))
        self._require_at_least(1, dimension=min(dimension), min_graphs=min_graphs)
        self.iterations, self.dimension = tuple(sorted(iterations)), tuple(sorted(dimension))
        self.min_graphs = min_graphs

    @property
    def settings(self) -> Sequence[Setting]:
        return list(product(self.iterations, self.dimension))

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> ColourVectors:
        h = self.iterations[-1]
        colours = count_colours(store, h)
        vocabulary = kernel_vocabulary(colours, indices, self.min_graphs)
        blocks = split_iterations(colours.select(indices, vocabulary), vocabulary, h + 1)
        vectors = [embed_colours(block, self.dimension[-1]) for block in blocks]
        return ColourVectors(vocabulary, np.concatenate(vectors), h)

    def _rows(
        self, store: GraphStore, indices: NDArray[np.int64], columns: ColourVectors
    ) -> NDArray[np.float64]:
        """Sum of the vectors of the colours of each graph after each iteration, float64 ``[n, iterations + 1, D]``."""
        colours, vocabulary = count_colours(store, columns.iterations), columns.vocabulary
        blocks = split_iterations(colours.select(indices, vocabulary), vocabulary, columns.iterations + 1)
        ends = np.cumsum([block.shape[1] for block in blocks])
        vectors = np.split(columns.vectors, ends[:-1])
        return np.stack([block @ each for block, each in zip(blocks, vectors, strict=True)], axis=1)

    def _take(self, rows: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
        return rows[index]

    def _kernel(
        self, left: NDArray[np.float64], right: NDArray[np.float64], setting: Setting
    ) -> NDArray[np.float64]:
        return exact_products(_unit_rows(left, setting), _unit_rows(right, setting))

    def _compress(
        self, columns: ColourVectors, rows: NDArray[np.float64], setting: Setting
    ) -> tuple[ColourVectors, NDArray[np.float64]]:
        h, d = map(int, setting)
        read = columns.vocabulary.iteration <= h
        vocabulary = ColourVocabulary(columns.vocabulary.iteration[read], columns.vocabulary.colour[read])
        vectors = np.ascontiguousarray(columns.vectors[read, :d])
        return ColourVectors(vocabulary, vectors, h), np.ascontiguousarray(rows[:, : h + 1, :d])

    # ------------------------------------------------------------------ saving
    def _column_state(self, columns: ColourVectors) -> dict[str, Tensor]:
        return columns.vocabulary.state() | {"colour_vectors": torch.from_numpy(columns.vectors.copy())}

    def _read_columns(self, state: Mapping[str, Tensor]) -> ColourVectors:
        h, d = map(int, read_floats(state, SELECTED_ARRAYS[0], "DGK", (2,)))
        vocabulary = ColourVocabulary.from_state(state, h, "DGK")
        return ColourVectors(vocabulary, read_floats(state, "colour_vectors", "DGK", (len(vocabulary), d)), h)

    def _row_state(self, rows: NDArray[np.float64]) -> dict[str, Tensor]:
        return {"support_rows": torch.from_numpy(rows.copy())}

    def _read_rows(
        self, state: Mapping[str, Tensor], columns: ColourVectors, num_rows: int
    ) -> NDArray[np.float64]:
        shape = (num_rows, columns.iterations + 1, columns.vectors.shape[1])
        return read_floats(state, "support_rows", "DGK", shape)


def _unit_rows(rows: NDArray[np.float64], setting: Setting) -> NDArray[np.float64]:
    """Rows of length 1, in fixed-point numbers, of the iterations and dimensions of a setting; rows of 0 stay 0."""
    h, d = map(int, setting)
    flat = rows[:, : h + 1, :d].reshape(len(rows), -1)
    length = np.sqrt((flat * flat).sum(1, keepdims=True))
    return to_fixed_point(flat / np.where(length > 0, length, 1))
