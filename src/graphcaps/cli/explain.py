"""``graphcaps explain``: the capsules and nodes of one prediction, metrics of all explanations, or a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from graphcaps.cli.capsule_tables import show_capsules, show_counterfactuals
from graphcaps.cli.data_options import (
    Json,
    Root,
    Source,
    display_names,
    graph_label,
    note_truncation,
    open_for_model,
)
from graphcaps.cli.output import columns, count_noun, note, option, print_json, print_pairs, terminal
from graphcaps.cli.output_files import check_output_folder
from graphcaps.cli.reader_options import BadMolecules, FragmentsOfModel, takes_reader_options
from graphcaps.cli.run_options import Device
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import CapsuleCards, Counterfactuals, Explanation, StoreExplanation
    from graphcaps.inference.fitted_model import FittedModel

__all__ = ["explain", "show_graph"]

_MOLECULE = "molecule"
_PART_METRICS = {
    "nmi": "NMI",
    "nmi_all": "NMI all",
    "ari": "ARI",
    "purity": "purity",
    "group_recall": "groups",
    "group_overlap": "overlap",
}
_SHAPE_METRICS = {
    "capsules_per_graph": "per graph",
    "connected": "connected",
    "entropy": "entropy",
    "dead_capsules": "dead",
}
_SCORE_METRICS = {
    "auc_nodes": "AUC nodes",
    "auc_edges": "AUC edges",
    "fidelity_plus": "fidelity+",
    "fidelity_minus": "fidelity−",
}
_TIME = {"seconds_per_graph": "s per graph"}
_MAX_NODES = 12  # nodes shown of a capsule
_MAX_EDITED = 300  # graphs of a page with counterfactuals, without --counterfactuals
_MAX_MEASURED = 5_000  # graphs that the metrics of a report without --measure are over


@takes_reader_options(without=("duplicates", "featurizer"), bad=BadMolecules, fragments=FragmentsOfModel)
def explain(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model file (.safetensors) of an HGCN; with --measure, of any network."
        ),
    ],
    source: Source,
    graph: Annotated[
        str | None,
        option(
            "--graph",
            metavar="N",
            help="Explain one graph: its number, counted from 1, or its id.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        option("--target", metavar="CLASS", help="Score nodes for this class instead of the predicted one."),
    ] = None,
    picture: Annotated[
        Path | None,
        option("--draw", metavar="FILE", help="With --graph: draw a picture (.svg, .png or .pdf)."),
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            metavar="NAME",
            help="Kind of picture: parts, scores, flow, assignment, iterations or molecule.",
        ),
    ] = None,
    capsules: Annotated[
        bool,
        option("--capsules", help="Describe each capsule over all graphs: use, classes and typical groups."),
    ] = False,
    changes: Annotated[
        bool,
        option("--counterfactuals", help="With --out: search counterfactuals of all graphs on the page."),
    ] = False,
    measure: Annotated[
        bool, option("--measure", help="Compute metrics of the explanations, and of other methods.")
    ] = False,
    methods: Annotated[
        str | None,
        option("--methods", metavar="NAMES", help="With --measure: methods to compare, separated by commas."),
    ] = None,
    sample: Annotated[
        int, option("--sample", metavar="N", min=1, help="With --measure: number of graphs for slow methods.")
    ] = 30,
    beside: Annotated[
        list[Path] | None,
        option("--beside", metavar="MODEL", help="With --measure: model of another seed, for the stability."),
    ] = None,
    out: Annotated[Path | None, option("--out", metavar="DIR", help="Write a report page into DIR.")] = None,
    root: Root = None,
    device: Device = "auto",
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Explain the predictions of a model by its capsules and node scores.

    --graph explains one graph and names the smallest groups whose removal or replacement changes its class. --capsules
    says what each capsule stands for, --measure computes metrics over all graphs, and --out writes a page for the
    browser. Without these options a summary is printed.
    """
    method_names = _parse_methods(methods) if measure else None
    if not measure and (methods is not None or beside):
        raise ArgumentError("explain", "--methods, --beside", "be used with --measure", "neither")
    if graph is not None and (measure or capsules or out is not None):
        raise ArgumentError("explain", "--graph", "be used without --measure, --capsules and --out", "both")
    if changes and graph is None and out is None:
        raise ArgumentError("explain", "--counterfactuals", "be used with --graph or --out", "neither")
    if out is not None:
        check_output_folder(out)
    from graphcaps.data.features.compatibility import UnseenValueWarning, describe_others
    from graphcaps.data.features.truncate import TruncationWarning
    from graphcaps.explanation import capsule_cards, explain_store
    from graphcaps.explanation.counterfactual_search import find_counterfactuals
    from graphcaps.inference.fitted_model import load
    from graphcaps.training.device import choose_device

    _check_drawing(picture, kind, graph)
    fitted = load(model)
    fitted.to(choose_device(device, "explain", fitted.config.model))
    # --graph counts rows without a valid molecule too, as predict does.
    loaded = open_for_model(source, root, reader, fitted, report_bad_rows=graph is not None)
    store = loaded.store
    selected = None if graph is None else _select_graph(graph, loaded, count_skipped="bad" not in reader)
    explained = store if selected is None else store[selected.index]
    note_truncation(explained, fitted)
    checked = fitted.check(explained, owner="explain")
    if selected is not None and checked.errors:
        found = f"graph {selected.label}: {checked.errors[0]}"
        raise DataError(source, "a graph that the model can read", found)
    if checked.others:
        first = (
            _label_of(min(checked.others), loaded, "bad" not in reader)
            if selected is None
            else selected.label
        )
        note(describe_others(checked.others, len(explained), first))
    start = time.perf_counter()
    classes = (
        None if loaded.metadata is None else loaded.metadata.classes
    )  # where only some graphs have a label
    result: dict[str, Any] = {
        "command": "explain",
        "model": str(model),
        "data": store.name,
        "graphs": len(explained),
    }
    if measure and out is None and not capsules:  # also of networks without capsules
        with warnings.catch_warnings():
            for said in (UnseenValueWarning, TruncationWarning):  # in the notes above
                warnings.simplefilter("ignore", said)
            measured = _compute_metrics(fitted, store, classes, method_names, sample, beside or [], as_json)
        result["seconds"] = round(time.perf_counter() - start, 3)
        if as_json:
            print_json(result | measured)
        else:
            _show_metrics(measured)
        return
    if classes is not None and selected is not None:
        classes = (classes[selected.index],)
    explanations = explain_store(
        fitted, replace(checked, others={}, truncated={}), target=target, true_classes=classes
    )
    seconds = time.perf_counter() - start
    result["seconds"] = round(seconds, 3)
    if selected is not None:
        explanation = replace(explanations[0], graph=selected.number - 1)  # its index in the whole source
        if picture is not None and explanation.note:
            got = f"graph {selected.label} without nodes"
            raise ArgumentError("explain", "--draw", "be used with a graph that has nodes", got)
        if picture is not None:
            _draw(picture, kind, explanation, loaded, selected.index)
            result["picture"] = str(picture)
        (changed,) = find_counterfactuals(fitted, checked, explanations)
        if as_json:
            row_id = {} if selected.name is None else {"id": selected.name}
            details = {"graph": selected.number, **row_id, "tree": explanation.tree}
            details["counterfactuals"] = changed.as_dict()
            print_json(result | {"explanation": explanation.as_dict() | details})
        else:
            (reason,) = ("",) if fitted.profile is None else fitted.out_of_distribution(checked)
            show_graph(explanation, selected.label, explained, reason)
            if not explanation.note:
                show_counterfactuals(changed, _elements(explained))
        if picture is not None:
            note(f"Written: {picture}")
        return
    used_in = fitted.used_in(checked)
    metrics = None
    cards = capsule_cards(explanations, store) if capsules or out is not None else None
    if capsules and cards is not None:
        result["capsule_cards"] = cards.as_dict()  # "capsules" is a section of the metrics
    with warnings.catch_warnings():
        for said in (UnseenValueWarning, TruncationWarning):  # in the notes above
            warnings.simplefilter("ignore", said)
        if measure:
            metrics = _compute_metrics(fitted, store, classes, method_names, sample, beside or [], as_json)
            result |= metrics
        if out is not None:
            measured = metrics or _fast_metrics(fitted, store)
            indices = _edited_graphs(len(explanations), changes)
            found_changes = find_counterfactuals(fitted, checked, explanations, indices=indices)
            page = _write_report(
                *(out, model, fitted, loaded, explanations, measured, used_in),
                cards=cards,
                counterfactuals=dict(zip(indices, found_changes, strict=True)),
            )
            result["report"] = str(page)
    if as_json:
        print_json(result)
    elif capsules and cards is not None:
        show_capsules(cards)
        if metrics is not None:
            _show_metrics(metrics)
    elif metrics is not None:
        _show_metrics(metrics)
    else:
        copies = "" if fitted.split_hashes is None else fitted.split_hashes.describe_copies()
        _show_summary(explanations, store, seconds, used_in, copies)
        if out is None:
            hint = "\nOne graph: --graph 1. Capsules: --capsules. Metrics: --measure. A page: --out report"
            terminal().print(hint, style="dim")
    if out is not None:
        note(f"Written: {result['report']}")


