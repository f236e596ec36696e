"""Reference forms equal the torch forms, in values and gradients, with leading axes and padding; float64."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.nn import HGCN
from graphcaps.ops import coarsen, neighbour_sum, propagate, route, squash
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edges import edge_table
from graphcaps.ops.linear import matmul_rows
from graphcaps.ops.ragged.tiles import segment_product
from graphcaps.types import EdgeTable, GraphBatch, Segments
from tests.graphs import assert_equal, random_graphs, with_padding


def _batch(padded: bool, weighted: bool = False) -> GraphBatch:
    graphs = random_graphs([9, 1, 40, 5], seed=4)
    weight = None
    if weighted:
        weight = torch.rand(graphs.edge_index.size(1), dtype=torch.float64, generator=_generator(7)) + 0.2
    table = edge_table(graphs.edge_index, len(graphs.x), weight)
    batch = GraphBatch(graphs.x, graphs.segments, table, graphs.y)
    return with_padding(batch, value=0.0) if padded else batch


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _rows(batch: GraphBatch, width: int, seed: int = 1) -> Tensor:
    rows = torch.randn(batch.segments.num_rows, width, dtype=torch.float64, generator=_generator(seed))
    mask = batch.segments.row_mask
    rows = rows if mask is None else rows.masked_fill(~mask.unsqueeze(-1), 0)
    return rows.requires_grad_()


def _check(form: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Equal values, and equal gradients of a random combination of them."""
    results = []
    for mode in ("auto", "reference"):
        with use_kernels(mode):  # type: ignore[arg-type]
            value = form(*inputs)
        direction = torch.randn(value.shape, dtype=value.dtype, generator=_generator(9))
        results.append((value, *torch.autograd.grad((value * direction).sum(), inputs)))
    assert float(results[0][0].detach().abs().max()) > 0.1
    for number, (expected, actual) in enumerate(zip(*results, strict=True)):
        assert_equal(actual, expected, "value" if number == 0 else f"gradient {number}")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("operation", [neighbour_sum, propagate])
def test_products_along_edges(
    operation: Callable[[Tensor, EdgeTable], Tensor], weighted: bool, padded: bool
) -> None:
    batch = _batch(padded, weighted)
    _check(lambda x: operation(x, batch.edges), _rows(batch, 4))


@pytest.mark.parametrize("padded", [False, True])
def test_products_within_graphs(padded: bool) -> None:
    batch = _batch(padded)
    a, x = _rows(batch, 3), _rows(batch, 4, seed=2)
    _check(lambda left, right: segment_product(left, right, batch.segments), a, x)
    _check(lambda c: coarsen(c, batch.edges, batch.segments), a)


@pytest.mark.parametrize("method", ["auto", "factored"])
@pytest.mark.parametrize("detach", [True, False])
def test_routing_stores_votes(detach: bool, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.randn(2, 30, 6, dtype=torch.float64, generator=_generator(3)).requires_grad_()
    weight = torch.randn(2, 4, 6, 5, dtype=torch.float64, generator=_generator(5)).requires_grad_()
    bias = torch.randn(2, 4, 5, dtype=torch.float64, generator=_generator(6)).requires_grad_()
    segments = Segments.from_sizes(torch.tensor([[7, 20, 3], [1, 9, 20]]))
    for output in ("capsules", "assignment"):
        if output == "assignment" and detach:
            continue  # a constant
        _check(
            lambda *tensors, output=output: getattr(
                route(*tensors, segments, 3, detach=detach, method=method), output
            ),
            h, weight, bias,
        )  # fmt: skip
    monkeypatch.setattr(import_module("graphcaps.ops.routing.route"), "route_naive", lambda *_: "naive")
    with use_kernels("reference"):
        assert route(h, weight, bias, segments, 3, method=method) == "naive"


def test_squash_is_not_split_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(6, 5, dtype=torch.float64, generator=_generator(1)).requires_grad_()
    monkeypatch.setattr(import_module("graphcaps.ops.squash"), "_CHUNK", 1)
    _check(squash, z)
    with use_kernels("reference"):
        assert "SquashRows" not in type(squash(z).grad_fn).__name__
    assert "SquashRows" in type(squash(z).grad_fn).__name__


def test_products_of_rows_on_a_gpu_are_plain() -> None:
    x, weight = torch.empty(8, 3, device="meta"), torch.empty(3, 2, device="meta", requires_grad=True)
    assert "MatmulRows" in type(matmul_rows(x, weight).grad_fn).__name__
    with use_kernels("reference"):
        assert "MatmulRows" not in type(matmul_rows(x, weight).grad_fn).__name__


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"num_capsules": (5, 3), "formulation": "paper"}])
def test_the_whole_forward_pass(arguments: dict[str, Any], padded: bool) -> None:
    torch.manual_seed(0)
    model = HGCN(5, 3, **({"capsule_dim": 8, "num_factors": 2} | arguments)).double().eval()
    batch = _batch(padded)
    expected = model.forward_batch(batch)
    with use_kernels("reference"):
        actual = model.forward_batch(batch)
    assert_equal(actual.class_scores[:4], expected.class_scores[:4], "scores")
    for level, other in zip(actual.levels, expected.levels, strict=True):
        assert_equal(level.capsules[:4], other.capsules[:4], "capsules")
