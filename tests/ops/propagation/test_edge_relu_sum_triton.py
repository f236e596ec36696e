"""The messages of GINE by the kernels against the torch form in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.propagation.edge_relu_sum import edge_relu_sum
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal
from tests.ops.propagation.test_modulated_hop_triton import DRAWN, batch_edges, draw, star_edges

TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def moved(edges: EdgeTable, device: str) -> EdgeTable:
    names = ("ptr", "neighbours", "weight", "node", "first", "kind")
    there = {name: t.to(device) for name in names if (t := getattr(edges, name)) is not None}
    return dataclasses.replace(edges, **there)


def check(edges: EdgeTable, edge_kinds: tuple[int, ...], d: int, device: str) -> None:
    lead, real = tuple(edges.node.shape[:-1]), (edges.node >= 0).unsqueeze(-1)
    x, shift = draw((*edges.node.shape, d), 1), draw((*lead, sum(edge_kinds), d), 2)
    grad = draw(x.shape, 3)
    poisoned = [t.to(device).requires_grad_() for t in (x.masked_fill(~real, float("nan")), shift)]
    # The kernel adds in float32, in which a sum may have another sign than in float64.
    clean = [t.double().requires_grad_() for t in (x.masked_fill(~real, 0), shift)]
    with use_kernels("always"):
        actual = edge_relu_sum(*poisoned, moved(edges, device), edge_kinds)
        poison = grad.masked_fill(~real, float("nan")).to(device)
        gradients = torch.autograd.grad(actual, poisoned, poison)
    with use_kernels("off"):
        weight = None if edges.weight is None else edges.weight.double()
        expected = edge_relu_sum(*clean, dataclasses.replace(edges, weight=weight), edge_kinds)
        wanted = torch.autograd.grad(expected, clean, grad.masked_fill(~real, 0).double())
    assert_equal(actual.cpu().double(), expected, "sum", TOLERANCE)
    for name, got, want in zip(("x", "shift"), gradients, wanted, strict=True):
        assert_equal(got.cpu().double(), want, f"gradient of {name}", 4 * TOLERANCE)


@pytest.mark.parametrize("d", [1, 10, 32, 130])
def test_values_and_gradients(d: int, kernel_device: str) -> None:
    check(batch_edges((3, 2)), (3, 2), d, kernel_device)


@pytest.mark.parametrize("edge_kinds", [(1,), (4,), (5, 2, 2, 6), (70,)], ids=str)
def test_numbers_of_labels(edge_kinds: tuple[int, ...], kernel_device: str) -> None:
    check(batch_edges(edge_kinds), edge_kinds, 20, kernel_device)


@pytest.mark.parametrize("drawn", [[1, 3], DRAWN], ids=str)
@pytest.mark.parametrize("weighted", [True, False])
def test_one_model_and_weights(drawn: list[int], weighted: bool, kernel_device: str) -> None:
    edges = batch_edges((3, 2), drawn)
    if weighted:
        assert edges.kind is not None
        edges = dataclasses.replace(edges, weight=edges.kind / 10 + 0.5)  # equal in both directions
    check(edges, (3, 2), 16, kernel_device)


def test_a_node_of_many_neighbours(kernel_device: str) -> None:
    check(star_edges((3, 2)), (3, 2), 16, kernel_device)


def test_nan_is_not_hidden(kernel_device: str) -> None:
    edges = moved(batch_edges((3, 2), [1, 3]), kernel_device)
    x = torch.full((*edges.node.shape, 4), float("nan"), device=kernel_device)
    with use_kernels("always"):
        y = edge_relu_sum(x, torch.zeros(5, 4, device=kernel_device), edges, (3, 2))
    assert bool(y.isnan().any())


def test_gradients_of_labels_are_the_same_in_every_run(kernel_device: str) -> None:
    edges = moved(batch_edges((3, 2)), kernel_device)
    shapes = ((*edges.node.shape, 16), (3, 5, 16))
    tensors: list[Tensor] = [
        draw(s, seed).to(kernel_device).requires_grad_() for seed, s in enumerate(shapes)
    ]
    runs = []
    for _ in range(2):
        with use_kernels("always"):
            loss = edge_relu_sum(tensors[0], tensors[1], edges, (3, 2)).square().sum()
        runs.append(torch.autograd.grad(loss, tensors))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