# Selecting one graph


@dataclass(frozen=True)
class _SelectedGraph:
    """The graph that ``--graph`` names.

    Args:
        index (int): Index in the store.
        number (int): Number in the source, counted from 1.
        name (str, optional): Id, if the source has names.
    """

    index: int
    number: int
    name: str | None

    @property
    def label(self) -> str:
        """How messages name the graph."""
        return f"{self.number:,}" if self.name is None else f"{self.number:,} ({self.name})"


def _select_graph(text: str, loaded: LoadedDataset, *, count_skipped: bool) -> _SelectedGraph:
    """Finds the graph that ``--graph`` names; a valid number is a number, any other text an id.

    Args:
        text (str): A number, counted from 1, or an id.
        loaded (LoadedDataset): The graphs.
        count_skipped (bool): Whether skipped rows are counted too, as ``predict`` does.

    Raises:
        ArgumentError: If there is no such graph, or several have that id.
        DataError: If that row has no valid molecule.
    """
    text, metadata = text.strip(), loaded.metadata
    rows, ids = list(range(len(loaded.store))), [] if metadata is None else list(metadata.ids)
    skipped: dict[int, tuple[int, str]] = {}  # row -> line and reason
    if metadata is not None and metadata.row_indices is not None and count_skipped:
        rows = list(metadata.row_indices)
        total = len(rows) + len(metadata.skipped)
        skipped = {
            row: (entry.line, f"{entry.text!r}: {entry.reason}")
            for row, entry in zip(sorted(set(range(total)) - set(rows)), metadata.skipped, strict=True)
        }
        kept_ids, skipped_ids = iter(ids), iter(metadata.skipped_ids)
        ids = [next(skipped_ids) if row in skipped else next(kept_ids) for row in range(total)]
    names = display_names(metadata, ids) if ids else None
    row = _find_row(text, len(rows) + len(skipped), names)
    if row in skipped:
        line, found = skipped[row]
        where = loaded.store.name if loaded.source is None else loaded.source.name
        raise DataError(where, "a molecule in SMILES", found, line=line)
    return _SelectedGraph(rows.index(row), row + 1, None if names is None else names[row])


