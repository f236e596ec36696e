"""Twins: test graphs that a Weisfeiler-Lehman test cannot tell apart from a graph of the training part.

A model that memorises its training graphs is right on a twin whenever the classes agree. Small data sets have many
twins: 80 % of IMDB-MULTI. Ivanov et al. (arXiv 1910.12091) call the effect isomorphism bias. Accuracy without twins
measures what a model says about graphs that it has not seen.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore

__all__ = ["has_twin", "twin_colours"]

_COLOURS: WeakKeyDictionary[GraphStore, NDArray[np.uint64]] = WeakKeyDictionary()


def twin_colours(store: GraphStore) -> NDArray[np.uint64]:
    """Colour of each graph, ``[G]``, from structure and node labels; from attributes only if nodes have no labels.

    Attributes are real numbers and make almost every graph unique, so they do not count beside labels. Colours are
    computed once per store.

    Args:
        store (GraphStore): Graphs.
    """
    if store not in _COLOURS:
        _COLOURS[store] = wl_graph_colours(store, attributes=store.node_labels is None)
    return _COLOURS[store]


def has_twin(colours: NDArray[np.uint64], split: Split) -> NDArray[np.bool_]:
    """Whether a training or validation graph has the same colour, for each test graph of a split.

    Validation graphs count, because they choose the epoch or the parameters of a model.

    Args:
        colours (ndarray): From :func:`twin_colours`, ``[G]``.
        split (Split): The parts.
    """
    parts = [split.train] if split.validation is None else [split.train, split.validation]
    seen = np.concatenate([colours[part.cpu().numpy()] for part in parts])
    return np.isin(colours[split.test.cpu().numpy()], seen)
