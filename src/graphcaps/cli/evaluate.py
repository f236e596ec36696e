"""``graphcaps evaluate``: cross-validation, with honest and optimistic figures side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Bad, Label, Smiles, SplitBy, open_with_split, reader_options
from graphcaps.cli.output import columns, format_size, note, option, print_json, terminal
from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.splits.groups import Grouping
    from graphcaps.evaluation import CrossValidation, GroupEpoch, Ledger

__all__ = ["evaluate", "show_ledgers"]


def show_ledgers(ledgers: list[Ledger], out: Path | None) -> None:
    """A line per figure, and under them what each is."""
    from graphcaps.evaluation import RULES
    from graphcaps.evaluation.ledger import UPPER_BOUNDS

    several = any(len(figure.seeds) > 1 for ledger in ledgers for figure in ledger.figures.values())
    numbers = ("mean", "± folds", *(("± seeds",) if several else ()), "seconds")
    table = columns("data set", "model", "figure", *numbers, "", right=numbers)
    for ledger in ledgers:
        head = (ledger.dataset, ledger.variant, f"{ledger.seconds:.1f}")
        for name, figure in ledger.figures.items():
            spreads = (figure.std_folds, figure.std_seeds)[: len(numbers) - 2]
            shown = ["–" if spread is None else f"{spread:.2f}" for spread in spreads]
            bound = "upper bound" if name in UPPER_BOUNDS else ""
            table.add_row(head[0], head[1], name, f"{figure.mean:.2f}", *shown, head[2], bound)
            head = ("", "", "")
    console = terminal()
    console.print(table)
    console.print("\nAccuracy in percent; ± is a standard deviation.", style="dim")
    for name in RULES:
        if any(name in ledger.figures for ledger in ledgers):
            console.print(f"{name}: {_rule(name, ledgers)}.", style="dim", markup=False, soft_wrap=True)
    for told in dict.fromkeys(told for ledger in ledgers for told in ledger.notes):
        console.print(told, markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"Records, configuration and versions: {out}", markup=False, soft_wrap=True)


def _rule(name: str, ledgers: list[Ledger]) -> str:
    """What a figure is, where these trainings differ from the usual ones."""
    # Of the shortest trainings, where several are shown.
    rule = min(ledgers, key=lambda ledger: ledger.records[0].curves.num_epochs).rule(name)
    if name == "optimism" and not any("C" in ledger.figures for ledger in ledgers):
        return rule.replace("C minus", "C, the best of one epoch for all folds by mean test accuracy, minus")
    return rule


_LONGEST_NAME = 100
_MOST_SEEDS = 1000
_FOLDS = 10


def evaluate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Data sets, TU folders or zips, or own files (docs/inputs.md)."
        ),
    ],
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to look in first for the data sets.")
    ] = None,
    preset: Annotated[
        str | None, option("--preset", metavar="NAME", help="A preset (paper), or your own FILE.toml.")
    ] = None,
    protocol: Annotated[
        str, option("--protocol", metavar="NAME", help="held-out, paper or both.")
    ] = "held-out",
    model: Annotated[str | None, option("--model", metavar="NAME", help="hgcn or gin.")] = None,
    variant: Annotated[
        str | None, option("--variant", metavar="NAME", help="Name in the results; else the model's.")
    ] = None,
    seeds: Annotated[int, option("--seeds", metavar="N", help="How many; they are 0, 1, 2, …")] = 1,
    folds: Annotated[int, option("--folds", metavar="N")] = _FOLDS,
    groups: Annotated[
        str | None,
        option(
            "--groups",
            metavar="FILE",
            help="Keep groups in one fold: a FILE of 'data check --groups', or copies, or scaffolds.",
        ),
    ] = None,
    split: SplitBy = None,
    epochs: Annotated[int | None, option("--epochs", metavar="N", help="Passes over the graphs.")] = None,
    batch_size: Annotated[int | None, option("--batch-size", metavar="N", help="Graphs a step.")] = None,
    learning_rate: Annotated[float | None, option("--learning-rate", metavar="RATE")] = None,
    max_nodes: Annotated[
        int | None, option("--max-nodes", metavar="N", help="Most nodes of a graph; 0 keeps all of them.")
    ] = None,
    precision: Annotated[
        str | None, option("--precision", metavar="NAME", help="On a GPU: float32, tf32 or bf16.")
    ] = None,
    device: Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")] = "auto",
    group: Annotated[
        int | None, option("--group", metavar="N", help="Most folds × seeds at a time; else what fits.")
    ] = None,
    out: Annotated[Path | None, option("--out", metavar="DIR", help="Folder for records.")] = None,
    resume: Annotated[
        bool, option("--resume", help="Keep finished records in DIR, go on with unfinished ones.")
    ] = False,
    smiles: Smiles = None,
    label: Label = None,
    bad: Bad = None,
    as_json: Annotated[bool, option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Cross-validate a model: all folds and seeds are trained together.

    held-out trains on eight of ten folds, chooses the epoch on the ninth and tests on the tenth: the honest
    figure. paper trains on nine and chooses the epoch on the test folds, as the published figures do (C, C*):
    upper bounds. both does the two.

    --groups keeps copies, or other groups, in one fold; --split trains one given split instead of folds.
    """
    _check(out, variant, seeds)
    _check_folds(names, folds, groups, split, protocol)
    from graphcaps.cli.run_options import configure
    from graphcaps.evaluation import CrossValidation, ResultsStore

    loaded = _load(names, root, reader_options(smiles, label, bad=bad), split)
    results = None if out is None else ResultsStore(out)
    checked = []
    for one, parts in loaded:  # all of them before the first is trained
        config = configure(
            one.store.name, preset=preset, model=model,
            epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, max_nodes=max_nodes,
            precision=precision,
        )  # fmt: skip
        validation = CrossValidation(
            one.store, config, folds=folds, seeds=seeds, protocol=protocol, device=device, group=group,
            variant=variant, results=results, resume=resume, groups=_groups(groups, one), split=parts,
        )  # fmt: skip
        if groups is not None and validation.partition is None:
            note(
                f"{one.store.name}: no two graphs share a group ({groups}), so that these are the plain folds."
            )
        checked.append((one, validation))
    ledgers = []
    for one, validation in checked:
        ledger = _run(validation, out, as_json)
        ledgers.append(ledger)
        if out is not None:
            _write(out, ledger, one)
    if as_json:
        print_json([ledger.summary() for ledger in ledgers])
    else:
        show_ledgers(ledgers, out)


