"""The Weisfeiler-Lehman optimal assignment kernel with a support vector machine."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphcaps.models.colour_kernel import ColourKernelSVM, count_products
from graphcaps.registry import MODELS

__all__ = ["WLOA", "minimum_sums"]


def minimum_sums(left: csr_array, right: csr_array) -> NDArray[np.float64]:
    r"""Histogram intersection :math:`\sum_c \min(a_c, b_c)` of each row with each other, float64 ``[n, m]``, exact.

    A minimum of whole numbers is a scalar product of their unary codes,

    .. math:: \min(a, b) = \sum_{k \ge 1} [a \ge k] [b \ge k],

    so the sums are products of two sparse matrices with as many entries as there are nodes.

    Args:
        left, right (csr_array): Counts, at least 0, ``[n, C]`` and ``[m, C]``.
    """
    # A count above all counts of the other side adds nothing to a minimum.
    limits = np.minimum(_largest(left), _largest(right))
    return count_products(_unary(left, limits), _unary(right, limits))


def _largest(counts: csr_array) -> NDArray[np.int64]:
    """Largest count of each column, ``[C]``."""
    largest = np.zeros(counts.shape[1], np.int64)
    np.maximum.at(largest, counts.indices, counts.data.astype(np.int64))
    return largest


def _unary(counts: csr_array, limits: NDArray[np.int64]) -> csr_array:
    """Column c becomes ``limits[c]`` columns; the first min(count, limit) of them are 1."""
    height = np.minimum(counts.data.astype(np.int64), limits[counts.indices])
    start = np.cumsum(limits) - limits
    ends = np.cumsum(height)
    step = np.arange(height.sum()) - np.repeat(ends - height, height)
    columns = np.repeat(start[counts.indices], height) + step
    ptr = np.concatenate([[0], ends])[counts.indptr]
    return csr_array((np.ones(len(columns)), columns, ptr), shape=(counts.shape[0], int(limits.sum())))


@MODELS.register("wl-oa")
class WLOA(ColourKernelSVM):
    r"""Classifies graphs with a support vector machine on the Weisfeiler-Lehman optimal assignment kernel.

    The kernel is the largest total similarity of an assignment between the nodes of two graphs, where the similarity of
    two nodes is the number of iterations 0 to h after which they have the same colour. It equals a histogram
    intersection (Kriege et al., NeurIPS 2016):

    .. math:: k(G, G') = \sum_{t=0}^{h} \sum_c \min\big(\phi_{t,c}(G), \phi_{t,c}(G')\big), \qquad
        K(G, G') = \frac{k(G, G')}{\sqrt{k(G, G)\, k(G', G')}}

    with the counts φ of the colours as in :class:`graphcaps.models.wl.WL`. The publication leaves normalisation open;
    here the kernel is normalised as that of ``wl``. h and C are selected on validation graphs, see
    :class:`graphcaps.models.kernel_svm.KernelSVM`. Edge labels and attributes are not read.

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

    reference: ClassVar[str] = (
        "On Valid Optimal Assignment Kernels and Applications to Graph Classification, NeurIPS 2016, "
        "https://arxiv.org/abs/1606.01141"
    )

    def _block_products(self, left: csr_array, right: csr_array) -> NDArray[np.float64]:
        return minimum_sums(left, right)

    def _self_products(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        return counts
