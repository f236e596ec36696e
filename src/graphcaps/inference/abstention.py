"""Abstaining: graphs that get no class, because the model is unsure or the members of a committee disagree."""

from __future__ import annotations

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.inference.disagreement import mutual_information

__all__ = ["abstain", "abstains", "check_abstention"]


def check_abstention(below: float | None, max_disagreement: float | None, *, is_committee: bool) -> None:
    """Checks the two thresholds of abstaining.

    Args:
        below (float, optional): Lowest probability of a predicted class.
        max_disagreement (float, optional): Highest disagreement of a committee, in nats.
        is_committee (bool): Whether the model has several members.

    Raises:
        ArgumentError: If a threshold is out of range, or a single model gets one of a committee.
    """
    if below is not None and not 0 <= below <= 1:
        raise ArgumentError("predict", "abstain_below", "be from 0 to 1", below)
    if max_disagreement is None:
        return
    if not is_committee:
        expected, fix = "be left out for a single model", "Train a committee with --ensemble 5."
        raise ArgumentError("predict", "max_disagreement", expected, max_disagreement, fix)
    if not max_disagreement >= 0:
        raise ArgumentError("predict", "max_disagreement", "be at least 0", max_disagreement)


def abstains(
    p: np.ndarray,
    disagreement: np.ndarray | None,
    below: float | None,
    max_disagreement: float | None,
) -> np.ndarray:
    """Whether no class is predicted for each graph, bool ``[G]``; False where the probabilities are NaN.

    Args:
        p (ndarray): Probabilities, ``[G, O]``.
        disagreement (ndarray, optional): Of the members of a committee, ``[G]``.
        below (float, optional): A graph whose highest probability is below this gets no class. (default: none)
        max_disagreement (float, optional): A graph with a higher disagreement gets no class. (default: none)
    """
    refused = np.zeros(len(p), dtype=bool)
    if below is not None:
        refused |= np.nan_to_num(p, nan=2.0).max(-1) < below
    if max_disagreement is not None and disagreement is not None:
        refused |= np.nan_to_num(disagreement, nan=-1.0) > max_disagreement
    return refused


def abstain(
    classes: np.ndarray,
    p: np.ndarray,
    members: np.ndarray,
    below: float | None,
    max_disagreement: float | None,
) -> np.ndarray:
    """Replaces the class of a graph by ``None`` where the model abstains.

    Args:
        classes (ndarray): Predicted classes, ``[G]``.
        p (ndarray): Probabilities of the model, ``[G, O]``.
        members (ndarray): Those of its M members, ``[M, G, O]``.
        below, max_disagreement (float, optional): As in :func:`abstains`; without both the classes are returned
            unchanged.

    Raises:
        ArgumentError: As :func:`check_abstention` does.
    """
    check_abstention(below, max_disagreement, is_committee=len(members) > 1)
    if below is None and max_disagreement is None:
        return classes
    kept = classes.astype(object)
    kept[abstains(p, mutual_information(members), below, max_disagreement)] = None
    return kept