def _find_row(text: str, total: int, names: Sequence[str] | None) -> int:
    """The row, counted from 0, with this number or id."""
    try:
        number: int | None = int(text)
    except ValueError:
        number = None
    if number is not None and 1 <= number <= total:
        return number - 1
    matches = [row for row, name in enumerate(names or ()) if name == text]
    if len(matches) == 1:
        return matches[0]
    expected = f"be a number from 1 to {total}"
    got: object = f"'{text}'" if number is None else number
    if names is not None:
        expected += f" or an id, such as {names[0]}"
    if matches:
        expected = "name one graph"
        got = f"'{text}', the id of {len(matches)}, such as {graph_label(matches[0], names)}"
    raise ArgumentError("explain", "--graph", expected, got)


def _label_of(graph: int, loaded: LoadedDataset, count_skipped: bool) -> str:
    """How messages name a graph of the store: its number, counted as by :func:`_select_graph`, and its name."""
    metadata = loaded.metadata
    rows = metadata.row_indices if metadata is not None and count_skipped else None
    names = display_names(metadata, None if metadata is None else metadata.ids)
    number = f"{(graph if rows is None else rows[graph]) + 1:,}"
    return number if names is None else f"{number} ({names[graph]})"


def _page_ids(loaded: LoadedDataset) -> Sequence[str] | None:
    """Names of the graphs of a page; their rows if they have none and rows were left out."""
    metadata = loaded.metadata
    names = display_names(metadata, None if metadata is None else metadata.ids)
    if names is None and metadata is not None and metadata.row_indices is not None:
        return [f"row {row + 1}" for row in metadata.row_indices]
    return names


