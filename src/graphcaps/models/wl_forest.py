"""A random forest on counts of Weisfeiler-Lehman colours: the baseline that a user would try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import RawInput
from graphcaps.models.colour_counts import COLOUR_ARRAYS, ColourVocabulary, count_colours
from graphcaps.models.forest_model import ForestModel
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["WLForest"]

_MIN_GRAPHS, _GRAPHS_PER_COLOUR = 3, 500


@MODELS.register("wl-forest")
class WLForest(ForestModel[ColourVocabulary]):
    r"""Classifies graphs with a random forest on counts of Weisfeiler-Lehman colours.

    A graph is described by how often each colour of its nodes occurs after 0, 1, … iterations of colour refinement
    (Shervashidze et al., JMLR 2011), which starts from the node labels, or from one colour where there are none:

    .. math:: \phi_{t,c}(G) = |\{ v \in G : c_t(v) = c \}|

    Colours have columns if they occur in at least max(3, G / 500) of the G training graphs; of these the most frequent
    ones are kept. The classes play no part in this. The forest is scikit-learn's, with its defaults apart from
    the number of trees. Edge labels and attributes are not read.

    Args:
        num_classes (int): Number of classes.
        iterations (int): Iterations of colour refinement. (default: 2)
        trees (int): Number of trees. (default: 500)
        max_columns (int): Largest number of columns. (default: 4000)
        seed (int): Seed of the forest. (default: 0)
        jobs (int): Number of threads that fit trees. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = (
        "Weisfeiler-Lehman Graph Kernels, JMLR 2011, https://jmlr.org/papers/v12/shervashidze11a.html, "
        "with random forests, Machine Learning 2001, https://doi.org/10.1023/A:1010933404324"
    )
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels"})
    column_arrays: ClassVar[tuple[str, ...]] = COLOUR_ARRAYS
    searched: ClassVar[Mapping[str, Choices | Interval]] = {"iterations": Interval(0, 4)}

    def __init__(
        self,
        num_classes: int,
        *,
        iterations: int = 2,
        trees: int = 500,
        max_columns: int = 4000,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, trees=trees, seed=seed, jobs=jobs)
        self._require_at_least(0, iterations=iterations)
        self._require_at_least(1, max_columns=max_columns)
        self.iterations, self.max_columns = iterations, max_columns

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> ColourVocabulary:
        colours = count_colours(store, self.iterations)
        min_graphs = max(_MIN_GRAPHS, len(indices) / _GRAPHS_PER_COLOUR)
        vocabulary = colours.frequent(indices, min_graphs, self.max_columns)
        if not len(vocabulary):
            # Fewer than three graphs, or no three alike: every colour of the training graphs has a column.
            vocabulary = colours.frequent(indices, 1, self.max_columns)
        if not len(vocabulary):
            # Graphs without nodes have no colours: on one column of zeros the forest learns the class prior.
            vocabulary = ColourVocabulary(np.zeros(1, np.int64), np.zeros(1, np.uint64))
        return vocabulary

    def _columns(self, store: GraphStore, indices: NDArray[np.int64], columns: ColourVocabulary) -> csr_array:
        return count_colours(store, self.iterations).select(indices, columns)

    def _num_columns(self, columns: ColourVocabulary) -> int:
        return len(columns)

    def _column_state(self, columns: ColourVocabulary) -> dict[str, Tensor]:
        return columns.state()

    def _read_columns(self, state: Mapping[str, Tensor]) -> ColourVocabulary:
        columns = ColourVocabulary.from_state(state, self.iterations, "WLForest")
        if len(columns) > self.max_columns:
            raise ArgumentError("WLForest", "colour", f"have at most {self.max_columns} values", len(columns))
        return columns
