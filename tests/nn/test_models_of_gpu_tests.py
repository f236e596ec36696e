"""Models of GPU tests can be built: those tests run rarely, and options change meanwhile."""

from __future__ import annotations

import pytest

from tests.gpu.test_device import MODELS


@pytest.mark.parametrize("lead", [(), (2,)], ids=["one model", "replicas"])
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_built(name: str, lead: tuple[int, ...]) -> None:
    assert MODELS[name](lead).lead == lead
