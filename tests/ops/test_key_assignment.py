"""Assignment to keys: a worked example, the gradients of its two results, and the divergence of torch-geometric."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import MemPooling
from torch_geometric.utils import to_dense_batch

from graphcaps.ops.key_assignment import assignment_divergence, key_assignment, split_key_assignment
from tests.graphs import assert_equal, masked_segments, random_graphs


def _inputs(*lead: int, rows: int = 7) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((*lead, rows, 4), (*lead, 3, 5, 4), (*lead, 3))
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def test_worked_example() -> None:
    # One head: distances 0 and 1 give 1 and 1/2, normalised 2/3 and 1/3, and times 3 the logits 2 and 1.
    q, keys, merge, logits = (
        torch.tensor(values, dtype=torch.float64)
        for values in ([[0, 0]], [[[0, 0], [0.6, 0.8]]], [3], [[2, 1]])
    )
    assert_equal(key_assignment(q, keys, merge), logits.softmax(-1))


@pytest.mark.parametrize("lead", [(), (2,)], ids=["one", "replicas"])
def test_keys_get_the_gradient_of_the_second_result_only(lead: tuple[int, ...]) -> None:
    q, keys, merge = _inputs(*lead)
    plain = key_assignment(q, keys, merge)
    first, second = split_key_assignment(q, keys, merge)
    assert_equal(first, plain, "first")
    assert_equal(second, plain, "second")
    one, other = (torch.randn(plain.shape, dtype=torch.float64) for _ in range(2))
    ours = torch.autograd.grad((first * one + second * other).sum(), (q, keys, merge))
    both = torch.autograd.grad((plain * (one + other)).sum(), (q, keys, merge), retain_graph=True)
    alone = torch.autograd.grad((plain * other).sum(), keys)
    for name, actual, expected in zip(("q", "keys", "merge"), ours, (both[0], *alone, both[2]), strict=True):
        assert_equal(actual, expected, f"gradient of {name}")


def test_divergence_equals_torch_geometric() -> None:
    graphs = random_graphs([4, 7, 1, 5])
    logits = torch.randn(17, 3, dtype=torch.float64, requires_grad=True)
    assignment = logits.softmax(-1)
    padded, _ = to_dense_batch(assignment, graphs.batch)
    expected = MemPooling.kl_loss(padded)
    actual = assignment_divergence(assignment, graphs.segments)
    assert_equal(actual.mean(), expected, "divergence")
    ours, theirs = (torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (actual.mean(), expected))
    assert_equal(ours, theirs, "gradient")
    # Coarse graphs have rows of equal number.
    coarse = logits[:16].unflatten(0, (4, 4)).softmax(-1)
    assert_equal(assignment_divergence(coarse).mean(), MemPooling.kl_loss(coarse), "coarse")


def test_padding_and_graphs_without_nodes_have_no_divergence() -> None:
    mask = torch.tensor([[True] * 4 + [False] * 2, [False] * 6])
    logits = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    actual = assignment_divergence(logits.softmax(-1), masked_segments(mask))
    alone = assignment_divergence(logits[:1, :4].softmax(-1))
    assert_equal(actual, torch.stack([alone, torch.zeros(1)]))
    (gradient,) = torch.autograd.grad(actual.sum(), logits)
    assert bool(gradient.isfinite().all())
    assert not bool(gradient[~mask].any())
