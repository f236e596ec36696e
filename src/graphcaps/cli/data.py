"""``graphcaps data``: list, describe, check and convert data sets, and clear the cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Json, Root, Source, open_source
from graphcaps.cli.output import columns, format_size, option, pairs, print_json, terminal
from graphcaps.cli.output_files import check_output_file
from graphcaps.cli.reader_options import SplitColumn, takes_reader_options
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.quality.quality_report import Finding
    from graphcaps.data.quality.summary import StoreSummary
    from graphcaps.data.store import GraphStore

__all__ = ["app"]

_MAX_SECONDS = 120  # for confirming duplicates
_FUNCTION = "stratified_folds(y, groups=…) keeps duplicates together."
_SAMPLE_SIZE = 128  # graphs of the short training that measures the time of an epoch

app = typer.Typer(
    help="Data sets: list, describe, check, convert, and clear the cache.", no_args_is_help=True
)


@app.command("list", epilog="Example: graphcaps data list --root downloads")
def list_datasets(root: Root = None, as_json: Json = False) -> None:
    """List the known data sets, and which of them are available on this machine.

    Other names of the TU collection, paths of TU folders and zips, and your own files work as well.
    """
    from graphcaps.data.datasets.catalogue import CATALOGUE
    from graphcaps.data.datasets.loading import find_local_dataset, search_folders

    paths = {
        name: None if entry.embedded else find_local_dataset(name, root) for name, entry in CATALOGUE.items()
    }
    if as_json:
        print_json([_entry(name, paths[name]) for name in CATALOGUE])
        return
    console = terminal()
    is_wide = console.width >= 120
    headings = ("name", "graphs", "classes", "here", "nodes", "kind", "graphs; classes")
    table = columns(*headings[: 7 if is_wide else 5], right=("graphs", "classes"))
    for name, entry in CATALOGUE.items():
        here = "yes" if paths[name] else "no"
        if entry.embedded:
            here = "embedded" if entry.extra is None else f"embedded ({entry.extra})"
        row = (name, f"{entry.graphs:,}", str(entry.classes), here, entry.nodes, entry.kind, entry.title)
        table.add_row(*row[: len(table.columns)])
    console.print(table)
    folders = ", ".join(str(folder) for folder in search_folders(root))
    console.print(f"\nSearched: {folders}.", soft_wrap=True)


def _entry(name: str, path: Path | None) -> dict[str, Any]:
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
        "extra": entry.extra,
        "here": entry.embedded or path is not None,
        "path": None if path is None else str(path),
        "collection_sha256": entry.collection_sha256,
    }


@app.command(epilog="Example: graphcaps data info MUTAG --json")
@takes_reader_options(split=SplitColumn)
def info(
    name: Source,
    root: Root = None,
    as_json: Json = False,
    no_cache: Annotated[bool, option("--no-cache", help="Do not use or write the cache.")] = False,
    no_download: Annotated[bool, option("--no-download", help="Do not download.")] = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Describe a data set, and how its edge list was cleaned."""
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.summary import summarize

    start = time.perf_counter()
    loaded = open_dataset(name, root, cache=not no_cache, download=not no_download, **reader)
    seconds = round(time.perf_counter() - start, 3)
    summary = summarize(loaded.store)
    if as_json:
        path = None if loaded.source is None else str(loaded.source)
        details = {"source": path, "seconds": seconds, "from_cache": loaded.from_cache}
        print_json(summary.as_dict() | details | _reading(loaded))
    else:
        terminal().print(pairs(_lines(summary, loaded, seconds)))


def _lines(summary: StoreSummary, loaded: LoadedDataset, seconds: float) -> list[tuple[str, str]]:
    """Names and values of the printed summary."""
    classes = [f"{name} ({n:,})" for name, n in zip(summary.class_names, summary.class_counts, strict=False)]
    shown = ", ".join(classes[:12]) + (", …" if len(classes) > 12 else "")
    edges = [_describe_labels(summary, "edge"), _plural(summary.edge_attributes, "attribute")]
    edges.append("weights" if summary.edge_weights else "")
    nodes = [_describe_labels(summary, "node"), _plural(summary.node_attributes, "attribute")]
    rows = [
        ("data set", summary.name),
        ("source", "embedded" if loaded.source is None else str(loaded.source)),
        ("graphs", f"{summary.graphs:,}"),
        ("classes", f"{summary.classes}: {shown}" if classes else "none"),
        ("nodes per graph", f"{summary.avg_nodes:.2f} ({summary.min_nodes:,} to {summary.max_nodes:,})"),
        ("edges per graph", f"{summary.avg_edges:.2f} as distributed"),
        ("neighbours per node", f"{summary.avg_degree:.2f}"),
        ("isolated nodes", f"{summary.isolated_nodes:,}"),
        ("graphs without nodes", f"{summary.graphs_without_nodes:,}"),
        ("graphs without edges", f"{summary.graphs_without_edges:,}"),
        *([] if summary.featurizer is None else [("featurizer", summary.featurizer)]),
        ("on nodes", ", ".join(filter(None, nodes)) or "nothing"),
        ("on edges", ", ".join(filter(None, edges)) or "nothing"),
    ]
    from graphcaps.data.quality.summary import describe_edge_cleaning

    report = summary.report
    rows.append(("edge list", f"{report.rows:,} rows, {report.edges:,} undirected edges kept"))
    rows += [("" if index else "cleaning", text) for index, text in enumerate(describe_edge_cleaning(report))]
    reading = _reading(loaded)
    if reading.get("split"):
        rows.append(("split", ", ".join(f"{part} ({count:,})" for part, count in reading["split"].items())))
    rows += [("reading", sentence) for sentence in reading.get("reading", ())]
    rows.append(("read in", f"{seconds:.2f} s{' from the cache' if loaded.from_cache else ''}"))
    return rows


