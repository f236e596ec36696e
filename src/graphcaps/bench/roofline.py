"""What a training step of HGCN cannot do without: bytes and operations, counted from sizes alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN, PrimaryCapsules
from graphcaps.ops._triton.precision import precision
from graphcaps.types import FeatureTable

__all__ = ["PHASES", "Ceilings", "Count", "StepSizes", "count_phases", "measure_ceilings", "step_sizes"]


_COPY_BYTES = {"cpu": 64 * 10**6, "cuda": 10**9}
_MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Ceilings:
    """The best that a device reached.

    Args:
        bandwidth (float): Bytes a second of a copy, what is read and what is written both counted.
        rate (float): Operations a second of a matrix product, a multiplication and an addition each.
    """

    bandwidth: float
    rate: float

    def seconds(self, num_bytes: float, operations: float) -> float:
        """The least time that so many bytes and operations take: the longer of the two (roofline)."""
        return max(num_bytes / self.bandwidth, operations / self.rate)


def measure_ceilings(
    device: torch.device,
    *,
    copy_bytes: int | None = None,
    matmul_size: int | None = None,
    repeats: int = 5,
) -> Ceilings:
    """Times a copy and a matrix product on tensors larger than the caches; the best of a few counts.

    The product is of float32 matrices. Where kernels multiply in tf32 or bf16
    (:func:`graphcaps.ops._triton.precision`), so does this one: coarser numbers have a higher ceiling.

    Args:
        device (device): Where.
        copy_bytes (int, optional): Bytes of the copied tensor. (default: 64 MB on a CPU, 1 GB on a GPU)
        matmul_size (int, optional): Rows and columns of the matrices. (default: 1024 on a CPU, 8192 on a GPU)
        repeats (int): How often each is timed, after one run that is not. (default: 5)
    """
    if repeats < 1:
        raise ArgumentError("measure_ceilings", "repeats", "be at least 1", repeats)
    kind = "cuda" if device.type == "cuda" else "cpu"
    count = (copy_bytes or _COPY_BYTES[kind]) // 4
    n = matmul_size or _MATMUL_SIZE[kind]
    source = torch.ones(count, device=device)  # zeros may share one page of memory
    target = torch.empty_like(source)
    copied = _best(lambda: target.copy_(source), device, repeats)
    finely = precision() if kind == "cuda" else "float32"
    kept = torch.get_float32_matmul_precision()
    a, b = (torch.ones(n, n, device=device) for _ in range(2))
    if finely == "bf16":
        a, b = a.bfloat16(), b.bfloat16()
    product = torch.empty_like(a)
    torch.set_float32_matmul_precision("highest" if finely == "float32" else "high")
    try:
        multiplied = _best(lambda: torch.mm(a, b, out=product), device, repeats)
    finally:
        torch.set_float32_matmul_precision(kept)
    return Ceilings(bandwidth=2 * 4 * count / copied, rate=2 * n**3 / multiplied)


def _best(body: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of the fastest of a few runs."""
    body()
    found = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        body()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - began)
    return min(found)


PHASES = (
    *("batch", "primary", "hop", "routing", "coarsening", "class level", "reconstruction"),
    *("backward", "update"),
)
_WORD = 4  # bytes of a float32, and of the index of a node
_ADAM = 12  # operations on each weight


@dataclass(frozen=True)
class Count:
    """Bytes moved and operations done, at least."""

    bytes: float
    operations: float

    def __add__(self, other: Count) -> Count:
        return Count(self.bytes + other.bytes, self.operations + other.operations)


@dataclass(frozen=True)
class StepSizes:
    """Sizes of a step, of all replicas together; padding is not counted.

    Args:
        replicas (int): F.
        graphs (int): G.
        rows (int): Nodes R.
        entries (int): Edge entries E, each edge in both directions.
        pairs (int): P, the sum of n² over graphs of n nodes.
        in_channels (int): Length of a feature row i.
        width (int): Length of a capsule d.
        wholes (tuple): Capsules of each level, classes last: (J, …, O).
        rounds (int): Routing rounds K.
        parameters (int): Weights of all replicas W.
        reconstruction (bool): Whether there is a decoder. (default: True)
        detached (bool): Whether only the last round carries a gradient and the assignment none, as in the
            released formulation. (default: True)
        listed (int, optional): Entries of feature rows Z, where they are read from the store as a list of those
            that are not zero, and no row is copied. (default: all R i, copied into the batch)
    """

    replicas: int
    graphs: int
    rows: int
    entries: int
    pairs: int
    in_channels: int
    width: int
    wholes: tuple[int, ...]
    rounds: int
    parameters: int
    reconstruction: bool = True
    detached: bool = True
    listed: int | None = None


