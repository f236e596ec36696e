"""``graphcaps explain``: the capsules and nodes of one prediction, metrics of all explanations, or a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from graphcaps.cli.capsule_tables import show_capsules, show_counterfactuals
from graphcaps.cli.data_options import (
    Json,
    Root,
    Source,
    note_truncation,
    open_for_model,
)
from graphcaps.cli.explanation_tables import element_names, show_graph, show_metrics, show_summary
from graphcaps.cli.graph_selection import SelectedGraph, label_of, page_ids, select_graph
from graphcaps.cli.output import note, option, print_json, terminal
from graphcaps.cli.output_files import check_output_folder
from graphcaps.cli.reader_options import BadMolecules, FragmentsOfModel, takes_reader_options
from graphcaps.cli.run_options import Device
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.features.compatibility import CheckedGraphs
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import CapsuleCards, Explanation, StoreExplanation
    from graphcaps.inference.fitted_model import FittedModel

__all__ = ["explain"]

_MOLECULE = "molecule"
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
            help="Explain one graph: its number, counted from 1, or its id; id:7 for an id that is a number.",
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
    from graphcaps.data.features.compatibility import describe_others
    from graphcaps.inference.model_file import load
    from graphcaps.training.device import choose_device

    _check_drawing(picture, kind, graph)
    fitted = load(model)
    fitted.to(choose_device(device, "explain", fitted.config.model))
    # --graph counts rows without a valid molecule too, as predict does.
    loaded = open_for_model(source, root, reader, fitted, report_bad_rows=graph is not None)
    selected = None if graph is None else select_graph(graph, loaded, count_skipped="bad" not in reader)
    explained = loaded.store if selected is None else loaded.store[selected.index]
    note_truncation(explained, fitted)
    checked = fitted.check(explained, owner="explain")
    if selected is not None and checked.errors:
        found = f"graph {selected.label}: {checked.errors[0]}"
        raise DataError(source, "a graph that the model can read", found)
    if checked.others:
        first = (
            label_of(min(checked.others), loaded, "bad" not in reader) if selected is None else selected.label
        )
        note(describe_others(checked.others, len(explained), first))
    request = _Request(model, fitted, loaded, checked, target, as_json, time.perf_counter())
    if selected is not None:
        _explain_graph(request, selected, picture, kind)
        return
    compute = partial(_compute_metrics, request, method_names, sample, beside or []) if measure else None
    if compute is not None and out is None and not capsules:  # also of networks without capsules
        _measure(request, compute)
    else:
        _explain_store(request, compute, capsules=capsules, every_counterfactual=changes, out=out)


@dataclass(frozen=True)
class _Request:
    """What the command line asks for, and what was read for it.

    Args:
        path (Path): The model file.
        fitted (FittedModel): The model.
        loaded (LoadedDataset): The graphs of the source.
        checked (CheckedGraphs): Those to explain. Notes have said what the model cannot read of them.
        target (str, optional): Class of the scores.
        as_json (bool): Print JSON.
        start (float): When the graphs were read.
    """

    path: Path
    fitted: FittedModel
    loaded: LoadedDataset
    checked: CheckedGraphs
    target: str | None
    as_json: bool
    start: float

    @property
    def classes(self) -> tuple[str, ...] | None:
        """True classes of all graphs of the source, where only some of them have one."""
        return None if self.loaded.metadata is None else self.loaded.metadata.classes

    def explain(self, true_classes: tuple[str, ...] | None) -> StoreExplanation:
        """The explanations of the graphs."""
        from graphcaps.explanation import explain_store

        graphs = self.checked.without_warnings()
        return explain_store(self.fitted, graphs, target=self.target, true_classes=true_classes)

    def result(self) -> dict[str, Any]:
        """The entries that every JSON output begins with; the time ends here."""
        return {
            "command": "explain",
            "model": str(self.path),
            "data": self.loaded.store.name,
            "graphs": len(self.checked.store),
            "seconds": round(time.perf_counter() - self.start, 3),
        }


def _explain_graph(
    request: _Request, selected: SelectedGraph, picture: Path | None, kind: str | None
) -> None:
    """Explains one graph, draws it, and searches its counterfactuals."""
    from graphcaps.explanation.attributions import compares_with_average
    from graphcaps.explanation.counterfactual_search import find_counterfactuals
    from graphcaps.explanation.model_inputs import unwrap_hgcn

    fitted, checked, classes = request.fitted, request.checked, request.classes
    explanations = request.explain(None if classes is None else (classes[selected.index],))
    result = request.result()
    explanation = replace(explanations[0], graph=selected.number - 1)  # its index in the whole source
    if picture is not None and explanation.note:
        got = f"graph {selected.label} without nodes"
        raise ArgumentError("explain", "--draw", "be used with a graph that has nodes", got)
    if picture is not None:
        _draw(picture, kind, explanation, request.loaded, selected.index)
        result["picture"] = str(picture)
    (changed,) = find_counterfactuals(fitted, checked, explanations)
    if request.as_json:
        row_id = {} if selected.name is None else {"id": selected.name}
        details = {"graph": selected.number, **row_id, "tree": explanation.tree}
        details["counterfactuals"] = changed.as_dict()
        print_json(result | {"explanation": explanation.as_dict() | details})
    else:
        (reason,) = ("",) if fitted.profile is None else fitted.out_of_distribution(checked)
        averaged = compares_with_average(unwrap_hgcn(fitted))
        show_graph(explanation, selected.label, checked.store, reason, average_reference=averaged)
        if not explanation.note:
            show_counterfactuals(changed, element_names(checked.store))
    if picture is not None:
        note(f"Written: {picture}")


def _measure(request: _Request, compute_metrics: Callable[[], dict[str, Any]]) -> None:
    """Prints metrics of the explanations of all graphs."""
    with _without_repeated_warnings():
        measured = compute_metrics()
    if request.as_json:
        print_json(request.result() | measured)
    else:
        show_metrics(measured)


def _explain_store(
    request: _Request,
    compute_metrics: Callable[[], dict[str, Any]] | None,
    *,
    capsules: bool,
    every_counterfactual: bool,
    out: Path | None,
) -> None:
    """Explains all graphs: a summary, descriptions of the capsules, metrics and a page."""
    from graphcaps.explanation import capsule_cards

    fitted, store = request.fitted, request.loaded.store
    explanations = request.explain(request.classes)
    result = request.result()
    seconds = result["seconds"]
    used_in = fitted.used_in(request.checked)
    metrics = None
    cards = capsule_cards(explanations, store) if capsules or out is not None else None
    if capsules and cards is not None:
        result["capsule_cards"] = cards.as_dict()  # "capsules" is a section of the metrics
    with _without_repeated_warnings():
        if compute_metrics is not None:
            metrics = compute_metrics()
            result |= metrics
        if out is not None and cards is not None:
            measured = metrics or _fast_metrics(fitted, store)
            page = _write_report(
                request,
                out,
                explanations,
                measured,
                used_in,
                cards,
                every_counterfactual=every_counterfactual,
            )
            result["report"] = str(page)
    if request.as_json:
        print_json(result)
    elif capsules and cards is not None:
        show_capsules(cards)
        if metrics is not None:
            show_metrics(metrics)
    elif metrics is not None:
        show_metrics(metrics)
    else:
        copies = "" if fitted.split_hashes is None else fitted.split_hashes.describe_copies()
        show_summary(explanations, store, seconds, used_in, copies)
        if out is None:
            hint = "\nOne graph: --graph 1. Capsules: --capsules. Metrics: --measure. A page: --out report"
            terminal().print(hint, style="dim")
    if out is not None:
        note(f"Written: {result['report']}")


@contextmanager
def _without_repeated_warnings() -> Iterator[None]:
    """Silences warnings of what the notes have said: unseen values and truncated graphs."""
    from graphcaps.data.features.compatibility import UnseenValueWarning
    from graphcaps.data.features.truncate import TruncationWarning

    with warnings.catch_warnings():
        for category in (UnseenValueWarning, TruncationWarning):
            warnings.simplefilter("ignore", category)
        yield


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
        try:
            check_suffix("explain", path)
        except ArgumentError as error:
            raise ArgumentError("explain", "--draw", error.expected, error.got) from error


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
    request: _Request, methods: tuple[str, ...] | None, sample: int, beside: list[Path]
) -> dict[str, Any]:
    from graphcaps.explanation.explanation_metrics import evaluate_explanations, explanation_stability
    from graphcaps.inference.model_file import load

    fitted, store = request.fitted, request.loaded.store
    others = [load(path).to(fitted.device) for path in beside]
    metrics = evaluate_explanations(
        fitted, store, methods=methods, sample=sample, true_classes=request.classes,
        on_step=None if request.as_json else lambda name: note(f"Evaluating {name} …"),
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
    request: _Request,
    out: Path,
    explanations: StoreExplanation,
    metrics: dict[str, Any],
    used_in: Sequence[str | None] | None,
    cards: CapsuleCards,
    *,
    every_counterfactual: bool,
) -> Path:
    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.explanation.counterfactual_search import find_counterfactuals
    from graphcaps.explanation.report import write_report

    fitted, loaded = request.fitted, request.loaded
    indices = _edited_graphs(len(explanations), every_counterfactual)
    changed = find_counterfactuals(fitted, request.checked, explanations, indices=indices)
    page: Path = write_report(
        out,
        fitted,
        loaded.store,
        explanations,
        metrics=metrics,
        history=TrainingFiles(request.path).read_history(fitted.training),
        title=f"{request.path.stem} on {loaded.store.name}",
        used_in=used_in,
        ids=page_ids(loaded),
        cards=cards,
        counterfactuals=dict(zip(indices, changed, strict=True)),
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
