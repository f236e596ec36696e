"""Companions: which models they may be, and the weights that log loss chooses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError
from graphcaps.training.companion_weights import (
    PRIOR_GRAPHS,
    companion_configs,
    describe_companion,
    fit_mixture,
    fit_weights,
    stacking_folds,
)
from tests.small_models import labelled, planted


def _parts(K: int, n: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n)
    sharpness = np.linspace(0.5, 2, K)
    parts = []
    for s in sharpness:
        logits = random.normal(size=(n, 3)) + s * np.eye(3)[y]
        parts.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    return parts, y


@pytest.mark.parametrize(("K", "n"), [(2, 30), (2, 400), (3, 60)])
def test_weights_maximise_the_posterior(K: int, n: int) -> None:
    parts, y = _parts(K, n, seed=K * n)
    q = np.stack([p[np.arange(n), y] for p in parts])

    def loss(w: np.ndarray) -> float:
        return float(-np.log(w @ q).sum() - PRIOR_GRAPHS * np.log(w).sum())

    found = minimize(
        loss,
        np.full(K, 1 / K),
        bounds=[(1e-6, 1)] * K,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    weights = fit_weights(parts, y)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(weights, found.x, atol=2e-5)
    assert loss(weights) <= loss(found.x) + 1e-9


def test_weights_of_equal_parts_are_equal_and_a_better_part_weighs_more() -> None:
    (poor, better), y = _parts(2, 200, seed=0)
    np.testing.assert_allclose(fit_weights([poor, poor], y), 0.5)
    weights = fit_weights([poor, better], y)
    assert weights[1] > 0.7
    # a few graphs change equal weights little
    assert abs(fit_weights([poor[:4], better[:4]], y[:4]) - 0.5).max() < 0.2


def test_a_mixture_is_calibrated_once_and_out_of_fold_predictions_by_themselves() -> None:
    parts, y = _parts(2, 150, seed=3)
    plain = fit_mixture(parts, y, None, stacked=False)
    assert plain.calibration is None
    assert plain.weights == tuple(fit_weights(parts, y))
    sharp = [p**3 / (p**3).sum(1, keepdims=True) for p in parts]  # overconfident
    mixture = fit_mixture(sharp, y, "temperature", stacked=True)
    assert mixture.calibration is not None
    assert (mixture.graphs, mixture.stacked) == (150, True)
    # calibrating each part undoes the sharpening, up to the bound of calibrated probabilities
    np.testing.assert_allclose(
        mixture.weights, fit_mixture(parts, y, "temperature", stacked=True).weights, atol=0.02
    )
    assert abs(np.array(mixture.weights) - fit_weights(sharp, y)).max() > 1e-3


def test_training_graphs_are_divided_where_validation_graphs_are_few() -> None:
    y = torch.tensor([0, 1, 2] * 50)
    train, validation = torch.arange(20, 150), torch.arange(20)
    folds = stacking_folds(y, train, validation, seed=0)
    assert len(folds) == 5
    assert torch.cat([test for _, test in folds]).sort().values.tolist() == train.tolist()
    for inner, test in folds:
        assert not set(inner.tolist()) & set(test.tolist())
        assert len(inner) + len(test) == len(train)
        assert y[test].unique().tolist() == [0, 1, 2]
    assert stacking_folds(y, train[:50], torch.arange(50, 150), seed=0) == []
    single = y.clone()
    single[y == 2] = 0
    single[30] = 2
    assert stacking_folds(single, train, validation, seed=0) == []
    groups = np.arange(150) // 5
    for _, test in stacking_folds(y, train, validation, 0, groups):
        assert all(np.isin(np.flatnonzero(groups == group), [*range(20), *test.tolist()]).all()
                   for group in groups[test.numpy()])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wl-forrest", "'companion' must be one of wl-forest, ldp-forest, ecfp-forest, got 'wl-forrest'"),
        ("gin", r"got 'gin' \(a network\)"),
        ("majority", r"got 'majority' \(reads nothing of a graph\)"),
        ("", "got ''"),
        ("wl-forest,,wl", "got ''"),
        ("wl, wl-forest, wl", "must name different models, got 'wl' twice"),
        ("hgcn", "must differ from the model itself, got 'hgcn' beside 'hgcn'"),
        ("ecfp-forest", "'ecfp-forest', which reads SMILES, and the graphs have none of these"),
        (5, "must be the name of a classical model, or None, got 5"),
    ],
)
def test_other_companions_are_refused(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        companion_configs(name, "hgcn", planted(), "train")


def test_a_companion_reads_what_the_graphs_have() -> None:
    assert companion_configs(None, "hgcn", planted(), "train") == ()
    forest, trees = companion_configs("wl-forest, features-trees", "hgcn", labelled(), "train")
    assert (forest.model, trees.model) == ("wl-forest", "features-trees")
    assert trees.features.attributes
    assert not forest.features.attributes
    assert describe_companion(forest, labelled()) == (
        "labelled: the companion wl-forest reads edges and node labels."
    )
    store = planted_parts(num_graphs=6)
    assert describe_companion(trees, store) == (
        f"{store.name}: the companion features-trees reads edges; the graphs have no node labels or node attributes."
    )


def test_a_companion_for_graphs_without_anything_that_it_reads_is_refused() -> None:
    store = planted()
    lonely = replace(
        store,
        name="lonely",
        edge_ptr=torch.zeros_like(store.edge_ptr),
        neighbours=store.neighbours[:0],
    )
    expected = "'wl-forest', which reads edges and node labels, and the graphs have none of these"
    with pytest.raises(ArgumentError, match=expected):
        companion_configs("wl-forest", "hgcn", lonely, "train")
