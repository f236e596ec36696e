"""``graphcaps compare``: several models on the same folds of one or more data sets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.cluster_options import RayAddress, cluster_progress, open_cluster
from graphcaps.cli.data_options import Fractions, Root, SplitBy
from graphcaps.cli.fold_options import (
    FOLDS,
    FirstSplitSeed,
    Folds,
    GroupsBy,
    Repeat,
    Seeds,
    check_folds,
    check_seeded,
    check_seeds,
    load_with_splits,
    named_groups,
)
from graphcaps.cli.interrupts import suggest_resume
from graphcaps.cli.output import (
    columns,
    note,
    option,
    print_json,
    print_table,
    print_text,
    terminal,
)
from graphcaps.cli.output_files import check_output_folder, write_json
from graphcaps.cli.progress import cross_validation_progress
from graphcaps.cli.reader_options import takes_reader_options
from graphcaps.cli.run_options import Device, Epochs
from graphcaps.errors import ArgumentError, count_noun, printable

if TYPE_CHECKING:
    from rich.console import Console

    from graphcaps.comparison import CellProgress, Comparison
    from graphcaps.comparison.comparison_tables import ComparisonTable

__all__ = ["compare"]

_FORMATS = ("table", "markdown", "latex", "json")
_FAILED = 1  # exit code if a model failed


@takes_reader_options()
def compare(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Data sets, TU folders or zips, or your own files (docs/inputs.md)."
        ),
    ],
    models: Annotated[
        str,
        option(
            "--models",
            metavar="LIST",
            help="Models, such as hgcn,gin,wl-forest; paper: the systems of the paper's tables; all: every model.",
        ),
    ],
    root: Root = None,
    seeds: Seeds = 1,
    protocol: Annotated[
        str, option("--protocol", metavar="NAME", help="held-out, paper or both.")
    ] = "held-out",
    baseline: Annotated[
        str | None,
        option(
            "--baseline",
            metavar="NAME",
            help="Model that the others are tested against. Default: hgcn, else the first.",
        ),
    ] = None,
    folds: Folds = FOLDS,
    groups: GroupsBy = None,
    split: SplitBy = None,
    repeat: Repeat = None,
    seed: FirstSplitSeed = None,
    fractions: Fractions = None,
    epochs: Epochs = None,
    device: Device = "auto",
    ray: RayAddress = None,
    out: Annotated[
        Path | None,
        option("--out", metavar="DIR", help="Folder for records, tables, the picture and the page."),
    ] = None,
    resume: Annotated[
        bool, option("--resume", help="Keep finished records in DIR and continue unfinished ones.")
    ] = False,
    form: Annotated[
        str, option("--format", metavar="NAME", help="table, markdown, latex or json.")
    ] = "table",
    as_json: Annotated[bool, option("--json", help="Same as --format json.")] = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Compare models on the same folds: accuracies, paired tests, ranks, time and memory.

    HGCN takes its preset for the graphs, other models their published settings. The held-out accuracy comes first, and
    beside it the accuracy without twins: test graphs that a Weisfeiler-Lehman test cannot tell apart from a training
    graph. C and C* (--protocol paper or both) choose the epoch on test data and are upper bounds.

    A model that fails is listed with the reason, the others finish, and the exit code is 1. With --out the records are
    kept; the same command with --resume trains only what is missing.
    """
    form = "json" if as_json else form
    if form not in _FORMATS:
        raise ArgumentError("compare", "--format", f"be one of {', '.join(_FORMATS)}", repr(form))
    check_seeds("compare", seeds)
    check_folds("compare", names, folds, groups, split, protocol)
    check_seeded("compare", split, repeat, seed)
    if out is not None:
        check_output_folder(out)
    from graphcaps.comparison.runner import ComparedData, ComparisonRun
    from graphcaps.data.readers.row_rules import describe_copies_in_folds
    from graphcaps.evaluation import ResultsStore

    loaded = load_with_splits("compare", names, root, reader, split, repeat, seed, fractions)
    data = [
        ComparedData(dataset.store, named_groups(groups, dataset), splits or None)
        for dataset, splits in loaded
    ]
    run = ComparisonRun(
        data, models.split(","), seeds=seeds, protocol=protocol, baseline=baseline, folds=folds, epochs=epochs,
        device=device, results=None if out is None else ResultsStore(out), resume=resume,
        executor=open_cluster(context, ray),
    )  # fmt: skip
    for dataset, splits in loaded:
        if groups is None and not splits and (copies := describe_copies_in_folds(dataset.store.smiles)):
            note(f"{dataset.store.name}: {copies}")
    count = f"{count_noun(len(run.models), 'model')} on {count_noun(len(data), 'data set')}"
    note(f"Comparing {count}: {', '.join(run.models)}.")
    quiet = form == "json"
    with (
        suggest_resume(out),
        _progress(quiet=quiet) as update,
        cluster_progress(quiet=quiet or ray is None) as update_cluster,
    ):
        comparison = run.run(update, update_cluster)
    if out is not None:
        _write(comparison, out)
    _show(comparison, form)
    if out is not None:
        note(f"Page: {out / 'index.html'}")
    if comparison.failures:
        failed = ", ".join(f"{cell.model} on {cell.dataset}" for cell in comparison.failures)
        note(f"Failed: {failed}.")
        raise typer.Exit(_FAILED)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[CellProgress], None]]:
    """A progress bar for the model that is being trained, and a line for every one that is finished.

    On a terminal, the name of a model stands there from its start: its graphs are prepared before the first epoch, and
    a classical model has no epochs.
    """
    is_terminal = sys.stderr.isatty() and not quiet
    with ExitStack() as stack:
        bars: dict[int, Any] = {}

        def write(text: str) -> None:
            if is_terminal:
                print(f"\r\x1b[K{printable(text)}", end="", file=sys.stderr, flush=True)

        def update(event: CellProgress) -> None:
            title = f"{event.number}/{event.of}  {event.dataset} {event.model}"
            if event.epoch is None and event.cell is None:
                write(f"{title} …")
            elif event.epoch is not None:
                if event.number not in bars:
                    write("")
                    bar = cross_validation_progress(title, quiet=quiet)
                    bars[event.number] = stack.enter_context(bar)
                bars[event.number](event.epoch)
            else:
                stack.close()
                write("")
                note(f"{title}: {_describe(event)}")

        try:
            yield update
        finally:
            write("")


