"""Duration of a first GPU training, with an empty and with a filled cache of compiled kernels, by phase and kernel.

    python -m benchmarks.measure_cold_start --out cold-start.json
    python -m benchmarks.measure_cold_start --runs empty --command "evaluate PROTEINS --preset paper --device cuda"
    python -m benchmarks.measure_cold_start --runs empty filled empty-one-by-one

Every run is a process of its own. ``empty`` has an empty ``TRITON_CACHE_DIR``, ``filled`` that of the run before it.
``total`` is the duration of the process, from its start to its end. Phases are inclusive: ``record`` contains the
compilations that a captured step or evaluation causes, unless they were compiled before it. Seconds of compilations are
those of the calls in this process, which overlap if several threads compile; kernels that forked processes compiled
count as found in the cache. In a run ``one-by-one``, kernels are compiled when they are launched, one after another,
and not before the first epoch on all cores.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphcaps._io.provenance import describe_hardware, versions_and_commit

COMMAND = "evaluate MUTAG --preset paper --device cuda"
PHASES = {
    "CUDA context": ("torch.cuda", "_lazy_init"),
    "read data": ("graphcaps.cli.fold_options", "load_with_splits"),
    "check arguments": ("graphcaps.evaluation.cross_validation", "CrossValidation.__init__"),
    "encode and estimate memory": ("graphcaps.evaluation.cross_validation", "CrossValidation.prepare"),
    "make trainer": ("graphcaps.evaluation.replica_groups", "make_trainer"),
    "compile before": ("graphcaps.training.trainer", "Trainer._compile_kernels"),
    "compile in processes": ("graphcaps.ops._triton.precompilation", "_fill_cache"),
    "record": ("graphcaps.training.cuda_graphs", "CudaGraphRecorder.record"),
    "epochs": ("graphcaps.training.trainer", "Trainer.run_epoch"),
    "capsule use": ("graphcaps.training.trainer", "Trainer.capsule_use"),
    "C compiler": ("triton.runtime.build", "_build"),
    "load kernel": ("triton.compiler.compiler", "CompiledKernel._init_handles"),
}
"""Functions that are timed, by the name of their phase."""


@dataclass
class Phase:
    """Calls of one function.

    Args:
        began (float): Seconds from the start of the process to the first call.
        calls (int): Number of calls.
        seconds (float): Their duration; less than the sum where threads overlap is not corrected for.
        first (float): Duration of the first call.
    """

    began: float
    calls: int = 0
    seconds: float = 0.0
    first: float = 0.0


@dataclass
class Run:
    """What a measured process reports: phases, and compilations by kernel as number and seconds."""

    phases: dict[str, Phase] = field(default_factory=dict)
    compilations: dict[str, list[float]] = field(default_factory=dict)
    cache_hits: int = 0


def measure(command: str, cache: Path, *options: str) -> dict[str, Any]:
    """Runs ``graphcaps COMMAND`` with a cache folder of kernels; its total seconds, phases and compilations."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {"TRITON_CACHE_DIR": str(cache)}
        words = [sys.executable, "-m", "benchmarks.measure_cold_start", "--report", str(report)]
        began = time.time()
        words += ["--began", repr(began), "--command", command, *options]
        subprocess.run(words, env=environment, check=True)
        total = time.time() - began
        return {"total": total} | json.loads(report.read_text())


def run_command(command: str, began: float, report: Path, *, one_by_one: bool = False) -> None:
    """Runs ``graphcaps COMMAND`` in this process with timers around its phases, and writes them to ``report``."""
    run = Run()
    start = time.time()
    for module, _ in PHASES.values():
        importlib.import_module(module)
    run.phases["start Python"] = Phase(0.0, 1, start - began, start - began)
    imported = time.time()
    run.phases["imports"] = Phase(start - began, 1, imported - start, imported - start)
    os.environ["GRAPHCAPS_PRECOMPILE"] = "0" if one_by_one else "1"
    for name, (module, path) in PHASES.items():
        _time_calls(run, name, module, path, began)
    from triton import knobs

    def listen(*, src: Any, times: Any, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            run.cache_hits += 1
            return
        kernel = run.compilations.setdefault(f"{src.fn.__module__}.{src.name}", [0, 0.0])
        kernel[0] += 1
        kernel[1] += times.total / 1e6

    knobs.compilation.listener = listen
    from graphcaps.__main__ import main

    sys.argv = ["graphcaps", *shlex.split(command)]
    try:
        main()
    finally:
        report.write_text(json.dumps(asdict(run)))


def _time_calls(run: Run, name: str, module: str, path: str, began: float) -> None:
    """Replaces a function by one that adds its durations to ``run``."""
    owner: Any = importlib.import_module(module)
    *classes, last = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    function: Callable[..., Any] = getattr(owner, last)

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        before = time.time()
        phase = run.phases.setdefault(name, Phase(before - began))
        try:
            return function(*args, **kwargs)
        finally:
            spent = time.time() - before
            phase.first = phase.first if phase.calls else spent
            phase.calls += 1
            phase.seconds += spent

    setattr(owner, last, timed)


def _describe(name: str, run: dict[str, Any]) -> str:
    count = sum(int(number) for number, _ in run["compilations"].values())
    seconds = sum(each for _, each in run["compilations"].values())
    lines = [f"{name}: {run['total']:.2f} s, {count} compilations, {seconds:.1f} s"]
    for phase, numbers in run["phases"].items():
        times = f"{numbers['calls']:4d} × {numbers['seconds']:7.2f} s, first {numbers['first']:.2f} s"
        lines.append(f"  {phase:27s} from {numbers['began']:6.2f} s: {times}")
    return "\n".join(lines)


RUNS = ("empty", "filled", "empty-one-by-one", "filled-one-by-one")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default=COMMAND, help="of graphcaps")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=["empty", "filled"], metavar="RUN")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--one-by-one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report is not None:
        run_command(arguments.command, arguments.began, arguments.report, one_by_one=arguments.one_by_one)
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for number, name in enumerate(arguments.runs):
            cache = Path(folder) / str(number) if name.startswith("empty") else cache
            options = ["--one-by-one"] if name.endswith("one-by-one") else []
            results.append({"run": name} | measure(arguments.command, cache, *options))
            print(_describe(name, results[-1]), flush=True)
            if arguments.out is not None:
                content = {
                    "command": arguments.command,
                    "hardware": _hardware(),
                    "versions": versions_and_commit(),
                    "runs": results,
                }
                arguments.out.write_text(json.dumps(content, indent=1))


def _hardware() -> str:
    import torch  # not before the first run: start-up is measured

    return describe_hardware("cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
