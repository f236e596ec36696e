"""Agreement of partitions and use of capsules, computed by hand."""

import math

import pytest
import torch

from graphcaps.errors import ShapeError
from graphcaps.explanation.agreement import (
    capsule_usage,
    graphs_with_distinct_kinds,
    nearly_uniform,
    partition_agreement,
    rank_correlation,
)

PTR = torch.tensor([0, 4, 8])
TRUTH = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])


def test_numbering_of_parts_matters_over_all_nodes_but_not_within_a_graph() -> None:
    other = torch.tensor([5, 5, 3, 3, 3, 3, 5, 5])  # swapped in the second graph
    metrics = partition_agreement(other, TRUTH, PTR)
    assert metrics["nmi"] == pytest.approx(1)
    assert metrics["ari"] == pytest.approx(1)
    assert metrics["nmi_all"] == pytest.approx(0, abs=1e-9)
    assert partition_agreement(1 - TRUTH, TRUTH, PTR) == pytest.approx({"nmi": 1, "nmi_all": 1, "ari": 1})
    assert partition_agreement(torch.zeros(8, dtype=torch.long), TRUTH, PTR)["nmi"] == pytest.approx(0)


def test_graph_mask_and_shape_check() -> None:
    half = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])
    assert partition_agreement(half, TRUTH, PTR)["nmi"] == pytest.approx(0.5)
    assert partition_agreement(half, TRUTH, PTR, torch.tensor([True, False]))["nmi"] == pytest.approx(1)
    with pytest.raises(ShapeError, match="have 8 nodes"):
        partition_agreement(half[:7], TRUTH[:7], PTR)


def test_graphs_with_distinct_kinds() -> None:
    kind = torch.tensor([0, 2, 2, 3, 2, 2, 3, 3])
    part = torch.tensor([-1, 0, 0, 1, 0, 1, 2, 2])  # the second graph has two parts of kind 2
    assert graphs_with_distinct_kinds(kind, part, PTR).tolist() == [True, False]


def test_capsule_usage() -> None:
    hard, split = [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]
    assignment = torch.tensor([hard, hard, [0.0, 1.0, 0.0], split, hard, hard, hard, hard])
    metrics = capsule_usage(assignment, assignment.argmax(-1), PTR)
    assert metrics["entropy"] == pytest.approx(math.log(2) / math.log(3) / 8, rel=1e-5)
    assert metrics["dead_capsules"] == 1
    assert metrics["share"] == pytest.approx([0.875, 0.125, 0])
    assert metrics["used_per_graph"] == pytest.approx(1.5)
    assert capsule_usage(torch.full((8, 4), 0.25), torch.zeros(8, dtype=torch.long), PTR)[
        "entropy"
    ] == pytest.approx(1)


def test_coefficients_are_compared_between_the_nodes_of_a_graph() -> None:
    even, other = [0.5, 0.3, 0.2], [0.56, 0.26, 0.18]
    unused = [0.5, 0.5, 0.0]  # counts as 0.05
    c = torch.tensor([even, other, even, [0.1, 0.3, 0.6], unused, [0.49, 0.49, 0.02], even])
    ptr = torch.tensor([0, 2, 4, 6, 6, 7])  # the fourth has no node, the last a single one
    assert nearly_uniform(c, ptr).tolist() == [True, False, True, False, False]
    assert nearly_uniform(torch.ones(3, 1), torch.tensor([0, 3])).tolist() == [False]  # one capsule


def test_rank_correlation_depends_on_the_order_only() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0])
    assert rank_correlation(scores, scores.exp(), PTR) == pytest.approx(1)
    assert rank_correlation(scores, -scores, PTR) == pytest.approx(-1)
    assert math.isnan(rank_correlation(scores, torch.zeros(8), PTR))