def _reading(loaded: LoadedDataset) -> dict[str, Any]:
    """What the reader reports besides the graphs."""
    if loaded.metadata is None:
        return {"reading": list(loaded.source_notes)} if loaded.source_notes else {}
    split = loaded.metadata.split
    return {
        "split": None if split is None else {part: split.count(part) for part in dict.fromkeys(split)},
        "skipped": [vars(row) for row in loaded.metadata.skipped],
        "columns": {name: list(values) for name, values in loaded.store.source_columns.items()},
        "label_names": {str(code): text for code, text in loaded.store.label_names.items()},
        "reading": list(loaded.all_notes),
    }


def _describe_labels(summary: StoreSummary, kind: str) -> str:
    from graphcaps.chemistry.featurizers import find_featurizer

    labels = summary.node_labels if kind == "node" else summary.edge_labels
    if labels is None:
        return ""
    if summary.featurizer is not None:
        columns = find_featurizer(summary.featurizer).columns(kind)
        counts = zip(columns, labels.distinct, strict=True)
        return ", ".join(f"{column.name} ({_plural(count, 'value')})" for column, count in counts)
    if max(labels.max) >= 1 << 32:  # hashes of texts: their values mean nothing
        return ", ".join(_plural(count, "label") for count in labels.distinct)
    shown = zip(labels.distinct, labels.min, labels.max, strict=True)
    return ", ".join(f"{_plural(count, 'label')} ({least} to {most})" for count, least, most in shown)


def _plural(count: int, noun: str) -> str:
    return count_noun(count, noun) if count else ""


