"""``graphcaps bench --scaling``: one graph, larger and larger."""

from __future__ import annotations

from pathlib import Path

from graphcaps.cli.output import columns, note, print_json, size, terminal

__all__ = ["bench_scaling"]


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
        shown = (f"{row.nodes:,}", f"{row.edges:,}", f"{1e3 * row.seconds:.2f}", grown[0], size(row.memory))
        table.add_row(*shown, grown[1], "sampled" if row.sampled else "all")
    console = terminal()
    console.print(table)
    if out is not None:
        console.print(f"Figures: {out}", soft_wrap=True)
