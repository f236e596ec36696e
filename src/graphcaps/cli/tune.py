"""``graphcaps tune``: a hyper-parameter search by validation loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.cluster_options import RayAddress, open_cluster
from graphcaps.cli.data_options import Fractions, Json, Root, Source, SplitBy, open_with_splits
from graphcaps.cli.fold_options import GroupsBy, named_groups
from graphcaps.cli.interrupts import stop_code
from graphcaps.cli.output import columns, note, option, print_json, print_table, terminal
from graphcaps.cli.output_files import check_output_folder
from graphcaps.cli.progress import progress_bars
from graphcaps.cli.reader_options import takes_reader_options
from graphcaps.cli.run_options import (
    Device,
    Epochs,
    ModelName,
    Preset,
    Settings,
    configure,
    describe_preset,
)
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from rich.progress import TaskID

    from graphcaps.search import NestedResult, SearchProgress, SearchResult, TuneResult, TuneRun

__all__ = ["tune"]

_SHOWN = 5  # trials in the table


@takes_reader_options()
def tune(
    context: typer.Context,
    source: Source,
    root: Root = None,
    trials: Annotated[int, option("--trials", metavar="N", help="Number of trials.")] = 64,
    minutes: Annotated[
        float | None,
        option("--minutes", metavar="M", help="Longest time; --resume goes on. Default: no limit."),
    ] = None,
    space: Annotated[
        Path | None,
        option("--space", metavar="FILE.toml", help="Options and their values. Default: docs/tune.md."),
    ] = None,
    nested: Annotated[
        bool,
        option(
            "--nested", help="Also measure the held-out accuracy of the search, by a search in each fold."
        ),
    ] = False,
    preset: Preset = None,
    model: ModelName = None,
    settings: Settings = None,
    epochs: Epochs = None,
    folds: Annotated[
        int, option("--folds", metavar="N", help="Number of folds; a trial trains on N − 2 of them.")
    ] = 5,
    groups: GroupsBy = None,
    split: SplitBy = None,
    fractions: Fractions = None,
    seed: Annotated[int, option("--seed", metavar="N", help="Seed of proposals and trainings.")] = 0,
    sampler: Annotated[
        str, option("--sampler", metavar="NAME", help="tpe (Optuna), or random, which needs no Optuna.")
    ] = "tpe",
    batch: Annotated[
        int, option("--batch", metavar="N", help="Trials that are proposed and compared together.")
    ] = 16,
    per_shape: Annotated[
        int, option("--per-shape", metavar="N", help="Consecutive proposals of a batch with the same shape.")
    ] = 8,
    reduction: Annotated[
        int,
        option(
            "--reduction", metavar="N", help="Keep one trial in N after each rung; 1: train all to the end."
        ),
    ] = 3,
    device: Device = "auto",
    ray: RayAddress = None,
    out: Annotated[
        Path | None,
        option("--out", metavar="DIR", help="Folder for best.toml, trials.csv, study.db and pictures."),
    ] = None,
    resume: Annotated[bool, option("--resume", help="Continue the search in DIR.")] = False,
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Search for hyper-parameters of low validation loss; test graphs are not read.

    Trials × folds are trained together: learning rate, its halving, weight decay, dropout, reconstruction weight and
    margins are one number per model, and trials that differ in other options are trained in groups. After each rung the
    worst trials are dropped. Without --space the default space of the model is searched (docs/tune.md).

    The validation loss of the best trial is too low an estimate, since it was selected by it. --nested measures what
    the search reaches on graphs that it has not seen, and compares it with the accuracy of the best configuration on
    the same folds.

    Ctrl-C leaves a valid result in --out, and the same command with --resume goes on.
    """
    if out is not None:
        check_output_folder(out)
    from graphcaps.search import TuneRun

    loaded, splits = open_with_splits(source, root, reader, split, "tune", seeds=(seed,), fractions=fractions)
    store = loaded.store
    config = configure(store, preset=preset, model=model, epochs=epochs, settings=settings)
    run = TuneRun(
        store, config, space=space, trials=trials, minutes=minutes, nested=nested, folds=folds,
        groups=named_groups(groups, loaded), split=splits or None, seed=seed, sampler=sampler, batch=batch,
        per_shape=per_shape, reduction=reduction, device=device, out=out, resume=resume,
        executor=open_cluster(context, ray),
    )  # fmt: skip
    _introduce(run, describe_preset(store, run.search.config, preset))
    try:
        with _progress(quiet=as_json) as update:
            result = run.run(update)
    except KeyboardInterrupt as error:
        note(_stopped(run, out))
        raise typer.Exit(stop_code(error)) from error
    if as_json:
        print_json(result.as_dict())
    else:
        _show(result, source, out)
    if nested and result.nested is None:
        note("The nested search is not complete; continue with the same command and --resume.")


