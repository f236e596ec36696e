"""``graphcaps predict``: classes, probabilities and capsule lengths of new graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps._io.atomic_write import write_atomically
from graphcaps.cli.data_options import (
    Json,
    Root,
    Source,
    display_names,
    graph_label,
    note_truncation,
    open_for_model,
)
from graphcaps.cli.output import columns, metric_rows, note, option, pairs, print_json, print_text, terminal
from graphcaps.cli.output_files import RawText, check_output_file
from graphcaps.cli.progress import prediction_progress
from graphcaps.cli.reader_options import BadReported, FragmentsOfModel, takes_reader_options
from graphcaps.cli.run_options import Device
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from graphcaps.data.readers.graph_metadata import GraphMetadata
    from graphcaps.inference.fitted_model import FittedModel
    from graphcaps.inference.predictions import Predictions

__all__ = ["predict"]

_MAX_ROWS = 10  # of the table on the terminal
_MAX_NAMES = 10  # of classes in a sentence
_ACCURACY_ROWS = {  # heading, and what the graphs are, by group of Predictions.accuracies
    "test": ("test accuracy", "of the test set, which training did not use"),
    "new": ("accuracy", "that are not in the training data"),
    "unknown": ("accuracy", "with a predicted class; the model file does not record its training graphs"),
    "validation": ("validation graphs", "that selected the epoch or calibrated the probabilities"),
    "training": ("training graphs", "that trained the model"),
    "left-out": ("left-out graphs", "that training left out, since copies have different labels"),
}


class Unseen(StrEnum):
    """What to do with node labels that were not in the training set."""

    refuse = "refuse"
    ignore = "ignore"


@takes_reader_options(without=("duplicates", "featurizer"), bad=BadReported, fragments=FragmentsOfModel)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")],
    source: Source,
    out: Annotated[
        Path | None,
        option("--out", metavar="FILE", help="Write all rows to FILE (.csv, .json or .jsonl)."),
    ] = None,
    root: Root = None,
    unseen: Annotated[
        Unseen,
        option(
            "--unseen",
            help="Node labels that were not in the training set: report an error, or encode them as zeros.",
        ),
    ] = Unseen.refuse,
    abstain_below: Annotated[
        float | None,
        option(
            "--abstain-below",
            metavar="P",
            help="Predict no class if the probability of the most probable one is below P.",
        ),
    ] = None,
    max_disagreement: Annotated[
        float | None,
        option(
            "--max-disagreement",
            metavar="NATS",
            help="Predict no class if the members of a committee disagree by more than NATS.",
        ),
    ] = None,
    parts_of_answer: Annotated[
        bool,
        option(
            "--parts-of-answer",
            help="Add probability, weight and contribution of the network and of its companions to each row.",
        ),
    ] = False,
    raw_text: RawText = False,
    device: Device = "auto",
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Predict the class of each graph, with probabilities and capsule lengths.

    A graph that the model cannot read, or a row without a valid molecule, gets a row with the reason; all others
    are predicted. The exit code is 2 if none could be predicted.

    Probabilities are calibrated if the model was trained with validation graphs. The column 'out_of_distribution'
    gives the reason if a graph is outside the applicability domain of the model. The column 'used_in' says whether
    the graph was a training, validation or test graph of the model. For a committee, the column 'disagreement' says
    how much its members differ: their mutual information, in nats (docs/committees.md).

    Rows are written to FILE while they are predicted; FILE appears when all are complete.

    A model with a companion (train --companion) answers with a weighted mean of network and companion;
    --parts-of-answer adds what each of them says and contributes (docs/companion.md).
    """
    if out is not None and out.suffix.lower() not in (".csv", ".json", ".jsonl"):
        raise ArgumentError("predict", "--out", "end in .csv, .json or .jsonl", f"'{out}'")
    if out is not None:
        check_output_file(out, source, model)
    from graphcaps.data.features.compatibility import describe_others
    from graphcaps.inference.model_file import load
    from graphcaps.inference.prediction_file import write_predictions
    from graphcaps.inference.predictions import Predictions, predict_in_parts
    from graphcaps.training.device import choose_device

    fitted = load(model)
    if parts_of_answer and not fitted.companions:
        expected = "be left out for a model without a companion"
        got, fix = f"a model '{fitted.config.model}' alone", "Train one with --companion wl-forest."
        raise ArgumentError("predict", "--parts-of-answer", expected, got, fix)
    fitted.to(choose_device(device, "predict", fitted.config.model))
    has_rows = out is not None or as_json  # of output, also for a table without any valid molecule
    loaded = open_for_model(source, root, reader, fitted, report_bad_rows=True, keep_invalid=has_rows)
    note_truncation(loaded.store, fitted)
    metadata, row_indices = loaded.metadata, tuple(range(len(loaded.store)))
    checked = fitted.check(loaded.store, unseen=unseen.value, owner="predict")
    unreadable = _invalid_molecules(metadata)
    checked = replace(checked, errors=checked.errors | unreadable)
    ids = None if metadata is None else metadata.ids
    classes = None if metadata is None else metadata.classes
    skipped = (
        metadata
        if metadata is not None and metadata.row_indices is not None and "bad" not in reader
        else None
    )
    if skipped is not None and skipped.row_indices is not None:
        row_indices = skipped.row_indices

    def require_some(predictions: Predictions) -> None:
        """Rejects graphs of which none could be predicted, before a file takes its place."""
        if unreadable or predictions.num_failed < len(predictions):
            return
        fix = "Use --unseen ignore to encode unknown labels as zeros." if unseen is Unseen.refuse else ""
        first = graph_label(0, display_names(metadata, predictions.ids))
        found = f"none (graph {first}: {predictions.errors[0]})"
        raise DataError(source, "graphs that the model can read", found, fix=fix)

    computed = predict_in_parts(
        fitted,
        checked,
        abstain_below=abstain_below,
        max_disagreement=max_disagreement,
        ids=ids,
        true_classes=classes,
        parts=parts_of_answer,
        rows=skipped,
    )
    total = len(loaded.store) if skipped is None else len(loaded.store) + len(skipped.skipped)
    with prediction_progress(computed, total, quiet=as_json) as parts:
        if out is None:
            predictions = Predictions.join(list(parts))
            require_some(predictions)
        else:
            predictions = write_predictions(out, parts, raw_text=raw_text, check=require_some)
    names = display_names(metadata, predictions.ids)
    failed = {graph: error for graph, error in enumerate(predictions.errors) if error}
    if not unreadable:
        _warn(failed, len(predictions), "could not be predicted", names)
    zeroed = {row_indices[graph]: reason for graph, reason in checked.unseen.items()}
    zeroed = {row: reason for row, reason in zeroed.items() if row not in failed}
    _warn(zeroed, len(predictions), "had unknown labels encoded as zeros", names)
    others = {row_indices[graph]: reason for graph, reason in checked.others.items()}
    notes = []
    if others:
        notes.append(describe_others(others, len(predictions), graph_label(min(others), names)))
    if predictions.other_labels:
        notes.append(_describe_other_labels(predictions.other_labels, predictions.class_names))
    for sentence in notes:
        note(sentence)
    outside = {graph: reason for graph, reason in enumerate(predictions.out_of_distribution or ()) if reason}
    verb = "is" if len(outside) == 1 else "are"
    _warn(outside, len(predictions), f"{verb} out of distribution", names)
    _note_training_graphs(predictions)
    if fitted.split_hashes is not None and (sentence := fitted.split_hashes.describe_copies()):
        note(sentence)
    path = None if loaded.source is None else str(loaded.source)
    context = _context(model, fitted, {"name": loaded.store.name, "path": path}, unseen.value)
    if fitted.is_committee:
        context |= {"members": len(fitted.members), "max_disagreement": max_disagreement}
    if fitted.mixture is not None:
        context["parts"] = [
            {"model": name, "weight": weight}
            for name, weight in zip(fitted.part_names, fitted.mixture.weights, strict=True)
        ]
    context |= {"abstain_below": abstain_below, "calibration": fitted.info()["calibration"]}
    context["notes"] = notes
    context["summary"] = predictions.summary()
    if out is not None:
        _write_config(out, context)
    if as_json:
        rows = {"predictions": list(predictions.rows())} if out is None else {"out": str(out)}
        print_json(context | rows)
    else:
        _show(predictions, loaded.store.name, out, names)
    if unreadable:
        fix = "" if out is None else f"{out} has the reason for each row."
        raise DataError(
            source, "at least one molecule in SMILES", f"none (graph 1: {unreadable[0]})", fix=fix
        )


