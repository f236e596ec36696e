"""Arguments of a model are checked against the types of its options."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.models import builder
from graphcaps.models.majority import Majority

DEFAULTS: dict[str, Any] = {
    "rate": 0.5,
    "rates": (0.1, 0.2),
    "widths": (8, 4),
    "names": ("sum",),
    "flags": (True,),
    "free": (),
}


class Optioned(Majority):
    """A model whose options hold several values of each type."""

    @classmethod
    def options(cls) -> dict[str, inspect.Parameter]:
        keyword = inspect.Parameter.KEYWORD_ONLY
        return {name: inspect.Parameter(name, keyword, default=value) for name, value in DEFAULTS.items()}


def checked(**arguments: Any) -> dict[str, Any]:
    config = RunConfig(model="optioned", model_arguments=arguments)
    return builder._checked_arguments(config, Optioned)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rates", (0.5, 1)),
        ("rates", [0.5]),
        ("widths", (3,)),
        ("names", ("max", "sum")),
        ("flags", (False, True)),
        ("free", ("a", 1.5)),
    ],
)
def test_elements_have_the_type_of_the_default_elements(name: str, value: object) -> None:
    assert checked(**{name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rates", ("a",), "'rates' must be numbers, got ('a',)."),
        ("rates", (True,), "'rates' must be numbers, got (True,)."),
        ("rates", "0.5", "'rates' must be numbers, got '0.5'."),
        ("widths", (0.5,), "'widths' must be whole numbers, got (0.5,)."),
        ("widths", 0.5, "'widths' must be whole numbers, got (0.5,)."),
        ("names", (1,), "'names' must be strings, got (1,)."),
        ("names", "sum", "'names' must be strings, got 'sum'."),
        ("flags", (1,), "'flags' must be values true or false, got (1,)."),
        ("free", "a", "'free' must be several values, got 'a'."),
        ("rate", (0.5,), "'rate' must be a number, got (0.5,)."),
    ],
)
def test_other_types_are_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        checked(**{name: value})
    assert str(caught.value) == f"model 'optioned': {message}"


def test_a_single_number_is_a_tuple_of_one() -> None:
    completed = builder.complete_tuples(Optioned, {"rates": 0.5, "widths": 3, "rate": 0.1, "flags": True})
    assert completed == {"rates": (0.5,), "widths": (3,), "rate": 0.1, "flags": True}
