"""Operations over closed neighbourhoods: the ragged and the dense form agree, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.ops import neighbourhoods, to_edge_index
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.neighbourhoods import DenseNeighbourhoods, Neighbourhoods, RaggedNeighbourhoods
from tests.graphs import assert_equal, random_graphs

SIZES, LARGEST = [6, 1, 11], 11
DROPOUT = HashedDropout(torch.tensor([123, -456], dtype=torch.int32), 0.4)


class _Pair:
    """The same graphs with the same features in both forms; the dense one has a place for each node of the largest."""

    def __init__(self) -> None:
        graphs = random_graphs(SIZES, density=2.0)
        self.x = graphs.x.clone().requires_grad_()
        self.ragged: Neighbourhoods = RaggedNeighbourhoods.of(graphs.edges, graphs.segments)
        size = torch.tensor(SIZES)
        first = size.cumsum(0) - size
        self.place = torch.arange(len(graphs.x)) - first[graphs.batch] + LARGEST * graphs.batch
        source, target = self.place[to_edge_index(graphs.edges)]
        A = torch.zeros(3 * LARGEST, 3 * LARGEST, dtype=torch.float64)
        A[target, source] = 1
        blocks = [A[s : s + LARGEST, s : s + LARGEST] for s in range(0, 3 * LARGEST, LARGEST)]
        self.dense: Neighbourhoods = DenseNeighbourhoods(
            self.dense_rows(self.x), size, torch.stack(blocks), LARGEST
        )

    def dense_rows(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(3 * LARGEST, rows.size(-1)).index_add(0, self.place, rows)

    def check(self, ragged: Tensor, dense: Tensor, name: str) -> None:
        """Equal rows of real nodes, and equal gradients of the features."""
        assert_equal(dense[self.place], ragged, name)
        gradients = [
            torch.autograd.grad(value.sin().sum(), self.x, retain_graph=True)[0]
            for value in (ragged, dense[self.place])
        ]
        assert_equal(gradients[1], gradients[0], f"gradient of {name}")


@pytest.mark.parametrize("block", [None, 50], ids=["one block", "blocks"])
def test_both_forms_agree(block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if block is not None:
        monkeypatch.setattr(neighbourhoods, "_BLOCK_NUMBERS", block)
    both = _Pair()
    x, wide = both.x, both.dense_rows(both.x)
    both.check(both.ragged.hop(x), both.dense.hop(wide), "hop")
    both.check(both.ragged.maximum(x), both.dense.maximum(wide), "maximum")
    both.check(both.ragged.total(x), both.dense.total(wide), "sum")
    count = both.ragged.count(torch.float64)
    assert torch.equal(both.dense.count(torch.float64)[both.place], count)
    assert torch.equal(count, both.ragged.total(torch.ones_like(count)))


@pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["all", "dropout"])
def test_both_forms_have_the_same_attention_and_coarse_graphs(dropout: HashedDropout | None) -> None:
    both = _Pair()
    results = []
    for graphs, x in ((both.ragged, both.x), (both.dense, both.dense_rows(both.x))):
        attention = graphs.attention(x[:, :1], x[:, 1:2], 0.2, dropout)
        rows = graphs.weigh(attention, x)
        coarse = graphs.coarsen(rows, rows[:, 0].sin(), attention, 0.5)
        last = graphs.coarsen(rows, rows[:, 0].sin(), None, 0.5)
        assert torch.equal(last.x, coarse.x)
        assert last.adjacency is None
        results.append((rows, coarse))
    (rows, ragged), (wide, dense) = results
    both.check(rows, wide, "weighted sum")
    assert ragged.places == dense.places == 6
    assert ragged.size.tolist() == dense.size.tolist() == [3, 1, 6]
    assert_equal(dense.x, ragged.x, "rows")
    assert ragged.adjacency is not None
    assert dense.adjacency is not None
    assert float(ragged.adjacency.max()) > 0.1
    assert_equal(dense.adjacency, ragged.adjacency, "edges")


def test_dropout_drops_its_share() -> None:
    both = _Pair()
    full, dropped = (both.dense.attention(wide, wide, 0.2, d) for wide, d in _one_column(both))
    members = full > 0
    share = float((dropped[members] == 0).double().mean())
    assert 0.25 < share < 0.55
    kept = dropped > 0
    assert_equal(dropped[kept], full[kept] / 0.6)


def _one_column(both: _Pair) -> list[tuple[Tensor, HashedDropout | None]]:
    wide = both.dense_rows(both.x)[:, :1]
    return [(wide, None), (wide, DROPOUT)]