@dataclass(frozen=True)
class _Part:
    """One phase of the forward pass, in numbers.

    Args:
        reads: Numbers read; ``learned`` of them get a gradient.
        weights: Weights read, all of which get one.
        writes: Numbers written; ``sloped`` of them hand a gradient back.
        indices: Indices of nodes and edges.
        operations, back: Operations of the forward and of the backward pass.
    """

    reads: int
    learned: int
    weights: int
    writes: int
    sloped: int
    indices: int
    operations: int
    back: int

    @property
    def forward(self) -> Count:
        return Count(_WORD * (self.reads + self.weights + self.writes + self.indices), self.operations)

    @property
    def backward(self) -> Count:
        if not self.sloped:
            return Count(0, 0)
        moved = self.reads + self.weights + self.sloped + self.learned + self.weights + self.indices
        return Count(_WORD * moved, self.back)


def count_phases(sizes: StepSizes) -> dict[str, Count]:
    r"""Compulsory bytes and operations of each phase of a training step.

    Every phase reads its inputs once and writes its outputs once, 4 bytes a number or an index; what it makes
    and uses up in between is free. Operations are those of matrix products (multiplication and addition count
    one each) and of Adam. With the letters of :class:`StepSizes`:

    ============== ========================================= =============================================
    phase          numbers read and written                  operations
    ============== ========================================= =============================================
    batch          2 R i + 2 R indices                       0
    primary        R i + F (i + 1) d + R d                   2 R i d
    (listed)       Z in place of R i, and as many indices;   2 Z d
                   batch 2 R indices alone
    hop            R d + R d + G d + (E + R) indices         2 (E + R) d + R d
    routing        R d + G d + F J (d + 1) d + G J d + R J   R d + 4 (K − 1) R J d + 2 (2 K − 1) G J d²
    coarsening     R J + G J² + (E + R) indices              2 E J + 2 R J²
    class level    G n d + G n² + F m (d + 1) d + G m d      2 G n² d + routing with R = G n, J = m
                   + G n m (and G m² below another level)    (and 2 G n² m + 2 G n m²)
    reconstruction R d + G d + F (O d + 1) d + F             (P − R) d + 2 G d²
                   + (E + G) indices
    backward       of every phase but batch: its inputs,     primary once, hop once, the differentiated
                   weights and indices again, gradients of   routing twice, reconstruction 2 P d + 4 G d²,
                   outputs read, of inputs and weights       coarsening twice where it has a gradient
                   written
    update         7 W                                       12 W
    ============== ========================================= =============================================

    n capsules below and m above at each further level. Routing never stores votes: the first round is a plain
    sum, each further one weighs (2 R J d) and takes products (2 R J d), and a round passes J matrices once for
    sums and, but for the last, once for products. Every pair of nodes is multiplied once, not twice. In the
    released formulation the backward pass of routing sees the last round alone (2 R J d + 4 G J d²) and no
    coarsening; else twice the forward operations. Features get no gradient.
    """
    F, G, R, d = sizes.replicas, sizes.graphs, sizes.rows, sizes.width
    i, E, J, O = sizes.in_channels, sizes.entries, sizes.wholes[0], sizes.wholes[-1]  # noqa: E741
    copied, Z, columns = (
        (2 * R * i, R * i, 0) if sizes.listed is None else (0, sizes.listed, sizes.listed + R)
    )
    projected = 2 * Z * d
    hopped = 2 * (E + R) * d + R * d
    parts = {
        "primary": _Part(Z, 0, F * (i + 1) * d, R * d, R * d, columns, projected, projected),
        "hop": _Part(R * d, R * d, 0, (R + G) * d, (R + G) * d, E + R, hopped, hopped),
        "routing": _routing(sizes, R, J),
    }
    coarsened = 2 * E * J + 2 * R * J * J
    wide, sloped = G * J * J, 0 if sizes.detached else G * J * J
    parts["coarsening"] = _Part(R * J, R * J, 0, wide, sloped, E + R, coarsened, 2 * coarsened)
    counts = {"batch": Count(_WORD * (copied + 2 * R), 0)}
    counts |= {name: part.forward for name, part in parts.items()}
    above = list(_levels(sizes))
    counts["class level"] = sum((part.forward for part in above), Count(0, 0))
    counts["reconstruction"] = Count(0, 0)
    decoded = []
    if sizes.reconstruction:
        pairs, code = (sizes.pairs - R) * d, 2 * G * d * d
        reads, weights = (R + G) * d, F * (O * d + 1) * d
        back = 2 * sizes.pairs * d + 2 * code
        decoded = [_Part(reads, reads, weights, F, F, E + G, pairs + code, back)]
        counts["reconstruction"] = decoded[0].forward
    backward = (part.backward for part in (*parts.values(), *above, *decoded))
    counts["backward"] = sum(backward, Count(0, 0))
    counts["update"] = Count(7 * _WORD * sizes.parameters, _ADAM * sizes.parameters)
    return counts


