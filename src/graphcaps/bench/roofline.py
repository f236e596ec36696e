"""Roofline of a training step: ceilings of the device, and the compulsory bytes and operations of every phase.

:func:`measure_ceilings` measures the copy bandwidth and the rate of matrix products. :func:`count_phases` computes
from the sizes of a step (:func:`step_sizes`) how many bytes and operations each phase needs at least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, check_at_least
from graphcaps.nn import HGCN, Context, PrimaryCapsules
from graphcaps.ops._triton.precision import current_precision
from graphcaps.types import FeatureRows, FeatureTable

__all__ = ["Ceilings", "Count", "StepSizes", "count_phases", "measure_ceilings", "step_sizes"]

_COPY_BYTES = {"cpu": 64 * 10**6, "cuda": 10**9}
_MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
_WORD = 4  # bytes of a float32, and of the index of a node
_ADAM = 12  # operations on each weight


@dataclass(frozen=True)
class Ceilings:
    """The highest rates that a device reached.

    Args:
        bandwidth (float): Bytes per second of a copy; bytes read and bytes written both count.
        rate (float): Operations per second of a matrix product; a multiplication and an addition are two.
    """

    bandwidth: float
    rate: float

    def seconds(self, num_bytes: float, operations: float) -> float:
        """Roofline time: the longer of moving the bytes and of computing the operations."""
        return max(num_bytes / self.bandwidth, operations / self.rate)


def measure_ceilings(
    device: torch.device,
    *,
    copy_bytes: int | None = None,
    matmul_size: int | None = None,
    repeats: int = 5,
) -> Ceilings:
    """Times a copy and a matrix product on tensors larger than the caches, and takes the fastest run.

    The product is of float32 matrices. If kernels multiply in tf32 or bf16
    (:func:`graphcaps.ops._triton.precision`), so does this product: a lower precision has a higher ceiling.

    Args:
        device (device): Device to measure.
        copy_bytes (int, optional): Bytes of the copied tensor. (default: 64 MB on a CPU, 1 GB on a GPU)
        matmul_size (int, optional): Rows and columns of the matrices. (default: 1024 on a CPU, 8192 on a GPU)
        repeats (int): Timed runs, after one that is not timed. (default: 5)
    """
    check_at_least("measure_ceilings", 1, repeats=repeats)
    kind = "cuda" if device.type == "cuda" else "cpu"
    count = (copy_bytes or _COPY_BYTES[kind]) // 4
    n = matmul_size or _MATMUL_SIZE[kind]
    source = torch.ones(count, device=device)  # zeros may share one page of memory
    target = torch.empty_like(source)
    copy_seconds = _best(lambda: target.copy_(source), device, repeats)
    product_precision = current_precision() if kind == "cuda" else "float32"
    previous = torch.get_float32_matmul_precision()
    a, b = (torch.ones(n, n, device=device) for _ in range(2))
    if product_precision == "bf16":
        a, b = a.bfloat16(), b.bfloat16()
    product = torch.empty_like(a)
    torch.set_float32_matmul_precision("highest" if product_precision == "float32" else "high")
    try:
        product_seconds = _best(lambda: torch.mm(a, b, out=product), device, repeats)
    finally:
        torch.set_float32_matmul_precision(previous)
    return Ceilings(bandwidth=2 * 4 * count / copy_seconds, rate=2 * n**3 / product_seconds)


def _best(body: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of the fastest run."""
    body()
    seconds = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        body()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@dataclass(frozen=True)
class Count:
    """Compulsory bytes and operations."""

    bytes: float
    operations: float

    def __add__(self, other: Count) -> Count:
        return Count(self.bytes + other.bytes, self.operations + other.operations)


@dataclass(frozen=True)
class StepSizes:
    """Sizes of a step, summed over all replicas, without padding.

    Args:
        replicas (int): Replicas F.
        graphs (int): Graphs B.
        nodes (int): Nodes V.
        entries (int): Edge entries E, each edge in both directions.
        pairs (int): Pairs P, the sum of n² over graphs of n nodes.
        in_channels (int): Length i of a feature row.
        capsule_dim (int): Length d of a capsule.
        num_capsules (tuple): Capsules of each level, classes last: (J, …, O).
        routing_iterations (int): Routing iterations R.
        parameters (int): Weights W of all replicas.
        reconstruction (bool): Whether there is a decoder. (default: True)
        detached (bool): Whether only the last routing iteration carries a gradient and the assignment none, as in
            the released formulation. (default: True)
        nonzeros (int, optional): Nonzero features Z, if they are read from a sparse table of the store. (default: all
            V i features are read)
        copied (bool): Whether features are copied into the batch, not read where they are. (default: True)
        hops (int): Hops k under the votes: one more than the layers of a context. (default: 1)
        hop_weights (int): Weights H of the layers of a context, of one replica. (default: 0)
    """

    replicas: int
    graphs: int
    nodes: int
    entries: int
    pairs: int
    in_channels: int
    capsule_dim: int
    num_capsules: tuple[int, ...]
    routing_iterations: int
    parameters: int
    reconstruction: bool = True
    detached: bool = True
    nonzeros: int | None = None
    copied: bool = True
    hops: int = 1
    hop_weights: int = 0


