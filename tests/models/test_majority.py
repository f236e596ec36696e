"""The class prior."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps.data.datasets.loading import load_dataset
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.majority import Majority


def test_it_predicts_the_class_frequencies_of_the_training_graphs():
    store = load_dataset("planted-parts")[:8]
    model = Majority(4)
    with pytest.raises(UsageError, match="Majority: fit the model before it predicts"):
        model.predict_proba(store, np.arange(1))
    model.fit(store, np.arange(5), np.array([2, 0, 2, 1, 2]))
    assert model.predict_proba(store, np.array([6, 7])).tolist() == [[0.2, 0.2, 0.6, 0.0]] * 2


@pytest.mark.parametrize("prior", [[0.5, 0.6], [1.5, -0.5], [1.0], [float("nan"), 1.0]])
def test_a_damaged_prior_is_refused(prior):
    with pytest.raises(ArgumentError, match="be 2 probabilities that sum to 1"):
        Majority(2).load_state({"prior": torch.tensor(prior)})