def _invalid_molecules(metadata: GraphMetadata | None) -> dict[int, str]:
    """The reason for each graph of a table without any valid molecule, as in other tables; else none."""
    kept = {} if metadata is None else metadata.unreadable
    return {
        graph: f"it is not a valid SMILES: {reason.rpartition(' is no valid SMILES, ')[2]}"
        for graph, reason in kept.items()
    }


def _describe_other_labels(counts: dict[str, int], classes: Sequence[str]) -> str:
    """A sentence on labels that are no classes of the model."""
    graphs = sum(counts.values())
    have = "1 graph has a label that is" if graphs == 1 else f"{graphs:,} graphs have labels that are"
    names = [f"'{name}' ({count:,})" for name, count in counts.items()]
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    known = ", ".join(f"'{name}'" for name in classes[:_MAX_NAMES])
    known += ", …" if len(classes) > _MAX_NAMES else ""
    return (
        f"{have} no class of the model and not counted in any figure: {', '.join(names[:_MAX_NAMES])}{more}. "
        f"The model has {known}."
    )


def _context(model: Path, fitted: FittedModel, source: dict[str, Any], unseen: str) -> dict[str, Any]:
    """What the predictions were computed from: model, source, options, versions."""
    from graphcaps._io.file_hash import sha256_of
    from graphcaps._io.provenance import library_versions

    return {
        "command": "predict",
        "model": {"path": str(model), "sha256": sha256_of(model), "trained_with": fitted.versions},
        "source": source,
        "unseen": unseen,
        "device": str(fitted.device),
        "scores": fitted.score_kind,
        "config": fitted.config.as_dict(),
        "versions": library_versions(),
    }