def step_sizes(
    model: nn.Module, store: GraphStore, graphs: Tensor, table: FeatureTable | None = None
) -> StepSizes:
    """Sizes of the step in which replica f of ``model`` is trained on ``graphs[f]``.

    Args:
        model (HGCN): With projected primary capsules and no trunk.
        store (GraphStore): All graphs.
        graphs (Tensor): Graphs of the step, −1 for none, ``[F, B]``.
        table (FeatureTable, optional): Features of the store, if training reads them from there.
    """
    if (
        not isinstance(model, HGCN)
        or not isinstance(model.primary, PrimaryCapsules)
        or not model.capturable
        or any(layer.trunk is not None for layer in model.layers)
    ):
        fix = "Choose a preset of the paper."
        raise ArgumentError(
            "step_sizes", "model", "be an HGCN with primary capsules and no trunk", type(model).__name__, fix
        )
    chosen = graphs[graphs >= 0].cpu()
    nodes = store.host_node_ptr.diff()[chosen]
    layers = list(model.layers)
    context = layers[0].context
    hops, hop_weights = 1, 0
    if isinstance(context, Context):
        hops = len(context.weights) + context.hops
        hop_weights = sum(matrix.numel() for matrix in context.matrices) // graphs.size(0)
    nonzeros, copied = None, True
    if table is not None:
        rows = store.batch(table, graphs).features
        copied = not (isinstance(rows, FeatureRows) and model.primary.reads_store(rows))
    if table is not None and table.sparse and not copied:
        ends = table.ptr.cpu()[store.host_node_ptr]  # nonzeros before each graph
        nonzeros = int(ends.diff()[chosen].sum())
    return StepSizes(
        replicas=graphs.size(0),
        graphs=chosen.numel(),
        nodes=int(nodes.sum()),
        entries=int(store.host_entry_ptr.diff()[chosen].sum()),
        pairs=int(torch.sum(nodes * nodes)),
        in_channels=model.in_channels,
        capsule_dim=model.primary.capsule_dim,
        num_capsules=tuple(int(layer.num_capsules) for layer in layers),  # type: ignore[arg-type]
        routing_iterations=int(layers[0].routing_iterations),  # type: ignore[arg-type]
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        reconstruction=model.decoder is not None,
        detached=model.formulation == "released" and model.parts is None,
        nonzeros=nonzeros,
        copied=copied,
        hops=hops,
        hop_weights=hop_weights,
    )


@dataclass(frozen=True)
class _PhaseCount:
    """Numbers moved and operations of one phase of the forward pass.

    Args:
        reads: Inputs read; ``input_grads`` of them receive a gradient.
        weights: Weights read, each of which receives a gradient.
        writes: Outputs written; ``output_grads`` of them pass a gradient back.
        indices: Indices of nodes and edges.
        operations, backward_operations: Operations of the forward and of the backward pass.
    """

    reads: int
    input_grads: int
    weights: int
    writes: int
    output_grads: int
    indices: int
    operations: int
    backward_operations: int

    @property
    def forward(self) -> Count:
        return Count(_WORD * (self.reads + self.weights + self.writes + self.indices), self.operations)

    @property
    def backward(self) -> Count:
        if not self.output_grads:
            return Count(0, 0)
        moved = self.reads + self.weights + self.output_grads + self.input_grads + self.weights + self.indices
        return Count(_WORD * moved, self.backward_operations)


