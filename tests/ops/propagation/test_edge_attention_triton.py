"""Attention along the edges by the kernels against the torch form in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edge_kinds import count_edge_kinds
from graphcaps.ops.propagation.edge_attention import edge_attention
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal
from tests.ops.propagation.test_modulated_hop_triton import batch_edges, draw, star_edges

TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _moved(edges: EdgeTable, device: str) -> EdgeTable:
    names = ("ptr", "neighbours", "weight", "node", "first", "kind")
    return dataclasses.replace(
        edges, **{name: t.to(device) for name in names if (t := getattr(edges, name)) is not None}
    )


def _check(edges: EdgeTable, edge_kinds: tuple[int, ...], d: int, device: str) -> None:
    shape, real = edges.node.shape, edges.node >= 0
    tensors = [draw((*shape, d), 1), draw(tuple(shape), 2), draw(tuple(shape), 3)]
    bias = [draw((*shape[:-1], count_edge_kinds(edge_kinds)), 4)] if edge_kinds else []
    grad = draw((*shape, d), 5)

    def fill(tensor: Tensor, value: float) -> Tensor:
        return tensor.masked_fill(~(real.unsqueeze(-1) if tensor.dim() > real.dim() else real), value)

    there = _moved(edges, device)
    poisoned = [t.to(device).requires_grad_() for t in (*(fill(t, float("nan")) for t in tensors), *bias)]
    clean = [t.double().requires_grad_() for t in (*(fill(t, 0) for t in tensors), *bias)]
    with use_kernels("always"):
        actual = edge_attention(*poisoned[:3], there, *poisoned[3:])
        gradients = torch.autograd.grad(actual, poisoned, fill(grad, float("nan")).to(device))
    with use_kernels("off"):
        weight = None if edges.weight is None else edges.weight.double()
        reference = dataclasses.replace(edges, weight=weight)
        expected = edge_attention(*clean[:3], reference, *clean[3:])
        wanted = torch.autograd.grad(expected, clean, fill(grad, 0).double())
    assert_equal(actual.cpu().double(), expected, "value", TOLERANCE)
    names = ("x", "centre", "member", "bias")
    for name, got, want in zip(names[: len(clean)], gradients, wanted, strict=True):
        assert_equal(got.cpu().double(), want, f"gradient of {name}", 4 * TOLERANCE)


@pytest.mark.parametrize("d", [1, 10, 64])
@pytest.mark.parametrize("edge_kinds", [(), (3, 2)], ids=["plain", "kinds"])
def test_values_and_gradients(d: int, edge_kinds: tuple[int, ...], kernel_device: str) -> None:
    _check(batch_edges((3, 2)), edge_kinds, d, kernel_device)


@pytest.mark.parametrize("edge_kinds", [(1,), (70,)], ids=str)
def test_numbers_of_labels(edge_kinds: tuple[int, ...], kernel_device: str) -> None:
    _check(batch_edges(edge_kinds), edge_kinds, 20, kernel_device)


def test_one_model_and_weights(kernel_device: str) -> None:
    edges = batch_edges((3, 2), [1, 3])
    assert edges.kind is not None
    _check(dataclasses.replace(edges, weight=edges.kind / 10 + 0.5), (3, 2), 16, kernel_device)


def test_a_node_of_many_neighbours(kernel_device: str) -> None:
    _check(star_edges((3, 2)), (3, 2), 16, kernel_device)
