"""Node labels in words, and captions that count them in a group of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.datasets.element_labels import NODE_LABEL_ELEMENTS, name_node_labels
from graphcaps.data.store import GraphStore
from graphcaps.explanation.explanation_data import StoreExplanationData

__all__ = ["NodeLabels", "count_labels", "node_labels"]

_MAX_COUNTED = 4  # different labels in a caption
_NUMBERS = re.compile(r"[-\d./]+")


@dataclass(frozen=True)
class NodeLabels:
    """Labels of all nodes of a store.

    Args:
        names (list): Distinct labels in words.
        index (ndarray): Index of the label of each node, ``[N]``.
        are_elements (bool): Whether labels are element symbols.
    """

    names: list[str]
    index: NDArray[np.int64]
    are_elements: bool

    def caption(self, nodes: NDArray[np.int64]) -> str:
        """The labels of some nodes with their counts.

        Args:
            nodes (ndarray): Rows of the nodes in the store.
        """
        words = (self.names[at] for at in self.index[nodes].tolist())
        return count_labels(words, as_formula=self.are_elements)


def node_labels(explanations: StoreExplanationData, store: GraphStore | None) -> NodeLabels | None:
    """The node labels of a store; ``None`` without any.

    Args:
        explanations (StoreExplanation): Explanations of the graphs.
        store (GraphStore, optional): The graphs, for the names of labels.
    """
    labels = explanations.node_labels
    if labels is None or not labels.size(-1):
        return None
    names, index = name_node_labels(
        labels,
        featurizer=explanations.featurizer,
        elements=explanations.elements,
        dataset="" if store is None else store.name,
        texts={} if store is None else store.label_names,
    )
    known = store is not None and store.name in NODE_LABEL_ELEMENTS and labels.size(-1) == 1
    return NodeLabels(names, index, explanations.featurizer is not None or known)


def count_labels(words: Iterable[str], *, as_formula: bool) -> str:
    """Labels with their counts: ``"C5 N"`` as a formula, else ``"5 × member, 1 × lead"``.

    Args:
        words (iterable): The label of each node.
        as_formula (bool): Whether the labels are element symbols.
    """
    counts = Counter(words)
    if as_formula:
        return " ".join(f"{word}{count if count > 1 else ''}" for word, count in sorted(counts.items()))
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    listed = [f"{count} × {_in_words(word)}" for word, count in ordered[:_MAX_COUNTED]]
    rest = sum(count for _, count in ordered[_MAX_COUNTED:])
    return ", ".join([*listed, f"{rest} × other labels"] if rest else listed)


def _in_words(label: str) -> str:
    """A label that is a number is named as one, since a count stands before it."""
    return f"label {label}" if _NUMBERS.fullmatch(label) else label or "(empty)"
