"""``graphcaps data``: what there is, what is in it, what to know of it, another form of it, and the cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import (
    Bad,
    Id,
    Json,
    Label,
    Root,
    Smiles,
    Source,
    SplitColumn,
    open_source,
    reader_options,
)
from graphcaps.cli.output import columns, format_size, pairs, print_json, terminal

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.quality.quality_report import Finding
    from graphcaps.data.quality.summary import LabelSummary, StoreSummary
    from graphcaps.data.store import GraphStore

__all__ = ["app", "check", "convert"]


_SECONDS = 120  # for confirming copies
_FUNCTION = "stratified_folds(y, groups=…) keeps duplicates together."
_SAMPLE = 128  # graphs that are trained on for a moment, to know how long an epoch takes


def check(
    source: Source,
    root: Root = None,
    smiles: Smiles = None,
    label: Label = None,
    split: SplitColumn = None,
    id: Id = None,
    bad: Bad = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Write the group of copies of each graph as CSV."),
    ] = None,
    no_forecast: Annotated[
        bool, typer.Option("--no-forecast", help="Do not try how much memory and time training takes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read a data set and say what to know before training on it.

    Small and lopsided classes, graphs without edges, isolated nodes, very
    large graphs, what is odd in the edge list, attributes that are constant
    or large, copies of graphs (confirmed), whether their classes agree, how
    many of them folds put on both sides, and what a training takes.

    Ends with 0 whenever the set can be read, whatever was found, else with 2.
    """
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.quality_report import quality_report
    from graphcaps.data.splits.groups import write_groups

    loaded = open_dataset(source, root, **reader_options(smiles, label, split, id, bad))
    store, rows = loaded.store, loaded.metadata
    found = quality_report(store, seconds=_SECONDS)
    findings = found.findings
    if groups is not None:
        write_groups(groups, store, found.duplicates, () if rows is None else rows.ids)
    forecast = None if no_forecast else _forecast(store)
    warnings = sum(finding.severity == "warning" for finding in findings)
    notes = () if rows is None else rows.notes
    if as_json:
        print_json(
            {
                "name": store.name,
                "source": None if loaded.source is None else str(loaded.source),
                "graphs": len(store),
                "warnings": warnings,
                "notes": len(findings) - warnings,
                "reading": list(notes),
                **found.as_dict(),
                "forecast": forecast,
                "groups_file": None if groups is None else str(groups),
            }
        )
        return
    console = terminal()
    lines = [("read", sentence) for sentence in notes]
    lines += [(finding.severity, _sentence(finding, own=rows is not None)) for finding in findings]
    if forecast is not None:
        lines.append(("forecast", str(forecast["sentence"])))
    if lines:
        console.print(pairs(lines))
    if groups is not None:
        console.print(f"Groups of copies: {groups}", soft_wrap=True)
    counted = f"{_number(warnings, 'warning')}, {_number(len(findings) - warnings, 'note')}"
    console.print(f"{store.name} can be read: {len(store):,} graphs; {counted}.", soft_wrap=True)


def _sentence(finding: Finding, *, own: bool) -> str:
    """What was found, with the option that mends it; that of classes is for a file of the user's own."""
    if own and finding.kind == "no-classes":
        return f"{finding.sentence.removesuffix('.')} (name the column with --label)."
    if finding.kind == "leakage":  # the library names its function
        return finding.sentence.replace(
            _FUNCTION, "graphcaps evaluate … --groups copies keeps them together."
        )
    return finding.sentence


