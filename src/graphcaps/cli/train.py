"""``graphcaps train``: trains one model on a data set and writes it to a file."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import (
    Fractions,
    Json,
    Root,
    Source,
    SplitBy,
    describe_single_split,
    open_with_splits,
)
from graphcaps.cli.interrupts import stop_code
from graphcaps.cli.output import note, option
from graphcaps.cli.reader_options import takes_reader_options
from graphcaps.cli.run_options import (
    BatchSize,
    ClassWeight,
    Companion,
    Device,
    Ensemble,
    Epochs,
    LearningRate,
    MaxNodes,
    Metric,
    ModelName,
    Precision,
    Preset,
    Restarts,
    Settings,
    check_committee,
    check_restarts,
    configure,
    describe_classes,
    describe_preset,
    selection_metric,
)
from graphcaps.cli.tracking_options import Log, note_log, open_log
from graphcaps.cli.training_summary import show_training
from graphcaps.errors import ArgumentError, DataError, GraphcapsError, count_noun

if TYPE_CHECKING:
    from torch import Tensor

    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.store import GraphStore
    from graphcaps.inference.fitted_model import FittedModel
    from graphcaps.inference.probabilities import CalibrationMethod
    from graphcaps.training.ranks import Ranks
    from graphcaps.training.single_training import SingleTraining

__all__ = ["train"]

_DEFAULT_PATIENCE = 50  # with the presets of own graphs, as in HGCNClassifier
_WITH_PATIENCE = ("default", "molecules", "best", "best-molecules")


@takes_reader_options()
def train(
    context: typer.Context,
    source: Source,
    out: Annotated[Path, option("--out", metavar="MODEL", help="Model file to write (.safetensors).")],
    root: Root = None,
    preset: Preset = None,
    model: ModelName = None,
    parts: Annotated[
        str | None,
        option(
            "--parts",
            metavar="blocks",
            help="Train capsules to be densely connected parts of a graph (docs/parts.md).",
        ),
    ] = None,
    settings: Settings = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    max_nodes: MaxNodes = None,
    learning_rate: LearningRate = None,
    seed: Annotated[
        int, option("--seed", metavar="N", help="Random seed, also of --split scaffold or random.")
    ] = 0,
    ensemble: Ensemble = None,
    restarts: Restarts = 1,
    companion: Companion = None,
    validation: Annotated[
        float,
        option("--validation", metavar="SHARE", help="Share of graphs in the validation set; 0: none."),
    ] = 0.1,
    split: SplitBy = None,
    fractions: Fractions = None,
    patience: Annotated[
        int | None,
        option(
            "--patience",
            metavar="N",
            min=0,
            help="Stop after N epochs (of at least ten steps) without improvement; 0: never. "
            "Default: 50 with preset default, molecules or best, else 0.",
        ),
    ] = None,
    metric: Metric = None,
    class_weight: ClassWeight = None,
    calibrate: Annotated[
        str,
        option(
            "--calibrate", metavar="NAME", help="Calibration of probabilities: temperature, isotonic or none."
        ),
    ] = "temperature",
    resume: Annotated[
        bool, option("--resume", help="Continue from the checkpoint, if there is one.")
    ] = False,
    overwrite: Annotated[bool, option("--overwrite", help="Start again and replace the files.")] = False,
    checkpoint_every: Annotated[
        int | None,
        option(
            "--checkpoint-every",
            metavar="EPOCHS",
            min=1,
            help="Epochs between checkpoints. Default: the first epoch, then one every 20 seconds.",
        ),
    ] = None,
    baseline: Annotated[
        bool,
        option(
            "--baseline/--no-baseline",
            help="Also fit a forest to the same graphs, for comparison (docs/training.md).",
        ),
    ] = True,
    precision: Precision = None,
    device: Device = "auto",
    log: Log = None,
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Train a model on a data set and write it to a file.

    A validation set, 10 % of the graphs by default, selects the epoch that is kept (docs/training.md).

    With --split, the test graphs are set aside first and evaluated at the end. A simple model that is fitted to
    the same graphs shows what they give without a network; --no-baseline leaves it out.

    --ensemble 5 trains a committee of five models with different seeds; probabilities are their mean, and predict
    gives their disagreement (docs/committees.md).

    --restarts 8 trains eight models with different seeds and keeps one, which the validation set chooses
    (docs/parts.md).

    --companion wl-forest also fits a forest to the same graphs; probabilities are a weighted mean of both, with a
    weight chosen on graphs that neither was fitted to (docs/companion.md).

    --preset best does both (docs/presets.md).

    An interrupted training continues with --resume.

    torchrun --nproc-per-node=2 -m graphcaps train … trains one model with two processes, on a GPU each
    (docs/howto/several-gpus.md).
    """
    from graphcaps.cli.processes import ignore_interrupts, join_ranks, read_once
    from graphcaps.cli.progress import training_progress
    from graphcaps.cli.training_files import TrainingFiles, write_training

    files, ranks = TrainingFiles(out), join_ranks(device)
    is_first = ranks is None or ranks.is_first
    if is_first:  # which writes all files
        files.check(overwrite=overwrite, resume=resume)
        context.with_resource(files.lock())
        files.check(overwrite=overwrite, resume=resume)  # again: a training may just have ended
        files.remove_temporary()
    may_replace = overwrite or files.model.exists()
    loggers, selection = open_log(log if is_first else None, "train"), selection_metric(metric, "train")
    calibration = _calibration_method(calibrate)
    _check_class_weight(class_weight)

    from graphcaps.training.auto_config import check_network_options
    from graphcaps.training.final_training import make_training

    loaded, splits = read_once(
        ranks,
        source,
        root,
        lambda: open_with_splits(source, root, reader, split, "train", seeds=(seed,), fractions=fractions),
    )
    holdout = splits[0] if splits else None
    _check_validation_share(context, holdout)
    store = loaded.store
    config = configure(
        store,
        preset=preset,
        model=model,
        epochs=epochs,
        batch_size=batch_size,
        max_nodes=max_nodes,
        learning_rate=learning_rate,
        precision=precision,
        parts=parts,
        settings=settings,
        ensemble=ensemble,
        companion=companion,
    )
    chosen = describe_preset(store, config, preset)
    count = config.committee.members
    members = f" × {count} members" if count > 1 else f" × {restarts} restarts" if restarts > 1 else ""
    note(
        f"{count_noun(len(store), 'graph')} of {store.name}, {describe_classes(store)}, "
        f"{config.model}{members}, {chosen}."
    )
    network_options = {
        "--patience": patience,
        "--metric": metric,
        "--class-weight": class_weight,
        "--checkpoint-every": checkpoint_every,
        "--log": log,
        "--restarts": restarts if restarts > 1 else None,
    }
    check_network_options(config, network_options, "options")
    check_committee(config, store, ensemble, companion)
    check_restarts(config, restarts, ensemble)
    if patience is None and config.source in _WITH_PATIENCE:
        patience = _DEFAULT_PATIENCE
    training = make_training(
        store,
        config,
        seed=seed,
        validation=validation,
        device=device,
        patience=patience or None,
        metric=selection,
        class_weight=_class_weights(class_weight, store, holdout),
        calibrate=calibration,
        split=holdout,
        callbacks=loggers,
        left_out=None if loaded.metadata is None else loaded.metadata.contradicting,
        ranks=ranks,
        restarts=restarts,
    )
    if ranks is not None:
        note(_describe_ranks(ranks, training))
        if baseline:
            note("The baseline is left out, because no process has all graphs.")
    if training.holdout.class_counts is not None:
        note(f"Split ({training.holdout.split}):\n{training.holdout.class_counts.table()}")
        if sentence := training.holdout.describe_draw():
            note(sentence)
    repeat = f"graphcaps evaluate with the same columns, --split {split} and --repeat 10."
    if sentence := describe_single_split(holdout, repeat):
        note(sentence)
    for sentence in training.reading_notes:
        note(sentence)
    if training.stacking:
        note(_describe_stacking(training))
    if overwrite and is_first:
        files.clear()
    if resume and _resume(training, files):
        if is_first:
            show_training(files, training, as_json)
        return
    total, known_notes = training.config.training.epochs, len(training.notes)
    try:
        title = f"{store.name} {config.model}"
        with (
            training_progress(total, title, start=training.epoch, quiet=as_json or not is_first) as update,
            # Closing it tells callbacks of Ctrl-C.
            closing(training.run(files.checkpoint if is_first else None, checkpoint_every)) as events,
        ):
            for event in events:
                update(event)
        if not is_first:
            return
        result = training.result()
        written = files if may_replace or not files.model.exists() else files.unused()
        write_training(written, training, result, loaded)
    except KeyboardInterrupt as error:
        ignore_interrupts()
        epoch = training.save(files.checkpoint)
        if not training.has_epochs:
            note("Stopped before the fit was complete; nothing was written.")
            raise typer.Exit(stop_code(error)) from error
        note(f"Stopped after epoch {epoch} of {total}; continue with: {_resume_command(context, ranks)}")
        raise typer.Exit(stop_code(error)) from error
    for sentence in training.notes[known_notes:]:
        note(sentence)
    if written != files:
        files.clear()
        fix = f"The finished model was written to {written.model}."
        raise DataError(out, "another program made this file during the training", fix=fix)
    # Copies of molecules between the parts of a split are said when it is made.
    if store.catalogue_name is None and (holdout is None or store.smiles is None):
        _note_copies(result.model, is_molecules=store.smiles is not None)
    if baseline and training.has_epochs and ranks is None:
        _fit_baseline(files, store, seed=seed, validation=validation, split=holdout)
    note_log(loggers)
    show_training(files, training, as_json)
    training.notify_callbacks(result)  # last: an exception in a callback loses nothing