def _check(out: Path | None, variant: str | None, seeds: int) -> None:
    """Refuses, before anything is read or trained, what could not be written at the end."""
    if variant is not None and len(variant) > _LONGEST_NAME:
        expected = f"have at most {_LONGEST_NAME} characters"
        raise ArgumentError("evaluate", "--variant", expected, f"{len(variant)}")
    if seeds > _MOST_SEEDS:
        raise ArgumentError("evaluate", "--seeds", f"be at most {_MOST_SEEDS}", seeds)
    if out is not None:
        from graphcaps.cli.training_files import check_folder

        check_folder(out)


def _check_folds(names: list[str], folds: int, groups: str | None, split: str | None, protocol: str) -> None:
    """Refuses options for folds that contradict each other."""
    from graphcaps.data.splits.groups import BY_DUPLICATES, BY_SCAFFOLD, is_table_path

    if folds < 3 and protocol in ("held-out", "both"):
        expected = "be at least 3: one fold tests and one chooses the epoch"
        raise ArgumentError("evaluate", "--folds", expected, folds, "Or choose --protocol paper.")

    if split is not None and groups is not None:
        raise ArgumentError("evaluate", "--groups", "be left out beside --split", "both")
    if split is not None and folds != _FOLDS:
        raise ArgumentError("evaluate", "--folds", "be left out beside --split, which is one training", folds)
    files = {
        "--groups": groups not in (None, BY_DUPLICATES, *BY_SCAFFOLD),
        "--split": split is not None and is_table_path(split),
    }
    for name, is_file in files.items():
        if is_file and len(names) > 1:
            raise ArgumentError(
                "evaluate", name, "name a file for one data set at a time", f"{len(names)} sets"
            )


