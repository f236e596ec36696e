"""``graphcaps data``: what there is, what is in it, what to know of it, another form of it, and the cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli import data_check, data_convert
from graphcaps.cli.data_options import Bad, Id, Json, Label, Root, Smiles, Split, own_hints
from graphcaps.cli.output import columns, pairs, print_json, size, terminal

if TYPE_CHECKING:
    from graphcaps.data.datasets import LoadedDataset
    from graphcaps.data.summary import Categories, StoreSummary

__all__ = ["app"]

app = typer.Typer(
    help="Data sets: list, describe, check, convert, and clear the cache.", no_args_is_help=True
)


@app.command("list", epilog="Example: graphcaps data list --root downloads")
def list_datasets(root: Root = None, as_json: Json = False) -> None:
    """List the known data sets and which of them are here.

    Any other name of the TU collection, and a path to a TU folder or zip or to
    your own file, works as well.
    """
    from graphcaps.data.catalogue import CATALOGUE
    from graphcaps.data.datasets import find_local, search_folders

    places = {name: None if entry.embedded else find_local(name, root) for name, entry in CATALOGUE.items()}
    if as_json:
        print_json([_entry(name, places[name]) for name in CATALOGUE])
        return
    console = terminal()
    roomy = console.width >= 120
    headings = ("name", "graphs", "classes", "here", "nodes", "kind", "graphs; classes")
    table = columns(*headings[: 7 if roomy else 5], right=("graphs", "classes"))
    for name, entry in CATALOGUE.items():
        here = "embedded" if entry.embedded else ("yes" if places[name] else "no")
        row = (name, f"{entry.graphs:,}", str(entry.classes), here, entry.nodes, entry.kind, entry.title)
        table.add_row(*row[: len(table.columns)])
    console.print(table)
    looked = ", ".join(str(folder) for folder in search_folders(root))
    console.print(f"\nLooked in {looked}.", soft_wrap=True)


def _entry(name: str, place: Path | None) -> dict[str, Any]:
    from graphcaps.data.catalogue import CATALOGUE

    entry = CATALOGUE[name]
    return {
        "name": name,
        "title": entry.title,
        "kind": entry.kind,
        "graphs": entry.graphs,
        "classes": entry.classes,
        "nodes": entry.nodes,
        "embedded": entry.embedded,
        "here": entry.embedded or place is not None,
        "path": None if place is None else str(place),
        "collection_sha256": entry.collection_sha256,
    }


@app.command(epilog="Example: graphcaps data info MUTAG --json")
def info(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A data set, a TU folder or zip, or your own file.")
    ],
    root: Root = None,
    smiles: Smiles = None,
    label: Label = None,
    split: Split = None,
    id: Id = None,
    bad: Bad = None,
    as_json: Json = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read the files, and keep nothing.")] = False,
    no_download: Annotated[bool, typer.Option("--no-download", help="Use what is here.")] = False,
) -> None:
    """Describe a data set, and say what was done to its edges."""
    from graphcaps.data.datasets import open_dataset
    from graphcaps.data.summary import summarize

    start = time.perf_counter()
    hints = own_hints(smiles, label, split, id, bad)
    loaded = open_dataset(name, root, cache=not no_cache, download=not no_download, **hints)
    seconds = round(time.perf_counter() - start, 3)
    summary = summarize(loaded.store)
    if as_json:
        place = None if loaded.source is None else str(loaded.source)
        told = {"source": place, "seconds": seconds, "from_cache": loaded.from_cache}
        print_json(summary.as_dict() | told | _reading(loaded))
    else:
        terminal().print(pairs(_lines(summary, loaded, seconds)))


def _lines(summary: StoreSummary, loaded: LoadedDataset, seconds: float) -> list[tuple[str, str]]:
    """What people read."""
    counted = [f"{name} ({n:,})" for name, n in zip(summary.class_names, summary.class_counts, strict=False)]
    shown = ", ".join(counted[:12]) + (", …" if len(counted) > 12 else "")
    edges = [_categories(summary.edge_labels), _plural(summary.edge_attributes, "attribute")]
    edges.append("weights" if summary.edge_weights else "")
    nodes = [_categories(summary.node_labels), _plural(summary.node_attributes, "attribute")]
    rows = [
        ("data set", summary.name),
        ("source", "embedded" if loaded.source is None else str(loaded.source)),
        ("graphs", f"{summary.graphs:,}"),
        ("classes", f"{summary.classes}: {shown}" if counted else "none"),
        ("nodes per graph", f"{summary.avg_nodes:.2f} ({summary.min_nodes:,} to {summary.max_nodes:,})"),
        ("edges per graph", f"{summary.avg_edges:.2f} as distributed"),
        ("neighbours per node", f"{summary.avg_degree:.2f}"),
        ("isolated nodes", f"{summary.isolated_nodes:,}"),
        ("graphs without edges", f"{summary.graphs_without_edges:,}"),
        ("on nodes", ", ".join(filter(None, nodes)) or "nothing"),
        ("on edges", ", ".join(filter(None, edges)) or "nothing"),
    ]
    from graphcaps.data.summary import edge_sentences

    report = summary.report
    rows.append(("edge list", f"{report.rows:,} rows, {report.edges:,} undirected edges kept"))
    rows += [("" if index else "done to it", text) for index, text in enumerate(edge_sentences(report))]
    told = _reading(loaded)
    if told.get("split"):
        rows.append(("split", ", ".join(f"{part} ({count:,})" for part, count in told["split"].items())))
    rows += [("reading", sentence) for sentence in told.get("reading", ())]
    rows.append(("read in", f"{seconds:.2f} s{' from the cache' if loaded.from_cache else ''}"))
    return rows


def _reading(loaded: LoadedDataset) -> dict[str, Any]:
    """What a file of one's own says beside its graphs."""
    if loaded.rows is None:
        return {}
    split = loaded.rows.split
    return {
        "split": None if split is None else {part: split.count(part) for part in dict.fromkeys(split)},
        "skipped": [vars(row) for row in loaded.rows.skipped],
        "columns": {name: list(found) for name, found in loaded.rows.columns.items()},
        "label_names": {str(code): text for code, text in loaded.rows.label_names.items()},
        "reading": list(loaded.rows.notes),
    }


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if count else ""


def _categories(labels: Categories | None) -> str:
    if labels is None:
        return ""
    if max(labels.max) >= 1 << 32:  # numbers of texts, which say nothing to people
        return ", ".join(_plural(count, "label") for count in labels.distinct)
    shown = zip(labels.distinct, labels.min, labels.max, strict=True)
    return ", ".join(f"{_plural(count, 'label')} ({least} to {most})" for count, least, most in shown)


app.command(epilog="Example: graphcaps data check MUTAG --root downloads")(data_check.check)
app.command(epilog="Example: graphcaps data convert planted-parts parts.zip")(data_convert.convert)


@app.command(epilog="Example: graphcaps data cache --clear")
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all cached data sets.")] = False,
    as_json: Json = False,
) -> None:
    """Show where parsed data sets are kept and how large they are, or delete them."""
    from graphcaps.data.cache import cache_contents, clear_cache

    found = clear_cache() if clear else cache_contents()
    if as_json:
        print_json(
            {"folder": str(found.folder), "files": found.files, "bytes": found.bytes, "cleared": clear}
        )
        return
    what = f"{_plural(found.files, 'data set') or 'no data sets'}, {size(found.bytes)}"
    terminal().print(f"{found.folder}: {what}{' deleted' if clear else ''}", soft_wrap=True)
