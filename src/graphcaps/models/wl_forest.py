"""A random forest on counts of Weisfeiler-Lehman colours: the baseline that a user would try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.classical import ClassicalModel, RawInput
from graphcaps.models.colour_counts import ColourVocabulary, count_colours
from graphcaps.models.forest_arrays import ForestArrays
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["WLForest"]

_MIN_GRAPHS, _GRAPHS_PER_COLOUR = 3, 500
_COLOURS = ("colour_iteration", "colour")  # names of the vocabulary in a state


@MODELS.register("wl-forest")
class WLForest(ClassicalModel):
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
    size_option: ClassVar[str | None] = "trees"
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
        super().__init__(num_classes, seed=seed, jobs=jobs)
        for name, value, least in (
            ("iterations", iterations, 0),
            ("trees", trees, 1),
            ("max_columns", max_columns, 1),
        ):
            if value < least:
                raise ArgumentError("WLForest", name, f"be at least {least}", value)
        self.iterations, self.trees, self.max_columns = iterations, trees, max_columns
        self.vocabulary: ColourVocabulary | None = None
        self.forest: ForestArrays | None = None

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
    ) -> None:
        colours = count_colours(store, self.iterations)
        min_graphs = max(_MIN_GRAPHS, len(indices) / _GRAPHS_PER_COLOUR)
        vocabulary = colours.frequent(indices, min_graphs, self.max_columns)
        if not len(vocabulary):
            # Fewer than three graphs, or no three alike: every colour of the training graphs has a column.
            vocabulary = colours.frequent(indices, 1, self.max_columns)
        if not len(vocabulary):
            # Graphs without nodes have no colours: on one column of zeros the forest learns the class prior.
            vocabulary = ColourVocabulary(np.zeros(1, np.int64), np.zeros(1, np.uint64))
        self.vocabulary = vocabulary
        self.forest = ForestArrays.fit_random_forest(
            colours.select(indices, vocabulary),
            y,
            sample_weight,
            num_classes=self.num_classes,
            trees=self.trees,
            seed=self.seed,
            jobs=self.jobs,
        )

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.vocabulary is None or self.forest is None:
            raise UsageError("WLForest: fit the model before it predicts.")
        counts = count_colours(store, self.iterations).select(indices, self.vocabulary)
        return self.forest.predict_proba(counts)

    def state(self) -> dict[str, Tensor]:
        if self.vocabulary is None or self.forest is None:
            raise UsageError("WLForest: fit the model before it is saved.")
        # torch has no arithmetic for uint64: the same bits as signed numbers.
        colours = (self.vocabulary.iteration, self.vocabulary.colour.view(np.int64))
        arrays = (torch.from_numpy(values.copy()) for values in colours)
        return dict(zip(_COLOURS, arrays, strict=True)) | self.forest.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        iteration, colour = (_integers(state, name) for name in _COLOURS)
        vocabulary = ColourVocabulary(iteration, colour.view(np.uint64))
        valid = len(iteration) == len(colour) > 0 and vocabulary.is_ordered
        if not valid or iteration[0] < 0 or iteration[-1] > self.iterations or len(colour) > self.max_columns:
            expected = f"be at most {self.max_columns} ascending colours of iterations 0 to {self.iterations}"
            raise ArgumentError("WLForest", "colour", expected, "other values")
        arrays = {name: value for name, value in state.items() if name not in _COLOURS}
        forest = ForestArrays.from_state(
            arrays, self.num_classes, len(vocabulary), "WLForest", trees=self.trees
        )
        self.vocabulary, self.forest = vocabulary, forest


def _integers(state: Mapping[str, Tensor], name: str) -> NDArray[np.int64]:
    tensor = state.get(name)
    if tensor is None or tensor.dtype != torch.int64 or tensor.dim() != 1:
        got = "no such array" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
        raise ArgumentError("WLForest", name, "be one axis of 64-bit integers", got)
    return tensor.cpu().numpy()
