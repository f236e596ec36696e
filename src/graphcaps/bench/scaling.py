"""Measures how time and memory of a forward and backward pass grow with the size of one graph."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graphcaps._io.allocator import enable_huge_pages
from graphcaps.bench.measurements import CheckError, make_measurement
from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN
from graphcaps.ops.edges import edge_table
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_sampled import EXACT_UP_TO, sampled_reconstruction_loss
from graphcaps.training.device import choose_device
from graphcaps.types import GraphBatch, Segments

__all__ = [
    "SIZES",
    "Scaling",
    "check_sampling",
    "measure_scaling",
    "random_graph",
    "scaling_measurements",
]

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
_FEATURES, _SECONDS, _MAX_STEPS = 16, 2.0, 20
_MODEL: dict[str, Any] = {"capsule_dim": 128, "num_capsules": (10, 10)}
_SAMPLED: dict[str, Any] = {"reconstruct_up_to": EXACT_UP_TO}


@dataclass(frozen=True)
class Scaling:
    """Time and memory of a forward and backward pass over one graph.

    Args:
        nodes, edges (int): Size of the graph; each undirected edge counts once.
        device (str): ``"cpu"`` or ``"cuda"``.
        sampled (bool): Whether the pairs of the reconstruction were sampled.
        seconds (float): Fastest of several passes.
        memory (int): Peak bytes beyond those allocated before the first pass.
        time_ratio (float or None): Growth of the time since the size before, divided by the growth in nodes.
        memory_ratio (float or None): The same for the memory.
    """

    nodes: int
    edges: int
    device: str
    sampled: bool
    seconds: float
    memory: int
    time_ratio: float | None = None
    memory_ratio: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_scaling(
    device: str = "auto",
    sizes: Sequence[int] = SIZES,
    *,
    degree: float = 4.0,
    seed: int = 0,
    model: dict[str, Any] | None = None,
) -> list[Scaling]:
    """Times an HGCN on one random graph of each size, after :func:`check_sampling` has passed.

    On a CPU each size runs in a new process, because the peak of resident memory never falls. That process
    uses huge pages (:func:`graphcaps._io.allocator.enable_huge_pages`).

    Args:
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        sizes (list): Numbers of nodes, ascending. (default: :data:`SIZES`)
        degree (float): Mean number of neighbours. (default: 4)
        seed (int): Seed of graphs, features and weights. (default: 0)
        model (dict, optional): Arguments of the HGCN. Pairs are sampled above
            :data:`graphcaps.ops.reconstruction.pair_loss_sampled.EXACT_UP_TO` nodes unless
            ``reconstruct_up_to`` says otherwise. (default: two hidden levels of 10 capsules, d = 128)

    Raises:
        CheckError: If the sampled loss with all pairs differs from the exact loss.
    """
    if not sizes or min(sizes) < 2 or list(sizes) != sorted(set(sizes)):
        raise ArgumentError(
            "measure_scaling", "sizes", "be ascending numbers of nodes from 2 on", list(sizes)
        )
    target = choose_device(device, "measure_scaling")
    check_sampling(target)
    arguments = dict(_MODEL if model is None else model)
    rows: list[Scaling] = []
    for nodes in sizes:
        task = (nodes, target.type, degree, seed, arguments, torch.get_num_threads())
        row = _in_new_process(task) if target.type == "cpu" else _step(*task)
        rows.append(_with_ratios(row, rows[-1] if rows else None))
    return rows


def scaling_measurements(rows: Sequence[Scaling], command: str) -> list[dict[str, Any]]:
    """Measurements for ``results/performance.json``; their data set is ``one graph of … nodes``."""
    measurements = []
    for row in rows:
        dataset = f"one graph of {row.nodes} nodes"
        values: list[tuple[str, float | None, str]] = [
            ("bench: forward and backward of one graph", row.seconds * 1e3, "ms"),
            ("bench: peak memory of one graph", row.memory / 1e6, "MB"),
            ("bench: time of one graph, times linear growth", row.time_ratio, "times"),
            ("bench: memory of one graph, times linear growth", row.memory_ratio, "times"),
        ]
        measurements += [
            make_measurement(what, dataset, row.device, float(f"{value:.4g}"), unit, command)
            for what, value, unit in values
            if value is not None
        ]
    return measurements


def random_graph(nodes: int, degree: float = 4.0, seed: int = 0, device: str = "cpu") -> GraphBatch:
    """A batch of one graph with about ``nodes · degree / 2`` random edges and random features."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, round(nodes * degree / 2)), generator=generator)
    x = torch.randn(nodes, _FEATURES, generator=generator)
    table = edge_table(ends.to(device), nodes)
    ptr, index = torch.tensor([0, nodes]), torch.zeros(nodes, dtype=torch.long)
    segments = Segments(ptr.to(device), index.to(device), padded=False, max_size=nodes)
    return GraphBatch(x.to(device), segments, table, torch.ones(1, dtype=torch.long, device=device))


