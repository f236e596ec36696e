"""Fixtures that several test files share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

# Here and nowhere below: a second copy of the fixture would start a second browser beside the first.
from tests.browser.fixtures import browser, visit  # noqa: F401

# Two test processes share two cores.
torch.set_num_threads(1)
# Kernels are interpreted where there is no GPU; Triton reads this when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the paper's eleven data sets: $GRAPHCAPS_DATA, or ../shared/data beside the tree."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GRAPHCAPS_DATA", beside))
    if not folder.is_dir():
        pytest.skip("the eleven data sets are not here: set GRAPHCAPS_DATA to the folder with their zips")
    return folder


@pytest.fixture
def empty_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody filled reads as NaN, so that a forgotten number shows."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        original = getattr(owner, name)

        def made(*args: Any, _original: Any = original, **kwargs: Any) -> torch.Tensor:
            tensor: torch.Tensor = _original(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, made)


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache and data of the user lie under ``tmp_path``, and the TU collection answers nothing."""
    monkeypatch.delenv("GRAPHCAPS_DATA", raising=False)
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("GRAPHCAPS_TU_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
