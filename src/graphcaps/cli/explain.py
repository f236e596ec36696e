"""``graphcaps explain``: the parts of one decision, measures of all, or a report to open in a browser."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Bad, Id, Label, Smiles, open_each, open_own, own_hints
from graphcaps.cli.output import note, option, print_json
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import StoreExplanation
    from graphcaps.fitted import FittedModel

__all__ = ["explain"]


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors) of an HGCN.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A data set, a TU folder or zip, or your own file (docs/inputs.md)."
        ),
    ],
    graph: Annotated[
        str | None,
        option(
            "--graph",
            metavar="N",
            help="Explain graph N, counted from 1, or the one with the id N, and print its parts.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        option("--target", metavar="CLASS", help="Score nodes for this class, not for the predicted one."),
    ] = None,
    picture: Annotated[
        Path | None,
        option("--draw", metavar="FILE", help="With --graph: a picture of it (.svg, .png or .pdf)."),
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            metavar="NAME",
            help="Of the picture: parts, scores, flow, assignment, rounds or molecule.",
        ),
    ] = None,
    measure: Annotated[
        bool, option("--measure", help="Measure the explanations beside other methods.")
    ] = False,
    methods: Annotated[
        str | None,
        option("--methods", metavar="NAMES", help="With --measure: methods to compare, with commas between."),
    ] = None,
    sample: Annotated[
        int, option("--sample", metavar="N", min=1, help="With --measure: graphs that slow methods explain.")
    ] = 30,
    beside: Annotated[
        list[Path] | None,
        option(
            "--beside", metavar="MODEL", help="With --measure: a model of another seed, for the stability."
        ),
    ] = None,
    out: Annotated[Path | None, option("--out", metavar="DIR", help="Write a report page into DIR.")] = None,
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to look in first for DATA.")
    ] = None,
    device: Annotated[
        str, option("--device", metavar="NAME", help="Where to compute: cpu, cuda or auto.")
    ] = "auto",
    smiles: Smiles = None,
    label: Label = None,
    id: Id = None,
    bad: Bad = None,
    as_json: Annotated[bool, option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show which parts a model's decisions were made from.

    With --graph the parts of one graph, with --measure figures for all of them, with --out a page for a browser;
    alone, a summary.
    """
    chosen = _methods(methods) if measure else ()
    if not measure and (methods is not None or beside):
        raise ArgumentError("explain", "--methods, --beside", "stand with --measure", "neither")
    if graph is not None and (measure or out is not None):
        raise ArgumentError("explain", "--graph", "stand without --measure and --out", "both")
    if out is not None and out.exists() and not out.is_dir():
        raise DataError(out, "a folder to write into", "a file")
    from graphcaps.cli.explain_draw import check_drawing, draw
    from graphcaps.cli.explain_pick import pick
    from graphcaps.cli.explain_show import show_graph, show_measures, show_summary
    from graphcaps.engine.device import choose_device
    from graphcaps.explanation import explain_store
    from graphcaps.model_file import load

    check_drawing(picture, kind, graph)
    where = choose_device(device, "explain")
    fitted = load(model).to(where)
    # Of one graph: rows that are no molecule keep their place, as predict counts them.
    opened = open_own if graph is None else open_each
    loaded = opened(source, root, own_hints(smiles, label, id=id, bad=bad))
    store = loaded.store
    chosen_one = None if graph is None else pick(graph, loaded, in_place=bad is None)
    picked = store if chosen_one is None else store[chosen_one.index]
    if chosen_one is not None:
        _check_one(source, fitted, picked, chosen_one.called)
    began = time.perf_counter()
    found = explain_store(fitted, picked, target=target)
    seconds = time.perf_counter() - began
    told: dict[str, Any] = {
        "command": "explain",
        "model": str(model),
        "data": store.name,
        "graphs": len(found),
        "seconds": round(seconds, 3),
    }
    if chosen_one is not None:
        one = replace(found[0], graph=chosen_one.number - 1)  # its place in the whole source
        if picture is not None:
            draw(picture, kind, one, loaded, chosen_one.index)
            told["picture"] = str(picture)
        if as_json:
            named = {} if chosen_one.name is None else {"id": chosen_one.name}
            place = {"graph": chosen_one.number, **named, "tree": one.tree}
            print_json(told | {"explanation": one.as_dict() | place})
        else:
            (unlike,) = ("",) if fitted.profile is None else fitted.unlike(picked)
            show_graph(one, chosen_one.called, picked, unlike)
        if picture is not None:
            note(f"Written: {picture}")
        return
    measures = _measure(fitted, store, chosen, sample, beside or [], as_json) if measure else None
    if measures is not None:
        told |= measures
    if out is not None:
        told["report"] = str(_report(out, model, fitted, store, found, measures or _quick(fitted, store)))
    if as_json:
        print_json(told)
    elif measures is not None:
        show_measures(measures)
    else:
        show_summary(found, store, seconds)
    if out is not None:
        note(f"Written: {told['report']}")


def _check_one(source: str, fitted: FittedModel, picked: GraphStore, called: str) -> None:
    """Says of a graph that the model cannot read why, as predict does."""
    from graphcaps.data.misfits import check_columns, find_misfits

    check_columns(picked, fitted.recipe, "explain")
    for reason in find_misfits(picked, fitted.recipe, dtype=fitted.dtype).values():
        raise DataError(source, "a graph that the model can read", f"graph {called}: {reason}")


def _methods(names: str | None) -> tuple[str, ...]:
    from graphcaps.explanation.measures import METHODS

    if names is None:
        return METHODS
    chosen = tuple(name.strip() for name in names.split(",") if name.strip())
    unknown = [name for name in chosen if name not in METHODS]
    if unknown or not chosen:
        got = repr(unknown[0]) if unknown else "none"
        raise ArgumentError("explain", "--methods", f"name some of {', '.join(METHODS)}", got)
    return chosen


def _measure(
    fitted: FittedModel,
    store: GraphStore,
    methods: tuple[str, ...],
    sample: int,
    beside: list[Path],
    quiet: bool,
) -> dict[str, Any]:
    from graphcaps.explanation.measures import measure, stability
    from graphcaps.model_file import load

    others = [load(path).to(fitted.device) for path in beside]
    found = measure(
        fitted, store, methods=methods, sample=sample,
        on_step=None if quiet else lambda name: note(f"Measuring {name} …"),
    )  # fmt: skip
    return found | {"stability": stability([fitted, *others], store) if others else None}


def _quick(fitted: FittedModel, store: GraphStore) -> dict[str, Any]:
    """What a page shows where nobody asked for more: the measures that take seconds."""
    from graphcaps.explanation.measures import QUICK, measure

    return measure(fitted, store, methods=QUICK)


def _report(
    out: Path,
    path: Path,
    fitted: FittedModel,
    store: GraphStore,
    found: StoreExplanation,
    measures: dict[str, Any],
) -> Path:
    from graphcaps.cli.outputs import TrainFiles
    from graphcaps.explanation.report import write_report

    rows = TrainFiles(path).history_of(fitted.training)
    page: Path = write_report(
        out, fitted, store, found, measures=measures, history=rows, title=f"{path.stem} on {store.name}"
    )
    return page
