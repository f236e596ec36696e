"""Every rule of epoch selection, on tables small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.evaluation.epoch_selection import (
    AccuracyEstimate,
    Choice,
    average_seeds,
    best_common_epoch,
    best_epoch_per_fold,
    held_out,
    optimism,
    smooth,
    window_for,
)

# Two folds, five epochs.
TEST = np.array([[0.5, 0.8, 0.7, 0.9, 0.6], [0.9, 0.4, 0.8, 0.6, 0.7]])
LOSS = np.array([[9.0, 3.0, 1.0, 5.0, 4.0], [1.0, 2.0, 9.0, 9.0, 9.0]])
TABLES = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 60)), elements=st.integers(0, 20))


def test_smoothing_is_a_centred_mean_with_shorter_windows_at_the_ends() -> None:
    found = smooth(np.array([[0.0, 3.0, 6.0, 0.0, 12.0]]), window=3)
    assert found.tolist() == [[1.5, 3.0, 3.0, 6.0, 6.0]]


def test_the_window_is_21_epochs() -> None:
    loss = np.zeros((1, 60))
    loss[0, 30] = 21.0
    found = smooth(loss)[0]
    assert found[20:41].tolist() == [1.0] * 21
    assert found[:20].sum() == found[41:].sum() == 0
    assert smooth(np.arange(60.0)[None])[0, 0] == 5.0  # epochs 0 to 10


@given(TABLES, st.sampled_from([1, 3, 21]))
def test_smoothing_equals_a_loop(loss: np.ndarray, window: int) -> None:
    half, (F, E) = window // 2, loss.shape
    slow = [[loss[f, max(e - half, 0) : e + half + 1].mean() for e in range(E)] for f in range(F)]
    np.testing.assert_allclose(smooth(loss, window), slow, atol=1e-9)


def test_equal_losses_have_equal_means_at_every_epoch() -> None:
    flat = smooth(np.full((1, 50), 0.1))
    assert len(set(flat[0].tolist())) == 1
    assert held_out(np.full((1, 50), 0.1), np.linspace(0, 1, 50)[None]).epochs.tolist() == [11]


def test_held_out_takes_the_lowest_smoothed_loss_of_each_fold() -> None:
    # Smoothed over three: 6, 13/3, 3, 10/3, 4.5 and 1.5, 4, 20/3, 9, 9.
    choice = held_out(LOSS, TEST, window=3)
    assert choice.epochs.tolist() == [3, 2]  # epoch 1 is not considered: its window has no epoch before it
    assert choice.accuracies.tolist() == [0.7, 0.4]
    assert choice.mean == pytest.approx(55)
    assert choice.std_folds == pytest.approx(100 * np.sqrt(0.045))  # n − 1: √((0.15² + 0.15²) / 1)


def test_a_network_that_overfits_quickly_is_not_tested_after_its_first_epoch() -> None:
    loss = np.concatenate([np.linspace(1, 0.5, 5), 0.5 + 0.1 * np.arange(1, 96)])[None]
    assert smooth(loss).argmin() == 0  # the window of epoch 1 has epochs 1 to 11
    assert held_out(loss, loss).epochs.tolist() == [11]


@pytest.mark.parametrize(
    ("epochs", "window"), [(1, 1), (5, 1), (6, 3), (12, 5), (20, 9), (41, 19), (42, 21), (1000, 21)]
)
def test_short_trainings_are_smoothed_over_fewer_epochs(epochs: int, window: int) -> None:
    assert window_for(epochs) == window
    falling = np.linspace(1, 0, epochs)[None]
    assert held_out(falling, falling).epochs.tolist() == [epochs]  # not the first, though it is a short one


def test_held_out_smooths_before_it_selects() -> None:
    loss = np.array([[2.0, 2.0, 0.5, 9.0, 1.0, 1.0, 1.0]])
    test = np.arange(7.0)[None] / 10
    assert held_out(loss, test, window=1).epochs.tolist() == [3]
    assert held_out(loss, test, window=3).epochs.tolist() == [6]


def test_held_out_does_not_depend_on_the_test_accuracy() -> None:
    shuffled = np.random.default_rng(0).permuted(TEST, axis=1)
    assert (held_out(LOSS, shuffled).epochs == held_out(LOSS, TEST).epochs).all()


def test_c_takes_one_epoch_for_all_folds() -> None:
    # Means: 0.7, 0.6, 0.75, 0.75, 0.65; of the two best the earlier.
    choice = best_common_epoch(TEST)
    assert choice.epochs.tolist() == [3, 3]
    assert choice.accuracies.tolist() == [0.7, 0.8]
    assert choice.mean == pytest.approx(75)


def test_c_star_takes_the_best_epoch_of_each_fold() -> None:
    choice = best_epoch_per_fold(TEST)
    assert choice.epochs.tolist() == [4, 1]
    assert choice.mean == pytest.approx(90)
    assert best_epoch_per_fold(np.array([[0.5, 0.7, 0.7]])).epochs.tolist() == [2]


def test_a_tie_is_not_broken_by_the_order_of_the_folds() -> None:
    table = np.array([[0.3, 0.1], [0.2, 0.2], [0.1, 0.3]])
    assert table.mean(0)[1] > table.mean(0)[0]  # by the last bit alone
    assert best_common_epoch(table).epochs.tolist() == [1, 1, 1]


@given(TABLES)
def test_held_out_is_at_most_c_and_c_is_at_most_c_star(table: np.ndarray) -> None:
    test, loss = table / 20, np.roll(table, 1, axis=1)
    best = best_common_epoch(test).mean
    assert best <= best_epoch_per_fold(test).mean + 1e-9
    if len(test) == 1:
        assert held_out(loss, test).mean <= best + 1e-9


def test_optimism_is_c_minus_held_out_fold_by_fold() -> None:
    found = optimism(LOSS, TEST, window=3)
    assert found.accuracies.tolist() == pytest.approx([0.0, 0.4])
    assert found.mean == pytest.approx(75 - 55)


def test_seeds_are_averaged_after_folds() -> None:
    choices = [
        Choice(np.array([1, 1]), np.array([0.8, 0.9])),
        Choice(np.array([1, 1]), np.array([0.7, 0.7])),
    ]
    estimate = average_seeds(choices, [0, 1])
    spread = 100 * np.sqrt(0.005)
    assert estimate.mean == pytest.approx((85 + 70) / 2)
    assert estimate.std_folds == pytest.approx(spread / 2)  # mean of 7.07 and 0
    assert estimate.std_seeds == pytest.approx(15 / np.sqrt(2))
    assert estimate.seeds == (0, 1)
    alone = average_seeds(choices[:1], [0])
    assert (alone.mean, alone.std_seeds) == (pytest.approx(85), None)
    assert str(AccuracyEstimate(87.301, 6.118, None, (0,))) == "87.30 ± 6.12"


@pytest.mark.parametrize("window", [0, 2, -1])
def test_an_even_window_is_refused(window: int) -> None:
    with pytest.raises(ArgumentError, match="'window' must be an odd number from 1 on"):
        smooth(LOSS, window)


def test_wrong_shapes_and_values_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"must have the shape \[2, 5\] of the loss, got \[1, 5\]\."):
        held_out(LOSS, TEST[:1])
    with pytest.raises(ShapeError, match="a row per fold and a column per epoch"):
        best_epoch_per_fold(TEST[0])
    with pytest.raises(ArgumentError, match="must be finite"):
        held_out(np.where(LOSS == 9, np.nan, LOSS), TEST)
    with pytest.raises(ArgumentError, match="must be one per seed, 2, got 1"):
        average_seeds([best_epoch_per_fold(TEST)], [0, 1])


@given(TABLES, st.data())
def test_epochs_after_the_stop_of_a_fold_have_no_influence(loss: np.ndarray, data: st.DataObject) -> None:
    F, E = loss.shape
    lengths = np.array(data.draw(st.lists(st.integers(1, E), min_size=F, max_size=F)))
    test = data.draw(arrays(np.float64, (F, E), elements=st.integers(0, 5))) / 5
    later = np.arange(E) >= lengths[:, None]
    other_loss, other_test = np.where(later, 0.0, loss), np.where(later, 1.0, test)
    for one, other in (
        (held_out(loss, test, None, lengths), held_out(other_loss, other_test, None, lengths)),
        (best_common_epoch(test, lengths), best_common_epoch(other_test, lengths)),
        (best_epoch_per_fold(test, lengths), best_epoch_per_fold(other_test, lengths)),
        (optimism(loss, test, None, lengths), optimism(other_loss, other_test, None, lengths)),
    ):
        np.testing.assert_array_equal(one.epochs, other.epochs)
        np.testing.assert_array_equal(one.accuracies, other.accuracies)
        assert (one.epochs <= lengths).all()
    for f in range(F):  # each fold as if it were alone, with its own number of epochs
        alone = held_out(loss[f : f + 1, : lengths[f]], test[f : f + 1, : lengths[f]])
        assert held_out(loss, test, None, lengths).epochs[f] == alone.epochs[0]


def test_the_common_epoch_is_one_that_all_folds_have() -> None:
    assert (
        best_common_epoch(TEST).epochs.tolist()
        == [3, 3]
        == best_common_epoch(TEST, np.array([5, 4])).epochs.tolist()
    )
    assert best_common_epoch(TEST, np.array([5, 2])).epochs.tolist() == [1, 1]
    assert best_epoch_per_fold(TEST, np.array([3, 5])).epochs.tolist() == [2, 1]


def test_invalid_lengths_of_folds_are_refused() -> None:
    with pytest.raises(ShapeError, match="'fold_epochs' must have one number per fold, 2, got"):
        held_out(LOSS, TEST, None, np.array([3]))
    for lengths in ([0, 5], [5, 6]):
        with pytest.raises(ArgumentError, match="'fold_epochs' must be from 1 to the number of epochs, 5"):
            best_epoch_per_fold(TEST, np.array(lengths))
