"""The registry of models: what a class must say about itself to be registered."""

from __future__ import annotations

from typing import Any

import pytest

from graphcaps.errors import ArgumentError
from graphcaps.registry import Choices, DataOption, DatasetSize, ModelRegistry, RegisteredModel


def model(**attributes: Any) -> Any:
    """A class with the attributes of a valid model, some of them replaced; ``None`` leaves one out."""

    def init(self: object, in_channels: int, num_classes: int, *, width: int = 8, lead: Any = ()) -> None:
        pass

    valid = {"__doc__": "A model.\n\nDetails.", "__init__": init, "scores": "logits", "reference": "a paper"}
    values = {name: value for name, value in (valid | attributes).items() if value is not None}
    return type("Model", (RegisteredModel,), values)


def test_a_model_is_found_under_its_name() -> None:
    registry = ModelRegistry()
    one, two = model(), model()
    assert registry.register("one")(one) is one
    registry.register("a-2nd")(two)
    assert (list(registry), len(registry), "one" in registry, "two" in registry) == (
        ["a-2nd", "one"],
        2,
        True,
        False,
    )
    assert registry["one"] is one
    assert one.summary() == "A model."
    assert list(one.options()) == ["width"]


def test_a_name_is_registered_once() -> None:
    registry = ModelRegistry()
    registry.register("one")(model())
    with pytest.raises(
        ArgumentError, match=r"'name' must be new, not 'one', got one that tests\.test_registry\.Model has"
    ):
        registry.register("one")(model())


@pytest.mark.parametrize("name", ["", "One", "two words", "a_b", "-a", "a-", "1st"])
def test_a_name_has_lower_case_letters_digits_and_hyphens(name: str) -> None:
    with pytest.raises(ArgumentError, match="'name' must be lower-case letters and digits"):
        ModelRegistry().register(name)(model())


def required(self: object, *, width: int) -> None:
    pass


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scores": None}, "'scores' must be one of lengths, logits, probabilities, got None"),
        ({"scores": "points"}, "'scores' must be one of lengths, logits, probabilities, got 'points'"),
        ({"reference": None}, "'reference' must name the publication it comes from, got None"),
        ({"reference": ""}, "'reference' must name the publication it comes from, got ''"),
        ({"__doc__": None}, "'docstring' must describe the model in its first line, got none"),
        ({"__init__": required}, "'width' must have a default, got none"),
        ({"width_option": "hidden"}, "'width_option' must name options, width, got 'hidden'"),
        ({"memory_options": ("width", "depth")}, "'memory_options' must name options, width, got 'depth'"),
        (
            {"data_options": {"a": DataOption(lambda size: 1)}},
            "'data_options' must name options, width, got 'a'",
        ),
        ({"searched": {"b": Choices((1,))}}, "'searched' must name options, width, got 'b'"),
    ],
)
def test_a_class_that_lacks_something_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        ModelRegistry().register("one")(model(**attributes))
    assert str(raised.value) == f"model Model: {message}."


@pytest.mark.parametrize("other", [dict, 3])
def test_another_class_is_refused(other: Any) -> None:
    with pytest.raises(
        ArgumentError, match="model 'one': 'class' must be a class derived from RegisteredModel"
    ):
        ModelRegistry().register("one")(other)


def test_sizes_of_a_data_set() -> None:
    size = DatasetSize((0, 2, 3, 5, 10), 2)
    assert (size.num_graphs, size.max_nodes, size.mean_nodes) == (5, 10, 4.0)
    assert [size.nodes_at(fraction) for fraction in (0.1, 0.4, 0.6, 0.61, 0.9)] == [1, 2, 3, 5, 10]
    empty = DatasetSize((), 2)
    assert (empty.num_graphs, empty.max_nodes, empty.mean_nodes, empty.nodes_at(0.5)) == (0, 1, 1.0, 1)
