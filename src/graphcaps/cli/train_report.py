"""What ``graphcaps train`` says of the model it made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcaps.cli.metrics import metric_rows
from graphcaps.cli.output import note, print_json, print_pairs, terminal
from graphcaps.errors import DataError

if TYPE_CHECKING:
    from graphcaps.cli.outputs import TrainFiles
    from graphcaps.evaluation.final import FinalTraining

__all__ = ["report_training"]

_NEAR = 0.05  # a training accuracy nearer to the share of the largest class than this has a warning


def report_training(files: TrainFiles, training: FinalTraining, as_json: bool) -> None:
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
    counts = training.source.y.cpu()[training.known.train.cpu()].bincount()
    share, right = float(counts.max() / counts.sum()), float(info["train_accuracy"])
    # Of 97 % there are no five points to go: half of what is left must be reached.
    if share == 1 or right > min(share + _NEAR, (1 + share) / 2):
        return ""
    early = info.get("epochs_run", info["epochs"]) < info["epochs"]
    return (
        f"The model has hardly learned: {100 * right:.1f} % of its training graphs are right, "
        f"{100 * share:.1f} % are of the largest class. Train longer ({'--patience 0' if early else '--epochs'})."
    )
