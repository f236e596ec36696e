"""Warnings that point to the user's code, and checks of the range of options."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
from sklearn.model_selection import cross_val_predict

from graphcaps.data import to_pyg
from graphcaps.errors import (
    ArgumentError,
    DataError,
    UsageError,
    check_at_least,
    check_fraction,
    check_probability,
    warn_user,
)
from tests.estimator.small_classifier import fitted, small
from tests.small_models import labelled


class SomeWarning(UserWarning):
    pass


def test_a_warning_names_the_line_outside_the_library() -> None:
    with pytest.warns(SomeWarning, match=r"^text$") as caught:
        warn_user("text", SomeWarning)
    assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        exec("warn_user('text')", {"warn_user": warn_user, "__name__": "graphcaps.deep.inside"})
    assert recorded[0].filename == __file__


def test_warnings_of_the_classifier_name_the_line_of_the_user() -> None:
    """Predictions and embeddings directly, and a cross-validation that calls them through scikit-learn."""
    store = labelled()
    unseen = replace(store, node_labels=store.node_labels + 1)
    rare = replace(store, node_labels=store.node_labels.clone())
    rare.node_labels[: int(store.sizes[0])] = 99  # in one fold only
    calls = (
        lambda: fitted().predict(unseen),
        lambda: fitted().transform(unseen),
        lambda: fitted().explain(unseen[0]),
        lambda: cross_val_predict(small(epochs=1), to_pyg(rare), store.y.numpy(), cv=2),
    )
    fitted()  # its own warnings name the file that fits it
    for call in calls:
        with pytest.warns(UserWarning, match="unseen labels are encoded as zeros") as caught:
            call()
        ours = [
            warning for warning in caught if issubclass(warning.category, UserWarning)
        ]  # not those of torch
        assert {warning.filename for warning in ours} == {__file__}


def test_messages_show_control_characters_and_cut_long_values() -> None:
    hostile = "\x1b]0;x\x07" + "v" * 10_000
    errors = (
        DataError("file.csv", "a number", f"'{hostile}'", line=3),
        DataError(f"file.csv, key '{hostile}'", f"one of '{hostile}'", hostile),
        ArgumentError("owner", "name", "be small", [hostile]),
        UsageError(f"The value '{hostile}' is unknown; use 'x'."),
        UsageError(hostile),
    )
    for error in errors:
        assert "\x1b" not in str(error)
        assert r"\x1b]0;x\x07" in str(error) or r"\\x1b]0;x\\x07" in str(error)
        assert len(str(error)) <= 2001
    assert len(str(errors[0])) < 280
    assert str(errors[0]).endswith("vvv…'.")
    assert str(errors[3]).endswith("vvv…' is unknown; use 'x'.")
    assert str(UsageError("The model's classes are the user's 'a\tb'\nand 'c'.")).endswith("'a\tb'\nand 'c'.")


@pytest.mark.parametrize(("action", "times"), [("default", 1), ("always", 3)])
def test_a_warning_is_given_once_per_line_although_filters_change(action: Any, times: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        for _ in range(3):
            with (
                warnings.catch_warnings()
            ):  # as scikit-learn does between two fits: Python forgets what it gave
                warnings.simplefilter(action)
            warn_user(f"owner: once, with the filter {action}.")
    assert len(caught) == times


@pytest.mark.parametrize("value", [0, float("nan"), (2, 0), ()])
def test_options_below_a_bound_are_refused(value):
    check_at_least("GIN", 1, hidden=1, num_keys=(1, 2))
    each = "name at least one number, each at least 1" if isinstance(value, tuple) else "be at least 1"
    with pytest.raises(ArgumentError) as error:
        check_at_least("GIN", 1, hidden=value)
    assert str(error.value) == f"GIN: 'hidden' must {each}, got {value}."


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_probabilities_are_at_least_0_and_below_1(value):
    check_probability("GIN", dropout=0.0)
    with pytest.raises(ArgumentError) as error:
        check_probability("GIN", dropout=value)
    assert str(error.value) == f"GIN: 'dropout' must be at least 0 and below 1, got {value}."


@pytest.mark.parametrize("value", [0.0, 1.1, float("nan")])
def test_fractions_are_above_0_and_at_most_1(value):
    check_fraction("ASAP", ratio=1.0)
    with pytest.raises(ArgumentError) as error:
        check_fraction("ASAP", ratio=value)
    assert str(error.value) == f"ASAP: 'ratio' must be above 0 and at most 1, got {value}."
