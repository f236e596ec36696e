"""ReplicaDropout: one random stream per replica, statistically independent and reproducible."""

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN, ReplicaDropout
from tests.graphs import assert_equal, random_graphs


def _dropped(layer: ReplicaDropout, *shape: int) -> torch.Tensor:
    return layer(torch.ones(*shape)) == 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropped_fraction_and_scale(p: float) -> None:
    torch.manual_seed(0)
    layer = ReplicaDropout(p)
    out = layer(torch.ones(1000, 100))
    assert abs(float((out == 0).double().mean()) - p) < 0.005  # 0.0016 is one standard deviation at most
    assert_equal(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)), tolerance=1e-6)


def test_steps_rows_columns_and_seeds_are_independent() -> None:
    torch.manual_seed(1)
    layer = ReplicaDropout(0.5, lead=(2,))
    first, second = (_dropped(layer, 2, 400, 100).double() - 0.5 for _ in range(2))
    pairs = {
        "steps": (first, second),
        "replicas": (first[0], first[1]),
        "rows": (first[:, 1:], first[:, :-1]),
        "columns": (first[..., 1:], first[..., :-1]),
        "distant rows": (first[:, 128:], first[:, :-128]),
    }
    for name, (a, b) in pairs.items():
        correlation = float((a * b).mean() * 4)
        assert abs(correlation) < 5 / a.numel() ** 0.5, f"{name}: {correlation:.4f}"
    # The dropped fractions of rows and columns have about the variance of a binomial distribution.
    for axis, count in ((0, 400), (1, 100)):
        spread = float((first[0].mean(axis) * (count**0.5 * 2)).square().mean())
        assert 0.6 < spread < 1.5, f"axis {axis}: {spread:.2f}"


def test_a_replica_drops_what_a_single_model_drops() -> None:
    torch.manual_seed(2)
    together = ReplicaDropout(0.3, lead=(3,))
    alone = ReplicaDropout(0.3)
    alone.seed.copy_(together.seed[1])
    for rows in (7, 4):
        # Other replicas may have more rows: padding does not shift the stream.
        expected = _dropped(together, 3, 20, 5)[1, :rows]
        assert torch.equal(_dropped(alone, rows, 5), expected)


def test_a_replica_without_rows_does_not_advance_its_stream() -> None:
    layer = ReplicaDropout(0.3, lead=(2,))
    layer(torch.ones(2, 4, 3), torch.tensor([[True] * 4, [False] * 4]))
    assert layer.step.tolist() == [1, 0]


def test_evaluation_and_p_zero_return_the_input() -> None:
    x = torch.randn(5, 4)
    assert ReplicaDropout(0.5).eval()(x) is x
    assert ReplicaDropout(0.0)(x) is x
    with pytest.raises(ArgumentError, match=r"'dropout' must be at least 0 and below 1, got 1\.0\."):
        ReplicaDropout(1.0)


def test_seeded_models_are_equal_and_a_loaded_state_continues_the_stream() -> None:
    graphs = random_graphs([6, 9])
    batch = graphs.as_batch()

    def make() -> HGCN:
        torch.manual_seed(3)
        return HGCN(5, 2, capsule_dim=8, num_capsules=(4,), dropout=0.5).double()

    one, two = make(), make()
    assert_equal(one.forward_batch(batch).class_scores, two.forward_batch(batch).class_scores)
    three = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), dropout=0.5).double()
    three.load_state_dict(one.state_dict())
    assert_equal(three.forward_batch(batch).class_scores, one.forward_batch(batch).class_scores)
    assert (
        float((one.forward_batch(batch).primary - one.forward_batch(batch).primary).detach().abs().max()) > 0
    )


def test_the_stream_is_fixed() -> None:
    """Literal values: a changed stream would break resuming from saved models."""
    layer = ReplicaDropout(0.5)
    layer.seed.fill_(123456789012345)
    layer.step.fill_(4)
    kept = (~_dropped(layer, 4, 6)).int().tolist()
    assert kept == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1], [1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 1, 1]]