# Drawing


def _check_drawing(path: Path | None, kind: str | None, graph: str | None) -> None:
    """Rejects, before anything is computed, a picture that cannot be drawn."""
    from graphcaps.explanation.drawings import DrawingKind
    from graphcaps.explanation.graph_drawing import check_suffix

    kinds = get_args(DrawingKind)
    if kind is not None and (path is None or kind not in kinds):
        expected = f"be one of {', '.join(kinds)}" if path is not None else "be used with --draw"
        raise ArgumentError("explain", "--kind", expected, f"'{kind}'")
    if path is not None:
        if graph is None:
            raise ArgumentError("explain", "--draw", "be used with --graph", "none")
        check_suffix("explain", path)


def _draw(path: Path, kind: str | None, explanation: Explanation, loaded: LoadedDataset, graph: int) -> None:
    """Draws the explanation; by default as a molecule if its atoms are known, else as a graph."""
    from graphcaps.explanation.molecule_drawings import (
        can_draw_molecule,
        draw_explained_molecule,
        molecule_from_smiles,
        molecule_from_store,
    )

    if kind is None:
        kind = _MOLECULE if can_draw_molecule(explanation, path) else "parts"
    if kind != _MOLECULE:
        explanation.draw(path, kind=kind)  # type: ignore[arg-type]
        return
    smiles = loaded.store.smiles
    if explanation.nodes is not None and explanation.elements is not None:
        draw_explained_molecule(explanation, path)  # the atoms that the model used
    elif smiles:  # atom i of the SMILES is node i
        draw_explained_molecule(explanation, path, molecule_from_smiles(smiles[graph]))
    elif explanation.elements is None and loaded.store.node_labels is None:
        raise ArgumentError(
            "explain", "--kind", "be another kind for graphs that are not molecules", f"'{_MOLECULE}'"
        )
    else:
        draw_explained_molecule(explanation, path, molecule_from_store(loaded.store, graph))


# Metrics and report


def _parse_methods(names: str | None) -> tuple[str, ...] | None:
    """The names of ``--methods``; ``None`` for all that apply to the model."""
    from graphcaps.explanation.explanation_metrics import METHODS

    if names is None:
        return None
    methods = tuple(name.strip() for name in names.split(",") if name.strip())
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        got = repr(unknown[0]) if unknown else "none"
        raise ArgumentError("explain", "--methods", f"name some of {', '.join(METHODS)}", got)
    return methods


def _compute_metrics(
    fitted: FittedModel,
    store: GraphStore,
    classes: tuple[str, ...] | None,
    methods: tuple[str, ...] | None,
    sample: int,
    beside: list[Path],
    quiet: bool,
) -> dict[str, Any]:
    from graphcaps.explanation.explanation_metrics import evaluate_explanations, explanation_stability
    from graphcaps.inference.fitted_model import load

    others = [load(path).to(fitted.device) for path in beside]
    metrics = evaluate_explanations(
        fitted, store, methods=methods, sample=sample, true_classes=classes,
        on_step=None if quiet else lambda name: note(f"Evaluating {name} …"),
    )  # fmt: skip
    if not others:
        return metrics | {"stability": None}
    further = [name for name in metrics["methods"] if name in ("gradient", "integrated-gradients")]
    return metrics | {"stability": explanation_stability([fitted, *others], store, methods=further)}


def _fast_metrics(fitted: FittedModel, store: GraphStore) -> dict[str, Any]:
    """The metrics of a report without --measure: those that take only seconds, of at most 5,000 graphs."""
    import torch

    from graphcaps.explanation.explanation_metrics import FAST_METHODS, evaluate_explanations

    if len(store) > _MAX_MEASURED:
        note(
            f"Metrics of explanations are over {_MAX_MEASURED:,} of {len(store):,} graphs, evenly spaced; "
            "--measure takes all of them."
        )
        store = store[torch.linspace(0, len(store) - 1, _MAX_MEASURED).long()]
    return evaluate_explanations(fitted, store, methods=FAST_METHODS)


