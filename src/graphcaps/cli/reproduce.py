"""``graphcaps reproduce``: the tables of the paper, published and measured side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcaps.cli.cluster_options import RayAddress, cluster_progress, open_cluster
from graphcaps.cli.interrupts import suggest_resume
from graphcaps.cli.output import note, option, print_json, print_text, terminal
from graphcaps.errors import ArgumentError, count_noun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import TaskID

    from graphcaps.evaluation import RecordKey, ResultsStore
    from graphcaps.execution import RayExecutor
    from graphcaps.reproduction.cells import Training
    from graphcaps.reproduction.measured import CellResult
    from graphcaps.reproduction.plan import Progress

__all__ = ["reproduce"]

_FORMATS = ("table", "markdown", "latex", "json")


def reproduce(
    context: typer.Context,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="table1 to table6, or all.")],
    rows: Annotated[
        str | None,
        option("--rows", metavar="LIST", help="Only these rows, such as HGCN,A1,K=2. Default: all."),
    ] = None,
    datasets: Annotated[
        str | None,
        option("--datasets", metavar="LIST", help="Only these data sets, such as MUTAG,NCI1. Default: all."),
    ] = None,
    criteria: Annotated[
        str | None, option("--criteria", metavar="LIST", help="Only these of C, C*, held-out. Default: all.")
    ] = None,
    seeds: Annotated[int, option("--seeds", metavar="N", help="Number of seeds: 0, 1, 2, …")] = 5,
    epochs: Annotated[
        int | None,
        option(
            "--epochs",
            metavar="N",
            help="Number of epochs to train and to show. Default: as published.",
        ),
    ] = None,
    report: Annotated[bool, option("--report", help="Train nothing; show the stored results.")] = False,
    resume: Annotated[bool, option("--resume", help="Continue interrupted trainings.")] = False,
    results: Annotated[
        Path | None,
        option(
            "--results",
            metavar="DIR",
            help="Folder of records. Default: results/reproduction; with --epochs N, results/reproduction-N-epochs.",
        ),
    ] = None,
    comparison: Annotated[
        Path,
        option(
            "--comparison",
            metavar="DIR",
            help="Folder of records of the other systems, as graphcaps compare --out writes it.",
        ),
    ] = Path("results/comparison"),
    form: Annotated[
        str, option("--format", metavar="NAME", help="table, markdown, latex or json.")
    ] = "table",
    as_json: Annotated[bool, option("--json", help="Same as --format json.")] = False,
    precision: Annotated[
        str,
        option("--precision", metavar="NAME", help="Of new trainings on a GPU: float32, tf32 or bf16."),
    ] = "tf32",
    device: Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")] = "auto",
    ray: RayAddress = None,
    jobs: Annotated[
        int, option("--jobs", metavar="N", min=1, help="Number of parallel trainings on a GPU.")
    ] = 3,
    minutes: Annotated[
        float | None, option("--minutes", metavar="N", help="Start no training after N minutes.")
    ] = None,
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to search first for the data sets.")
    ] = None,
) -> None:
    """Reproduce the tables of the paper: published result, ours, and the difference of each cell.

    Cells without a record are trained with the presets of the paper on its ten folds. Finished records are kept, so
    running the command again trains only what is missing. C and C* select the epoch on the test folds, as the
    published results do, and are upper bounds; held-out selects it on a validation fold. Rows of other systems show
    what graphcaps compare has measured (--comparison); those without a record are copied from the paper and marked
    "reported". The paper's values of these rows were selected in different ways: each is named beside the value, which
    stands with our accuracy of the same kind, and explained below the table. The last lines say what was
    trained now, and date, hardware and number of epochs of the records that were stored before. Records of another
    number of epochs are not shown.
    """
    form = "json" if as_json else form
    if form not in _FORMATS:
        raise ArgumentError("reproduce", "--format", f"be one of {', '.join(_FORMATS)}", repr(form))
    if not 1 <= seeds <= 1000:
        raise ArgumentError("reproduce", "--seeds", "be from 1 to 1000", seeds)
    from graphcaps.evaluation import ResultsStore
    from graphcaps.evaluation.epoch_selection import window_for
    from graphcaps.reproduction.cells import choose_cells, trainings
    from graphcaps.reproduction.measured import MeasuredLedgers, cell_results, describe_origin, other_epochs
    from graphcaps.training.early_stopping import WINDOW

    cells = choose_cells(tables, rows=_list(rows), datasets=_list(datasets), criteria=_list(criteria))
    store = ResultsStore(results or _folder(epochs))
    needed = trainings(cells)
    others = other_epochs(needed, store, seeds, epochs)
    keys = {key for training in needed for key in training.keys(seeds)}
    missing, not_started = {key for key in keys if key not in store or key in others}, 0
    if not report:
        not_started = _train(
            *(needed, store, seeds, resume, form == "json", epochs, precision, device, jobs, minutes, root),
            open_cluster(context, ray),
        )
    compared = MeasuredLedgers(ResultsStore(comparison), seeds) if epochs is None else None
    found = cell_results(cells, MeasuredLedgers(store, seeds), epochs, compared)
    window = WINDOW if epochs is None else window_for(epochs)
    _show(found, form, store, missing, window)
    if epochs is not None:
        note(
            f"Trainings of {count_noun(epochs, 'epoch')} in place of the published number: the differences from the "
            "paper are those of shorter or longer trainings, not of the model, and held-out averages the validation "
            f"loss over {count_noun(window, 'epoch')} to select one."
        )
    if report:
        _note_missing(missing, others, store, len(keys), epochs)
    if origin := describe_origin(found, missing):
        again = "" if "Trained now" in origin else " An empty folder (--results DIR) trains them again."
        note(origin + again)
    if not_started:
        were = "was" if not_started == 1 else "were"
        started = f"{count_noun(not_started, 'training')} {were} not started in time."
        note(f"{started} Run the same command to continue.")


def _folder(epochs: int | None) -> Path:
    """Trainings with other epochs have a folder of their own, because their results differ."""
    return Path("results") / ("reproduction" if epochs is None else f"reproduction-{epochs}-epochs")


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _note_missing(
    missing: set[RecordKey],
    others: dict[RecordKey, int],
    store: ResultsStore,
    num_keys: int,
    epochs: int | None,
) -> None:
    """Says which records of other epochs are not shown, and what would have to be trained."""
    from graphcaps.reproduction.measured import describe_epochs, how_to_show

    if others:
        count = count_noun(len(others), "stored record")
        asked = (
            "the published number of epochs was" if epochs is None else f"{count_noun(epochs, 'epoch')} were"
        )
        sentence = f"Not shown: {count} of {describe_epochs(others)}, since {asked} asked for."
        note(f"{sentence} {how_to_show(others, store, epochs)}".strip())
    elif missing:
        datasets = ", ".join(sorted({key.dataset for key in missing}))
        stored = f"{len(missing):,} of {num_keys:,} records are not stored ({datasets})."
        if len(missing) == num_keys:
            stored = f"No results are stored in {store.folder}."
        note(
            f"{stored} Run the command without --report to train them, or name another folder (--results DIR)."
        )


def _train(
    needed: Sequence[Training],
    store: ResultsStore,
    seeds: int,
    resume: bool,
    quiet: bool,
    epochs: int | None,
    precision: str,
    device: str,
    jobs: int,
    minutes: float | None,
    root: Path | None,
    executor: RayExecutor | None,
) -> int:
    from graphcaps.cli.output_files import check_output_folder
    from graphcaps.reproduction.plan import plan_runs, reproduce

    check_output_folder(store.folder)
    runs = plan_runs(needed, store, seeds, epochs)
    if not runs:
        return 0
    are = "is" if len(runs) == 1 else "are"
    note(f"{count_noun(len(runs), 'training')} {are} missing; records go to {store.folder}.")
    quiet_cluster = quiet or executor is None
    with (
        suggest_resume(store.folder),
        _bars(quiet) as update,
        cluster_progress(quiet=quiet_cluster) as update_cluster,
    ):
        return reproduce(
            runs, store, seeds=seeds, epochs=epochs, precision=precision, device=device, jobs=jobs,
            minutes=minutes, resume=resume, root=root, on_progress=update, executor=executor,
            on_cluster=update_cluster,
        )  # fmt: skip


@contextmanager
def _bars(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar for every running training, and a line for every finished one."""
    from graphcaps.cli.progress import progress_bars

    with progress_bars(quiet=quiet) as bars:
        tasks: dict[str, TaskID] = {}

        def update(event: Progress) -> None:
            title = event.run.title
            if event.finished:
                if title in tasks:
                    bars.remove_task(tasks.pop(title))
                note(f"{event.number}/{event.of}  {title}: finished.")
            elif event.epoch is not None:
                if title not in tasks:
                    tasks[title] = bars.add_task(title, total=event.epoch.epoch.epochs)
                bars.update(tasks[title], completed=event.epoch.epoch.epoch)

        yield update