def _write_config(out: Path, context: dict[str, Any]) -> None:
    """Writes the context beside the predictions; an error says that these are complete."""
    path = out.with_name(f"{out.name}.config.json")
    try:
        write_atomically(path, _json(context))
    except DataError as error:
        raise DataError(path, error.expected, fix=f"The predictions are complete in {out}.") from error


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _show(predictions: Predictions, name: str, out: Path | None, names: Sequence[str] | None) -> None:
    """Prints the first rows unless they were written to a file, and a summary."""
    from graphcaps.metrics import metric_caution

    console = terminal()
    if out is None:
        _show_rows(console, predictions, names)
    summary = predictions.summary()
    counts = ", ".join(f"{key} ({count:,})" for key, count in summary["class_counts"].items() if count)
    rows = [("source", name), ("predicted", f"{summary['predicted']:,} of {summary['graphs']:,} graphs")]
    rows += [("classes", counts)] if counts else []
    if limits := _describe_limits(predictions):
        rows.append(("no class", f"{summary['abstained']:,} graphs with {limits}"))
    has_some = predictions.num_failed < len(predictions)
    if predictions.parts is not None and has_some:
        rows.append(("contribution", _describe_parts(predictions)))
    if predictions.disagreement is not None and has_some:
        values = summary["disagreement"]
        rows.append(("disagreement", f"{values['mean']:.2g} nats on average, at most {values['max']:.2g}"))
    rows += _accuracy_rows(predictions, summary)
    start = "test " if summary["measured_group"] == "test" else ""
    rows += [(f"{start}{title}", value) for title, value in metric_rows(summary["metrics"])]
    if (by_class := predictions.metric_counts) is not None:
        caution = metric_caution("this set", by_class)
        rows += [("", caution)] if caution else []
    if out is not None:
        rows += [("written", str(out)), ("", f"{out}.config.json")]
    console.print(pairs((key, " ".join(value.split())) for key, value in rows))


def _describe_parts(predictions: Predictions) -> str:
    """Weight of each part, and its mean share in the probability of the predicted class."""
    listed = [row["parts"] for row in predictions.rows() if row["parts"] is not None]
    means = [
        (name["model"], name["weight"], sum(row[part]["contribution"] for row in listed) / len(listed))
        for part, name in enumerate(listed[0])
    ]
    return ", ".join(f"{name} {100 * share:.0f} % (weight {weight:.2f})" for name, weight, share in means)


