"""``graphcaps data convert``: a data set as a TU folder or zip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphcaps.cli.data_options import Bad, Json, Label, Root, Smiles, Source, open_own, own_hints
from graphcaps.cli.output import print_json, size, terminal

__all__ = ["convert"]


def convert(
    source: Source,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Zip to write where it ends in .zip, else a folder.")
    ],
    root: Root = None,
    smiles: Smiles = None,
    label: Label = None,
    bad: Bad = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace TARGET if it is a zip or a TU folder.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a data set in the layout of the TU collection, cleaned.

    Every edge once in each direction, no self-loops; classes, labels and
    attributes as they are. Names of classes, and what is known about nodes
    (the parts of planted-parts), go into files that other readers pass over.

    The files are named after TARGET, which appears whole or not at all.
    """
    from graphcaps.data.tu_write import write_tu

    loaded = open_own(source, root, own_hints(smiles, label, bad=bad))
    write_tu(loaded.store, target, overwrite=overwrite)
    target = target.expanduser()
    written = [target] if target.is_file() else sorted(target.iterdir())
    count = sum(file.stat().st_size for file in written)
    if as_json:
        print_json(
            {
                "name": loaded.store.name,
                "source": None if loaded.source is None else str(loaded.source),
                "target": str(target),
                "graphs": len(loaded.store),
                "nodes": loaded.store.num_nodes,
                "edges": loaded.store.num_edges,
                "files": [str(file) for file in written],
                "bytes": count,
            }
        )
        return
    what = f"{len(loaded.store):,} graphs, {size(count)}"
    terminal().print(f"{target}: {what}", soft_wrap=True, markup=False)
