"""A fitted support vector machine as plain arrays, which a model file can hold, and its predictions in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.models.state_arrays import read_floats, read_integers, split_state

__all__ = ["SVM_ARRAYS", "SVMArrays", "SVMFit"]

SVM_ARRAYS = ("svm_supports", "svm_dual", "svm_intercept", "svm_slope")
"""Names of the arrays in the state of a model."""

_MAX_ITERATIONS = 1_000_000  # of libsvm: bounds the time of a large C on classes that overlap
_CACHE_MEGABYTES = 200
_SLOPES = 2.0 ** (np.arange(-16, 25) / 2)  # 1/256 to 4,096


@dataclass(frozen=True, eq=False)
class SVMArrays:
    r"""Support vector machines for all pairs of k classes on S support vectors.

    The machine of the classes i < j has the decision value

    .. math:: f_{ij}(x) = \sum_s \alpha_{ij,s} K(x, x_s) + b_{ij}, \qquad f_{ji} = -f_{ij},

    positive where it prefers class i; only support vectors of the two classes have coefficients. Of two classes the
    second has the probability :math:`\sigma(-a\, f_{01})`, Platt's sigmoid without a shift. Of more classes

    .. math:: p_i(x) = \mathrm{softmax}_i(a\, s_i(x)), \qquad
        s_i = |\{ j : f_{ij} > 0 \}| + \frac{F_i}{3 (|F_i| + 1)}, \qquad F_i = \sum_{j \ne i} f_{ij}.

    A score is the number of machines that prefer class i; the sum of their decision values orders equal numbers. These
    are the scores of scikit-learn's ``SVC`` ("ovr"), except that classes with the same highest number share the mean of
    theirs. So the first of them is predicted, as ``SVC.predict`` does. The slope a is fitted by :meth:`calibrate`; it
    changes no prediction.

    Args:
        classes (ndarray): The classes with training graphs, ascending, int64 ``[k]``.
        supports (ndarray): Number of support vectors of each class; they are ordered by class, int64 ``[k]``.
        dual (ndarray): Coefficients, float64 ``[k − 1, S]``: for a support vector of class i, row j − 1 belongs to the
            machine of i and j > i, and row j to that of j < i.
        intercept (ndarray): b of the pairs (0, 1), (0, 2), …, (1, 2), …, float64 ``[k (k − 1) / 2]``.
        slope (float): a, positive. (default: 1)
    """

    classes: NDArray[np.int64]
    supports: NDArray[np.int64]
    dual: NDArray[np.float64]
    intercept: NDArray[np.float64]
    slope: float = 1.0

    @property
    def num_supports(self) -> int:
        return self.dual.shape[1]

    def decision_values(self, kernel: NDArray[np.float64]) -> NDArray[np.float64]:
        """Decision value of each pair of classes, ``[n, k (k − 1) / 2]``; those of a row do not depend on other rows.

        Args:
            kernel (ndarray): Kernel of each graph with each support vector, ``[n, S]``.
        """
        ends = np.cumsum(self.supports)
        # A product with a matrix would sum in an order that depends on the number of rows.
        sums = [
            [(kernel[:, end - count : end] * row[end - count : end]).sum(1) for row in self.dual]
            for end, count in zip(ends.tolist(), self.supports.tolist(), strict=True)
        ]
        pairs = combinations(range(len(self.classes)), 2)
        values = [sums[i][j - 1] + sums[j][i] + b for (i, j), b in zip(pairs, self.intercept, strict=True)]
        return np.stack(values, axis=1) if values else np.zeros((len(kernel), 0))

    def predict(self, kernel: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class with the highest score, ``[n]``; arguments as in :meth:`decision_values`."""
        return self.classes[self._scores(self.decision_values(kernel)).argmax(1)]

    def predict_proba(self, kernel: NDArray[np.float64], num_classes: int) -> NDArray[np.float64]:
        """Class probabilities, ``[n, O]``; 0 for a class without training graphs.

        Args:
            kernel (ndarray): As in :meth:`decision_values`.
            num_classes (int): Number of classes O.
        """
        p = np.zeros((len(kernel), num_classes))
        p[:, self.classes] = np.exp(self._log_probabilities(self.decision_values(kernel), self.slope))
        return p

    def calibrate(
        self,
        kernel: NDArray[np.float64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None = None,
    ) -> SVMArrays:
        """The same machines with the slope of the lowest log loss on graphs that did not train them.

        The true class counts as (n + 1) / (n + k), as in Platt's method, so that the slope of separable graphs is
        finite. The first of equal slopes is taken, among powers of √2 from 1/256 to 4,096.

        Args:
            kernel (ndarray): Kernel of each of n graphs with each support vector, ``[n, S]``.
            y (ndarray): Class of each graph; a graph of another class than :attr:`classes` does not count, ``[n]``.
            sample_weight (ndarray, optional): Weight of each graph, ``[n]``. (default: 1 each)
        """
        counted, k = np.isin(y, self.classes), len(self.classes)
        if k < 2 or not counted.any():
            return self
        values, n = self.decision_values(kernel)[counted], int(counted.sum())
        target = np.full((n, k), 1 / (n + k))
        target[np.arange(n), np.searchsorted(self.classes, y[counted])] += n / (n + k)
        weights = np.ones(n) if sample_weight is None else sample_weight[counted]
        losses = [
            -(weights[:, None] * target * self._log_probabilities(values, slope)).sum() for slope in _SLOPES
        ]
        return self.with_slope(float(_SLOPES[np.argmin(losses)]))

    def with_slope(self, slope: float) -> SVMArrays:
        """The same machines with another slope of the probabilities."""
        return replace(self, slope=slope)

    def _log_probabilities(self, values: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
        """Logarithms of the probabilities of the k classes, ``[n, k]``."""
        scores = slope * self._scores(values)
        scores -= scores.max(1, keepdims=True)
        normalised: NDArray[np.float64] = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        return normalised

    def _scores(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score of each of the k classes from the decision values of the pairs, ``[n, k]``."""
        k = len(self.classes)
        if k == 2:
            return np.concatenate([values / 2, -values / 2], axis=1)
        preferred, sums = np.zeros((len(values), k)), np.zeros((len(values), k))
        for pair, (i, j) in enumerate(combinations(range(k), 2)):
            f = values[:, pair]
            preferred[:, i] += f > 0
            preferred[:, j] += f <= 0
            sums[:, i] += f
            sums[:, j] -= f
        order = sums / (3 * (np.abs(sums) + 1))
        leads = preferred == preferred.max(1, keepdims=True)
        shared = np.where(leads, order, 0).sum(1, keepdims=True) / leads.sum(1, keepdims=True)
        scores: NDArray[np.float64] = preferred + np.where(leads, shared, order)
        return scores

    # ------------------------------------------------------------------ saving
    def state(self, num_classes: int) -> dict[str, Tensor]:
        """The arrays :data:`SVM_ARRAYS`; :meth:`from_state` reads them.

        Args:
            num_classes (int): Number of classes O, with those without training graphs.
        """
        supports = np.zeros(num_classes, np.int64)
        supports[self.classes] = self.supports  # a class with training graphs has at least one
        arrays = (supports, self.dual, self.intercept, np.array([self.slope]))
        return dict(zip(SVM_ARRAYS, (torch.from_numpy(array.copy()) for array in arrays), strict=True))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], num_classes: int, owner: str) -> SVMArrays:
        """Reads the result of :meth:`state`.

        Args:
            state (mapping): The arrays by name, and no others.
            num_classes (int): Number of classes O.
            owner (str): Name of the model, for messages.

        Raises:
            ArgumentError: If an array is missing, or the arrays are not those of machines of O classes.
        """
        _, others = split_state(state, SVM_ARRAYS)
        for name in others:
            raise ArgumentError(owner, name, "be left out", "one more array")
        per_class = read_integers(state, "svm_supports", owner)
        if len(per_class) != num_classes or (per_class < 0).any() or not per_class.any():
            expected = f"be {num_classes} numbers, at least 0, not all 0"
            raise ArgumentError(owner, "svm_supports", expected, "other values")
        classes = np.flatnonzero(per_class)
        supports, k = per_class[classes], len(classes)
        dual = read_floats(state, "svm_dual", owner, (k - 1, int(supports.sum())))
        intercept = read_floats(state, "svm_intercept", owner, (k * (k - 1) // 2,))
        slope = float(read_floats(state, "svm_slope", owner, (1,))[0])
        if slope <= 0:
            raise ArgumentError(owner, "svm_slope", "be positive", slope)
        return cls(classes, supports, dual, intercept, slope)


@dataclass(frozen=True, eq=False)
class SVMFit:
    """A fitted support vector machine, and its support vectors among the training graphs.

    Args:
        arrays (SVMArrays): The machine.
        support (ndarray): Rows of the Gram matrix that are support vectors, in the order of the machine, int64 ``[S]``.
    """

    arrays: SVMArrays
    support: NDArray[np.int64]

    @classmethod
    def fit(
        cls,
        gram: NDArray[np.float64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        *,
        C: float,
    ) -> SVMFit:
        """Fits scikit-learn's ``SVC`` to a Gram matrix.

        With a single class there is no machine: its first graph stands for the support vectors, without coefficients.

        Args:
            gram (ndarray): Kernel of each pair of training graphs, float64 ``[n, n]``.
            y (ndarray): Class of each training graph, ``[n]``.
            sample_weight (ndarray, optional): Weight of each training graph, which multiplies its C, ``[n]``.
            C (float): Weight of the errors against the margin, positive.

        Warns:
            ConvergenceWarning: If libsvm stops after a million iterations.
        """
        # Takes half a second: imported to fit, not to predict.
        from sklearn.svm import SVC

        classes = np.unique(y)
        if len(classes) == 1:
            none = SVMArrays(classes, np.ones(1, np.int64), np.zeros((0, 1)), np.zeros(0))
            return cls(none, np.zeros(1, np.int64))
        machine = SVC(C=C, kernel="precomputed", cache_size=_CACHE_MEGABYTES, max_iter=_MAX_ITERATIONS)
        machine.fit(gram, y, sample_weight)
        # For two classes scikit-learn turns the signs, so that the second class is positive.
        sign = -1.0 if len(classes) == 2 else 1.0
        arrays = SVMArrays(
            classes,
            machine.n_support_.astype(np.int64),
            np.ascontiguousarray(sign * machine.dual_coef_, dtype=np.float64),
            np.asarray(sign * machine.intercept_, dtype=np.float64),
        )
        return cls(arrays, machine.support_.astype(np.int64))
