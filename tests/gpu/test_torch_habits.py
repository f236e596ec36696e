"""Autocast and ``torch.compile`` on a GPU, with the graphs of the habits on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from graphcaps.nn import GraphModel
from tests.test_torch_habits import (
    MODELS,
    assert_close,
    build,
    every_model,
    fresh_compiler,  # noqa: F401 - a fixture
    gradients,
    make_graphs,
    total_loss,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch.from_data_list(make_graphs()).to("cuda")


@every_model
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_close_to_float32(
    make: Callable[[], GraphModel], dtype: torch.dtype, batch: Batch
) -> None:
    exact, cast = build(make).cuda(), build(make).cuda()
    expected = total_loss(exact, batch)
    expected.backward()
    with torch.autocast("cuda", dtype=dtype):
        found = total_loss(cast, batch)
    scale = (
        1024.0 if dtype == torch.float16 else 1.0
    )  # as torch.amp.GradScaler: small gradients would become 0
    (scale * found).backward()
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.01)
    direction = nn.functional.cosine_similarity(
        torch.cat([value.reshape(-1) for value in gradients(cast).values()]),
        torch.cat([value.reshape(-1) for value in gradients(exact).values()]),
        dim=0,
    )
    assert float(direction) > 0.98


@pytest.mark.parametrize("name", ["hgcn", "gin"])
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_trains_like_an_eager_one(name: str, batch: Batch) -> None:
    eager, model = build(MODELS[name]).cuda(), build(MODELS[name]).cuda()
    compiled = torch.compile(model)
    expected = total_loss(eager, batch)
    expected.backward()
    found = total_loss(model, batch, compiled)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert_close(gradients(model), gradients(eager), 1e-2)
