"""AdjacencyDecoder with ``reconstruct_up_to``: sampled pairs, one random stream per replica, kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.ops import PAPER, RELEASED, reconstruction_loss
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.activation.hashed_dropout import next_step_keys
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.ops.reconstruction.pair_loss_sampled import sampled_reconstruction_loss
from graphcaps.types import GraphBatch, Segments
from tests.graphs import assert_equal, random_graphs
from tests.ops.conftest import kernel_device  # noqa: F401

UP_TO = 10
SIZES = [7, 40, 1, 12, 33, 5]


def _decoder(
    up_to: int | None = UP_TO, lead: tuple[int, ...] = (), seed: int = 0, **options: Any
) -> AdjacencyDecoder:
    torch.manual_seed(seed)
    return AdjacencyDecoder(2, 4, 6, reconstruct_up_to=up_to, lead=lead, **options).double()


def _inputs(batch: GraphBatch, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Primary and class capsules for a batch."""
    generator = torch.Generator().manual_seed(seed)
    rows, graphs = batch.segments.index.shape, batch.segments.sizes.shape
    primary = torch.rand(*rows, 6, dtype=torch.float64, generator=generator) * 0.3
    return primary, torch.rand(*graphs, 2, 4, dtype=torch.float64, generator=generator)


def _loss(decoder: AdjacencyDecoder, batch: GraphBatch) -> Tensor:
    assert batch.y is not None
    primary, capsules = _inputs(batch)
    loss: Tensor = decoder(primary, batch.edges, batch.segments, class_capsules=capsules, y=batch.y)
    return loss.detach()


def test_without_sampling_there_is_no_extra_state() -> None:
    """State and initial weights do not depend on the option; torch's generator is not advanced."""
    exact, sampled = _decoder(None), _decoder()
    assert set(exact.state_dict()) == {"weight", "bias"}
    assert set(sampled.state_dict()) == {"weight", "bias", "seed", "step"}
    torch.manual_seed(3)
    without = HGCN(5, 2, capsule_dim=8).state_dict()
    torch.manual_seed(3)
    with_sampling = HGCN(5, 2, capsule_dim=8, reconstruct_up_to=9).state_dict()
    assert set(with_sampling) - set(without) == {"decoder.seed", "decoder.step"}
    assert all(torch.equal(with_sampling[name], value) for name, value in without.items())
    assert _decoder(None).extra_repr() == "2, 4, 6"
    assert _decoder(lead=(3,)).extra_repr() == "2, 4, 6, reconstruct_up_to=10, lead=(3,)"


def test_loss_covers_all_pairs_without_sampling() -> None:
    batch = random_graphs(SIZES).as_batch()
    decoder = _decoder(None).train()
    primary, capsules = _inputs(batch)
    assert batch.y is not None
    expected = reconstruction_loss(
        primary, batch.edges, batch.segments, RELEASED, decoder.code(capsules, batch.y)
    )
    assert torch.equal(_loss(decoder, batch), expected.detach())
    assert torch.equal(_loss(_decoder(40).train(), batch), expected.detach())


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_each_step_samples_with_the_keys_of_its_seed(formulation: Any) -> None:
    batch = random_graphs(SIZES).as_batch()
    decoder = _decoder(formulation=formulation).train()
    losses = [_loss(decoder, batch) for _ in range(3)]
    assert int(decoder.step) == 3
    assert len({float(value) for value in losses}) == 3
    primary, capsules = _inputs(batch)
    assert batch.y is not None
    step = torch.tensor(0)
    formula = RELEASED if formulation == "released" else PAPER
    code = decoder.code(capsules, batch.y)
    for value in losses:
        keys = next_step_keys(decoder.seed, step, None)
        expected = sampled_reconstruction_loss(
            primary, batch.edges, batch.segments, formula, code, keys=keys, up_to=UP_TO
        )
        assert torch.equal(value, expected.detach())


def test_evaluation_always_samples_the_same_pairs() -> None:
    batch = random_graphs(SIZES).as_batch()
    decoder = _decoder().eval()
    assert torch.equal(_loss(decoder, batch), _loss(decoder, batch))
    assert int(decoder.step) == 0


