"""Checks and times the routing kernel with many output capsules, up to ``MOST_ROUTED_CAPSULES`` of dispatch.

    python -m benchmarks.check_wide_kernels --out wide-kernels.json
    python -m benchmarks.check_wide_kernels --capsules 64 --warps 2 4 --precisions float32

Products of 64 rows in a program of four warps are compiled into warp-group instructions (wgmma) on a Hopper GPU, those
of two warps are not. Each case is compared with the factored form in float64, in values and gradients. Inputs and
everything that is allocated lie between regions of a marker, so that a read beyond a tensor changes results and a write
beyond it is found. An illegal access ends a process, so each number of warps has processes of its own: after one, the
next process begins with the following case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphcaps.ops._triton import dispatch
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.routing import route, route_factored
from graphcaps.types import Precision, Segments

CAPSULES = (33, 48, 64, 65, 100, 128)
WIDTHS = ((128, 128), (40, 24))  # d and d'
SIZES = (0, 1, 31, 32, 33, 70, 5, 17)  # nodes of the graphs of a batch
TOLERANCE = {"float32": 1e-4, "tf32": 2e-2, "bf16": 1e-1}  # relative to the largest value
MARGIN = 4096  # numbers of the marker before and after a tensor
MARKER = 1e30


@dataclass(frozen=True)
class Case:
    """One call of the kernel: J, d and d', and the precision of its products."""

    capsules: int
    widths: tuple[int, int]
    precision: Precision

    def __str__(self) -> str:
        return f"J={self.capsules}, d={self.widths[0]}, d'={self.widths[1]}, {self.precision}"


class GuardedAllocations(TorchDispatchMode):
    """Puts every new float32 tensor between two regions of the marker, and fills it with NaN."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: list[tuple[Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        names = ("aten::empty", "aten::new_empty", "aten::empty_like")
        if func.name().split(".")[0] in names and result.dtype == torch.float32 and result.is_contiguous():
            return self.guard(torch.full_like(result, torch.nan))
        return result

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor between two regions of the marker."""
        buffer = tensor.new_full((tensor.numel() + 2 * MARGIN,), MARKER)
        inner = buffer[MARGIN : MARGIN + tensor.numel()].view(tensor.shape)
        inner.copy_(tensor)
        self._buffers.append((buffer, tensor.numel()))
        return inner

    def is_intact(self) -> bool:
        """Whether all regions of the marker are as they were."""
        return all(
            bool((buffer[:MARGIN] == MARKER).all() and (buffer[MARGIN + size :] == MARKER).all())
            for buffer, size in self._buffers
        )


def cases(capsules: list[int], precisions: list[Precision]) -> list[Case]:
    return [Case(*each) for each in product(capsules, WIDTHS, precisions)]


def make_inputs(case: Case, sizes: tuple[int, ...]) -> tuple[dict[str, Tensor], Segments]:
    """Inputs of two replicas in float64, and the rows of their graphs."""
    generator = torch.Generator().manual_seed(case.capsules)
    (d, e), J = case.widths, case.capsules
    index = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).expand(2, -1).contiguous()

    def make(*shape: int) -> Tensor:
        return torch.randn(2, *shape, generator=generator, dtype=torch.float64)

    tensors = {"h": make(index.size(1), d), "weight": make(J, d, e) / d**0.5, "bias": make(J, e) / e**0.5}
    segments = Segments.from_index(index, len(sizes))
    return tensors, Segments(segments.ptr, segments.index, padded=False, max_size=max(sizes))