def _forecast(store: GraphStore) -> dict[str, Any] | None:
    """What one training and ten folds will take here; ``None`` where the set cannot be trained on."""
    from graphcaps.cli.run_options import configure
    from graphcaps.errors import GraphcapsError
    from graphcaps.evaluation import CrossValidation
    from graphcaps.training.auto_config import resolve_config
    from graphcaps.training.final_training import FinalTraining

    config = resolve_config(configure(store.name), store)
    epochs, batch = config.training.epochs, config.training.batch_size
    try:
        validation = CrossValidation(store, config, folds=10, seeds=1, protocol="held-out", device="cpu")
        validation.prepare()
        # Graphs from all over the set, in batches of the size that will be trained.
        step = max(len(store) // max(_SAMPLE, 2 * batch), 1)
        sample = store[range(0, len(store), step)]
        training = FinalTraining(sample, config.with_training(epochs=2), validation=0.0, device="cpu")
        events = training.run()
        next(events)  # the first epoch also warms up
        start = time.perf_counter()
        next(events)
        seconds = (time.perf_counter() - start) * len(store) / len(sample)
    except GraphcapsError:  # too few graphs or classes, which the findings tell
        return None
    assert validation.forecast is not None
    memory = validation.forecast.bytes_for(1)
    said = (
        f"On this computer's CPU, as busy as it is now, a training of {epochs} epochs ({config.model}, preset: "
        f"{config.source}) takes about {format_size(memory)} of memory and {_time(seconds * epochs)}; "
        f"ten folds at most {_time(10 * seconds * epochs)}."
    )
    return {
        "sentence": said,
        "bytes": memory,
        "seconds_per_epoch": round(seconds, 4),
        "epochs": epochs,
        "model": config.model,
        "preset": config.source,
        "device": "cpu",
    }


def _time(seconds: float) -> str:
    """A time as people say it; a forecast has one or two digits."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 36000 else f"{seconds / 3600:.0f} hours"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


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
    from graphcaps.data.readers.tu_writer import write_tu

    loaded = open_source(source, root, reader_options(smiles, label, bad=bad))
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
    what = f"{len(loaded.store):,} graphs, {format_size(count)}"
    terminal().print(f"{target}: {what}", soft_wrap=True, markup=False)


app = typer.Typer(
    help="Data sets: list, describe, check, convert, and clear the cache.", no_args_is_help=True
)


@app.command("list", epilog="Example: graphcaps data list --root downloads")
def list_datasets(root: Root = None, as_json: Json = False) -> None:
    """List the known data sets and which of them are here.

    Any other name of the TU collection, and a path to a TU folder or zip or to
    your own file, works as well.
    """
    from graphcaps.data.datasets.catalogue import CATALOGUE
    from graphcaps.data.datasets.loading import find_local_dataset, search_folders

    places = {
        name: None if entry.embedded else find_local_dataset(name, root) for name, entry in CATALOGUE.items()
    }
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
    from graphcaps.data.datasets.catalogue import CATALOGUE

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
    split: SplitColumn = None,
    id: Id = None,
    bad: Bad = None,
    as_json: Json = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read the files, and keep nothing.")] = False,
    no_download: Annotated[bool, typer.Option("--no-download", help="Use what is here.")] = False,
) -> None:
    """Describe a data set, and say what was done to its edges."""
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.summary import summarize

    start = time.perf_counter()
    hints = reader_options(smiles, label, split, id, bad)
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
    from graphcaps.data.quality.summary import describe_edge_cleaning

    report = summary.report
    rows.append(("edge list", f"{report.rows:,} rows, {report.edges:,} undirected edges kept"))
    rows += [
        ("" if index else "done to it", text) for index, text in enumerate(describe_edge_cleaning(report))
    ]
    told = _reading(loaded)
    if told.get("split"):
        rows.append(("split", ", ".join(f"{part} ({count:,})" for part, count in told["split"].items())))
    rows += [("reading", sentence) for sentence in told.get("reading", ())]
    rows.append(("read in", f"{seconds:.2f} s{' from the cache' if loaded.from_cache else ''}"))
    return rows


def _reading(loaded: LoadedDataset) -> dict[str, Any]:
    """What a file of one's own says beside its graphs."""
    if loaded.metadata is None:
        return {}
    split = loaded.metadata.split
    return {
        "split": None if split is None else {part: split.count(part) for part in dict.fromkeys(split)},
        "skipped": [vars(row) for row in loaded.metadata.skipped],
        "columns": {name: list(found) for name, found in loaded.metadata.columns.items()},
        "label_names": {str(code): text for code, text in loaded.metadata.label_names.items()},
        "reading": list(loaded.metadata.notes),
    }


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if count else ""


def _categories(labels: LabelSummary | None) -> str:
    if labels is None:
        return ""
    if max(labels.max) >= 1 << 32:  # numbers of texts, which say nothing to people
        return ", ".join(_plural(count, "label") for count in labels.distinct)
    shown = zip(labels.distinct, labels.min, labels.max, strict=True)
    return ", ".join(f"{_plural(count, 'label')} ({least} to {most})" for count, least, most in shown)


app.command(epilog="Example: graphcaps data check MUTAG --root downloads")(check)
app.command(epilog="Example: graphcaps data convert planted-parts parts.zip")(convert)


@app.command(epilog="Example: graphcaps data cache --clear")
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all cached data sets.")] = False,
    as_json: Json = False,
) -> None:
    """Show where parsed data sets are kept and how large they are, or delete them."""
    from graphcaps.data.datasets.cache import cache_contents, clear_cache

    found = clear_cache() if clear else cache_contents()
    if as_json:
        print_json(
            {"folder": str(found.folder), "files": found.files, "bytes": found.bytes, "cleared": clear}
        )
        return
    what = f"{_plural(found.files, 'data set') or 'no data sets'}, {format_size(found.bytes)}"
    terminal().print(f"{found.folder}: {what}{' deleted' if clear else ''}", soft_wrap=True)
