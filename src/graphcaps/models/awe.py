"""Anonymous walk embeddings: the distribution of anonymous walks of a graph, with a support vector machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.anonymous_walks import (
    WalkSampling,
    anonymous_walks,
    number_of_samples,
    walk_distributions,
)
from graphcaps.models.classical import RawInput
from graphcaps.models.fixed_point import exact_products, to_fixed_point
from graphcaps.models.kernel_svm import COSTS, DenseKernelSVM, Setting
from graphcaps.registry import MODELS

__all__ = ["AWE"]

_MAX_LENGTH = 8  # 4,140 anonymous walks; one step more has 21,147


@MODELS.register("awe")
class AWE(DenseKernelSVM[None]):
    r"""Classifies graphs with a support vector machine on the distribution of their anonymous walks.

    An anonymous walk is a walk whose nodes are renamed by their first visit: a, b, c, b becomes 0, 1, 2, 1. A graph is
    described by the probabilities x of the anonymous walks of a random walk of ``length`` steps from a random node
    (Ivanov and Burnaev, ICML 2018, the feature-based embedding), and two graphs are compared by

    .. math:: K(G, G') = \exp(-\gamma\, \lVert x - x' \rVert^2)

    Graphs of few walks are enumerated, others sampled, see
    :func:`graphcaps.models.anonymous_walks.walk_distributions`. γ and C are selected on validation graphs, see
    :class:`graphcaps.models.kernel_svm.KernelSVM`. Labels and attributes are not read.

    Differs from the publication: its table quotes, and the paper of HGCN repeats, the data-driven embedding, which
    learns a vector of each graph, also of test graphs, from walks of ten steps; here no embedding is learned. The
    kernel is always the radial basis function, where the program chooses among three kernels.

    Args:
        num_classes (int): Number of classes.
        length (int): Number of steps of a walk, from 1 to 8. (default: 7, with 877 anonymous walks)
        gamma (tuple): Values of γ to select among. (default: 1, 10, 100, 1000, 10000)
        C (tuple): Values of C to select among. (default: 0.001, 0.01, … 1000)
        max_walks (int): Graphs with at most so many walks are enumerated, others sampled. (default: 100,000)
        sampling_error (float): Sum of absolute errors of sampled probabilities, which the number of samples follows
            from: 9,974 for seven steps. (default: 0.35)
        sampling_risk (float): Probability of a larger error, between 0 and 1. (default: 0.05)
        max_gigabytes (float): Largest memory of the Gram matrices, in GB. (default: 8)
        seed (int): Seed of sampled walks, and of the graphs that are held out without validation graphs. (default: 0)
        jobs (int): Number of threads that fit machines. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = "Anonymous Walk Embeddings, ICML 2018, https://arxiv.org/abs/1805.11921"
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges"})
    selected_options: ClassVar[tuple[str, ...]] = ("gamma", "C")

    def __init__(
        self,
        num_classes: int,
        *,
        length: int = 7,
        gamma: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0, 10000.0),
        C: tuple[float, ...] = COSTS,
        max_walks: int = 100_000,
        sampling_error: float = 0.35,
        sampling_risk: float = 0.05,
        max_gigabytes: float = 8.0,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, C=C, max_gigabytes=max_gigabytes, seed=seed, jobs=jobs)
        self._require_positive("gamma", gamma)
        self._require_positive("sampling_error", (sampling_error,))
        self._require_at_least(0, max_walks=max_walks)
        if not 1 <= length <= _MAX_LENGTH:
            raise ArgumentError("AWE", "length", f"be from 1 to {_MAX_LENGTH}", length)
        if not 0 < sampling_risk < 1:
            raise ArgumentError("AWE", "sampling_risk", "be between 0 and 1", sampling_risk)
        self.length, self.gamma, self.max_walks = length, tuple(float(value) for value in gamma), max_walks
        self.sampling_error, self.sampling_risk = sampling_error, sampling_risk

    @property
    def settings(self) -> Sequence[Setting]:
        return [(gamma,) for gamma in self.gamma]

    @cached_property
    def sampling(self) -> WalkSampling:
        """Which graphs are sampled, and the number of samples."""
        samples = number_of_samples(self.length, self.sampling_error, self.sampling_risk)
        return WalkSampling(self.max_walks, samples, self.seed)

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> None:
        return None

    def _rows(self, store: GraphStore, indices: NDArray[np.int64], columns: None) -> NDArray[np.float64]:
        return to_fixed_point(walk_distributions(store, self.length, self.sampling)[indices])

    def _kernel(
        self, left: NDArray[np.float64], right: NDArray[np.float64], setting: Setting
    ) -> NDArray[np.float64]:
        return _radial_basis(_squared_distances(left, right), setting[0])

    def _kernels(
        self, lefts: Sequence[NDArray[np.float64]], right: NDArray[np.float64]
    ) -> Iterator[list[NDArray[np.float64]]]:
        distances = [_squared_distances(left, right) for left in lefts]
        for (gamma,) in self.settings:
            yield [_radial_basis(each, gamma) for each in distances]

    def _width(self, columns: None) -> int:
        return len(anonymous_walks(self.length))

    def _column_state(self, columns: None) -> dict[str, Tensor]:
        return {}

    def _read_columns(self, state: Mapping[str, Tensor]) -> None:
        return None


def _squared_distances(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distance of each row from each other, exact for rows of fixed-point numbers, ``[n, m]``."""
    distances = -2 * exact_products(left, right)
    distances += (left * left).sum(1)[:, None]
    distances += (right * right).sum(1)
    return distances


def _radial_basis(distances: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    kernel: NDArray[np.float64] = np.exp(-gamma * distances)
    return kernel