def _routing(sizes: StepSizes, rows: int, wholes: int) -> _Part:
    """``rows`` parts of all graphs that vote for ``wholes`` capsules a graph."""
    F, G, d, K = sizes.replicas, sizes.graphs, sizes.width, sizes.rounds
    scored, matrices = 2 * rows * wholes * d, 2 * G * wholes * d * d
    operations = rows * d + 2 * (K - 1) * scored + (2 * K - 1) * matrices
    back = scored + 2 * matrices if sizes.detached else 2 * operations
    capsules, assigned = G * wholes * d, rows * wholes
    sloped = capsules if sizes.detached else capsules + assigned
    reads = (rows + G) * d
    return _Part(reads, reads, F * wholes * (d + 1) * d, capsules + assigned, sloped, 0, operations, back)


def _levels(sizes: StepSizes) -> Iterator[_Part]:
    """The dense levels above the first: hop, routing and coarsening as one phase each."""
    G, d = sizes.graphs, sizes.width
    for level, (n, m) in enumerate(zip(sizes.wholes, sizes.wholes[1:], strict=False), 2):
        last = level == len(sizes.wholes)
        routed = _routing(sizes, G * n, m)
        hop, coarsened = 2 * G * n * n * d, 0 if last else 2 * G * n * n * m + 2 * G * n * m * m
        below, adjacency, above = G * n * d, G * n * n, 0 if last else G * m * m
        yield replace(
            routed,
            reads=below + adjacency,
            learned=below if sizes.detached else below + adjacency,
            writes=routed.writes + above,
            sloped=routed.sloped if sizes.detached else routed.sloped + above,
            operations=routed.operations + hop + coarsened,
            back=routed.back + (hop if sizes.detached else 2 * (hop + coarsened)),
        )


def step_sizes(
    model: nn.Module, store: GraphStore, graphs: Tensor, table: FeatureTable | None = None
) -> StepSizes:
    """Sizes of the step in which replica f of ``model`` learns from ``graphs[f]``.

    Args:
        model (HGCN): With projected primary capsules and no trunk.
        store (GraphStore): All graphs.
        graphs (Tensor): Graphs of the step, −1 for none, ``[F, B]``.
        table (FeatureTable, optional): Where features are read from, if no row is copied.
    """
    if not isinstance(model, HGCN) or not isinstance(model.primary, PrimaryCapsules) or not model.capturable:
        fix = "Bench a preset of the paper."
        raise ArgumentError(
            "step_sizes", "model", "be an HGCN with primary capsules and no trunk", type(model).__name__, fix
        )
    chosen = graphs[graphs >= 0].cpu()
    nodes = store.host_node_ptr.diff()[chosen]
    layers = list(model.layers)
    listed = None
    if table is not None and table.sparse:
        ends = table.ptr.cpu()[store.host_node_ptr]  # entries before each graph
        listed = int(ends.diff()[chosen].sum())
    return StepSizes(
        replicas=graphs.size(0),
        graphs=chosen.numel(),
        rows=int(nodes.sum()),
        entries=int(store.host_entry_ptr.diff()[chosen].sum()),
        pairs=int(torch.sum(nodes * nodes)),
        in_channels=model.in_channels,
        width=model.primary.capsule_dim,
        wholes=tuple(int(layer.num_capsules) for layer in layers),  # type: ignore[arg-type]
        rounds=int(layers[0].routing_iterations),  # type: ignore[arg-type]
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        reconstruction=model.decoder is not None,
        detached=model.formulation == "released",
        listed=listed,
    )
