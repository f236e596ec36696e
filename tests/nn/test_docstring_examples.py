"""Examples in the docstrings of graphcaps.nn run and print what they show."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest
import torch

import graphcaps.nn

MODULES = sorted(
    path.stem for path in Path(graphcaps.nn.__file__).parent.glob("*.py") if path.stem != "__init__"
)
WITHOUT_EXAMPLE = {"PartsOutput", "block_loss", "cross_entropy", "margin_loss", "GraphModel"}


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    names = {"torch": torch, "graphcaps": graphcaps} | {
        name: getattr(graphcaps.nn, name) for name in graphcaps.nn.__all__
    }
    torch.manual_seed(0)
    done = doctest.testmod(import_module(f"graphcaps.nn.{module}"), extraglobs=names)
    assert done.failed == 0


@pytest.mark.parametrize("name", sorted(set(graphcaps.nn.__all__) - WITHOUT_EXAMPLE))
def test_a_layer_shows_an_example(name: str) -> None:
    assert ">>> " in (getattr(graphcaps.nn, name).__doc__ or "")
