"""``graphcaps data check``: what to know of a data set before training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Bad, Id, Json, Label, Root, Smiles, Source, Split, own_hints
from graphcaps.cli.output import pairs, print_json, size, terminal

if TYPE_CHECKING:
    from graphcaps.data.doctor import Finding
    from graphcaps.data.store import GraphStore

__all__ = ["check"]

_SECONDS = 120  # for confirming copies
_FUNCTION = "stratified_folds(y, groups=…) keeps copies together."
_SAMPLE = 128  # graphs that are trained on for a moment, to know how long an epoch takes


def check(
    source: Source,
    root: Root = None,
    smiles: Smiles = None,
    label: Label = None,
    split: Split = None,
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
    from graphcaps.data.datasets import open_dataset
    from graphcaps.data.examination import examine_with_copies
    from graphcaps.data.group_file import write_groups

    loaded = open_dataset(source, root, **own_hints(smiles, label, split, id, bad))
    store, rows = loaded.store, loaded.rows
    found = examine_with_copies(store, seconds=_SECONDS)
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
    from graphcaps.cli.configure import configure
    from graphcaps.engine.by_data import fit_to_data
    from graphcaps.errors import GraphcapsError
    from graphcaps.evaluation import CrossValidation
    from graphcaps.evaluation.final import FinalTraining

    config = fit_to_data(configure(store.name), store)
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
    memory = validation.forecast.of(1)
    said = (
        f"On this computer's CPU, as busy as it is now, a training of {epochs} epochs ({config.model}, preset: "
        f"{config.source}) takes about {size(memory)} of memory and {_time(seconds * epochs)}; "
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
