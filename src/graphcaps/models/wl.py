"""The Weisfeiler-Lehman subtree kernel with a support vector machine."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphcaps.models.colour_kernel import ColourKernelSVM, count_products
from graphcaps.registry import MODELS

__all__ = ["WL"]


@MODELS.register("wl")
class WL(ColourKernelSVM):
    r"""Classifies graphs with a support vector machine on the Weisfeiler-Lehman subtree kernel.

    The kernel is the cosine of the counts of the colours after 0 to h iterations of colour refinement (Shervashidze et
    al., JMLR 2011), which starts from the node labels, or from one colour where there are none:

    .. math:: K(G, G') = \frac{\langle \phi(G), \phi(G') \rangle}{\lVert \phi(G) \rVert \lVert \phi(G') \rVert},
        \qquad \phi_{t,c}(G) = |\{ v \in G : c_t(v) = c \}|

    Colours are 64-bit hashes in place of the publication's renumbering. h and C are selected on validation graphs, see
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
        "Weisfeiler-Lehman Graph Kernels, JMLR 2011, https://jmlr.org/papers/v12/shervashidze11a.html"
    )

    def _block_products(self, left: csr_array, right: csr_array) -> NDArray[np.float64]:
        return count_products(left, right)

    def _self_products(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        return counts * counts
