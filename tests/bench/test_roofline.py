"""Ceilings of a device, and the bytes and operations of a step, computed by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from graphcaps.bench import (
    Ceilings,
    Count,
    StepSizes,
    count_phases,
    measure_ceilings,
    roofline,
    step_sizes,
)
from graphcaps.data.features.encoding import feature_table
from graphcaps.errors import ArgumentError
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN, PrimaryCapsules
from graphcaps.profiling import PHASES
from tests.graphs import random_graphs

CPU = torch.device("cpu")
# Two graphs of 2 and 3 nodes, 4 edges; 3 columns, capsules of 4, two capsules, three classes, two iterations.
SIZES = StepSizes(
    replicas=1, graphs=2, nodes=5, entries=8, pairs=13, in_channels=3, capsule_dim=4,
    num_capsules=(2, 3), routing_iterations=2, parameters=100,
)  # fmt: skip
BY_HAND = {
    "batch": Count(4 * (2 * 15 + 2 * 5), 0),
    "primary": Count(4 * (15 + 16 + 20), 2 * 5 * 3 * 4),
    "hop": Count(4 * (20 + 20 + 8 + 13), 2 * 13 * 4 + 20),
    "routing": Count(4 * (20 + 8 + 40 + 16 + 10), 20 + 160 + 384),
    "coarsening": Count(4 * (10 + 8 + 13), 32 + 40),
    "class level": Count(4 * (16 + 8 + 60 + 24 + 12), 64 + 16 + 192 + 576),
    "reconstruction": Count(4 * (20 + 8 + 52 + 1 + 10), 8 * 4 + 64),
    # primary, hop, routing, class level, reconstruction; the assignment and A' carry no gradient
    "backward": Count(4 * (67 + 81 + 152 + 184 + 171), 120 + 124 + 336 + 544 + 232),
    "update": Count(2800, 1200),
}


def test_the_roofline_is_the_longer_of_the_two_times() -> None:
    ceilings = Ceilings(bandwidth=100.0, rate=1000.0)
    assert ceilings.seconds(200, 1000) == 2.0
    assert ceilings.seconds(200, 5000) == 5.0


def test_rates_follow_from_the_best_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pairs of readings: the runs of the copy take 4, 2 and 3 seconds, those of the product 8, 16 and 5.
    lengths = (4, 2, 3, 8, 16, 5)
    readings = itertools.chain.from_iterable((100.0 * k, 100.0 * k + s) for k, s in enumerate(lengths))
    monkeypatch.setattr(roofline.time, "perf_counter", lambda: next(readings))
    ceilings = measure_ceilings(CPU, copy_bytes=4000, matmul_size=10, repeats=3)
    assert ceilings.bandwidth == 2 * 4000 / 2
    assert ceilings.rate == 2 * 10**3 / 5


def test_a_real_measurement_is_positive() -> None:
    ceilings = measure_ceilings(CPU, copy_bytes=10**6, matmul_size=64, repeats=2)
    assert ceilings.bandwidth > 0
    assert ceilings.rate > 0


def test_zero_repeats_are_refused() -> None:
    with pytest.raises(ArgumentError, match="measure_ceilings: 'repeats' must be at least 1, got 0"):
        measure_ceilings(CPU, repeats=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_ceilings_of_a_gpu() -> None:
    assert measure_ceilings(torch.device("cuda"), copy_bytes=10**8, matmul_size=1024).bandwidth > 1e9


def test_layers_of_a_context_count_in_the_hop() -> None:
    phases = count_phases(replace(SIZES, hops=3, hop_weights=7))
    assert phases["hop"] == Count(4 * (20 + 20 + 8 + 13 + 7), 3 * 2 * 13 * 4 + 20 + 2 * 5 * 7)
    backward = BY_HAND["backward"]
    more = 4 * 2 * 7, 2 * 2 * 13 * 4 + 2 * 2 * 5 * 7
    assert phases["backward"] == Count(backward.bytes + more[0], backward.operations + more[1])


@pytest.mark.parametrize(
    ("options", "hops", "weights"),
    [
        ({}, 1, 0),
        ({"context": "residual", "context_layers": 1}, 2, 2 * 16),
        ({"context": "gin", "context_jumping": True}, 3, 4 * 16 + 3 * 16),
        ({"parts": "blocks"}, 6, 3 * 2 * 16),
    ],
)
def test_sizes_of_a_context(options: dict[str, object], hops: int, weights: int) -> None:
    graphs = random_graphs([3, 5])
    model = HGCN(5, 2, capsule_dim=4, num_capsules=(2,), lead=(3,), **options)
    sizes = step_sizes(model, graphs.as_store(), torch.tensor([[0, 1]] * 3))
    assert (sizes.hops, sizes.hop_weights, sizes.detached) == (hops, weights, "parts" not in options)


def test_phases_of_a_step_by_hand() -> None:
    counts = count_phases(SIZES)
    assert tuple(counts) == PHASES
    assert counts == BY_HAND


def test_one_iteration_is_a_sum_and_one_product_with_each_matrix() -> None:
    assert (
        count_phases(replace(SIZES, routing_iterations=1))["routing"].operations == 5 * 4 + 2 * 2 * 2 * 4 * 4
    )


def test_without_a_decoder_there_is_no_reconstruction() -> None:
    counts = count_phases(replace(SIZES, reconstruction=False))
    assert counts["reconstruction"] == Count(0, 0)
    assert BY_HAND["backward"].operations - counts["backward"].operations == 232


def test_gradients_through_the_assignment_cost_more() -> None:
    count = count_phases(replace(SIZES, detached=False))["backward"]
    # routing and class level twice their forward pass, and twice the coarsening
    assert count.operations == 120 + 124 + 2 * 564 + 2 * 848 + 2 * 72 + 232
    # gradients of c [5, 2] and of A' [2, 2, 2], of the class level's c [2, 2, 3] and A' as input
    assert count.bytes == BY_HAND["backward"].bytes + 4 * (10 + (10 + 8 + 10 + 13) + 12 + 8)


def test_a_middle_level_passes_an_adjacency_on() -> None:
    two = count_phases(replace(SIZES, num_capsules=(2, 2, 3)))["class level"]
    # a level of two capsules above two: capsules, A, weights, capsules, c and A'
    assert two.bytes - BY_HAND["class level"].bytes == 4 * (16 + 8 + 40 + 16 + 8 + 8)
    # hop, routing of 4 input capsules to 2 output capsules, coarsening
    assert two.operations - BY_HAND["class level"].operations == 64 + (16 + 2 * 64 + 3 * 128) + (32 + 32)


def test_sizes_are_those_of_the_graphs_of_the_step() -> None:
    store = random_graphs([2, 3, 5, 1], channels=4, seed=1).as_store()
    model = HGCN(4, 2, capsule_dim=8, num_capsules=(3,), routing_iterations=2, lead=(2,))
    sizes = step_sizes(model, store, torch.tensor([[0, 2, 3], [1, -1, -1]]))
    entries = store.host_entry_ptr.diff()
    assert sizes == StepSizes(
        replicas=2, graphs=4, nodes=2 + 5 + 1 + 3, entries=int(entries.sum()), pairs=4 + 25 + 1 + 9,
        in_channels=4, capsule_dim=8, num_capsules=(3, 2), routing_iterations=2,
        parameters=sum(p.numel() for p in model.parameters()),
    )  # fmt: skip


def test_another_model_is_refused() -> None:
    store = random_graphs([2, 3], channels=4, seed=1).as_store()
    for model in (GIN(4, 2), HGCN(4, 2, disentangle=False), HGCN(4, 2, trunk="gin")):
        with pytest.raises(ArgumentError, match="'model' must be an HGCN with primary capsules"):
            step_sizes(model, store, torch.tensor([[0, 1]]))


def test_sparse_features_are_read_once_and_not_copied() -> None:
    counts = count_phases(replace(SIZES, nonzeros=6, copied=False))
    assert counts["batch"] == Count(4 * 2 * 5, 0)
    assert counts["primary"] == Count(4 * (6 + 16 + 20 + 6 + 5), 2 * 6 * 4)
    saved = 120 - 48
    assert BY_HAND["backward"].operations - counts["backward"].operations == saved


def test_features_that_are_not_sparse_are_read_where_they_are() -> None:
    counts = count_phases(replace(SIZES, copied=False))
    assert counts["batch"] == Count(4 * 2 * 5, 0)
    assert counts["primary"] == BY_HAND["primary"]


def test_nonzeros_are_counted_in_the_graphs_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = random_graphs([2, 3, 5, 1], channels=4, seed=1)
    store = graphs.as_store()
    x = torch.zeros(11, 4)
    x[1, 2], x[6, 0], x[9, 3], x[9, 1] = 1.0, 2.0, 3.0, 4.0  # of graphs 0, 2, 2 and 2
    table = feature_table(x, store)
    model = HGCN(4, 2, capsule_dim=8, num_capsules=(3,), lead=(2,))
    graphs_of_step = torch.tensor([[0, 2], [2, -1]])
    for reads_store, nonzeros in ((True, 1 + 3 + 3), (False, None)):
        monkeypatch.setattr(PrimaryCapsules, "reads_store", lambda self, rows, reads=reads_store: reads)
        sizes = step_sizes(model, store, graphs_of_step, table)
        assert (sizes.nonzeros, sizes.copied) == (nonzeros, not reads_store)
