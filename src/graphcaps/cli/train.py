"""``graphcaps train``: one model from a data set, which can stop and go on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Bad, Label, Smiles, SplitBy, open_with_split, reader_options
from graphcaps.cli.output import metric_rows, note, option, print_json, print_pairs, terminal
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from torch import Tensor

    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.store import GraphStore
    from graphcaps.inference.probabilities import CalibrationMethod
    from graphcaps.training.final_training import FinalTraining

__all__ = ["report_training", "train"]


_NEAR = 0.05  # a training accuracy nearer to the share of the largest class than this has a warning


def report_training(files: TrainingFiles, training: FinalTraining, as_json: bool) -> None:
    """What was made, from the files themselves, and a warning where that is little."""
    import json

    try:
        known = json.loads(files.config.read_bytes())
        known = {name: known[name] for name in ("config", "data", "training", "versions")}
        known["training"]["rule"]
    except (ValueError, KeyError, TypeError) as error:
        what = "the configuration of the model beside it"
        raise DataError(files.config, what, "something else", fix="Train again with --overwrite.") from error
    if doubt := _hardly_learned(training, known["training"]):
        note(doubt)
    paths = {"model": str(files.model), "history": str(files.history), "config": str(files.config)}
    if as_json:
        print_json(
            paths | {"resolved": known["config"]} | {n: known[n] for n in ("data", "training", "versions")}
        )
        return
    info = known["training"]
    ran = info.get("epochs_run", info["epochs"])
    rows = [("model", paths["model"]), ("kept", f"epoch {info['epoch']} of {ran}: {info['rule']}")]
    rows.append(
        ("training accuracy", f"{100 * info['train_accuracy']:.1f} % of {info['train_graphs']:,} graphs")
    )
    if info["validation_accuracy"] is not None:
        share = f"{100 * info['validation_accuracy']:.1f} % of {info['validation_graphs']:,} graphs"
        rows.append(("validation accuracy", f"{share}; they serve the choice of the epoch, and are no test"))
        figures = metric_rows(info.get("validation_metrics")) if "split" not in info else []
        rows += [(f"validation {name}", value) for name, value in figures]
    rows += _tested(info)
    rows += [("time", f"{info['seconds']:.1f} s"), ("also written", f"{paths['history']}, {paths['config']}")]
    print_pairs(terminal(), rows)


def _tested(info: dict[str, Any]) -> list[tuple[str, str]]:
    """Figures on graphs that had no part in the training, where a split gave some."""
    if info.get("test_accuracy") is None:
        return []
    share = f"{100 * info['test_accuracy']:.1f} % of {info['test_graphs']:,} graphs"
    rows = [("test accuracy", f"{share}, which had no part in the training ({info['split']})")]
    rows += [(f"test {name}", value) for name, value in metric_rows(info["test_metrics"])]
    if new := info.get("test_graphs_with_new_labels"):
        rows.append(
            ("unknown labels", f"{new:,} test graphs have labels that no training graph has, read as zeros")
        )
    return rows


def _hardly_learned(training: FinalTraining, info: dict[str, Any]) -> str:
    """A warning where naming the largest class would be right about as often as the model, else "".

    With weighted classes a model may be right less often and have learned all the same.
    """
    if "class_weight" in training.fingerprint or training.source.y is None:
        return ""
    counts = training.source.y.cpu()[training.holdout.train.cpu()].bincount()
    share, right = float(counts.max() / counts.sum()), float(info["train_accuracy"])
    # Of 97 % there are no five points to go: half of what is left must be reached.
    if share == 1 or right > min(share + _NEAR, (1 + share) / 2):
        return ""
    early = info.get("epochs_run", info["epochs"]) < info["epochs"]
    return (
        f"The model has hardly learned: {100 * right:.1f} % of its training graphs are right, "
        f"{100 * share:.1f} % are of the largest class. Train longer ({'--patience 0' if early else '--epochs'})."
    )


_PATIENCE = 50  # as HGCNClassifier has it


def train(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A data set, a TU folder or zip, or your own file (docs/inputs.md)."
        ),
    ],
    out: Annotated[Path, option("--out", metavar="MODEL", help="Model file to write (.safetensors).")],
    root: Annotated[
        Path | None, option("--root", metavar="DIR", help="Folder to look in first for the data set.")
    ] = None,
    preset: Annotated[
        str | None, option("--preset", metavar="NAME", help="A preset, or your own FILE.toml.")
    ] = None,
    model: Annotated[str | None, option("--model", metavar="NAME", help="hgcn or gin.")] = None,
    capsules: Annotated[
        str | None,
        option("--parts", metavar="blocks", help="Ask capsules to be parts of the graph (docs/parts.md)."),
    ] = None,
    epochs: Annotated[int | None, option("--epochs", metavar="N", help="Passes over the graphs.")] = None,
    batch_size: Annotated[int | None, option("--batch-size", metavar="N", help="Graphs a step.")] = None,
    max_nodes: Annotated[
        int | None, option("--max-nodes", metavar="N", help="Most nodes of a graph; 0 keeps all of them.")
    ] = None,
    learning_rate: Annotated[
        float | None, option("--learning-rate", metavar="RATE", help="Adam's rate at the start.")
    ] = None,
    seed: Annotated[int, option("--seed", metavar="N", help="Same seed, same weights.")] = 0,
    validation: Annotated[
        float, option("--validation", metavar="SHARE", help="Graphs that choose the epoch; 0: the last.")
    ] = 0.1,
    smiles: Smiles = None,
    label: Label = None,
    bad: Bad = None,
    split: SplitBy = None,
    patience: Annotated[
        int | None,
        option(
            "--patience",
            metavar="N",
            min=0,
            help="Stop after N epochs without progress; 0: never. Default: 50 with preset default, else 0.",
        ),
    ] = None,
    class_weight: Annotated[
        str | None, option("--class-weight", metavar="balanced", help="Give all classes the same say.")
    ] = None,
    calibrate: Annotated[
        str,
        option("--calibrate", metavar="NAME", help="Probabilities: temperature, isotonic or none."),
    ] = "temperature",
    resume: Annotated[bool, option("--resume", help="Go on from the checkpoint, if there is one.")] = False,
    overwrite: Annotated[bool, option("--overwrite", help="Start anew and replace the files.")] = False,
    checkpoint_every: Annotated[
        int | None,
        option("--checkpoint-every", metavar="EPOCHS", min=1, help="Default: every 20 seconds."),
    ] = None,
    precision: Annotated[
        str | None, option("--precision", metavar="NAME", help="On a GPU: float32, tf32 or bf16.")
    ] = None,
    device: Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")] = "auto",
    as_json: Annotated[bool, option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a model on a data set and write it to a file.

    A share of the graphs chooses the epoch that is kept (docs/training.md).

    With --split, graphs to test on are set aside first and asked at the end.

    Stop with Ctrl-C, or by accident, and go on with --resume.
    """
    from graphcaps.cli.progress import training_progress
    from graphcaps.cli.run_options import configure
    from graphcaps.cli.training_files import TrainingFiles, write_training

    files = TrainingFiles(out)
    files.check(overwrite=overwrite, resume=resume)

    from graphcaps.training.final_training import FinalTraining

    loaded, parts = open_with_split(source, root, reader_options(smiles, label, bad=bad), split)
    _check_share(context, parts)
    config = configure(
        loaded.store.name,
        preset=preset,
        model=model,
        epochs=epochs,
        batch_size=batch_size,
        max_nodes=max_nodes,
        learning_rate=learning_rate,
        precision=precision,
        parts=capsules,
    )
    note(f"{len(loaded.store):,} graphs of {loaded.store.name}, {config.model}, preset: {config.source}.")
    if parts is not None:
        note(_told(parts))
    training = FinalTraining(
        loaded.store,
        config,
        seed=seed,
        validation=validation,
        device=device,
        patience=(_PATIENCE if patience is None and config.source == "default" else patience) or None,
        class_weight=_class_weight(
            class_weight, loaded.store if parts is None else loaded.store[parts.train]
        ),
        calibrate=_method(calibrate),
        split=parts,
    )
    if overwrite:
        files.clear()
    if resume and _go_on(training, files):
        report_training(files, training, as_json)
        return
    total = config.training.epochs
    try:
        title = f"{loaded.store.name} {config.model}"
        with training_progress(total, title, start=training.epoch, quiet=as_json) as update:
            for event in training.run(files.checkpoint, checkpoint_every):
                update(event)
        write_training(files, training, training.result(), loaded)
    except KeyboardInterrupt as error:
        done = training.save(files.checkpoint)
        note(f"Stopped after epoch {done} of {total}; go on with: {_command(context)}")
        raise typer.Exit(130) from error
    report_training(files, training, as_json)


