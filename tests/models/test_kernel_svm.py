"""The base of graph kernels: selection, refit, memory, and what is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models import ValidationGraphs
from graphcaps.models.kernel_svm import _hold_out
from graphcaps.models.wl import WL

TRAIN, VALIDATION, TEST = np.arange(40), np.arange(40, 55), np.arange(55, 75)


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=75)


def classes(store: GraphStore, indices: np.ndarray) -> np.ndarray:
    assert store.y is not None
    return store.y.numpy()[indices]


def gram(store: GraphStore, left: np.ndarray, right: np.ndarray, h: int) -> np.ndarray:
    """The kernel between graphs of the store, from a model that knows all of them."""
    model = WL(3)
    everything = np.arange(len(store))
    columns = model._fit_columns(store, everything)
    return model._kernel(model._rows(store, left, columns), model._rows(store, right, columns), (h,))


def accuracy(store: GraphStore, train: np.ndarray, judge: np.ndarray, h: int, C: float) -> float:
    machine = SVC(C=C, kernel="precomputed").fit(gram(store, train, train, h), classes(store, train))
    return machine.score(gram(store, judge, train, h), classes(store, judge))


def test_validation_graphs_select_the_depth_and_c(store):
    model = WL(3, iterations=(1, 2, 3), C=(0.1, 1, 10))
    validation = ValidationGraphs(VALIDATION, classes(store, VALIDATION))
    model.fit(store, TRAIN, classes(store, TRAIN), validation=validation)
    table = {(h, C): accuracy(store, TRAIN, VALIDATION, h, C) for h in (1, 2, 3) for C in (0.1, 1.0, 10.0)}
    best = [pair for pair, value in table.items() if value == max(table.values())]
    h, C = min(best, key=lambda pair: (pair[1], pair[0]))
    assert model.selected == {"iterations": h, "C": C}
    machine = SVC(C=C, kernel="precomputed").fit(gram(store, TRAIN, TRAIN, h), classes(store, TRAIN))
    assert np.array_equal(
        model.machine.predict(gram(store, TEST, TRAIN[machine.support_], h)),
        (machine.predict(gram(store, TEST, TRAIN, h))),
    )
    wrong = replace(validation, y=(validation.y + 1) % 3)
    model.fit(store, TRAIN, classes(store, TRAIN), validation=wrong)
    assert model.selected != {"iterations": h, "C": C}


def test_of_equally_accurate_pairs_the_smaller_c_and_the_earlier_depth_are_selected(store):
    judge = TRAIN[:1]  # a training graph, which most pairs predict
    y = classes(store, judge)
    model = WL(3, iterations=(1, 2, 3), C=(1000, 10, 100))
    model.fit(store, TRAIN, classes(store, TRAIN), validation=ValidationGraphs(judge, y))
    pairs = [(C, h) for C in (10.0, 100.0, 1000.0) for h in (1, 2, 3)]
    equal = [(C, h) for C, h in pairs if accuracy(store, TRAIN, judge, h, C) == 1]
    assert len({C for C, _ in equal}) > 1
    assert len({h for _, h in equal}) > 1
    assert (model.selected["C"], model.selected["iterations"]) == min(equal)


def test_without_validation_graphs_a_tenth_selects_and_all_are_fitted(store):
    model = WL(3, iterations=(1, 3), C=(0.1, 10), seed=4)
    y = classes(store, TRAIN)
    model.fit(store, TRAIN, y)
    held_out = _hold_out(y, 4)
    inner = WL(3, iterations=(1, 3), C=(0.1, 10))
    judge = ValidationGraphs(TRAIN[held_out], y[held_out])
    inner.fit(store, TRAIN[~held_out], y[~held_out], validation=judge)
    assert model.selected == inner.selected
    assert model.machine.slope == inner.machine.slope
    final = SVC(C=model.cost, kernel="precomputed").fit(gram(store, TRAIN, TRAIN, int(model.setting[0])), y)
    assert model.machine.num_supports == len(final.support_) > inner.machine.num_supports


def test_a_tenth_of_each_class_is_held_out():
    y = np.repeat([0, 1, 2, 3], [40, 14, 2, 1])
    held_out = _hold_out(y, 0)
    assert np.bincount(y[held_out], minlength=4).tolist() == [4, 1, 1, 0]
    assert not np.array_equal(held_out, _hold_out(y, 1))
    assert np.array_equal(held_out, _hold_out(y, 0))


def test_weights_of_the_graphs_enter_selection_and_fit(store):
    y, weights = classes(store, TRAIN), np.linspace(0.2, 4, len(TRAIN))
    model = WL(3, iterations=(2,), C=(1.0,))
    judge = ValidationGraphs(VALIDATION, classes(store, VALIDATION))
    model.fit(store, TRAIN, y, weights, judge)
    machine = SVC(C=1.0, kernel="precomputed").fit(gram(store, TRAIN, TRAIN, 2), y, weights)
    np.testing.assert_allclose(model.machine.dual, machine.dual_coef_, atol=1e-12)


def test_only_the_support_vectors_are_kept(store):
    model = WL(3, iterations=(0, 1, 2), C=(1.0,))
    model.fit(store, TRAIN, classes(store, TRAIN))
    state = model.state()
    S = model.machine.num_supports
    assert len(state["support_squares"]) == len(state["support_ptr"]) - 1 == S
    assert max(value.numel() for value in state.values()) < len(TRAIN) ** 2
    assert int(state["colour_iteration"].max()) <= model.setting[0]
    assert set(state["support_columns"].tolist()) == set(range(len(state["colour"])))


def test_too_many_graphs_for_a_gram_matrix_are_refused(store):
    model = WL(3, max_gigabytes=1e-5)
    expected = (
        r"^WL: 'indices' must name at most 20 training graphs, got 40, whose Gram matrices take 0\.0 MB\. "
        r"Choose wl-forest, whose memory grows .*, or set max_gigabytes\.$"
    )
    with pytest.raises(ArgumentError, match=expected):
        model.fit(store, TRAIN, classes(store, TRAIN))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": ()}, "'C' must be one or more different values"),
        ({"C": (1.0, 1.0)}, "'C' must be one or more different values"),
        ({"C": (0.0,)}, "'C' must be positive"),
        ({"iterations": (-1, 2)}, "'iterations' must be at least 0"),
        ({"max_gigabytes": 0.0}, "'max_gigabytes' must be positive"),
    ],
)
def test_options_out_of_range_are_rejected(options, message):
    with pytest.raises(ArgumentError, match=message):
        WL(2, **options)


def test_a_state_of_other_options_is_refused(store):
    model = WL(3, iterations=(1,), C=(1.0,))
    model.fit(store, TRAIN, classes(store, TRAIN))
    for options, message in (
        ({"iterations": (2,), "C": (1.0,)}, "'selected_setting' must be one of 2, got 1"),
        ({"iterations": (1,), "C": (2.0,)}, "'selected_cost' must be one of 2, got 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            WL(3, **options).load_state(model.state())
    damaged = model.state() | {"support_columns": model.state()["support_columns"] + 10**6}
    with pytest.raises(ArgumentError, match="'support_columns' must be from 0 to"):
        WL(3, iterations=(1,), C=(1.0,)).load_state(damaged)
    damaged = model.state() | {"support_ptr": torch.arange(3)}
    with pytest.raises(ArgumentError, match="'support_ptr' must ascend"):
        WL(3, iterations=(1,), C=(1.0,)).load_state(damaged)