# Options


def _check_validation_share(context: typer.Context, split: Split | None) -> None:
    """Rejects ``--validation`` if the split has a validation set."""
    source = context.get_parameter_source("validation")
    is_given = source is not None and source.name == "COMMANDLINE"
    if is_given and split is not None and split.validation is not None:
        expected = "be left out if the split has a validation set"
        got = f"a split with {split.validation.numel()} validation graphs ({split.title})"
        raise ArgumentError("train", "--validation", expected, got)


def _check_class_weight(name: str | None) -> None:
    if name not in (None, "balanced"):
        raise ArgumentError("train", "--class-weight", "be 'balanced'", f"'{name}'")


def _class_weights(name: str | None, store: GraphStore, split: Split | None) -> Tensor | None:
    from graphcaps.training.class_weights import balanced_class_weights

    if name is None or store.y is None:
        return None
    return balanced_class_weights(store.y if split is None else store.y[split.train], store.num_classes)


def _calibration_method(name: str) -> CalibrationMethod | None:
    if name == "none":
        return None
    if name not in ("temperature", "isotonic"):
        raise ArgumentError("train", "--calibrate", "be temperature, isotonic or none", f"'{name}'")
    return "temperature" if name == "temperature" else "isotonic"


# Resuming


def _resume(training: SingleTraining, files: TrainingFiles) -> bool:
    """Loads the checkpoint of the training if there is one; returns whether the run is finished."""
    if files.checkpoint.exists():
        training.resume(files.checkpoint)
        note(f"Continuing after epoch {training.epoch}.")
        for sentence in training.notes:
            note(sentence)
        return False
    if files.is_finished(training.run_digest, training.config.training.epochs):
        note("This training is finished; nothing to do.")
        return True
    if files.model.exists():
        fix = "Replace it with --overwrite."
        raise DataError(files.model, "the file is not the model of this training", fix=fix)
    note("No checkpoint found: starting from the beginning.")
    return False


