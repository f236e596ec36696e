"""Models with kernels equal models without: scores, losses, gradients and running statistics."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import EdgeTable, GraphBatch, Segments
from tests.graphs import assert_equal, random_graphs, with_kinds, with_weights
from tests.ops.conftest import kernel_device  # noqa: F401

# Where a product P of node vectors is near 1, the gradient of log(1 − P) is large and amplifies rounding: torch in
# float32 differs from float64 by a tenth of this tolerance.
TOLERANCE = 3e-4
EDGE_KINDS = (3, 2)
DRAWN = torch.tensor([[0, 3, 1], [2, 2, -1]])


def _batch(dtype: torch.dtype, device: str, weighted: bool = False) -> GraphBatch:
    graphs = random_graphs([9, 33, 1, 2], classes=3, seed=3)
    store = with_kinds(graphs.as_store(), EDGE_KINDS)
    store = (with_weights(store) if weighted else store).to(device)
    x = graphs.x.float().to(device=device, dtype=dtype)
    batch = store.batch(x, DRAWN)
    edges, segments = batch.edges, batch.segments
    bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes)
    table = EdgeTable(
        edges.ptr, edges.neighbours, edges.weight, edges.node, edges.first, edges.num_entries, edges.max_degree,
        bits, kind=edges.kind,
    )  # fmt: skip
    copied = Segments(segments.ptr, segments.index, True, segments.max_size)
    poisoned = batch.x.masked_fill((edges.node < 0).unsqueeze(-1), float("nan"))
    return GraphBatch(poisoned, copied, table, batch.y, batch.levels)


def _run(model: Any, batch: GraphBatch) -> dict[str, Tensor]:
    results = {}
    for _ in range(2):  # twice: the second step has another dropout mask and updated running statistics
        output = model.forward_batch(batch, batch.y)
        loss = model.loss(output, batch.y).total
        model.zero_grad()
        loss.sum().backward()
    results["loss"] = loss
    results["scores"] = output.class_scores
    for name, parameter in model.named_parameters():
        results[f"gradient of {name}"] = parameter.grad
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            results[name] = buffer
    model.eval()
    with torch.no_grad():
        results["scores in evaluation"] = model.forward_batch(batch).class_scores
    return {name: value.detach().cpu().double() for name, value in results.items()}


CASES: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "": [(HGCN, {}), (GIN, {})],
    "slow": [
        (HGCN, {"num_capsules": (5, 3), "residual_nodes": 40}),
        (HGCN, {"formulation": "paper"}),
        (HGCN, {"context": "residual", "edge_kinds": EDGE_KINDS}),
        (HGCN, {"parts": "blocks"}),
        (HGCN, {"reconstruct_up_to": 8}),
    ],
    "exhaustive": [
        (HGCN, {"reconstruct_up_to": 1, "formulation": "paper"}),
        (HGCN, {"formulation": "paper", "num_capsules": (5, 3), "routing_iterations": 4}),
        (HGCN, {"context": "gin", "context_jumping": True, "context_layers": 1}),
        (HGCN, {"disentangle": False, "residual": False}),
        (HGCN, {"factor_squash": "separate", "reconstruction": False}),
        (HGCN, {"context": "residual"}),
        (HGCN, {"edge_kinds": EDGE_KINDS}),
        (HGCN, {"context": "gated", "context_layers": 1}),
        (HGCN, {"context": "gin", "context_layers": 1, "edge_kinds": EDGE_KINDS}),
    ],
}


WEIGHTED: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "": [(HGCN, {})],
    "slow": [(GIN, {}), (HGCN, {"context": "residual", "edge_kinds": EDGE_KINDS})],
    "exhaustive": [
        (HGCN, {"num_capsules": (5, 3)}),
        (HGCN, {"formulation": "paper"}),
        (HGCN, {"context": "gated", "context_layers": 1}),
        (HGCN, {"parts": "blocks"}),
    ],
}
"""Cases with edge weights."""


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        pytest.param(*case, marks=[getattr(pytest.mark, mark)] if mark else [])
        for mark, cases in CASES.items()
        for case in cases
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_kernels_equal_torch(kernel_device: str, kind: Any, arguments: dict[str, Any]) -> None:  # noqa: F811
    _check(kernel_device, kind, arguments)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        pytest.param(*case, marks=[getattr(pytest.mark, mark)] if mark else [])
        for mark, cases in WEIGHTED.items()
        for case in cases
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_kernels_equal_torch_with_edge_weights(
    kernel_device: str,  # noqa: F811
    kind: Any,
    arguments: dict[str, Any],
) -> None:
    _check(kernel_device, kind, arguments, weighted=True)


def _check(device: str, kind: Any, arguments: dict[str, Any], weighted: bool = False) -> None:
    sizes = {"hidden": 16} if kind is GIN else {"capsule_dim": 16, "num_capsules": (4,)}
    settings = sizes | {"dropout": 0.3, "lead": (2,)} | arguments
    torch.manual_seed(0)
    fast = kind(5, 3, **settings).to(device)
    with torch.no_grad():
        for name, parameter in fast.named_parameters():
            if name.endswith((".scale", ".shift")):  # zero at the start
                parameter.normal_(std=0.3)
    slow = kind(5, 3, **settings)
    slow.load_state_dict({name: value.cpu() for name, value in fast.state_dict().items()})
    # The paper's bound 1 − 1e-7 rounds to another value in float32, which changes log(1 − P).
    reference = torch.float32 if arguments.get("formulation") == "paper" else torch.float64
    slow.to(reference)
    with use_kernels("off"):
        expected = _run(slow, _batch(reference, "cpu", weighted))
    with use_kernels("always"), pytest.MonkeyPatch.context() as patch:
        if weighted:  # a list of edges needs their number, which the host does not have in a captured step
            for module in ("propagation", "modulated_hop"):
                patch.setattr(f"graphcaps.ops.propagation.{module}.flat_csr", None)
        patch.setattr("graphcaps.ops.reconstruction.pair_loss_sampled.to_edge_index", None)
        for form in ("route_factored", "route_dense_factored"):  # the torch forms are not needed
            patch.setattr(import_module("graphcaps.ops.routing.route"), form, None)
        actual = _run(fast, _batch(torch.float32, device, weighted))
    for name, value in expected.items():
        assert_equal(actual[name], value, name, TOLERANCE)