def test_reset_parameters_draws_a_new_seed() -> None:
    decoder = _decoder().train()
    _loss(decoder, random_graphs([30]).as_batch())
    before = decoder.seed.clone()
    decoder.reset_parameters()
    assert int(decoder.step) == 0
    assert not torch.equal(decoder.seed, before)


def test_a_replica_samples_as_a_single_model_does() -> None:
    """Also in steps where only another replica has a large graph, and where the replica has no graph."""
    graphs = random_graphs(SIZES)
    store = graphs.as_store()
    steps = [
        [[1, 3, 0], [4, 2, 5], [0, 5, -1]],
        [[0, 5, 2], [1, 2, 5], [-1, -1, -1]],
        [[2, 5, 0], [0, 5, -1], [2, -1, -1]],
        [[4, 1, 0], [3, 4, 1], [1, 3, -1]],
    ]
    stacked = _decoder(lead=(3,)).train()
    singles = [_decoder(seed=f + 1).train() for f in range(3)]
    state = stacked.state_dict()
    for f, single in enumerate(singles):
        for name, value in single.state_dict().items():
            state[name][f].copy_(value)
    for chosen in steps:
        batch = store.batch(graphs.x, torch.tensor(chosen))
        primary, capsules = _inputs(batch)
        together = stacked(primary, batch.edges, batch.segments, class_capsules=capsules, y=batch.y)
        for f, single in enumerate(singles):
            indices = [graph for graph in chosen[f] if graph >= 0]
            if not indices:
                continue
            alone = store.batch(graphs.x, torch.tensor(indices))
            V, B = alone.segments.num_rows, len(indices)
            expected = single(
                primary[f, :V], alone.edges, alone.segments, class_capsules=capsules[f, :B], y=alone.y
            )
            assert_equal(together[f].detach(), expected.detach(), f"loss of replica {f}", 1e-12)
    assert stacked.step.tolist() == [int(single.step) for single in singles] == [4, 4, 3]


def test_loss_without_graph_sizes_on_the_host() -> None:
    batch = random_graphs(SIZES).as_batch()
    unknown = GraphBatch(batch.x, Segments(batch.segments.ptr, batch.segments.index), batch.edges, batch.y)
    assert_equal(_loss(_decoder().train(), unknown), _loss(_decoder().train(), batch), "loss", 1e-12)


@pytest.mark.parametrize("bits", [True, False], ids=["bits", "listed"])
def test_kernels_equal_torch(kernel_device: str, bits: bool) -> None:  # noqa: F811
    """Small and large graphs in one batch of three replicas: loss, gradients and the kernel that derives the keys."""
    graphs = random_graphs(SIZES, seed=3)
    results = []
    for mode, device, dtype in (("off", "cpu", torch.float64), ("always", kernel_device, torch.float32)):
        store = graphs.as_store().to(device)
        chosen = torch.tensor([[1, 3, 0], [4, 2, -1], [-1, -1, -1]])
        batch = store.batch(graphs.x.to(device, dtype), chosen)
        packed = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes) if bits else None
        edges = replace(batch.edges, bits=packed)
        decoder = _decoder(lead=(3,)).to(device, dtype).train()
        assert batch.y is not None
        inputs = [value.to(device, dtype).requires_grad_() for value in _inputs(batch)]
        with use_kernels(mode):
            for _ in range(2):
                loss = decoder(inputs[0], edges, batch.segments, class_capsules=inputs[1], y=batch.y)
            gradients = torch.autograd.grad(loss.sum(), [*inputs, *decoder.parameters()])
        assert decoder.step.tolist() == [2, 2, 0]
        results.append([value.detach().cpu().double() for value in (loss, *gradients)])
    names = ("loss", "primary", "class capsules", "weight", "bias")
    for name, slow, fast in zip(names, *results, strict=True):
        assert_equal(fast, slow, name, 3e-5)


def test_a_sampled_reconstruction_can_be_captured() -> None:
    assert HGCN(5, 2, capsule_dim=8).capturable
    assert HGCN(5, 2, capsule_dim=8, reconstruct_up_to=4096).capturable
    assert HGCN(5, 2, capsule_dim=8, reconstruct_up_to=4096, reconstruction=False).capturable


def test_sample_size_below_one_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"HGCN: 'reconstruct_up_to' must be at least 1, got 0\."):
        HGCN(5, 2, reconstruct_up_to=0)