def _show(
    found: Sequence[CellResult], form: str, store: ResultsStore, trained: set[RecordKey], window: int
) -> None:
    from graphcaps.reproduction.table_formats import latex, markdown

    if form == "json":
        now = [any(record.key in trained for record in each.records) for each in found]
        print_json([each.as_dict() | {"trained_now": new} for each, new in zip(found, now, strict=True)])
    elif form == "markdown":
        print_text(markdown(found).removesuffix("\n"))
    elif form == "latex":
        print_text(latex(found).removesuffix("\n"))
    else:
        _tables(found, store, window)


def _tables(found: Sequence[CellResult], store: ResultsStore, window: int) -> None:
    from rich.table import Table

    from graphcaps.evaluation.ledger import describe_rule
    from graphcaps.reproduction.table_formats import REPORTED_ONLY, lines, system_notes, titles

    console = terminal()
    for table, title in titles(found).items():
        datasets, rows = lines(found, table, separate_deviations=True)
        shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", title=title)
        shown.title_justify, shown.title_style = "left", "bold"
        shown.add_column("", no_wrap=True)
        for name in datasets:
            shown.add_column(name, justify="right", no_wrap=True)
        before = None
        for line in rows:
            if line.what == REPORTED_ONLY:
                shown.add_row(f"{line.row}, {REPORTED_ONLY}", style="dim")
                shown.add_row(f"  paper ({line.selection})", *line.cells, style="dim")
                continue
            if (line.row, line.criterion) != before:
                shown.add_row(f"{line.row}, {line.criterion}", style="bold")
            shown.add_row(f"  {line.title}", *line.cells, style="bold" if line.what == "ours" else None)
            before = (line.row, line.criterion)
        console.print(shown)
        for sentence in system_notes(found, table):
            console.print(sentence, style="dim")
        console.print()
    legend = "Accuracy in percent; ± is a standard deviation; difference is ours minus the paper's."
    console.print(f"{legend} Records: {store.folder}", style="dim", soft_wrap=True)
    for rule in dict.fromkeys(each.cell.criterion for each in found):
        console.print(f"{rule}: {describe_rule(rule, window)}.", style="dim", soft_wrap=True)