def _write_report(
    out: Path,
    model: Path,
    fitted: FittedModel,
    loaded: LoadedDataset,
    explanations: StoreExplanation,
    metrics: dict[str, Any],
    used_in: Sequence[str | None] | None,
    *,
    cards: CapsuleCards | None,
    counterfactuals: Mapping[int, Counterfactuals],
) -> Path:
    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.explanation.report import write_report

    history = TrainingFiles(model).read_history(fitted.training)
    store = loaded.store
    page: Path = write_report(
        out,
        fitted,
        store,
        explanations,
        metrics=metrics,
        history=history,
        title=f"{model.stem} on {store.name}",
        used_in=used_in,
        ids=_page_ids(loaded),
        cards=cards,
        counterfactuals=counterfactuals,
    )
    return page


def _edited_graphs(graphs: int, every: bool) -> list[int]:
    """Graphs whose counterfactuals the page shows: all, or at most 300 at even distances."""
    if every or graphs <= _MAX_EDITED:
        return list(range(graphs))
    note(
        f"Counterfactuals are searched for {_MAX_EDITED} of {graphs:,} graphs, evenly spaced; "
        "--counterfactuals searches those of all."
    )
    return [round(index * (graphs - 1) / (_MAX_EDITED - 1)) for index in range(_MAX_EDITED)]


# Printing


def show_graph(
    explanation: Explanation, label: str, store: GraphStore, out_of_distribution: str = ""
) -> None:
    """Prints the explanation of one graph as a tree: classes, capsules, nodes.

    Args:
        explanation (Explanation): Explanation of the graph.
        label (str): How the graph is named.
        store (GraphStore): The graph alone.
        out_of_distribution (str): Why it lies outside the applicability domain, or "".
    """
    from rich.text import Text
    from rich.tree import Tree

    console = terminal()
    names = explanation.class_names
    true = "" if explanation.true_class is None else f" (true class: {names[explanation.true_class]})"
    probability = 100 * float(explanation.probabilities[explanation.predicted])
    prediction = f"{names[explanation.predicted]}, {probability:.1f} %{true}"
    size = f"{count_noun(explanation.num_nodes, 'node')}, {count_noun(explanation.edges.size(1), 'edge')}"
    rows = [("graph", f"{label} of {store.name}: {size}")]
    if explanation.note:
        print_pairs(console, [*rows, ("predicted", prediction), ("explanation", explanation.note)])
        return
    rows += [
        ("predicted", prediction),
        ("scores", f"for {names[explanation.target]}; positive: evidence for it"),
    ]
    rows += _committee_rows(explanation)
    rows += _companion_rows(explanation)
    rows += [("domain", f"out of distribution: {out_of_distribution}")] if out_of_distribution else []
    if explanation.nodes is not None:
        rows.append(("", f"the model uses the {explanation.num_nodes} nodes of highest degree"))
    rows.append(
        (
            "tree",
            "each capsule is under the class that it contributes most to; contributions add up to the length",
        )
    )
    one, noun = ("an", "atom") if store.truth.get("element") is not None else ("a", "node")
    whose = "it" if explanation.levels[0].groups is None else "its group"
    where = f"the one that gets more of {whose} than of an average {noun}"
    rows.append(("", f"{one} {noun} contributes to every capsule; it is listed under {where}"))
    print_pairs(console, rows)
    console.print()
    elements = _elements(store)
    for row in explanation.tree["classes"]:
        head = f"{row['class']}  length {row['length']:.3f}, {100 * row['probability']:.1f} %"
        tree = Tree(Text(head, style="bold"), guide_style="dim")
        _branches(tree, row, elements, [level.lengths.numel() for level in explanation.levels[:-1]])
        console.print(tree)


def _committee_rows(explanation: Explanation) -> list[tuple[str, str]]:
    """How far the members of a committee agree; nothing for a single model."""
    if explanation.member_predicted is None:
        return []
    names, members = explanation.class_names, explanation.member_predicted.tolist()
    votes = f"{explanation.num_agreeing} of {len(members)} members predict {names[explanation.predicted]}"
    agreement = explanation.agreement
    if agreement is not None:
        votes += f"; the rank correlation of their node scores is {agreement:.2f}"
    rows = [
        ("committee", votes),
        ("", "scores are means over the members, capsules those of the first member"),
    ]
    if members[0] != explanation.predicted:
        rows.append(("", f"the first member predicts {names[members[0]]}"))
    return rows


