"""``graphcaps bench``: speed, memory and share of the roofline of training on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcaps.cli.output import columns, format_size, note, option, print_json, terminal
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from graphcaps.bench import Speed

__all__ = ["bench", "bench_scaling", "check_out", "show_speed"]


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Data sets or paths; default: planted-parts, which is embedded."),
    ] = None,
    device: Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")] = "auto",
    precision: Annotated[
        str | None, option("--precision", metavar="NAME", help="On a GPU: float32, tf32 or bf16.")
    ] = None,
    scaling: Annotated[
        bool, option("--scaling", help="Time one graph of 100 to a million nodes instead of data sets.")
    ] = False,
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to look in first for the data sets.")
    ] = None,
    as_json: Annotated[bool, option("--json", help="Print JSON for machines.")] = False,
    out: Annotated[
        Path | None,
        option("--out", metavar="FILE", help="JSON file to merge the measurements into."),
    ] = None,
) -> None:
    """Time an epoch of ten folds and the phases of a training step.

    Each phase is compared with the copy bandwidth and the matrix-product rate of this device, measured in the same
    run. Roofline is the time that these two allow, as a share of the measured time.
    """
    if out is not None:
        check_out(out)
    from graphcaps.bench import measure_speed, merge_measurements
    from graphcaps.cli.run_options import configure
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.training.device import choose_device

    device_type = choose_device(device, "bench").type
    if scaling:
        if names:
            raise ArgumentError("bench", "--scaling", "come without data sets", f"'{names[0]}'")
        if precision is not None or root is not None:
            other = "--precision" if precision is not None else "--root"
            raise ArgumentError("bench", "--scaling", "come without --precision and --root", other)
        bench_scaling(device_type, as_json, out)
        return
    stores = [open_dataset(name, root).store for name in names or ["planted-parts"]]
    store_names = [store.name for store in stores]
    for name in store_names:
        if store_names.count(name) > 1:
            raise ArgumentError("bench", "NAME", "be given once each", f"'{name}' twice")
    configs = [configure(store, precision=precision) for store in stores]
    speeds = []
    for store, config in zip(stores, configs, strict=True):
        note(f"{store.name}: timing ten folds on {device_type}.")
        speed = measure_speed(store, config, device=device_type)
        speeds.append(speed)
        if out is not None:  # each data set at once, so that a later failure loses nothing
            command = f"graphcaps bench {store.name} --device {device_type}"
            command += f" --precision {speed.precision}" if precision else ""
            merge_measurements(out, speed.measurements(command))
    if as_json:
        print_json([speed.as_dict() for speed in speeds])
        return
    console = terminal()
    for speed in speeds:
        show_speed(console, speed)
    if out is not None:
        console.print(f"Measurements: {out}", soft_wrap=True)


def bench_scaling(device: str, as_json: bool, out: Path | None) -> None:
    """Times one graph of each size on ``"cpu"`` or ``"cuda"``, and prints the growth of time and memory."""
    import graphcaps.bench

    sizes = graphcaps.bench.SIZES
    note(f"One graph of {sizes[0]:,} to {sizes[-1]:,} nodes, forward and backward on {device}.")
    rows = graphcaps.bench.measure_scaling(device)
    if out is not None:
        command = f"graphcaps bench --scaling --device {device}"
        graphcaps.bench.merge_measurements(out, graphcaps.bench.scaling_measurements(rows, command))
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    numbers = ("nodes", "edges", "ms", "× linear", "memory", "× linear ")
    table = columns(*numbers, "pairs", right=numbers)
    for row in rows:
        ratios = ["–" if ratio is None else f"{ratio:.2f}" for ratio in (row.time_ratio, row.memory_ratio)]
        cells = (
            f"{row.nodes:,}",
            f"{row.edges:,}",
            f"{1e3 * row.seconds:.2f}",
            ratios[0],
            format_size(row.memory),
        )
        table.add_row(*cells, ratios[1], "sampled" if row.sampled else "all")
    console = terminal()
    console.print(table)
    if out is not None:
        console.print(f"Measurements: {out}", soft_wrap=True)


def check_out(out: Path) -> None:
    """Rejects, before anything is measured, a file that measurements cannot be merged into."""
    from graphcaps.bench import read_measurements

    if out.is_dir():
        raise DataError(out, "a file to write measurements to", "a folder")
    read_measurements(out)


def show_speed(console: Console, speed: Speed) -> None:
    """Prints the epoch of a data set as a line, and the phases of its step as a table."""
    memory = "" if speed.memory is None else f", {speed.memory_of} {format_size(speed.memory)}"
    console.print(
        f"{speed.dataset}: {speed.seconds:.4f} s per epoch of {speed.folds} folds, "
        f"{speed.graphs_per_second:,.0f} graphs/s{memory}.",
        soft_wrap=True,
    )
    ceilings = f"{speed.ceilings.bandwidth / 1e9:,.1f} GB/s copied, {speed.ceilings.rate / 1e9:,.0f} Gop/s"
    console.print(f"Ceilings of {speed.device}: {ceilings}.", style="dim", soft_wrap=True)
    numbers = ("ms", "MB", "Mop", "roofline")
    table = columns(f"step of {speed.replicas} folds", *numbers, right=numbers)
    for phase in (*speed.step.phases, speed.step.whole):
        share = "–" if not phase.roofline or phase.share is None else f"{100 * phase.share:.1f} %"
        counts = (f"{phase.count.bytes / 1e6:.2f}", f"{phase.count.operations / 1e6:.1f}")
        table.add_row(phase.name, f"{1e3 * phase.seconds:.3f}", *counts, share)
    console.print(table)
    if any(phase.share is not None and phase.share > 1 for phase in speed.step.phases):
        reason = "its data are in a cache, which is faster than the memory of the ceiling"
        console.print(f"A phase above 100 %: {reason}.", style="dim", soft_wrap=True)
    console.print()