def check_sampling(device: torch.device, nodes: int = 300) -> None:
    """Checks that the sampled loss over all pairs of a graph and its gradient equal the exact ones.

    Raises:
        CheckError: If they differ by more than 1e-4 of the largest value.
    """
    batch = random_graph(nodes, device=device.type)
    generator = torch.Generator().manual_seed(1)
    z = (torch.rand(nodes, 32, generator=generator) * 0.2).to(device).requires_grad_()
    exact = reconstruction_loss(z, batch.edges, batch.segments)
    sampled = sampled_reconstruction_loss(z, batch.edges, batch.segments, up_to=1, pairs=nodes)
    (exact_gradient,), (gradient,) = torch.autograd.grad(exact, z), torch.autograd.grad(sampled, z)
    for name, expected, value in (
        ("loss", exact.detach(), sampled.detach()),
        ("gradient", exact_gradient, gradient),
    ):
        error = float((expected - value).abs().max() / expected.abs().max())
        if not error <= 1e-4:
            raise CheckError(
                f"bench: the sampled {name} of all pairs differs from the exact one by {error:.2g}."
            )


def _in_new_process(task: tuple[Any, ...]) -> Scaling:
    """Runs :func:`_step` in a new process with huge pages, where nothing else has been allocated."""
    with multiprocessing.get_context("spawn").Pool(1, enable_huge_pages) as pool:
        return pool.apply(_step, task)


def _step(nodes: int, device: str, degree: float, seed: int, model: dict[str, Any], threads: int) -> Scaling:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    batch = random_graph(nodes, degree, seed, device)
    arguments = _SAMPLED | model
    network = HGCN(_FEATURES, 2, **arguments).to(device)
    y, up_to = batch.y, arguments["reconstruct_up_to"]
    assert y is not None

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network.loss(network.forward_batch(batch, y), y).total.backward()
        if device == "cuda":
            torch.cuda.synchronize()

    before = _reset_peak(device)
    step()  # compiles kernels and fills the caches of the batch
    seconds: list[float] = []
    while not seconds or (sum(seconds) < _SECONDS and len(seconds) < _MAX_STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    edges = batch.edges.neighbours.numel() // 2
    sampled = up_to is not None and nodes > up_to
    return Scaling(nodes, edges, device, sampled, min(seconds), max(0, _peak(device) - before))


def _reset_peak(device: str) -> int:
    """Resets the peak of memory where the system allows it; returns the bytes in use."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:  # the file is missing or not writable: subtract the peak of building the graph
        return _peak(device)


def _peak(device: str) -> int:
    """Peak bytes so far: allocated on the GPU, or resident memory of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    """A field of ``/proc/self/status``, which is in kilobytes, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _with_ratios(row: Scaling, last: Scaling | None) -> Scaling:
    """The row with its growth since the ``last`` one."""
    if last is None:
        return row
    grown = row.nodes / last.nodes
    memory = row.memory / last.memory / grown if last.memory else None
    return replace(row, time_ratio=row.seconds / last.seconds / grown, memory_ratio=memory)
