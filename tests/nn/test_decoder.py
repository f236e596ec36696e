"""The decoder's choice between all pairs and a sample: off unless asked for, and a stream of its own per replica."""

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
    loss: Tensor = decoder(*_inputs(batch), batch.y, batch.edges, batch.segments)
    return loss.detach()


def test_without_the_option_nothing_is_kept_or_drawn() -> None:
    """State and initial weights are those of old model files; a draw would move torch's generator."""
    bare, sampled = _decoder(None), _decoder()
    assert set(bare.state_dict()) == {"weight", "bias"}
    assert set(sampled.state_dict()) == {"weight", "bias", "seed", "step"}
    torch.manual_seed(3)
    weights = HGCN(5, 2, capsule_dim=8).state_dict()
    torch.manual_seed(3)
    others = HGCN(5, 2, capsule_dim=8, reconstruct_up_to=9).state_dict()
    assert set(others) - set(weights) == {"decoder.seed", "decoder.step"}
    assert all(torch.equal(others[name], value) for name, value in weights.items())
    assert _decoder(None).extra_repr() == "2, 4, 6"
    assert _decoder(lead=(3,)).extra_repr() == "2, 4, 6, reconstruct_up_to=10, lead=(3,)"


def test_all_pairs_unless_asked_for() -> None:
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
def test_a_step_takes_the_keys_of_its_seed(formulation: Any) -> None:
    batch = random_graphs(SIZES).as_batch()
    decoder = _decoder(formulation=formulation).train()
    found = [_loss(decoder, batch) for _ in range(3)]
    assert int(decoder.step) == 3
    assert len({float(value) for value in found}) == 3
    primary, capsules = _inputs(batch)
    assert batch.y is not None
    step = torch.tensor(0)
    rule = RELEASED if formulation == "released" else PAPER
    code = decoder.code(capsules, batch.y)
    for value in found:
        keys = next_step_keys(decoder.seed, step, None)
        drawn = sampled_reconstruction_loss(
            primary, batch.edges, batch.segments, rule, code, keys=keys, up_to=UP_TO
        )
        assert torch.equal(value, drawn.detach())


def test_outside_training_the_draw_is_always_the_same() -> None:
    batch = random_graphs(SIZES).as_batch()
    decoder = _decoder().eval()
    assert torch.equal(_loss(decoder, batch), _loss(decoder, batch))
    assert int(decoder.step) == 0


def test_resetting_draws_a_new_seed() -> None:
    decoder = _decoder().train()
    _loss(decoder, random_graphs([30]).as_batch())
    before = decoder.seed.clone()
    decoder.reset_parameters()
    assert int(decoder.step) == 0
    assert not torch.equal(decoder.seed, before)


def test_a_replica_draws_as_it_does_alone() -> None:
    """Also in a step in which only another replica has a large graph, or which has no graph of its own."""
    graphs = random_graphs(SIZES)
    store = graphs.as_store()
    steps = [
        [[1, 3, 0], [4, 2, 5], [0, 5, -1]],
        [[0, 5, 2], [1, 2, 5], [-1, -1, -1]],
        [[2, 5, 0], [0, 5, -1], [2, -1, -1]],
        [[4, 1, 0], [3, 4, 1], [1, 3, -1]],
    ]
    whole = _decoder(lead=(3,)).train()
    parts = [_decoder(seed=f + 1).train() for f in range(3)]
    state = whole.state_dict()
    for f, part in enumerate(parts):
        for name, value in part.state_dict().items():
            state[name][f].copy_(value)
    for chosen in steps:
        batch = store.batch(graphs.x, torch.tensor(chosen))
        primary, capsules = _inputs(batch)
        together = whole(primary, capsules, batch.y, batch.edges, batch.segments)
        for f, part in enumerate(parts):
            own = [graph for graph in chosen[f] if graph >= 0]
            if not own:
                continue
            alone = store.batch(graphs.x, torch.tensor(own))
            V, B = alone.segments.num_rows, len(own)
            found = part(primary[f, :V], capsules[f, :B], alone.y, alone.edges, alone.segments)
            assert_equal(together[f].detach(), found.detach(), f"loss of replica {f}", 1e-12)
    assert whole.step.tolist() == [int(part.step) for part in parts] == [4, 4, 3]


def test_sizes_that_the_host_does_not_know() -> None:
    batch = random_graphs(SIZES).as_batch()
    unknown = GraphBatch(batch.x, Segments(batch.segments.ptr, batch.segments.index), batch.edges, batch.y)
    assert_equal(_loss(_decoder().train(), unknown), _loss(_decoder().train(), batch), "loss", 1e-12)


@pytest.mark.parametrize("bits", [True, False], ids=["bits", "listed"])
def test_kernels_change_nothing(kernel_device: str, bits: bool) -> None:  # noqa: F811
    """Small and large graphs in one batch, of three replicas: loss and gradients; keys are drawn by a kernel too."""
    graphs = random_graphs(SIZES, seed=3)
    found = []
    for mode, device, dtype in (("off", "cpu", torch.float64), ("always", kernel_device, torch.float32)):
        store = graphs.as_store().to(device)
        chosen = torch.tensor([[1, 3, 0], [4, 2, -1], [-1, -1, -1]])
        batch = store.batch(graphs.x.to(device, dtype), chosen)
        known = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes) if bits else None
        edges = replace(batch.edges, bits=known)
        decoder = _decoder(lead=(3,)).to(device, dtype).train()
        assert batch.y is not None
        inputs = [value.to(device, dtype).requires_grad_() for value in _inputs(batch)]
        with use_kernels(mode):
            for _ in range(2):
                loss = decoder(*inputs, batch.y, edges, batch.segments)
            slopes = torch.autograd.grad(loss.sum(), [*inputs, *decoder.parameters()])
        assert decoder.step.tolist() == [2, 2, 0]
        found.append([value.detach().cpu().double() for value in (loss, *slopes)])
    names = ("loss", "primary", "class capsules", "weight", "bias")
    for name, slow, fast in zip(names, *found, strict=True):
        assert_equal(fast, slow, name, 3e-5)


def test_only_an_exact_model_is_captured() -> None:
    assert HGCN(5, 2, capsule_dim=8).capturable
    assert not HGCN(5, 2, capsule_dim=8, reconstruct_up_to=4096).capturable
    assert HGCN(5, 2, capsule_dim=8, reconstruct_up_to=4096, reconstruction=False).capturable


def test_messages() -> None:
    with pytest.raises(ArgumentError, match=r"HGCN: 'reconstruct_up_to' must be at least 1, got 0\."):
        HGCN(5, 2, reconstruct_up_to=0)
