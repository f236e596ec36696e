"""Sparse feature tables equal the dense features, and their rows are gathered only when read."""

from typing import Any

import pytest
import torch

from graphcaps.data.batching import collate, collate_padded
from graphcaps.data.features.encoding import compact_features, feature_table
from graphcaps.errors import ShapeError
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.ops.projection.projection import feature_statistics
from graphcaps.types import FeatureRows, FeatureTable
from tests.graphs import assert_equal, random_graphs

STORE = random_graphs([4, 1, 7, 20], seed=1).as_store()
GRAPHS = torch.tensor([[0, 2, -1], [1, 1, 3], [-1, -1, -1]])


def _x(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.nn.functional.one_hot(torch.arange(32) % 9, 12).to(dtype)
    x[:, 9] = 0.1  # constant
    x[:, 10] = 500 + torch.arange(32).sin()
    return x


def _restored(table: FeatureTable) -> torch.Tensor:
    """The dense features, restored from the entries."""
    x = table.shift.expand(table.x.shape).clone()
    rows = torch.arange(len(x)).repeat_interleave(table.ptr.diff())
    x[rows, table.columns.long()] += table.values
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entries_and_sums(dtype: torch.dtype) -> None:
    x = _x(dtype)
    table = feature_table(x, STORE)
    assert table.sparse
    assert_equal(_restored(table), x, "x", 1e-7)
    assert table.shift.nonzero().squeeze(-1).tolist() == [9, 10]  # columns with a large mean
    assert not (table.columns == 9).any()
    shifted = (x - table.shift).double()
    for graph in range(len(STORE)):
        rows = shifted[STORE.node_ptr[graph] : STORE.node_ptr[graph + 1]]
        assert_equal(table.sums[graph], rows.sum(0), "sums", 1e-14)
        assert_equal(table.squares[graph], rows.square().sum(0), "squares", 1e-14)


def test_dense_features_have_no_entries() -> None:
    table = feature_table(torch.randn(32, 40), STORE)
    assert not table.sparse
    assert table.columns.numel() == table.values.numel() == 0
    assert table.ptr.tolist() == [0] * 33
    assert feature_table(torch.randn(32, 16), STORE).sparse  # few columns are always sparse


def test_features_of_another_store_are_refused() -> None:
    with pytest.raises(ShapeError, match="feature_table: 'x' must have one row per node, 32, got 31"):
        feature_table(torch.zeros(31, 2), STORE)


def test_a_batch_gathers_rows_when_x_is_read() -> None:
    x = _x()
    table = feature_table(x, STORE)
    lazy, plain = collate(STORE, table, GRAPHS), STORE.batch(x, GRAPHS)
    assert isinstance(lazy.features, FeatureRows)
    assert "x" not in lazy.__dict__
    assert lazy.features.shape == plain.x.shape
    assert torch.equal(lazy.x, plain.x)  # 0 at padding
    assert lazy.x is lazy.x
    padded = collate_padded(STORE, table, GRAPHS, 25)
    real = padded.edges.node >= 0
    assert torch.equal(padded.x[real], collate_padded(STORE, x, GRAPHS, 25).x[real])


@pytest.mark.parametrize("kind", [HGCN, GIN, "input", "paper", "trunk"])
def test_models_accept_a_table(kind: object) -> None:
    """Models that read the sparse entries and models that gather the rows."""
    arguments = {
        "input": {"disentangle": False},
        "paper": {"formulation": "paper"},
        "trunk": {"trunk": "gin"},
    }
    options = arguments.get(kind, {}) if isinstance(kind, str) else {}
    model: Any
    if kind is GIN:
        model = GIN(12, 2, hidden=8, lead=(3,)).double().eval()
    else:
        model = HGCN(12, 2, capsule_dim=8, num_capsules=3, lead=(3,), **options).double().eval()  # type: ignore[arg-type]
    x = _x()
    one, two = (model.forward_batch(collate(STORE, f, GRAPHS)) for f in (x, feature_table(x, STORE)))
    # The last replica has no graph.
    assert_equal(two.class_scores[:2], one.class_scores[:2], "scores", 1e-12)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_statistics_in_float64(training: bool) -> None:
    table = feature_table(_x(), STORE)
    rows = collate(STORE, table, GRAPHS).features
    assert isinstance(rows, FeatureRows)
    torch.manual_seed(0)
    running = (torch.randn(3, 12, dtype=torch.float64), torch.rand(3, 12, dtype=torch.float64))
    before = [each.clone() for each in running]
    mean, rstd = feature_statistics(rows, running, training=training, momentum=0.1, epsilon=1e-5)
    for f in (0, 1) if training else (0, 1, 2):
        centre, var = before[0][f], before[1][f]
        if training:
            var, centre = torch.var_mean(rows.gather()[f][rows.node[f] >= 0], 0, correction=0)
        assert_equal(mean[f] + table.shift, centre, "mean", 1e-12)
        assert_equal(rstd[f], (var + 1e-5).rsqrt(), "rstd", 1e-9)
    still = [2] if training else [0, 1, 2]
    assert all(torch.equal(now[still], then[still]) for now, then in zip(running, before, strict=True))


def test_training_reads_a_table_on_a_gpu_and_very_sparse_features_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = random_graphs([20, 30], seed=1).as_store()
    sparse = torch.nn.functional.one_hot(torch.arange(50) % 40, 40).float()
    dense = torch.rand(50, 40) + 1
    table = compact_features(sparse, store)
    assert isinstance(table, FeatureTable)
    assert table.sparse
    assert compact_features(dense, store) is dense
    monkeypatch.setattr("graphcaps.data.features.encoding.feature_table", lambda x, store: "table")
    assert compact_features(dense.to("meta"), store) == "table"