def _load(
    names: list[str], root: Path | None, hints: dict[str, Any], split: str | None
) -> list[tuple[LoadedDataset, Split | None]]:
    loaded = [open_with_split(name, root, hints, split, "evaluate") for name in names]
    found = [one.store.name for one, _ in loaded]
    for name in found:
        if found.count(name) > 1:
            raise ArgumentError("evaluate", "NAME", "be given once each", f"'{name}' twice")
    return loaded


def _groups(what: str | None, loaded: LoadedDataset) -> Grouping | None:
    from graphcaps.data.splits.groups import resolve_groups

    smiles = None if loaded.metadata is None else loaded.metadata.smiles
    return None if what is None else resolve_groups(what, loaded.store, smiles)


def _run(validation: CrossValidation, out: Path | None, quiet: bool) -> Ledger:
    """Trains one data set under a bar, and says how to go on where Ctrl-C ends it."""
    config = validation.config
    seeds = len(validation.seeds)
    count = validation.folds.num_folds
    what = f"{'one split' if count == 1 else f'{count} folds'} × {seeds} seed{'' if seeds == 1 else 's'}"
    note(f"{validation.store.name}: {what}, {config.model}, preset: {config.source}.")
    if validation.finished:
        wanted = len(validation.protocols) * seeds
        note(f"{validation.store.name}: {len(validation.finished)} of {wanted} records are finished.")
    try:
        if len(validation.finished) < len(validation.protocols) * seeds:
            validation.prepare()
            note(_forecast(validation))
        with _bars(validation.config.training.epochs, quiet) as update:
            return validation.run(update)
    except KeyboardInterrupt as error:
        note("Stopped. " + ("" if out is None else "Go on with the same command and --resume."))
        raise typer.Exit(130) from error


def _forecast(validation: CrossValidation) -> str:
    """What the training will take of the memory, before it starts."""
    assert validation.forecast is not None
    assert validation.group is not None
    together = min(validation.group, validation.folds.num_folds * len(validation.seeds))
    count = "one training at a time" if together == 1 else f"{together} trainings together"
    return f"{validation.store.name}: {count}, about {format_size(validation.forecast.bytes_for(together))} of memory."


@contextmanager
def _bars(epochs: int, quiet: bool) -> Iterator[Callable[[GroupEpoch], None]]:
    """A bar for each training of several, one after another."""
    from graphcaps.cli.progress import training_progress

    with ExitStack() as stack:
        bars: dict[int, Any] = {}

        def update(event: GroupEpoch) -> None:
            if event.group not in bars:
                stack.close()
                count = f" {event.group}/{event.groups}" if event.groups > 1 else ""
                title = f"{event.dataset} {event.protocol}{count}"
                bar = training_progress(epochs, title, start=event.epoch.epoch - 1, quiet=quiet)
                bars[event.group] = stack.enter_context(bar)
            bars[event.group](event.epoch)

        yield update


def _write(out: Path, ledger: Ledger, loaded: LoadedDataset) -> None:
    """Beside the records: figures, resolved configuration, versions and where the graphs came from."""
    from graphcaps.cli.training_files import write_json
    from graphcaps.evaluation.results_store import file_name

    source = {"source": None if loaded.source is None else str(loaded.source)}
    path = out / f"{file_name(ledger.dataset, ledger.variant)}.summary.json"
    write_json(path, ledger.summary() | source)
