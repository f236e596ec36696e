"""The public names of :mod:`graphcaps.ops` are imported on first use."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import graphcaps.ops


@pytest.mark.parametrize("name", graphcaps.ops.__all__)
def test_every_name_is_what_its_module_defines(name: str) -> None:
    value = vars(graphcaps.ops).get(name) or graphcaps.ops.__getattr__(name)
    assert not isinstance(value, ModuleType)
    if name in graphcaps.ops._NAMES:
        assert value is vars(importlib.import_module(graphcaps.ops._NAMES[name]))[name]


def test_a_function_with_the_name_of_its_module_is_the_function() -> None:
    code = "import graphcaps.ops.squash, graphcaps.ops as ops; assert callable(ops.squash)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'graphcaps\.ops' has no attribute 'nothing'"):
        graphcaps.ops.__getattr__("nothing")
    assert set(graphcaps.ops.__all__) == {*graphcaps.ops._NAMES, "squash"}
