"""Anonymous walk embeddings: the kernel equals scikit-learn's, and options and states are checked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.anonymous_walks import walk_distributions
from graphcaps.models.awe import AWE


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=24)


def test_the_kernel_is_that_of_scikit_learn(store):
    assert store.y is not None
    y, train, test = store.y.numpy(), np.arange(18), np.arange(18, 24)
    model = AWE(3, length=4, gamma=(100.0,), C=(10.0,))
    model.fit(store, train, y[train])
    x = walk_distributions(store, 4, model.sampling)
    expected = SVC(C=10.0, gamma=100.0).fit(x[train], y[train])
    assert model.machine.num_supports == len(expected.support_)
    np.testing.assert_allclose(model.machine.dual, expected.dual_coef_, atol=1e-4)
    assert np.array_equal(model.predict_proba(store, test).argmax(1), expected.predict(x[test]))


def test_kernels_of_all_settings_are_those_of_each(store):
    model = AWE(3, length=3, gamma=(1.0, 50.0))
    left, right = (model._rows(store, indices, None) for indices in (np.arange(5), np.arange(5, 9)))
    for setting, kernels in zip(model.settings, model._kernels([left, right], right), strict=True):
        for rows, kernel in zip((left, right), kernels, strict=True):
            assert np.array_equal(kernel, model._kernel(rows, right, setting))
    assert np.array_equal(np.diag(model._kernel(right, right, (50.0,))), np.ones(4))


def test_the_seed_draws_the_walks_and_their_number_follows_the_bound(store):
    assert AWE(2).sampling.samples == 9974
    assert AWE(2, sampling_error=0.5, seed=3).sampling.samples == 4888
    rows = [AWE(2, length=3, max_walks=0, seed=seed)._rows(store, np.arange(2), None) for seed in (0, 0, 1)]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 9}, "AWE: 'length' must be from 1 to 8, got 9"),
        ({"length": 0}, "AWE: 'length' must be from 1 to 8, got 0"),
        ({"gamma": ()}, "'gamma' must be one or more different values"),
        ({"sampling_error": 0.0}, "'sampling_error' must be positive"),
        ({"sampling_risk": 1.0}, "'sampling_risk' must be between 0 and 1"),
        ({"max_walks": -1}, "'max_walks' must be at least 0"),
    ],
)
def test_options_out_of_range_are_rejected(options, message):
    with pytest.raises(ArgumentError, match=message):
        AWE(2, **options)


def test_a_state_of_another_length_is_refused(store):
    assert store.y is not None
    model = AWE(3, length=3, C=(1.0,))
    model.fit(store, np.arange(24), store.y.numpy())
    with pytest.raises(ArgumentError, match="AWE: 'support_rows' must have the shape"):
        AWE(3, length=4, C=(1.0,)).load_state(model.state())
    with pytest.raises(ArgumentError, match="AWE: 'selected_setting' must be one of 7, got"):
        AWE(3, length=3, gamma=(7.0,), C=(1.0,)).load_state(model.state())
    damaged = model.state() | {"support_rows": torch.zeros(1, 2, dtype=torch.float64)}
    with pytest.raises(ArgumentError, match="AWE: 'support_rows' must have the shape"):
        AWE(3, length=3, C=(1.0,)).load_state(damaged)
