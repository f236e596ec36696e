"""``graphcaps bench``: seconds, graphs a second, memory and share of the roofline, beside rivals in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcaps.cli.output import columns, format_size, note, option, print_json, terminal
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from graphcaps.bench import Speed

__all__ = ["bench", "bench_scaling"]


def bench_scaling(device: str, as_json: bool, out: Path | None) -> None:
    """Times one graph of each size on ``"cpu"`` or ``"cuda"``, and shows how time and memory grow."""
    import graphcaps.bench

    sizes = graphcaps.bench.SIZES
    note(f"One graph of {sizes[0]:,} to {sizes[-1]:,} nodes, forward and backward on {device}.")
    rows = graphcaps.bench.measure_scaling(device)
    if out is not None:
        command = f"graphcaps bench --scaling --device {device}"
        graphcaps.bench.merge_entries(out, graphcaps.bench.scaling_entries(rows, command))
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    numbers = ("nodes", "edges", "ms", "× linear", "memory", "× linear ")
    table = columns(*numbers, "pairs", right=numbers)
    for row in rows:
        grown = ["–" if each is None else f"{each:.2f}" for each in (row.time_ratio, row.memory_ratio)]
        shown = (
            f"{row.nodes:,}",
            f"{row.edges:,}",
            f"{1e3 * row.seconds:.2f}",
            grown[0],
            format_size(row.memory),
        )
        table.add_row(*shown, grown[1], "sampled" if row.sampled else "all")
    console = terminal()
    console.print(table)
    if out is not None:
        console.print(f"Figures: {out}", soft_wrap=True)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Data sets, or paths; else planted-parts, which is embedded."),
    ] = None,
    device: Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")] = "auto",
    rivals: Annotated[
        str, option("--rivals", metavar="LIST", help="Of padded,gin,diffpool,sagpool; or none.")
    ] = "gin",
    precision: Annotated[
        str | None, option("--precision", metavar="NAME", help="On a GPU: float32, tf32 or bf16.")
    ] = None,
    scaling: Annotated[
        bool, option("--scaling", help="One graph of 100 to a million nodes instead of data sets.")
    ] = False,
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to look in first for the data sets.")
    ] = None,
    as_json: Annotated[bool, option("--json", help="Print JSON for machines.")] = False,
    out: Annotated[
        Path | None, option("--out", metavar="FILE", help="Figures to merge into, as performance.json.")
    ] = None,
) -> None:
    """Measure an epoch of ten folds, the phases of a step, and rivals on one fold.

    Each phase is held against the copy bandwidth and the matrix product of this device, measured in the same
    run: roofline is the share of the time that they account for. A rival proves itself right before it is
    timed.
    """
    wanted = _rivals(rivals)
    if out is not None:
        _check(out)
    from graphcaps.bench import measure_speed, merge_entries
    from graphcaps.cli.run_options import configure
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.training.device import choose_device

    place = choose_device(device, "bench").type
    if scaling:
        if names:
            raise ArgumentError("bench", "--scaling", "come without data sets", f"'{names[0]}'")
        if precision is not None or root is not None:
            given = "--precision" if precision is not None else "--root"
            raise ArgumentError("bench", "--scaling", "come without --precision and --root", given)
        bench_scaling(place, as_json, out)
        return
    loaded = [open_dataset(name, root).store for name in names or ["planted-parts"]]
    known = [store.name for store in loaded]
    for name in known:
        if known.count(name) > 1:
            raise ArgumentError("bench", "NAME", "be given once each", f"'{name}' twice")
    configs = [configure(store.name, precision=precision) for store in loaded]
    found = []
    for store, config in zip(loaded, configs, strict=True):
        note(f"{store.name}: timing ten folds{''.join(f', {name}' for name in wanted)} on {place}.")
        speed = measure_speed(store, config, device=place, rivals=wanted)
        found.append(speed)
        if out is not None:  # what is measured stays, whatever follows
            command = f"graphcaps bench {store.name} --device {place} --rivals {','.join(wanted) or 'none'}"
            command += f" --precision {speed.precision}" if precision else ""
            merge_entries(out, speed.entries(command))
    if as_json:
        print_json([speed.as_dict() for speed in found])
    else:
        _show(found, out)


def _rivals(given: str) -> list[str]:
    """The names in a list, each known and once."""
    known = ("padded", "gin", "diffpool", "sagpool")
    if given.strip() == "none":
        return []
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in known or names.count(name) > 1:
            expected = f"name some of {', '.join(known)} once each, or none"
            raise ArgumentError("bench", "--rivals", expected, repr(given))
    return names


def _check(out: Path) -> None:
    """Refuses, before anything is measured, a file that could not be merged into."""
    from graphcaps.bench import read_entries

    if out.is_dir():
        raise DataError(out, "a file to write figures to", "a folder")
    read_entries(out)


def _show(speeds: list[Speed], out: Path | None) -> None:
    console = terminal()
    for speed in speeds:
        _show_phases(console, speed)
    if any(speed.rivals for speed in speeds):
        table = columns(
            "data set", "one fold", "s/epoch", "ours is faster", right=("s/epoch", "ours is faster")
        )
        for speed in speeds:
            table.add_row(speed.dataset, "ours, of all folds", f"{speed.seconds / speed.folds:.4f}", "")
            for rival in speed.rivals:
                table.add_row("", rival.name, f"{rival.seconds:.4f}", f"{rival.times:.2f} ×")
        console.print(table)
    for told in dict.fromkeys(f"{speed.dataset}: {told}" for speed in speeds for told in speed.notes):
        console.print(told, soft_wrap=True)
    if out is not None:
        console.print(f"Figures: {out}", soft_wrap=True)


def _show_phases(console: Console, speed: Speed) -> None:
    """A data set: its epoch in a line, the phases of its step under it."""
    memory = "" if speed.memory is None else f", {speed.memory_of} {format_size(speed.memory)}"
    console.print(
        f"{speed.dataset}: {speed.seconds:.4f} s an epoch of {speed.folds} folds, "
        f"{speed.graphs_per_second:,.0f} graphs/s{memory}.",
        soft_wrap=True,
    )
    ceilings = f"{speed.ceilings.bandwidth / 1e9:,.1f} GB/s copied, {speed.ceilings.rate / 1e9:,.0f} Gop/s"
    console.print(f"Ceilings of {speed.device}: {ceilings}.", style="dim", soft_wrap=True)
    numbers = ("ms", "MB", "Mop", "roofline")
    table = columns(f"step of {speed.replicas} folds", *numbers, right=numbers)
    for phase in (*speed.step.phases, speed.step.whole):
        share = "–" if not phase.roofline or phase.share is None else f"{100 * phase.share:.1f} %"
        moved = (f"{phase.count.bytes / 1e6:.2f}", f"{phase.count.operations / 1e6:.1f}")
        table.add_row(phase.name, f"{1e3 * phase.seconds:.3f}", *moved, share)
    console.print(table)
    console.print()
