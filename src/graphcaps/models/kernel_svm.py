"""The base of graph kernels: support vector machines of scikit-learn on a kernel of two graphs."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import ClassicalModel, ValidationGraphs
from graphcaps.models.state_arrays import read_floats, split_state
from graphcaps.models.svm_arrays import SVMArrays, SVMFit

__all__ = ["COSTS", "SELECTED_ARRAYS", "DenseKernelSVM", "KernelSVM", "Setting"]

COSTS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""Values of C that a fit selects among, unless others are set."""

SELECTED_ARRAYS = ("selected_setting", "selected_cost")
"""Names of the arrays with the selected values in the state of a model."""

_HELD_OUT = 0.1  # of each class, without validation graphs
_COPIES = 3  # of the Gram matrix at a time: the sums of the kernel, the kernel, and libsvm's
_STEP_ROWS = 1024  # graphs whose kernel with the support vectors is in memory at a time

Setting = tuple[float, ...]
"""One value of each selected option of a kernel, without C."""

Fitted = TypeVar("Fitted")
Rows = TypeVar("Rows")


@dataclass(frozen=True, eq=False)
class _Part(Generic[Rows]):
    """Graphs with their rows, classes and weights."""

    rows: Rows
    y: NDArray[np.int64]
    weights: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A machine with the settings it was fitted with, and its accuracy on the graphs that select them."""

    setting: Setting
    cost: float
    machine: SVMFit
    accuracy: float

    @property
    def rank(self) -> tuple[float, float]:
        """Orders candidates of ascending settings: higher accuracy, then smaller C; of equals the first is taken."""
        return -self.accuracy, self.cost


class KernelSVM(ClassicalModel, Generic[Fitted, Rows]):
    r"""Support vector machines on a kernel of two graphs.

    A graph has a row, such as the counts of its colours, and the kernel is a function of two rows and of a setting, one
    value of each option that it selects, such as the number of iterations. A subclass implements :attr:`settings`,
    :meth:`_fit_columns`, :meth:`_rows`, :meth:`_take` and :meth:`_kernel`, and what :meth:`_column_state` to
    :meth:`_read_rows` say for model files. :class:`DenseKernelSVM` has some of them for rows of a dense matrix.

    **Selection.** A fit tries each C with each setting and keeps the pair with the highest accuracy on the validation
    graphs; of equally accurate pairs the one with the smaller C, then with the earlier setting. Without validation
    graphs, a tenth of each class is held out of the training graphs by the seed, and the machine of the selected pair
    is then fitted to all of them. With a single pair nothing is selected. The same held-out graphs give the slope of
    the probabilities (:class:`graphcaps.models.svm_arrays.SVMArrays`).

    **Memory.** A Gram matrix of n training graphs has n² numbers of 8 bytes, and a fit has up to three. After a fit
    only the rows of the support vectors are kept.

    Args:
        num_classes (int): Number of classes.
        C (tuple): Values of C, the weight of the errors, to select among, positive. (default: 0.001, 0.01, … 1000)
        max_gigabytes (float): Largest memory of the Gram matrices in GB; more training graphs are refused.
            (default: 8)
        seed (int): Seed of the graphs that are held out. (default: 0)
        jobs (int): Number of threads that fit machines. (default: 1)

    Attributes:
        machine (SVMArrays): The machine, after a fit.
        support_rows (Rows): The rows of its support vectors, after a fit.
        column_arrays, row_arrays (tuple): Names of the arrays of :meth:`_column_state` and :meth:`_row_state`.

    Raises:
        ArgumentError: If an option is out of range.
    """

    selected_options: ClassVar[tuple[str, ...]] = ("C",)
    column_arrays: ClassVar[tuple[str, ...]] = ()
    row_arrays: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        num_classes: int,
        *,
        C: tuple[float, ...] = COSTS,
        max_gigabytes: float = 8.0,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, seed=seed, jobs=jobs)
        self._require_positive("C", C)
        self._require_positive("max_gigabytes", (max_gigabytes,))
        self.C, self.max_gigabytes = tuple(float(value) for value in C), max_gigabytes
        self.columns: Fitted
        self.support_rows: Rows
        self.machine: SVMArrays
        self.setting: Setting
        self.cost: float

    # ------------------------------------------------------------------ what a kernel is
    @property
    @abstractmethod
    def settings(self) -> Sequence[Setting]:
        """Settings of the kernel to select among, at least one, in the order of preference.

        A setting has one value of each of :attr:`selected_options` but the last, which is C.
        """

    @abstractmethod
    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> Fitted:
        """What rows are computed with, from the training graphs; the classes play no part in it."""

    @abstractmethod
    def _rows(self, store: GraphStore, indices: NDArray[np.int64], columns: Fitted) -> Rows:
        """Rows of some graphs; that of a graph does not depend on other graphs."""

    @abstractmethod
    def _take(self, rows: Rows, index: NDArray[np.int64]) -> Rows:
        """Some of the rows."""

    @abstractmethod
    def _kernel(self, left: Rows, right: Rows, setting: Setting) -> NDArray[np.float64]:
        """Kernel of each row on the left with each one on the right, ``[n, m]``.

        The bits of a value depend on its two rows alone, also on their order of summation.
        """

    def _kernels(self, lefts: Sequence[Rows], right: Rows) -> Iterator[list[NDArray[np.float64]]]:
        """:meth:`_kernel` of each of ``lefts`` with ``right``, for all settings in order.

        A kernel that is a sum over iterations overrides this to compute each iteration once.
        """
        for setting in self.settings:
            yield [self._kernel(left, right, setting) for left in lefts]

    def _compress(self, columns: Fitted, rows: Rows, setting: Setting) -> tuple[Fitted, Rows]:
        """Columns and rows of the support vectors without what the selected setting does not read. (default: all)"""
        return columns, rows

    @abstractmethod
    def _column_state(self, columns: Fitted) -> dict[str, Tensor]:
        """The columns as arrays by name."""

    @abstractmethod
    def _read_columns(self, state: Mapping[str, Tensor]) -> Fitted:
        """Restores a result of :meth:`_column_state`, or raises an ArgumentError."""

    @abstractmethod
    def _row_state(self, rows: Rows) -> dict[str, Tensor]:
        """The rows as arrays by name."""

    @abstractmethod
    def _read_rows(self, state: Mapping[str, Tensor], columns: Fitted, num_rows: int) -> Rows:
        """Restores a result of :meth:`_row_state`, or raises an ArgumentError."""

    @property
    def selected(self) -> dict[str, float]:
        """The number of iterations, or other setting of the kernel, and C that a fit selected."""
        return dict(zip(self.selected_options, (*self.setting, self.cost), strict=True))

    # ------------------------------------------------------------------ fit and prediction
    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        self._check_memory(len(indices))
        with warnings.catch_warnings():
            # A large C on classes that overlap stops early; its machine is a candidate as any other.
            warnings.filterwarnings("ignore", message="Solver terminated early")
            self._fit_machines(store, indices, y, sample_weight, validation)

    def _fit_machines(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        columns = self._fit_columns(store, indices)
        everything = _Part(self._rows(store, indices, columns), y, sample_weight)
        if validation is not None:
            rows = self._rows(store, validation.indices, columns)
            train, judge = everything, _Part(rows, validation.y, validation.sample_weight)
        else:
            held_out = _hold_out(y, self.seed)
            # Without two graphs of a class, all graphs train and judge.
            train = self._part(everything, ~held_out) if held_out.any() else everything
            judge = self._part(everything, held_out) if held_out.any() else everything
        best = self._select(train, judge)
        support = self._take(train.rows, best.machine.support)
        slope = best.machine.arrays.calibrate(
            self._kernel(judge.rows, support, best.setting), judge.y, judge.weights
        ).slope
        if train is not everything:
            gram = self._kernel(everything.rows, everything.rows, best.setting)
            machine = SVMFit.fit(gram, y, sample_weight, C=best.cost)
            support = self._take(everything.rows, machine.support)
        else:
            machine = best.machine
        self.columns, self.support_rows = self._compress(columns, support, best.setting)
        self.machine = machine.arrays.with_slope(slope)
        self.setting, self.cost = best.setting, best.cost

    def _select(self, train: _Part[Rows], judge: _Part[Rows]) -> _Candidate:
        best: _Candidate | None = None
        grams = self._kernels([train.rows, judge.rows], train.rows)
        with ThreadPoolExecutor(self.jobs) as pool:
            for setting, (gram, kernel) in zip(self.settings, grams, strict=True):
                fit = partial(self._candidate, train, judge, setting, gram, kernel)
                for candidate in pool.map(fit, self.C):
                    if best is None or candidate.rank < best.rank:
                        best = candidate
        assert best is not None  # there is at least one pair
        return best

    @staticmethod
    def _candidate(
        train: _Part[Rows],
        judge: _Part[Rows],
        setting: Setting,
        gram: NDArray[np.float64],
        kernel: NDArray[np.float64],
        cost: float,
    ) -> _Candidate:
        machine = SVMFit.fit(gram, train.y, train.weights, C=cost)
        right = machine.arrays.predict(kernel[:, machine.support]) == judge.y
        return _Candidate(setting, cost, machine, float(np.average(right, weights=judge.weights)))

    def _part(self, part: _Part[Rows], chosen: NDArray[np.bool_]) -> _Part[Rows]:
        weights = None if part.weights is None else part.weights[chosen]
        return _Part(self._take(part.rows, np.flatnonzero(chosen)), part.y[chosen], weights)

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        p = np.zeros((len(indices), self.num_classes))
        for first in range(0, len(indices), _STEP_ROWS):
            step = slice(first, first + _STEP_ROWS)
            rows = self._rows(store, indices[step], self.columns)
            kernel = self._kernel(rows, self.support_rows, self.setting)
            p[step] = self.machine.predict_proba(kernel, self.num_classes)
        return p

    # ------------------------------------------------------------------ saving
    def _state(self) -> dict[str, Tensor]:
        selected = zip(SELECTED_ARRAYS, (self.setting, (self.cost,)), strict=True)
        return (
            {name: torch.tensor(values, dtype=torch.float64) for name, values in selected}
            | self._column_state(self.columns)
            | self._row_state(self.support_rows)
            | self.machine.state(self.num_classes)
        )

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        owner = type(self).__name__
        own, machine = split_state(state, (*SELECTED_ARRAYS, *self.column_arrays, *self.row_arrays))
        arrays = SVMArrays.from_state(machine, self.num_classes, owner)
        lengths = (len(self.settings[0]), 1)
        setting, cost = (
            tuple(read_floats(own, name, owner, (length,)).tolist())
            for name, length in zip(SELECTED_ARRAYS, lengths, strict=True)
        )
        allowed: tuple[Sequence[Setting], ...] = (self.settings, [(value,) for value in self.C])
        for name, values, known in zip(SELECTED_ARRAYS, (setting, cost), allowed, strict=True):
            if values not in known:
                expected = f"be one of {', '.join(map(_describe_setting, known))}"
                raise ArgumentError(owner, name, expected, _describe_setting(values))
        columns = self._read_columns(own)
        rows = self._read_rows(own, columns, arrays.num_supports)
        self.columns, self.support_rows, self.machine = columns, rows, arrays
        self.setting, self.cost = setting, cost[0]

    # ------------------------------------------------------------------ checks
    def _check_memory(self, graphs: int) -> None:
        size = _COPIES * 8 * graphs**2
        if size > self.max_gigabytes * 1e9:
            most = int((self.max_gigabytes * 1e9 / (_COPIES * 8)) ** 0.5)
            raise ArgumentError(
                type(self).__name__,
                "indices",
                f"name at most {most:,} training graphs",
                f"{graphs:,}, whose Gram matrices take {_describe_bytes(size)}",
                "Choose wl-forest, whose memory grows with the number of graphs and not with its square, or set "
                "max_gigabytes.",
            )

    def _require_values(self, name: str, values: Sequence[float]) -> None:
        """Rejects an option without values, or with one twice."""
        if not values or len(set(values)) < len(values):
            expected = "be one or more different values"
            raise ArgumentError(type(self).__name__, name, expected, tuple(values))

    def _require_positive(self, name: str, values: Sequence[float]) -> None:
        """Rejects an option without values, with one twice, or with one that is not a positive number."""
        self._require_values(name, values)
        for value in values:
            if not 0 < value < float("inf"):
                raise ArgumentError(type(self).__name__, name, "be positive and finite", value)


class DenseKernelSVM(KernelSVM[Fitted, NDArray[np.float64]]):
    """A :class:`KernelSVM` whose rows are those of a dense matrix, float64 ``[n, width]``."""

    row_arrays: ClassVar[tuple[str, ...]] = ("support_rows",)

    @abstractmethod
    def _width(self, columns: Fitted) -> int:
        """Number of columns of a row."""

    def _take(self, rows: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
        return rows[index]

    def _row_state(self, rows: NDArray[np.float64]) -> dict[str, Tensor]:
        return {"support_rows": torch.from_numpy(rows.copy())}

    def _read_rows(self, state: Mapping[str, Tensor], columns: Fitted, num_rows: int) -> NDArray[np.float64]:
        return read_floats(state, "support_rows", type(self).__name__, (num_rows, self._width(columns)))


def _describe_setting(setting: Setting) -> str:
    values = ", ".join(f"{value:g}" for value in setting)
    return values if len(setting) == 1 else f"({values})"


def _describe_bytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _hold_out(y: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """A tenth of each class, rounded, at least one graph of each class that has two or more, ``[n]``."""
    generator, held_out = np.random.default_rng(seed), np.zeros(len(y), dtype=np.bool_)
    for label in np.unique(y):
        graphs = np.flatnonzero(y == label)
        if len(graphs) > 1:
            count = max(1, round(_HELD_OUT * len(graphs)))
            held_out[generator.permutation(graphs)[:count]] = True
    return held_out