def _describe_limits(predictions: Predictions) -> str:
    """The thresholds of abstaining, in words; "" without any."""
    below, most = predictions.abstain_below, predictions.max_disagreement
    limits = [] if below is None else [f"a probability below {below:g}"]
    limits += [] if most is None else [f"a disagreement above {most:g} nats"]
    return " or ".join(limits)


def _accuracy_rows(predictions: Predictions, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Accuracies: first of graphs that did not train the model, then of the others, which are named."""
    rows = []
    for group, found in summary["accuracies"].items():
        heading, of = _ACCURACY_ROWS[group]
        counted = f"{found['graphs']:,} graph{'' if found['graphs'] == 1 else 's'}"
        rows.append((heading, f"{100 * found['accuracy']:.2f} % of {counted} {of}"))
    if rows and summary["accuracy"] is None:
        rows.insert(0, ("accuracy", "no figure: none of the graphs is new to this model"))
    if rows and summary["abstained"] and summary["metrics"] is not None:
        accuracy = 100 * summary["metrics"]["accuracy"]
        rows.insert(1, ("accuracy, all", f"{accuracy:.2f} % of these graphs without abstaining"))
    return rows


def _note_training_graphs(predictions: Predictions) -> None:
    """Says how many of the graphs trained the model."""
    if predictions.used_in is None:
        return
    count, graphs = predictions.used_in.count("training"), len(predictions)
    if count:
        some = f"{count:,} of {graphs:,} graphs" if count < graphs else f"All {graphs:,} graphs"
        subject = "This graph" if graphs == 1 else some
        what = "its prediction says" if graphs == 1 else "their accuracy says"
        if graphs > 1 and predictions.true_classes is None:
            what = "their predictions say"
        note(f"{subject} trained this model; {what} nothing about new graphs.")


def _show_rows(console: Console, predictions: Predictions, names: Sequence[str] | None) -> None:
    has_labels = predictions.true_classes is not None
    headings = ["graph", *([] if names is None else ["id"]), "class", "probability"]
    is_committee = predictions.disagreement is not None
    headings += ["disagreement"] if is_committee else []
    parts = () if predictions.parts is None else predictions.parts.names
    headings += parts
    is_used = predictions.used_in is not None and any(predictions.used_in)
    headings += [*(["true class"] if has_labels else []), *(["used in"] if is_used else [])]
    headings += ["error"] if predictions.num_failed else []
    table = columns(*headings, right=("graph", "probability", "disagreement", *parts))
    for row, _ in zip(predictions.rows(), range(_MAX_ROWS), strict=False):
        probability = row["probability"]
        cells = [f"{row['graph']:,}", *([] if names is None else [row["id"]])]
        cells += [row["class"] or "–", "–" if probability is None else f"{probability:.3f}"]
        if is_committee:
            cells.append("–" if row["disagreement"] is None else f"{row['disagreement']:.3f}")
        if parts:  # probability of the class by each part
            listed = row["parts"] or [None] * len(parts)
            cells += ["–" if part is None else f"{part['probability']:.3f}" for part in listed]
        cells += [row["true_class"] or "–"] if has_labels else []
        cells += [row["used_in"] or ""] if is_used else []
        cells += [row["error"] or ""] if predictions.num_failed else []
        table.add_row(*(" ".join(cell.split()) for cell in cells))
    console.print(table)
    more = len(predictions) - _MAX_ROWS
    if more > 0:
        console.print(f"… and {more:,} more; --out FILE.csv writes them all.")
    console.print()


def _warn(reasons: dict[int, str], graphs: int, problem: str, names: Sequence[str] | None) -> None:
    """Prints a warning about graphs, with the reason of the first."""
    if reasons:
        first = min(reasons)
        counts = f"{len(reasons):,} of {graphs:,} graphs {problem}"
        sentence = f"{counts}. Graph {graph_label(first, names)}: {reasons[first]}."
        print_text(f"graphcaps: warning: {' '.join(sentence.split())}", to_errors=True)