def _companion_rows(explanation: Explanation) -> list[tuple[str, str]]:
    """How much of the answer the scores are about; nothing for a network alone."""
    if explanation.network_share is None:
        return []
    share, names = 100 * explanation.network_share, " and ".join(explanation.part_names[1:])
    return [
        ("companion", f"the network contributes {share:.0f} % of this probability, {names} the rest"),
        ("", "scores and capsules are of the network alone"),
    ]


def _elements(store: GraphStore) -> list[str]:
    """The element of each node of a graph read from SMILES, else an empty list."""
    from graphcaps.data.datasets.element_labels import atom_names

    numbers = store.truth.get("element")
    return [] if numbers is None else atom_names(numbers.tolist())


def _branches(tree: Any, entry: dict[str, Any], elements: list[str], sizes: Sequence[int]) -> None:
    """Adds what is below a class or capsule: nodes, or capsules and the rest that adds up to its length.

    Args:
        tree: Where to add.
        entry (dict): A class or capsule of :attr:`Explanation.tree`.
        elements (list): Element of each node, or an empty list.
        sizes (sequence): Number of capsules of each level below the entry, lowest first.
    """
    from rich.text import Text

    nodes = [part for part in entry["parts"] if "node" in part]
    if nodes:
        # The nodes with the largest scores, positive or negative.
        nodes.sort(key=lambda part: -abs(part["score"]))
        largest = sorted(nodes[:_MAX_NODES], key=lambda part: -part["score"])
        shown = "  ".join(
            f"{elements[part['node']] if elements else ''}{part['node'] + 1} ({part['score']:+.3f})"
            for part in largest
        )
        more = f"  … {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        tree.add(Text(f"{'atoms' if elements else 'nodes'} {shown}{more}"))
    if not sizes:  # a capsule of the lowest level
        return
    capsules = entry["parts"]
    for part in (part for part in capsules if part["parts"]):
        head = f"capsule {part['capsule'] + 1} of level {part['level']}: length {part['length']:.3f}"
        branch = tree.add(Text(f"{head}, contribution {part['contribution']:+.3f}"))
        _branches(branch, part, elements, sizes[:-1])
    for line in _rest_lines(entry, sizes[-1]):
        tree.add(Text(line, style="dim"))


def _rest_lines(entry: dict[str, Any], capsules_below: int) -> list[str]:
    """Contributions to a class or capsule that have no nodes to show."""
    capsules, lines = entry["parts"], []
    empty = [part for part in capsules if not part["parts"]]
    if empty:
        numbers = ", ".join(str(number) for number in sorted(part["capsule"] + 1 for part in empty))
        what = "nodes" if empty[0]["level"] == 1 else "capsules below"
        total = sum(part["contribution"] for part in empty)
        why = f"all {'nodes' if empty[0]['level'] == 1 else 'capsules below'} contribute to them too"
        lines.append(
            f"{count_noun(len(empty), 'capsule')} without {what} ({numbers}): contribution {total:+.3f}; {why}"
        )
    other = capsules_below - len(capsules)
    if other:
        where = "other classes" if "class" in entry else "other capsules"
        lines.append(
            f"{count_noun(other, 'capsule')} under {where}: contribution {entry['other_contributions']:+.3f}"
        )
    lines.append(f"residual, the mean capsule: contribution {entry['residual_contribution']:+.3f}")
    return lines


def _show_metrics(metrics: dict[str, Any]) -> None:
    """Prints tables of metrics of parts, of their shape and of scores; a dash if a metric does not apply."""
    console = terminal()
    tables = (("parts", _PART_METRICS), ("capsules", _SHAPE_METRICS), ("scores", _SCORE_METRICS))
    for heading, names in tables:
        rows_of = {
            name: row
            for name, row in metrics["methods"].items()
            if any(row[key] is not None for key in names)
        }
        if not rows_of:
            continue
        shown = names if heading == "capsules" else names | _TIME
        table = columns(heading, *shown.values(), right=shown.values())
        for name, row in rows_of.items():
            table.add_row(name, *(_cell(key, row[key]) for key in shown))
        console.print(table)
        console.print()
    share = f"{100 * metrics['share']:.0f} % of the nodes of a graph form the explanation"
    rows = [("graphs", f"{metrics['graphs']:,}"), ("fidelity", share)]
    truth = metrics["truth"]
    if truth is not None:
        rows.append(("reason", f"known in {truth['graphs']:,} graphs; AUC and groups are over these"))
        rows.append(
            ("groups", "fraction of deciding groups that overlap by half or more with a connected part")
        )
    rows += _sample_rows(metrics["sample"])
    if metrics["members"] > 1:
        rows.append(("committee", f"metrics are of the first of its {metrics['members']} members"))
    stability = metrics.get("stability")
    if stability:
        texts = (
            [] if stability["nmi"] is None else [f"NMI {stability['nmi']:.3f}", f"ARI {stability['ari']:.3f}"]
        )
        ranks = {} if stability["rank"] is None else {"capsules": stability["rank"]}
        listed = ", ".join(
            f"{name} {value:.3f}" for name, value in (ranks | stability.get("ranks", {})).items()
        )
        texts += [f"rank correlation of node scores: {listed}"] if listed else []
        rows.append(("stability", f"{'; '.join(texts)}, between {stability['models']} models"))
    print_pairs(console, rows)


