"""The hop with edge labels by the kernels against the torch form in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from graphcaps.ops import edge_table, modulated_hop, propagate
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edge_kinds import count_edge_kinds
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal, random_graphs, with_kinds

SIZES = [1, 31, 33, 12, 2]
# Rows of different lengths, empty graphs between others, and a replica of nothing but padding.
DRAWN = [[0, 1, 2], [3, -1, 4], [-1, -1, -1]]
TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def draw(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch_edges(edge_kinds: tuple[int, ...], drawn: list[int] | list[list[int]] = DRAWN) -> EdgeTable:
    graphs = random_graphs(SIZES)
    return with_kinds(graphs.as_store(), edge_kinds).batch(graphs.x, torch.tensor(drawn)).edges


def star_edges(edge_kinds: tuple[int, ...], leaves: int = 70) -> EdgeTable:
    """A node of many neighbours beside a node without."""
    ends = torch.arange(1, leaves + 1)
    star = torch.stack([torch.zeros_like(ends), ends])
    return edge_table(star, leaves + 2, kind=ends % count_edge_kinds(edge_kinds))


def check(
    edges: EdgeTable, edge_kinds: tuple[int, ...], d: int, device: str, normalised: bool = True
) -> None:
    lead, real = tuple(edges.node.shape[:-1]), (edges.node >= 0).unsqueeze(-1)
    shape = (*lead, sum(edge_kinds), d)
    x, tables = draw((*edges.node.shape, d), 1), [draw(shape, seed) for seed in (2, 3)]
    grad = draw(x.shape, 4)
    names = ("ptr", "neighbours", "weight", "node", "first", "kind")
    moved = {name: t.to(device) for name in names if (t := getattr(edges, name)) is not None}
    there = dataclasses.replace(edges, **moved)
    poisoned = [t.to(device).requires_grad_() for t in (x.masked_fill(~real, float("nan")), *tables)]
    clean = [t.double().requires_grad_() for t in (x.masked_fill(~real, 0), *tables)]
    weight = None if edges.weight is None else edges.weight.double()
    with use_kernels("always"):
        actual = modulated_hop(*poisoned, there, edge_kinds, normalised)
        poison = grad.masked_fill(~real, float("nan")).to(device)
        gradients = torch.autograd.grad(actual, poisoned, poison)
    with use_kernels("off"):
        reference = dataclasses.replace(edges, weight=weight)
        expected = modulated_hop(*clean, reference, edge_kinds, normalised)
        wanted = torch.autograd.grad(expected, clean, grad.masked_fill(~real, 0).double())
    assert_equal(actual.cpu().double(), expected, "hop", TOLERANCE)
    for name, got, want in zip(("x", "scale", "shift"), gradients, wanted, strict=True):
        assert_equal(got.cpu().double(), want, f"gradient of {name}", 4 * TOLERANCE)


@pytest.mark.parametrize("d", [1, 10, 32, 130])
def test_values_and_gradients(d, kernel_device):
    check(batch_edges((3, 2)), (3, 2), d, kernel_device)


@pytest.mark.parametrize("edges", [batch_edges((3, 2)), star_edges((3, 2))], ids=["batch", "star"])
def test_without_normalisation(edges, kernel_device):
    check(edges, (3, 2), 20, kernel_device, normalised=False)


@pytest.mark.parametrize("edge_kinds", [(1,), (4,), (5, 2, 2, 6), (70,)], ids=str)
def test_numbers_of_labels(edge_kinds, kernel_device):
    check(batch_edges(edge_kinds), edge_kinds, 20, kernel_device)


@pytest.mark.parametrize("drawn", [[1, 3], DRAWN], ids=str)
@pytest.mark.parametrize("weighted", [True, False])
def test_one_model_and_weights(drawn, weighted, kernel_device):
    edges = batch_edges((3, 2), drawn)
    if weighted:
        edges = dataclasses.replace(edges, weight=edges.kind / 10 + 0.5)  # equal in both directions
    check(edges, (3, 2), 16, kernel_device)


def test_a_node_of_many_neighbours(kernel_device):
    check(star_edges((3, 2)), (3, 2), 16, kernel_device)


def test_without_scale_and_shift_it_is_the_plain_hop(kernel_device):
    edges = batch_edges((3, 2), [1, 3])
    x, zero = draw((*edges.node.shape, 16), 1), torch.zeros(5, 16)
    names = ("ptr", "neighbours", "node", "first", "kind")
    there = dataclasses.replace(edges, **{name: getattr(edges, name).to(kernel_device) for name in names})
    with use_kernels("always"):
        tables = (zero.to(kernel_device), zero.to(kernel_device))
        actual = modulated_hop(x.to(kernel_device), *tables, there, (3, 2))
        expected = propagate(x.to(kernel_device), there)
    assert_equal(actual, expected, tolerance=1e-6)


def test_gradients_of_labels_are_the_same_in_every_run(kernel_device):
    edges = batch_edges((3, 2))
    names = ("ptr", "neighbours", "node", "first", "kind")
    there = dataclasses.replace(edges, **{name: getattr(edges, name).to(kernel_device) for name in names})
    tensors = [draw(shape, seed).to(kernel_device).requires_grad_()
               for seed, shape in enumerate(((*edges.node.shape, 16), (3, 5, 16), (3, 5, 16)))]  # fmt: skip
    runs = []
    for _ in range(2):
        with use_kernels("always"):
            loss = modulated_hop(*tensors, there, (3, 2)).square().sum()
        runs.append(torch.autograd.grad(loss, tensors))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