def _describe(event: CellProgress) -> str:
    """The result of a cell in one line."""
    assert event.cell is not None
    ledger = event.cell.ledger
    if ledger is None:
        return f"failed. {event.cell.failure}"
    name = next(iter(ledger.estimates))
    bound = ", an upper bound" if ledger.is_upper_bound(name) else ""
    return f"{name} {ledger.estimates[name]}{bound}, {ledger.seconds:.1f} s."


def _write(comparison: Comparison, out: Path) -> None:
    """Writes the results, the page and the picture of ranks."""
    from graphcaps._io.atomic_write import write_atomically
    from graphcaps.comparison.comparison_page import comparison_page
    from graphcaps.comparison.comparison_tables import markdown
    from graphcaps.comparison.rank_diagram import rank_diagram

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "comparison.json", comparison.as_dict())
    write_atomically(out / "comparison.md", markdown(comparison))
    write_atomically(out / "index.html", comparison_page(comparison))
    if comparison.ranks is not None:
        write_atomically(out / "ranks.svg", rank_diagram(comparison.ranks))


def _show(comparison: Comparison, form: str) -> None:
    from graphcaps.comparison.comparison_tables import (
        dataset_table,
        explanations,
        latex,
        learning_warnings,
        markdown,
        matrix_tables,
        rank_sentence,
        record_notes,
    )

    if form == "json":
        print_json(comparison.as_dict())
    elif form == "markdown":
        print_text(markdown(comparison).removesuffix("\n"))
    elif form == "latex":
        print_text(latex(comparison).removesuffix("\n"))
    else:
        console = terminal()
        for warning in learning_warnings(comparison):
            console.print(f"Caution: {warning}", style="bold", soft_wrap=True)
        for dataset in comparison.datasets:
            _print_table(console, dataset_table(comparison, dataset))
        if len(comparison.datasets) > 1:
            for table in matrix_tables(comparison)[:1]:
                _print_table(console, table)
        if sentence := rank_sentence(comparison):
            console.print(f"{sentence}\n", soft_wrap=True)
        for sentence in (*explanations(comparison), *record_notes(comparison)):
            console.print(sentence, style="dim", soft_wrap=True)


def _print_table(console: Console, table: ComparisonTable) -> None:
    """Prints a table; headings take several lines, so that both protocols and seeds fit into 80 characters."""
    heads = [re.sub(r" |(?<=-)", "\n", head) for head in table.head]
    shown = columns(*heads, right=heads[1:])
    shown.padding = (0, 1, 0, 0)
    shown.title, shown.title_justify, shown.title_style = table.title, "left", "bold"
    for row in table.rows:
        shown.add_row(*row)
    print_table(console, shown)
    for model, reason in table.failures:
        console.print(f"{model}: failed. {reason}", soft_wrap=True)
    console.print()