def _sample_rows(sampled: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Metrics on the sample of graphs that slow methods explained, if there is one among the methods."""
    from graphcaps.explanation.explanation_metrics import SAMPLED_METHODS

    if not sampled or set(SAMPLED_METHODS).isdisjoint(sampled["fidelity_plus"]):
        return []
    rows = [(f"on {len(sampled['graphs'])}", f"graphs, which {', '.join(SAMPLED_METHODS)} explain:")]
    for metric, title in (("fidelity_plus", "fidelity+"), ("auc_nodes", "AUC nodes")):
        values = {name: value for name, value in sampled[metric].items() if value is not None}
        if values:
            rows.append((title, ", ".join(f"{name} {value:.3f}" for name, value in values.items())))
    return rows


def _cell(name: str, value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2g}" if name == "seconds_per_graph" else f"{value:.3f}"


def _show_summary(
    explanations: StoreExplanation,
    store: GraphStore,
    seconds: float,
    used_in: Sequence[str | None] | None,
    copies: str,
) -> None:
    """Prints the accuracy, first of graphs that did not train the model, and how the capsules are used.

    Args:
        explanations, store: The explanations and their graphs.
        seconds (float): Time that they took.
        used_in (sequence, optional): Part of the training data that each graph was in, if known.
        copies (str): A sentence on graphs in several parts, or "".
    """
    from graphcaps.explanation.agreement import capsule_usage
    from graphcaps.explanation.explanation_data import NO_MEANS_NOTE
    from graphcaps.explanation.node_groups import find_groups

    usage = capsule_usage(explanations.assignments[0], explanations.capsule, explanations.node_ptr)
    use = explanations.capsule_use
    rows = [("data", store.name), ("explained", f"{len(explanations):,} graphs in {seconds:.1f} s")]
    accuracies = _accuracy_rows(explanations, used_in)
    rows += [*accuracies, ("", copies)] if accuracies and copies else accuracies
    groups = len(find_groups(explanations)) / max(1, int((explanations.node_ptr.diff() > 0).sum()))
    per_graph = f"a graph has {groups:.1f} groups in {usage['used_per_graph']:.1f} capsules on average"
    rows.append(("capsules in use", f"{use.in_use} of {use.capsules} over these graphs; {per_graph}"))
    rows.append(
        ("entropy", f"{usage['entropy']:.3f} (0: each node belongs to one capsule, 1: to all equally)")
    )
    if explanations.mean_coefficients is None:
        rows.append(("parts", NO_MEANS_NOTE))
    print_pairs(terminal(), rows)


def _accuracy_rows(
    explanations: StoreExplanation, used_in: Sequence[str | None] | None
) -> list[tuple[str, str]]:
    """Accuracy of each set of graphs, those first that did not train the model."""
    from graphcaps.explanation.report.report_text import describe_unlabelled, measure_sets, measured_accuracy

    sets = measure_sets(explanations, used_in)
    rows = []
    for each in sets:
        value, count, caution = measured_accuracy(each)
        rows.append((each["accuracy_title"].lower(), f"{value}: {count}".replace("\u00a0", " ")))
        rows += [("", caution)] if caution else []
    if sets and all(each["name"] in ("training", "left-out") for each in sets):
        rows.insert(0, ("accuracy", "no figure: none of the graphs is new to this model"))
    unlabelled = describe_unlabelled(explanations)
    return rows + ([("", unlabelled)] if unlabelled else [])
