"""``graphcaps predict``: classes, probabilities and capsule lengths of new graphs."""

from __future__ import annotations

import json
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import (
    BadReported,
    Id,
    Label,
    Smiles,
    display_names,
    graph_label,
    open_keeping_bad_rows,
    reader_options,
)
from graphcaps.cli.output import columns, metric_rows, pairs, print_json, terminal
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphcaps.inference.fitted_model import FittedModel
    from graphcaps.inference.predictions import Predictions

__all__ = ["predict"]

_SHOWN = 10  # rows of the table on the terminal


class Unseen(StrEnum):
    """What is done with node labels that were not seen in training."""

    refuse = "refuse"
    ignore = "ignore"


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")],
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Graphs: your own file, a TU folder or zip, or a data set."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write all rows to FILE, which ends in .csv or .json."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Folder to look in first for SOURCE.")
    ] = None,
    unseen: Annotated[
        Unseen,
        typer.Option(
            "--unseen",
            help="Node labels that training never saw: report the graph as an error, or read them as zeros.",
        ),
    ] = Unseen.refuse,
    smiles: Smiles = None,
    label: Label = None,
    id: Id = None,
    bad: BadReported = None,
    abstain_below: Annotated[
        float | None,
        typer.Option(
            "--abstain-below",
            metavar="P",
            help="Give no class to a graph whose most probable class is less probable than P.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Where to compute: cpu, cuda or auto.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Predict the class of each graph, with probabilities and capsule lengths.

    A graph that the model cannot read, or a row that is no molecule, gets a row that says why; the others are
    predicted.

    Probabilities are calibrated if the model was trained with validation graphs. The column 'out_of_distribution'
    says why a graph lies outside the model's applicability domain.
    """
    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise ArgumentError("predict", "--out", "end in .csv or .json", f"'{out.name}'")
    if out is not None and not out.parent.is_dir():  # said before anything is computed
        raise DataError(
            out, "a folder to write into", f"none at {out.parent}", fix="Create the folder first."
        )
    if out is not None and out.exists() and not out.is_file():
        raise DataError(out, "a name for a file to write", "a folder or a device")
    from graphcaps.data.features.compatibility import find_incompatible
    from graphcaps.inference.fitted_model import load
    from graphcaps.inference.predictions import predict_store, with_skipped_rows
    from graphcaps.training.device import choose_device

    fitted = load(model)
    fitted.to(choose_device(device, "predict"))
    loaded = open_keeping_bad_rows(source, root, reader_options(smiles, label, id=id, bad=bad))
    rows, places = loaded.metadata, tuple(range(len(loaded.store)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FeatureRecipe.apply: labels")  # told below
        ids = None if rows is None else rows.ids
        found = predict_store(fitted, loaded.store, unseen=unseen.value, abstain_below=abstain_below, ids=ids)
    if rows is not None and rows.row_indices is not None and bad is None:
        found, places = with_skipped_rows(found, rows), rows.row_indices
    names = display_names(rows, found.ids)
    if found.num_failed == len(found):
        fix = "Pass --unseen ignore to read unknown labels as zeros." if unseen is Unseen.refuse else ""
        raise DataError(
            source,
            "graphs that the model can read",
            f"none (graph {graph_label(0, names)}: {found.errors[0]})",
            fix=fix,
        )
    failed = {graph: error for graph, error in enumerate(found.errors) if error}
    _warn_of(failed, len(found), "could not be predicted", names)
    if unseen is Unseen.ignore:
        strange = find_incompatible(loaded.store, fitted.recipe, dtype=fitted.dtype)
        passed = {places[graph]: reason for graph, reason in strange.items() if places[graph] not in failed}
        _warn_of(passed, len(found), "had unknown node labels read as zeros", names)
    strangers = {graph: reason for graph, reason in enumerate(found.out_of_distribution or ()) if reason}
    verb = "is" if len(strangers) == 1 else "are"
    _warn_of(strangers, len(found), f"{verb} out of distribution", names)
    place = None if loaded.source is None else str(loaded.source)
    told = _context(model, fitted, {"name": loaded.store.name, "path": place}, unseen.value)
    told |= {"abstain_below": abstain_below, "calibration": fitted.info()["calibration"]}
    told["summary"] = found.summary()
    if out is not None:
        _write(out, found, told)
    if as_json:
        listed = {"predictions": list(found.rows())} if out is None else {"out": str(out)}
        print_json(told | listed)
    else:
        _show(found, loaded.store.name, out, names)


def _context(model: Path, fitted: FittedModel, source: dict[str, Any], unseen: str) -> dict[str, Any]:
    """What a result was made from: model, source, choices, versions."""
    from graphcaps._io.file_hash import sha256_of
    from graphcaps._io.provenance import library_versions

    return {
        "command": "predict",
        "model": {"path": str(model), "sha256": sha256_of(model), "trained_with": fitted.versions},
        "source": source,
        "unseen": unseen,
        "device": str(fitted.device),
        "scores": fitted.scores_are,
        "config": fitted.config.as_dict(),
        "versions": library_versions(),
    }


def _write(out: Path, found: Predictions, told: dict[str, Any]) -> None:
    """The rows, and beside them what they were made from."""
    from graphcaps._io.atomic_write import write_atomically

    text = found.to_csv()
    if out.suffix.lower() == ".json":
        text = _json({"summary": told["summary"], "predictions": list(found.rows())})
    write_atomically(out, text)
    write_atomically(out.with_name(f"{out.name}.config.json"), _json(told))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _show(found: Predictions, name: str, out: Path | None, names: Sequence[str] | None) -> None:
    """What people read: the first rows where nothing was written, and a summary."""
    console = terminal()
    if out is None:
        known = found.true_classes is not None
        headings = ["graph", *([] if names is None else ["id"]), "class", "probability"]
        headings += [*(["true class"] if known else []), *(["error"] if found.num_failed else [])]
        table = columns(*headings, right=("graph", "probability"))
        for row, _ in zip(found.rows(), range(_SHOWN), strict=False):
            share = row["probability"]
            cells = [f"{row['graph']:,}", *([] if names is None else [row["id"]])]
            cells += [row["class"] or "–", "–" if share is None else f"{share:.3f}"]
            cells += [row["true_class"] or "–"] if known else []
            cells += [row["error"] or ""] if found.num_failed else []
            table.add_row(*(" ".join(cell.split()) for cell in cells))
        console.print(table)
        more = len(found) - _SHOWN
        if more > 0:
            console.print(f"… and {more:,} more; --out FILE.csv writes them all.")
        console.print()
    summary = found.summary()
    counts = ", ".join(f"{key} ({count:,})" for key, count in summary["class_counts"].items() if count)
    rows = [("source", name), ("predicted", f"{summary['predicted']:,} of {summary['graphs']:,} graphs")]
    rows.append(("classes", counts))
    if found.abstain_below is not None:
        told = f"{summary['abstained']:,} graphs, less sure than {found.abstain_below:g}"
        rows.append(("no class given", told))
    if summary["accuracy"] is not None:
        rows.append(("accuracy", f"{100 * summary['accuracy']:.2f} % of the graphs predicted"))
        if summary["abstained"]:
            rows.append(("of all, sure or not", f"{100 * summary['metrics']['accuracy']:.2f} %"))
    rows += metric_rows(summary["metrics"])
    if out is not None:
        rows += [("written", str(out)), ("", f"{out}.config.json")]
    console.print(pairs((key, " ".join(value.split())) for key, value in rows))


def _warn_of(reasons: dict[int, str], graphs: int, what: str, names: Sequence[str] | None) -> None:
    """One sentence on the error stream about graphs, with the reason of the first."""
    if reasons:
        first = min(reasons)
        told = f"{len(reasons):,} of {graphs:,} graphs {what}"
        sentence = f"{told}. Graph {graph_label(first, names)}: {reasons[first]}."
        typer.echo(f"graphcaps: warning: {' '.join(sentence.split())}", err=True)
