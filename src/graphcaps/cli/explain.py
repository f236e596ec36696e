"""``graphcaps explain``: the parts of one decision, measures of all, or a report to open in a browser."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from graphcaps.cli.data_options import (
    Bad,
    Id,
    Label,
    Smiles,
    display_names,
    graph_label,
    open_keeping_bad_rows,
    open_source,
    reader_options,
)
from graphcaps.cli.output import columns, note, option, print_json, print_pairs, terminal
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import Explanation, StoreExplanation
    from graphcaps.inference.fitted_model import FittedModel

__all__ = [
    "Picked",
    "check_drawing",
    "draw",
    "explain",
    "pick",
    "show_graph",
    "show_measures",
    "show_summary",
]


MOLECULE = "molecule"


def check_drawing(path: Path | None, kind: str | None, graph: str | None) -> None:
    """Refuses, before anything is computed, a picture that could not be drawn."""
    from graphcaps.explanation.drawings import DrawingKind
    from graphcaps.explanation.graph_drawing import check_suffix

    kinds = get_args(DrawingKind)
    if kind is not None and (path is None or kind not in kinds):
        expected = f"be one of {', '.join(kinds)}" if path is not None else "stand with --draw"
        raise ArgumentError("explain", "--kind", expected, f"'{kind}'")
    if path is not None:
        if graph is None:
            raise ArgumentError("explain", "--draw", "stand with --graph", "none")
        check_suffix("explain", path)


def draw(path: Path, kind: str | None, one: Explanation, loaded: LoadedDataset, graph: int) -> None:
    """Draws a molecule as one where its SMILES are known, and any graph otherwise."""
    from graphcaps.explanation.molecule_drawings import (
        can_draw_molecule,
        draw_explained_molecule,
        molecule_from_smiles,
        molecule_from_store,
    )

    if kind is None:
        kind = MOLECULE if can_draw_molecule(one, path) else "parts"
    if kind != MOLECULE:
        one.draw(path, kind=kind)  # type: ignore[arg-type]
        return
    smiles = _smiles(loaded, graph)
    if one.nodes is not None and one.elements is not None:
        draw_explained_molecule(one, path)  # the atoms that the model read
    elif smiles is not None:  # atom i of the SMILES that a table was read to is node i
        draw_explained_molecule(one, path, molecule_from_smiles(smiles))
    elif one.elements is None and loaded.store.node_labels is None:
        raise ArgumentError(
            "explain", "--kind", "be another for graphs that are no molecules", f"'{MOLECULE}'"
        )
    else:
        draw_explained_molecule(one, path, molecule_from_store(loaded.store, graph))


def _smiles(loaded: LoadedDataset, graph: int) -> str | None:
    listed = None if loaded.metadata is None else loaded.metadata.smiles
    return None if not listed else listed[graph]


@dataclass(frozen=True)
class Picked:
    """One graph of a source.

    Args:
        index (int): Its place in the store, from 0.
        number (int): Its number in the source, from 1.
        name (str, optional): Its id, where the source has names.
    """

    index: int
    number: int
    name: str | None

    @property
    def called(self) -> str:
        """How it is named to people."""
        return f"{self.number:,}" if self.name is None else f"{self.number:,} ({self.name})"


def pick(asked: str, loaded: LoadedDataset, *, in_place: bool) -> Picked:
    """Finds a graph by what stands after ``--graph``; a number counts graphs, and may else be an id.

    Args:
        asked (str): A number from 1, or an id.
        loaded (LoadedDataset): Where to look.
        in_place (bool): Whether rows that were left out are counted too, as ``predict`` does.

    Raises:
        ArgumentError: If there is none, or several have that id.
        DataError: If that row is no molecule.
    """
    asked, rows = asked.strip(), loaded.metadata
    places, ids = list(range(len(loaded.store))), [] if rows is None else list(rows.ids)
    reasons: dict[int, tuple[int, str]] = {}
    if rows is not None and rows.row_indices is not None and in_place:
        places = list(rows.row_indices)
        total = len(places) + len(rows.skipped)
        gaps = sorted(set(range(total)) - set(places))
        reasons = {
            gap: (row.line, f"{row.text!r}: {row.reason}")
            for gap, row in zip(gaps, rows.skipped, strict=True)
        }
        own, other = iter(ids), iter(rows.skipped_ids)
        ids = [next(other) if place in reasons else next(own) for place in range(total)]
    total = len(places) + len(reasons)
    names = display_names(rows, ids) if ids else None
    place = _place(asked, total, names)
    if place in reasons:
        line, found = reasons[place]
        where = loaded.store.name if loaded.source is None else loaded.source.name
        raise DataError(where, "a molecule in SMILES", found, line=line)
    return Picked(places.index(place), place + 1, None if names is None else names[place])


def _place(asked: str, total: int, names: Sequence[str] | None) -> int:
    """The graph that is meant, from 0."""
    try:
        number: int | None = int(asked)
    except ValueError:
        number = None
    if number is not None and 1 <= number <= total:
        return number - 1
    found = [place for place, name in enumerate(names or ()) if name == asked]
    if len(found) == 1:
        return found[0]
    expected = f"be a number from 1 to {total}"
    got: object = f"'{asked}'" if number is None else number
    if names is not None:
        expected += f" or an id, such as {names[0]}"
    if found:
        expected, got = (
            "name one graph",
            f"'{asked}', the id of {len(found)}, such as {graph_label(found[0], names)}",
        )
    raise ArgumentError("explain", "--graph", expected, got)


_PARTS = {"nmi": "NMI", "nmi_all": "NMI all", "ari": "ARI", "entropy": "entropy", "dead_capsules": "dead"}
_SCORES = {"fidelity_plus": "fidelity+", "fidelity_minus": "fidelity−", "sparsity": "sparsity"}
_TIME = {"seconds_per_graph": "s per graph"}
_NODES = 12  # shown of a capsule


def show_graph(found: Explanation, called: str, store: GraphStore, out_of_distribution: str = "") -> None:
    """One decision as a tree: class, capsules, nodes.

    Args:
        found (Explanation): Of one graph.
        called (str): What it is called.
        store (GraphStore): The graph alone.
        out_of_distribution (str): Why it lies outside the applicability domain, or "".
    """
    from rich.text import Text
    from rich.tree import Tree

    console = terminal()
    names = found.class_names
    true = "" if found.true_class is None else f" (its class is {names[found.true_class]})"
    said = (
        f"taken for {names[found.predicted]}, {100 * float(found.probabilities[found.predicted]):.1f} %{true}"
    )
    size = f"{_counted(found.num_nodes, 'node')}, {_counted(found.edges.size(1), 'edge')}"
    rows = [("graph", f"{called} of {store.name}: {size}")]
    rows += [("", said), ("scores", f"for {names[found.target]}: above 0 speaks for it")]
    rows += [("domain", f"out of distribution: {out_of_distribution}")] if out_of_distribution else []
    if found.nodes is not None:
        rows.append(("", f"the model reads the {found.num_nodes} nodes of highest degree"))
    rows.append(("tree", "a capsule stands under the class that it is routed to most, its weight beside it"))
    print_pairs(console, rows)
    console.print()
    elements = _elements(store)
    for row in found.tree["classes"]:
        head = f"{row['class']}  length {row['length']:.3f}, {100 * row['probability']:.1f} %"
        tree = Tree(Text(head, style="bold"), guide_style="dim")
        _branches(tree, row["parts"], elements)
        console.print(tree)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _elements(store: GraphStore) -> list[str]:
    """The element of each node of a graph that was read from SMILES; else nothing."""
    from graphcaps.data.datasets.element_labels import node_label_names

    numbers = store.truth.get("element")
    return (
        []
        if numbers is None
        else node_label_names([(number,) for number in numbers.tolist()], atomic_numbers=True)
    )


def _branches(tree: Any, parts: list[dict[str, Any]], elements: list[str]) -> None:
    from rich.text import Text

    nodes = [part for part in parts if "node" in part]
    if nodes:
        # Those that speak loudest, for the class or against it.
        nodes.sort(key=lambda part: -abs(part["score"]))
        loudest = sorted(nodes[:_NODES], key=lambda part: -part["score"])
        shown = "  ".join(
            f"{elements[part['node']] if elements else ''}{part['node'] + 1} ({part['score']:+.3f})"
            for part in loudest
        )
        more = f"  … {len(nodes) - _NODES} more" if len(nodes) > _NODES else ""
        tree.add(Text(f"{'atoms' if elements else 'nodes'} {shown}{more}"))
    capsules = [part for part in parts if "capsule" in part]
    for part in (part for part in capsules if part["parts"]):
        head = f"capsule {part['capsule'] + 1} of level {part['level']}: length {part['length']:.3f}"
        _branches(tree.add(Text(f"{head}, weight {part['weight']:.2f}")), part["parts"], elements)
    empty = sorted(part["capsule"] + 1 for part in capsules if not part["parts"])
    if empty:
        named = f"capsule{'s' if len(empty) > 1 else ''} {', '.join(map(str, empty))}"
        tree.add(Text(f"{named} of level {capsules[0]['level']}: nothing is routed there most", style="dim"))


def show_measures(measures: dict[str, Any]) -> None:
    """Two tables, of found parts and of node scores; a dash where a measure does not apply."""
    console = terminal()
    for heading, wanted in (("parts found", _PARTS), ("nodes scored", _SCORES)):
        known = {
            name: row
            for name, row in measures["methods"].items()
            if any(row[key] is not None for key in wanted)
        }
        if not known:
            continue
        shown = wanted | _TIME
        table = columns(heading, *shown.values(), right=shown.values())
        for name, row in known.items():
            table.add_row(name, *(_cell(key, row[key]) for key in shown))
        console.print(table)
        console.print()
    share = f"{100 * measures['share']:.0f} % of a graph's nodes are the explanation"
    rows = [("graphs", f"{measures['graphs']:,}"), ("fidelity", share)]
    sampled = measures["sample"]
    if sampled and "gnnexplainer" in sampled["fidelity_plus"]:
        plus = ", ".join(f"{name} {value:.3f}" for name, value in sampled["fidelity_plus"].items())
        rows.append(
            (f"on {len(sampled['graphs'])}", f"graphs that gnnexplainer explained, fidelity+: {plus}")
        )
    if measures.get("stability"):
        found = measures["stability"]
        told = f"NMI {found['nmi']:.3f}, ARI {found['ari']:.3f}, rank correlation {found['rank']:.3f}"
        rows.append(("stability", f"{told} between {found['models']} models"))
    print_pairs(console, rows)


def _cell(name: str, value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2g}" if name == "seconds_per_graph" else f"{value:.3f}"


def show_summary(found: StoreExplanation, store: GraphStore, seconds: float) -> None:
    """How the capsules are used, and how often the class is right."""
    from graphcaps.explanation.agreement import capsule_usage

    use = capsule_usage(found.assignments[0], found.node_ptr)
    J = found.assignments[0].size(1)
    rows = [("data", store.name), ("explained", f"{len(found):,} graphs in {seconds:.1f} s")]
    true = found.true_class
    if true is not None and bool((true >= 0).any()):  # classes that the model does not know are left out
        right = float((found.predicted == true)[true >= 0].double().mean())
        rows.append(("classes", f"{100 * right:.1f} % right"))
    rows.append(
        ("capsules", f"{J - use['dead_capsules']} of {J} in use, {use['used_per_graph']:.1f} in a graph")
    )
    rows.append(("entropy", f"{use['entropy']:.3f} (0: a node belongs to one capsule, 1: to all alike)"))
    console = terminal()
    print_pairs(console, rows)
    console.print("\nSee one: --graph 1. Measure: --measure. A page for a browser: --out report", style="dim")


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
    from graphcaps.explanation import explain_store
    from graphcaps.inference.fitted_model import load
    from graphcaps.training.device import choose_device

    check_drawing(picture, kind, graph)
    where = choose_device(device, "explain")
    fitted = load(model).to(where)
    # Of one graph: rows that are no molecule keep their place, as predict counts them.
    opened = open_source if graph is None else open_keeping_bad_rows
    loaded = opened(source, root, reader_options(smiles, label, id=id, bad=bad))
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
            (reason,) = ("",) if fitted.profile is None else fitted.out_of_distribution(picked)
            show_graph(one, chosen_one.called, picked, reason)
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
    from graphcaps.data.features.compatibility import check_columns, find_incompatible

    check_columns(picked, fitted.recipe, "explain")
    for reason in find_incompatible(picked, fitted.recipe, dtype=fitted.dtype).values():
        raise DataError(source, "a graph that the model can read", f"graph {called}: {reason}")


def _methods(names: str | None) -> tuple[str, ...]:
    from graphcaps.explanation.explanation_metrics import METHODS

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
    from graphcaps.explanation.explanation_metrics import evaluate_explanations, explanation_stability
    from graphcaps.inference.fitted_model import load

    others = [load(path).to(fitted.device) for path in beside]
    found = evaluate_explanations(
        fitted, store, methods=methods, sample=sample,
        on_step=None if quiet else lambda name: note(f"Measuring {name} …"),
    )  # fmt: skip
    return found | {"stability": explanation_stability([fitted, *others], store) if others else None}


def _quick(fitted: FittedModel, store: GraphStore) -> dict[str, Any]:
    """What a page shows where nobody asked for more: the measures that take seconds."""
    from graphcaps.explanation.explanation_metrics import FAST_METHODS, evaluate_explanations

    return evaluate_explanations(fitted, store, methods=FAST_METHODS)


def _report(
    out: Path,
    path: Path,
    fitted: FittedModel,
    store: GraphStore,
    found: StoreExplanation,
    measures: dict[str, Any],
) -> Path:
    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.explanation.report import write_report

    rows = TrainingFiles(path).read_history(fitted.training)
    page: Path = write_report(
        out, fitted, store, found, metrics=measures, history=rows, title=f"{path.stem} on {store.name}"
    )
    return page
