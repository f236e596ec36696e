"""The model contract, on every registered model: ``pytest -k gin`` selects one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphcaps.models import model_names
from graphcaps.testing import model_checks

CHECKS = [
    pytest.param(check, id=f"{model}-{name}")
    for model in model_names()
    for name, check in model_checks(model).items()
]


@pytest.mark.parametrize("check", CHECKS)
def test_model_satisfies_the_contract(check: Callable[[], None]) -> None:
    check()