def count_phases(sizes: StepSizes) -> dict[str, Count]:
    r"""Compulsory bytes and operations of each phase of a training step.

    Every phase reads its inputs once and writes its outputs once, 4 bytes for a number or an index; intermediate
    results are free. Operations are those of matrix products (a multiplication and an addition are two) and of
    Adam. With the letters of :class:`StepSizes`:

    ============== ========================================= =============================================
    phase          numbers read and written                  operations
    ============== ========================================= =============================================
    batch          2 V i + 2 V indices                       0
    primary        V i + F (i + 1) d + V d                   2 V i d
    (sparse)       Z in place of V i, and as many indices    2 Z d
    (not copied)   batch only 2 V indices
    hop            V d + V d + B d + (E + V) indices         2 k (E + V) d + V d + 2 V H
                   + F H
    routing        V d + B d + F J (d + 1) d + B J d + V J   V d + 4 (R − 1) V J d + 2 (2 R − 1) B J d²
    coarsening     V J + B J² + (E + V) indices              2 E J + 2 V J²
    class level    B n d + B n² + F m (d + 1) d + B m d      2 B n² d + routing with V = B n, J = m
                   + B n m (and B m² below another level)    (and 2 B n² m + 2 B n m²)
    reconstruction V d + B d + F (O d + 1) d + F             (P − V) d + 2 B d²
                   + (E + B) indices
    backward       of every phase but batch: its inputs,     primary once, hop once and 2 V H more, the
                   weights and indices again, gradients of   differentiated routing twice, reconstruction
                   outputs read, of inputs and weights       2 P d + 4 B d², coarsening twice where it has
                   written                                   a gradient
    update         7 W                                       12 W
    ============== ========================================= =============================================

    Each further level has n input and m output capsules. Routing never stores votes: the first iteration is a plain
    sum; each further one computes logits (2 V J d) and weighted sums (2 V J d). An iteration multiplies by the J
    weight matrices once for the sums and, except in the last iteration, once for the logits. Every pair of nodes is
    multiplied once, not twice. In the released formulation the backward pass of routing covers only the last
    iteration (2 V J d + 4 B J d²) and no coarsening; otherwise it takes twice the forward operations. Features
    receive no gradient.
    """
    F, B, V, d = sizes.replicas, sizes.graphs, sizes.nodes, sizes.capsule_dim
    i, E, J, O = sizes.in_channels, sizes.entries, sizes.num_capsules[0], sizes.num_capsules[-1]  # noqa: E741
    copied = 2 * V * i if sizes.copied else 0
    Z, columns = (V * i, 0) if sizes.nonzeros is None else (sizes.nonzeros, sizes.nonzeros + V)
    projection = 2 * Z * d
    matrices = 2 * V * sizes.hop_weights
    hop = 2 * sizes.hops * (E + V) * d + V * d + matrices
    below = {
        "primary": _PhaseCount(Z, 0, F * (i + 1) * d, V * d, V * d, columns, projection, projection),
        "hop": _PhaseCount(
            V * d, V * d, F * sizes.hop_weights, (V + B) * d, (V + B) * d, E + V, hop, hop + matrices
        ),
        "routing": _routing(sizes, V, J),
    }
    coarsening = 2 * E * J + 2 * V * J * J
    adjacency, adjacency_grads = B * J * J, 0 if sizes.detached else B * J * J
    below["coarsening"] = _PhaseCount(
        V * J, V * J, 0, adjacency, adjacency_grads, E + V, coarsening, 2 * coarsening
    )
    counts = {"batch": Count(_WORD * (copied + 2 * V), 0)}
    counts |= {name: phase.forward for name, phase in below.items()}
    above = list(_levels(sizes))
    counts["class level"] = sum((phase.forward for phase in above), Count(0, 0))
    counts["reconstruction"] = Count(0, 0)
    decoder = []
    if sizes.reconstruction:
        pairs, code = (sizes.pairs - V) * d, 2 * B * d * d
        reads, weights = (V + B) * d, F * (O * d + 1) * d
        backward_operations = 2 * sizes.pairs * d + 2 * code
        decoder = [_PhaseCount(reads, reads, weights, F, F, E + B, pairs + code, backward_operations)]
        counts["reconstruction"] = decoder[0].forward
    backward = (phase.backward for phase in (*below.values(), *above, *decoder))
    counts["backward"] = sum(backward, Count(0, 0))
    counts["update"] = Count(7 * _WORD * sizes.parameters, _ADAM * sizes.parameters)
    return counts


def _routing(sizes: StepSizes, num_inputs: int, num_outputs: int) -> _PhaseCount:
    """Routing of ``num_inputs`` capsules of all graphs to ``num_outputs`` capsules per graph."""
    F, B, d, R = sizes.replicas, sizes.graphs, sizes.capsule_dim, sizes.routing_iterations
    logits, matrices = 2 * num_inputs * num_outputs * d, 2 * B * num_outputs * d * d
    operations = num_inputs * d + 2 * (R - 1) * logits + (2 * R - 1) * matrices
    backward_operations = logits + 2 * matrices if sizes.detached else 2 * operations
    capsules, assignment = B * num_outputs * d, num_inputs * num_outputs
    output_grads = capsules if sizes.detached else capsules + assignment
    reads, weights = (num_inputs + B) * d, F * num_outputs * (d + 1) * d
    return _PhaseCount(
        reads, reads, weights, capsules + assignment, output_grads, 0, operations, backward_operations
    )


def _levels(sizes: StepSizes) -> Iterator[_PhaseCount]:
    """The dense levels above the first, each with its hop, routing and coarsening as one phase."""
    B, d = sizes.graphs, sizes.capsule_dim
    for level, (n, m) in enumerate(zip(sizes.num_capsules, sizes.num_capsules[1:], strict=False), 2):
        last = level == len(sizes.num_capsules)
        routing = _routing(sizes, B * n, m)
        hop, coarsening = 2 * B * n * n * d, 0 if last else 2 * B * n * n * m + 2 * B * n * m * m
        below, adjacency, above = B * n * d, B * n * n, 0 if last else B * m * m
        yield replace(
            routing,
            reads=below + adjacency,
            input_grads=below if sizes.detached else below + adjacency,
            writes=routing.writes + above,
            output_grads=routing.output_grads if sizes.detached else routing.output_grads + above,
            operations=routing.operations + hop + coarsening,
            backward_operations=routing.backward_operations
            + (hop if sizes.detached else 2 * (hop + coarsening)),
        )