def _resume_command(context: typer.Context, ranks: Ranks | None) -> str:
    """The command line of this run, with ``--resume``."""
    words = ["graphcaps", "train"]
    if ranks is not None:
        words = ["torchrun", f"--nproc-per-node={ranks.size}", "-m", *words]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        value = context.params.get(parameter.name or "")
        if source is None or source.name != "COMMANDLINE" or parameter.name in ("resume", "overwrite"):
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        else:
            words.append((parameter.secondary_opts if value is False else parameter.opts)[0])
            words += [] if isinstance(value, bool) else [str(value)]
    return shlex.join([*words, "--resume"])


# Notes on the graphs


def _describe_ranks(ranks: Ranks, training: SingleTraining) -> str:
    """Which processes train together, and how many graphs each of them holds; all of them call it."""
    from graphcaps.training.final_training import FinalTraining

    assert isinstance(training, FinalTraining)
    assert training.shard is not None
    counts = [f"{count:,}" for count in ranks.gather(training.shard.owned.numel())]
    held = f"{', '.join(counts[:-1])} and {counts[-1]}"
    return f"{ranks.size} processes ({ranks.backend}) hold {held} of the training and validation graphs."


def _describe_stacking(training: SingleTraining) -> str:
    """Why further models are trained beside the one to keep."""
    from graphcaps.training.companion_weights import MIN_VALIDATION

    members = len(training.replicas)
    of_one = (
        f" They are single models; the weight applies to the mean of {members} members."
        if training.is_committee
        else ""
    )
    return (
        f"The weight of the companion is chosen on out-of-fold predictions of the training graphs: there are "
        f"{training.holdout.validation.numel()} validation graphs, fewer than {MIN_VALIDATION}. "
        f"{len(training.stacking)} further models are trained for it.{of_one}"
    )


def _note_copies(fitted: FittedModel, *, is_molecules: bool) -> None:
    """Says how many distinct validation and test graphs are copies of graphs of an earlier part."""
    if fitted.split_hashes is None:
        return
    sizes, way_out = fitted.split_hashes.counts(), "graphcaps data check lists copies"
    way_out += "; --duplicates first keeps one row of each molecule." if is_molecules else "."
    for part, count in fitted.split_hashes.copies().items():
        if count:
            verb, others = ("equals", "a training") if part == "validation" else ("equals", "another")
            verb = verb if count == 1 else "equal"
            note(
                f"{count:,} of {sizes[part]:,} distinct {part} graphs {verb} {others} graph as the model reads them, "
                f"so that {part} results say less about new graphs; {way_out}"
            )


# The simple model beside it


def _fit_baseline(
    files: TrainingFiles, store: GraphStore, *, seed: int, validation: float, split: Split | None
) -> None:
    """Fits a simple model to the same graphs and stores its result; the trained model is already written."""
    from graphcaps.cli.training_files import write_baseline
    from graphcaps.training.baseline import fit_baseline

    try:
        result = fit_baseline(store, seed=seed, validation=validation, split=split)
    except GraphcapsError as error:
        note(f"The baseline could not be fitted: {error}")
        return
    except KeyboardInterrupt:
        note("Stopped the baseline; the model is complete. --no-baseline leaves it out.")
        return
    if result is not None:
        write_baseline(files, result)