def _check_share(context: typer.Context, parts: Split | None) -> None:
    """Refuses a share to draw where the graphs to choose by are given."""
    given = context.get_parameter_source("validation")
    asked = given is not None and given.name == "COMMANDLINE"
    if asked and parts is not None and parts.validation is not None:
        expected = "be left out where the split has validation graphs"
        raise ArgumentError("train", "--validation", expected, f"{parts.validation.numel()} ({parts.name})")


def _told(parts: Split) -> str:
    """The parts in words."""
    known = parts.validation
    chosen = " and to choose the epoch by" if known is None else f", {known.numel():,} to choose the epoch by"
    learned = f"{parts.train.numel():,} graphs to learn from{chosen}"
    return f"Split ({parts.name}): {learned}, {parts.test.numel():,} to test on."


def _class_weight(given: str | None, store: GraphStore) -> Tensor | None:
    from graphcaps.training.final_training import balanced_class_weights

    if given is None:
        return None
    if given != "balanced":
        raise ArgumentError("train", "--class-weight", "be 'balanced'", f"'{given}'")
    return None if store.y is None else balanced_class_weights(store.y, store.num_classes)


def _method(given: str) -> CalibrationMethod | None:
    if given == "none":
        return None
    if given not in ("temperature", "isotonic"):
        raise ArgumentError("train", "--calibrate", "be temperature, isotonic or none", f"'{given}'")
    return "temperature" if given == "temperature" else "isotonic"


def _go_on(training: FinalTraining, files: TrainingFiles) -> bool:
    """Brings the training to where its checkpoint is; true where the run has already ended."""
    if files.checkpoint.exists():
        training.resume(files.checkpoint)
        note(f"Going on after epoch {training.epoch}.")
        for told in training.notes:
            note(told)
        return False
    if files.finished(training.run_digest, training.config.training.epochs):
        note("This training has already ended; nothing is done.")
        return True
    if files.model.exists():
        raise DataError(
            files.model,
            "no file yet, or the model of this run",
            "another",
            fix="Replace it with --overwrite.",
        )
    note("There is no checkpoint: starting from the beginning.")
    return False


def _command(context: typer.Context) -> str:
    """The command line as it was given, with ``--resume``."""
    words = ["graphcaps", "train"]
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        value = context.params.get(parameter.name or "")
        if given is None or given.name != "COMMANDLINE" or parameter.name in ("resume", "overwrite"):
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        else:
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(value)]
    return shlex.join([*words, "--resume"])