@app.command(epilog="Example: graphcaps data check MUTAG --root downloads")
@takes_reader_options(split=SplitColumn)
def check(
    source: Source,
    root: Root = None,
    groups: Annotated[
        Path | None,
        option("--groups", metavar="FILE", help="Write the group of duplicates of each graph as CSV."),
    ] = None,
    no_forecast: Annotated[
        bool, option("--no-forecast", help="Do not estimate memory and time of a training.")
    ] = False,
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Check a data set for problems before training.

    The report covers small and imbalanced classes, graphs without edges, isolated nodes, very large graphs,
    problems of the edge list, constant or large attributes, confirmed duplicates and whether their classes agree,
    leakage between folds, and the memory and time of a training.

    The exit code is 0 if the data set can be read, whatever the report contains, else 2.
    """
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.quality_report import quality_report
    from graphcaps.data.splits.groups import write_groups

    if groups is not None:
        check_output_file(groups, source)
    loaded = open_dataset(source, root, **reader)
    store, metadata = loaded.store, loaded.metadata
    report = quality_report(store, seconds=_MAX_SECONDS)
    findings = report.findings
    if groups is not None:
        write_groups(groups, store, report.duplicates, () if metadata is None else metadata.ids)
    forecast = None if no_forecast else _forecast(store)
    warnings = sum(finding.severity == "warning" for finding in findings)
    notes = loaded.all_notes
    if as_json:
        print_json(
            {
                "name": store.name,
                "source": None if loaded.source is None else str(loaded.source),
                "graphs": len(store),
                "warnings": warnings,
                "notes": len(findings) - warnings,
                "reading": list(notes),
                **report.as_dict(),
                "forecast": forecast,
                "groups_file": None if groups is None else str(groups),
            }
        )
        return
    console = terminal()
    lines = [("read", sentence) for sentence in notes]
    lines += [
        (finding.severity, _describe_finding(finding, is_own_file=metadata is not None))
        for finding in findings
    ]
    if forecast is not None:
        lines.append(("forecast", str(forecast["sentence"])))
    if lines:
        console.print(pairs(lines))
    if groups is not None:
        console.print(f"Groups of duplicates: {groups}", soft_wrap=True)
    counts = f"{_number(warnings, 'warning')}, {_number(len(findings) - warnings, 'note')}"
    console.print(f"{store.name} can be read: {count_noun(len(store), 'graph')}; {counts}.", soft_wrap=True)


def _describe_finding(finding: Finding, *, is_own_file: bool) -> str:
    """The sentence of a finding, with the option that helps."""
    if is_own_file and finding.kind == "no-classes":
        return f"{finding.sentence.removesuffix('.')} (name the column with --label)."
    if finding.kind == "leakage":  # the library names its function here
        return finding.sentence.replace(
            _FUNCTION, "graphcaps evaluate … --groups copies keeps them together."
        )
    return finding.sentence


def _forecast(store: GraphStore) -> dict[str, Any] | None:
    """Memory and time of one training and of ten folds; ``None`` if the data set cannot be trained on."""
    from graphcaps.cli.run_options import configure, describe_preset
    from graphcaps.errors import GraphcapsError
    from graphcaps.evaluation import CrossValidation
    from graphcaps.training.auto_config import resolve_config
    from graphcaps.training.final_training import FinalTraining

    config = resolve_config(configure(store), store)
    epochs, batch = config.training.epochs, config.training.batch_size
    try:
        validation = CrossValidation(store, config, folds=10, seeds=1, protocol="held-out", device="cpu")
        validation.prepare()
        # Graphs from the whole data set, in batches of the real size.
        step = max(len(store) // max(_SAMPLE_SIZE, 2 * batch), 1)
        sample = store[range(0, len(store), step)]
        training = FinalTraining(sample, config.with_training(epochs=2), validation=0.0, device="cpu")
        events = training.run()
        next(events)  # the first epoch includes the warm-up
        start = time.perf_counter()
        next(events)
        seconds = (time.perf_counter() - start) * len(store) / len(sample)
    except GraphcapsError:  # too few graphs or classes: the findings report it
        return None
    assert validation.memory_estimate is not None
    memory = validation.memory_estimate.bytes_for(1)
    sentence = (
        f"On this computer's CPU, as busy as it is now, a training of {epochs} epochs ({config.model}, "
        f"{describe_preset(store, config)}) takes about {format_size(memory)} of memory and {_time(seconds * epochs)}; "
        f"ten folds at most {_time(10 * seconds * epochs)}."
    )
    return {
        "sentence": sentence,
        "bytes": memory,
        "seconds_per_epoch": round(seconds, 4),
        "epochs": epochs,
        "model": config.model,
        "preset": config.source,
        "device": "cpu",
    }


def _time(seconds: float) -> str:
    """A time in s, minutes or hours, rounded as an estimate."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 36000 else f"{seconds / 3600:.0f} hours"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


@app.command(epilog="Example: graphcaps data convert planted-parts parts.zip")
@takes_reader_options(without=("id",))
def convert(
    source: Source,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Zip file to write if it ends in .zip, else a folder.")
    ],
    root: Root = None,
    overwrite: Annotated[
        bool, option("--overwrite", help="Replace TARGET if it is a zip or a TU folder.")
    ] = False,
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Write a cleaned data set in the layout of the TU collection.

    Every edge is written once in each direction, without self-loops; classes, labels and attributes are unchanged.
    Class names and ground truth of nodes (the parts of planted-parts) go into additional files that other readers
    ignore.

    The files are named after TARGET, which is written completely or not at all.
    """
    from graphcaps.data.readers.tu_writer import write_tu

    loaded = open_source(source, root, reader)
    write_tu(loaded.store, target, overwrite=overwrite)
    target = target.expanduser()
    files = [target] if target.is_file() else sorted(target.iterdir())
    count = sum(file.stat().st_size for file in files)
    if as_json:
        print_json(
            {
                "name": loaded.store.name,
                "source": None if loaded.source is None else str(loaded.source),
                "target": str(target),
                "graphs": len(loaded.store),
                "nodes": loaded.store.num_nodes,
                "edges": loaded.store.num_edges,
                "files": [str(file) for file in files],
                "bytes": count,
            }
        )
        return
    summary = f"{count_noun(len(loaded.store), 'graph')}, {format_size(count)}"
    terminal().print(f"{target}: {summary}", soft_wrap=True, markup=False)


@app.command(epilog="Example: graphcaps data cache --clear")
def cache(
    clear: Annotated[bool, option("--clear", help="Delete all cached files.")] = False,
    as_json: Json = False,
) -> None:
    """Show the folder and size of the cache of parsed data sets and precomputed structures, or clear it."""
    from graphcaps.data.datasets.cache import cache_contents, clear_cache

    contents = clear_cache() if clear else cache_contents()
    if as_json:
        print_json(
            {
                "folder": str(contents.folder),
                "files": contents.files,
                "bytes": contents.bytes,
                "cleared": clear,
            }
        )
        return
    count = count_noun(contents.files, "file") if contents.files else "no files"
    summary = f"{count}, {format_size(contents.bytes)}"
    terminal().print(f"{contents.folder}: {summary}{' deleted' if clear else ''}", soft_wrap=True)