def outcome(tensors: dict[str, Tensor], call: Callable[..., Any]) -> dict[str, Tensor]:
    """Capsules, assignments and the gradients of all inputs."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    routing = call(*leaves.values())
    capsules = routing.capsules
    upstream = torch.linspace(-1, 1, capsules.numel(), dtype=torch.float64).cos()
    capsules.backward(upstream.to(capsules).view(capsules.shape))
    found = {"capsules": capsules, "assignment": routing.assignment}
    return found | {f"gradient of {name}": leaf.grad for name, leaf in leaves.items()}


def check(case: Case, device: str) -> str:
    """``"equal"``, or what is wrong."""
    tensors, segments = make_inputs(case, SIZES)
    expected = outcome(tensors, lambda h, w, b: route_factored(h, w, b, segments, 3))
    on_device = Segments(
        segments.ptr.to(device), segments.index.to(device), padded=False, max_size=max(SIZES)
    )
    guards = GuardedAllocations()
    inputs = {name: guards.guard(tensor.float().to(device)) for name, tensor in tensors.items()}
    with dispatch.use_kernels("always"), use_precision(case.precision), guards:
        actual = outcome(inputs, lambda h, w, b: route(h, w, b, on_device, 3, method="kernel"))
    if device == "cuda":
        torch.cuda.synchronize()
    if not guards.is_intact():
        return "wrote beyond a tensor"
    for name, value in expected.items():
        error = (actual[name].cpu().double() - value).abs().max() / value.abs().max()
        if not error < TOLERANCE[case.precision]:
            return f"{name} differ by {error:.1e}"
    return "equal"


def milliseconds(case: Case, mode: dispatch.KernelMode) -> float:
    """Time of a forward and backward pass of ten replicas with 64 graphs of 30 nodes each, on the GPU."""
    tensors, segments = make_inputs(case, (30,) * 64)
    on_device = Segments(segments.ptr.cuda(), segments.index.cuda(), padded=False, max_size=30)
    inputs = {name: tensor.float().cuda() for name, tensor in tensors.items()}
    times = []
    with dispatch.use_kernels(mode), use_precision(case.precision):
        for _ in range(12):
            torch.cuda.synchronize()
            began = time.perf_counter()
            outcome(inputs, lambda h, w, b: route(h, w, b, on_device, 3))
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - began))
    return sorted(times)[len(times) // 2]


def run_cases(chosen: list[Case], warps: int, device: str) -> Iterator[dict[str, Any]]:
    """Checks cases one after another in this process, and times those that are equal."""
    from graphcaps.ops.routing import weighted_sum_triton

    options = weighted_sum_triton.tile_options
    weighted_sum_triton.tile_options = lambda *args: options(*args) | {"num_warps": warps}
    for case in chosen:
        found: dict[str, Any] = {"case": str(case), "warps": warps, "result": check(case, device)}
        if found["result"] == "equal" and device == "cuda":
            found |= {"kernel_ms": milliseconds(case, "auto"), "torch_ms": milliseconds(case, "off")}
        yield found


def run_all(chosen: list[Case], warps: int, words: list[str]) -> list[dict[str, Any]]:
    """Checks all cases in processes that go on after one that ended."""
    found: list[dict[str, Any]] = []
    while len(found) < len(chosen):
        first = ["--warps", str(warps), "--first", str(len(found))]
        command = [sys.executable, "-m", "benchmarks.check_wide_kernels", *words, *first]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(found) < len(chosen):
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
            found.append({"case": str(chosen[len(found)]), "warps": warps, "result": f"ended: {reason}"})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capsules", nargs="+", type=int, default=list(CAPSULES))
    parser.add_argument("--precisions", nargs="+", choices=get_args(Precision), default=["float32", "tf32"])
    parser.add_argument("--warps", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--device", default="cuda", help="cpu needs TRITON_INTERPRET=1")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = cases(arguments.capsules, arguments.precisions)
    if arguments.first is not None:
        for found in run_cases(chosen[arguments.first :], arguments.warps[0], arguments.device):
            print(json.dumps(found), flush=True)
        return
    words = ["--capsules", *map(str, arguments.capsules), "--precisions", *arguments.precisions]
    results = []
    for warps in arguments.warps:
        results += run_all(chosen, warps, [*words, "--device", arguments.device])
    for each in results:
        line = f"{each['warps']} warps, {each['case']}: {each['result']}"
        if "kernel_ms" in each:
            line += f", kernel {each['kernel_ms']:.2f} ms, torch {each['torch_ms']:.2f} ms"
        print(line)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
