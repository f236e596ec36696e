"""A training's precision reaches kernels and torch's products, and ends with it."""

from __future__ import annotations

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import ArgumentError, DataError
from graphcaps.ops._triton.precision import current_precision
from graphcaps.training.device import matmul_precision


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'precision' must be one of float32, tf32, bf16"):
        TrainConfig(precision="half")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"\[training\] precision"):
        RunConfig.from_dict({"training": {"precision": 16}})
    assert RunConfig.from_dict({"training": {"precision": "tf32"}}).training.precision == "tf32"


def test_it_holds_inside_a_training_and_no_longer() -> None:
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32", torch.device("cuda")):
        assert current_precision() == "tf32"
        assert torch.get_float32_matmul_precision() == "high"
        with matmul_precision("float32", torch.device("cuda")):
            assert torch.get_float32_matmul_precision() == "highest"
    assert current_precision() == "float32"
    assert torch.get_float32_matmul_precision() == before


def test_a_cpu_takes_float32() -> None:
    with matmul_precision("bf16", torch.device("cpu")):
        assert current_precision() == "float32"
        assert torch.get_float32_matmul_precision() == "highest"
