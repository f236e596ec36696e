"""Abstaining by probability and by disagreement."""

import numpy as np
import pytest

from graphcaps.errors import ArgumentError
from graphcaps.inference.abstention import abstain, abstains

P = np.array([[[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]]])


def test_abstain_replaces_uncertain_predictions_by_none() -> None:
    predictions = np.array([0, 1, 0])
    assert abstain(predictions, P[0], P, None, None) is predictions
    assert abstain(predictions, P[0], P, 0.6, None).tolist() == [0, 1, None]
    assert abstain(predictions, P[0], P, 0.0, None).tolist() == [0, 1, 0]
    with pytest.raises(ArgumentError, match="'abstain_below' must be from 0 to 1, got 7"):
        abstain(predictions, P[0], P, 7, None)


def test_abstain_replaces_predictions_that_members_disagree_on() -> None:
    predictions = np.array([0, 1, 0])
    members = np.concatenate([P, [[[0.9, 0.1], [0.9, 0.1], [0.5, 0.5]]]])
    assert abstain(predictions, members.mean(0), members, None, 0.1).tolist() == [0, None, 0]
    assert abstain(predictions, members.mean(0), members, 0.6, 0.1).tolist() == [0, None, None]
    assert abstain(predictions, members.mean(0), members, None, 0.5).tolist() == [0, 1, 0]
    with pytest.raises(ArgumentError, match="'max_disagreement' must be at least 0, got -1"):
        abstain(predictions, members.mean(0), members, None, -1)
    with pytest.raises(ArgumentError, match=r"be left out for a single model, got 0.1\. Train a committee"):
        abstain(predictions, P[0], P, None, 0.1)


def test_graphs_without_a_prediction_are_no_abstentions() -> None:
    nothing = np.full((2, 2), np.nan)
    assert abstains(nothing, np.full(2, np.nan), 0.9, 0.1).tolist() == [False, False]