def _introduce(run: TuneRun, preset: str) -> None:
    """What is searched, before the first epoch."""
    from graphcaps.evaluation.partition import FixedSplits

    search = run.search
    numbers, shapes = search.space.numbers(search.config.model), search.space.shapes(search.config.model)
    *earlier, last = [f"{epochs}" for epochs in search.trainer.rungs]
    rungs = f"{', '.join(earlier)} and {last} epochs" if earlier else count_noun(int(last), "epoch")
    unit = "split" if isinstance(search.folds, FixedSplits) else "fold"
    note(
        f"{search.store.name}: {count_noun(search.trials, 'trial')} × {count_noun(search.folds.num_folds, unit)}, "
        f"{search.config.model}, {preset}; compared after {rungs}; sampler {search.sampler}."
    )
    names = ", ".join(name.partition(".")[2] for name in numbers) or "none"
    others = ", ".join(name.partition(".")[2] for name in shapes) or "none"
    note(f"Searched together: {names}. In groups of one shape: {others}.")
    outside = search.space.outside(search.resolved)
    if outside:
        values = ", ".join(f"{name} = {value}" for name, value in outside.items())
        note(
            f"The configuration that the search starts from is not among the trials: {values} is not in the space."
        )
    if run.outer:
        note(f"Nested: {len(run.outer)} further searches, one in each outer fold.")
    if search.history:
        ended = sum(trial.state != "running" for trial in search.history)
        note(f"{ended} of {search.trials} trials have ended.")


def _stopped(run: TuneRun, out: Path | None) -> str:
    """The sentence after Ctrl-C."""
    if out is None:
        return "Stopped."
    best = run.search.result(complete=False).best
    if best is None:
        return "Stopped before the first trials were compared. Continue with the same command and --resume."
    return f"Stopped. The best so far is in {out / 'best.toml'}. Continue with the same command and --resume."


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[SearchProgress], None]]:
    """A bar over the epochs of all trials, with the best loss; further ones for nested searches and test folds."""
    with progress_bars("metrics", percent=True, quiet=quiet) as progress:
        tasks: dict[str, TaskID] = {}

        def update(event: SearchProgress) -> None:
            if event.part not in tasks:
                title = f"{'test folds,' if event.is_scoring else 'search'} {event.part}".strip()
                tasks[event.part] = progress.add_task(title, total=event.total, metrics="")
            parts = [f"{event.ended}/{event.trials} {'folds' if event.is_scoring else 'trials'}"]
            if event.epoch is not None:
                parts.append(f"epoch {event.epoch.epoch}/{event.epoch.rung}")
            if event.cluster is not None:
                nodes = count_noun(event.cluster.nodes, "node")
                parts.append(f"{nodes}, {count_noun(event.cluster.running, 'cell')} running or waiting")
            if event.best is not None:
                parts.append(f"best {event.best.loss:.4f} (trial {event.best.number})")
            progress.update(tasks[event.part], completed=event.work, metrics="  ".join(parts))

        yield update


def _show(result: TuneResult, source: str, out: Path | None) -> None:
    """The best trials, the best configuration, and where the results are."""
    search, console = result.search, terminal()
    best = search.best
    if best is None:
        note("No trial has a validation loss yet; give the search more time (--minutes, --resume).")
        return
    judged = sorted(
        (trial for trial in search.trials if trial.losses), key=lambda trial: (-trial.epochs, trial.loss)
    )
    options = {name: name.partition(".")[2] for name in search.space.options}
    shared = {name for name in options if len({str(trial.values[name]) for trial in judged}) == 1}
    names = {name: title for name, title in options.items() if name not in shared}
    numbers = ("loss", "accuracy", "epochs", *names.values())
    table = columns("trial", *numbers, right=numbers)
    for trial in judged[:_SHOWN]:
        accuracy = "–" if trial.accuracy is None else f"{100 * trial.accuracy:.2f}"
        cells = [_value_text(trial.values[name]) for name in names]
        table.add_row(f"{trial.number}", f"{trial.loss:.4f}", accuracy, f"{trial.epochs}", *cells)
    print_table(console, table)
    if len(judged) > _SHOWN:
        others = f"… and {count_noun(len(judged) - _SHOWN, 'more trial')}"
        console.print(
            others + ("." if out is None else f" in {out / 'trials.csv'}."), style="dim", soft_wrap=True
        )
    if shared:
        values = ", ".join(
            f"{options[name]} = {_value_text(best.values[name])}" for name in options if name in shared
        )
        heading = "The same in all of these" if len(judged) > 1 else "Options"
        console.print(f"{heading}: {values}.", style="dim", soft_wrap=True)
    ended = sum(trial.state != "running" for trial in search.trials)
    for sentence in _remarks(search, ended):
        console.print(sentence, style="dim", soft_wrap=True)
    if result.nested is not None:
        console.print(f"\n{_describe_nested(result.nested)}", soft_wrap=True)
    if out is not None:
        console.print(f"\nBest configuration: {out / 'best.toml'}", soft_wrap=True)
        command = f"graphcaps train {source} --preset {out / 'best.toml'} --out model.safetensors"
        console.print(f"Use it: {command}", soft_wrap=True)


def _value_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


def _remarks(search: SearchResult, ended: int) -> Iterator[str]:
    state = (
        f"{ended} of {len(search.trials)} trials have ended"
        if not search.complete
        else "All trials have ended"
    )
    yield (
        f"\n{state} in {search.seconds:.1f} s. Loss and accuracy (percent) are those of the validation parts, means "
        f"over {search.folds} folds; the trial was selected by this loss, so both are optimistic."
    )
    if not search.complete:
        yield "The search is not complete; continue with the same command and --resume."


def _describe_nested(nested: NestedResult) -> str:
    """The held-out accuracy, and by how much the accuracy without nesting exceeds it."""
    return (
        f"Held-out accuracy of the search (nested, {len(nested.nested)} outer folds): {nested.accuracy:.2f} "
        f"± {nested.std_folds:.2f} %. The configuration that the search on all graphs found has "
        f"{nested.unnested_accuracy:.2f} % on the same folds; it has seen them, and the difference is "
        f"{nested.difference:+.2f} points."
    )
