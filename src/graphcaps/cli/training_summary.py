"""What a training has reached, for ``graphcaps train``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import (
    describe_restarts,
    metric_rows,
    note,
    print_json,
    print_pairs,
    terminal,
)
from graphcaps.errors import DataError, count_noun

if TYPE_CHECKING:
    from graphcaps.cli.training_files import TrainingFiles
    from graphcaps.training.single_training import SingleTraining

__all__ = ["show_training"]


def show_training(files: TrainingFiles, training: SingleTraining, as_json: bool) -> None:
    """Prints a summary of the written files, and warnings if the model has hardly learned or its capsules collapsed."""
    from graphcaps.nn.capsule_use import CapsuleUse
    from graphcaps.training.baseline import Baseline
    from graphcaps.training.learning_warning import training_warning

    try:
        content = json.loads(files.config.read_bytes())
        listed = content.get("baseline")
        compared = None if listed is None else Baseline(**listed)
        content = {name: content[name] for name in ("config", "data", "training", "versions")}
        content["training"]["rule"]
        capsules = content["training"].get("capsule_use")
        use = None if capsules is None else CapsuleUse(**capsules)
    except (ValueError, KeyError, TypeError) as error:
        fix = "Train again with --overwrite."
        raise DataError(files.config, "the file is not the configuration of a model", fix=fix) from error
    info = content["training"]
    if warning := training_warning(training, info, epochs="--epochs", patience="--patience 0"):
        note(warning)
    if use is not None and use.collapsed:
        note(use.warning)
    paths = {"model": str(files.model), "history": str(files.history), "config": str(files.config)}
    if as_json:
        details = {name: content[name] for name in ("data", "training", "versions")}
        print_json(paths | {"resolved": content["config"]} | details | {"baseline": listed})
        return
    epochs = info.get("epochs_run", info["epochs"])
    has_epochs = training.has_epochs
    members = info.get("members")
    kept = f"epoch {info['epoch']}"
    if members is not None:
        kept = f"epochs {', '.join(str(member['epoch']) for member in members)}"
    how = f"{kept} of {epochs}: {info['rule']}" if has_epochs else info["rule"]
    rows = [("model", paths["model"])]
    if members is not None:
        seeds = f"seeds {members[0]['seed']} to {members[-1]['seed']}"
        rows.append(("committee", f"{len(members)} members, {seeds}"))
    if info.get("restarts") is not None:
        rows.append(("restarts", describe_restarts(info["restarts"])))
    rows.append(("selected" if has_epochs else "training", how))
    subject = "the model" if info.get("companion") is None else "the network; accuracy of the network alone"
    rows.append(("training accuracy", f"{_accuracy(info, 'train')} that trained {subject}"))
    if info["validation_accuracy"] is not None:
        accuracy = _accuracy(info, "validation")
        caution = (
            "this set selected the epoch, so it is not a test"
            if info["rule"].startswith(("lowest", "highest"))
            else "not a test set"
        )
        if info.get("restarts") is not None:
            caution = "this set selected the seed, so it is not a test"
        if not has_epochs:
            calibrated = "; the calibration is fitted to them" if training.calibrate is not None else ""
            selected = " selected on " in info["rule"]
            caution = ("they selected options" if selected else "not used by the fit") + calibrated
        rows.append(("validation accuracy", f"{accuracy}; {caution}"))
        metrics = metric_rows(info.get("validation_metrics")) if "split" not in info else []
        rows += [(f"validation {name}", value) for name, value in metrics]
        rows += _caution_rows(info, "validation") if metrics else []
    rows += _companion_rows(info)
    rows += _test_rows(info, is_molecules=training.source.featurizer is not None)
    if use is not None:
        rows.append(("capsules in use", f"{use.in_use} of {use.capsules}"))
    if compared is not None:
        rows.append(("baseline", compared.sentence))
    rows += [("time", f"{info['seconds']:.1f} s"), ("also written", f"{paths['history']}, {paths['config']}")]
    print_pairs(terminal(), rows)


def _accuracy(info: dict[str, Any], subset: str) -> str:
    return f"{100 * info[f'{subset}_accuracy']:.1f} % of {count_noun(info[f'{subset}_graphs'], 'graph')}"


def _companion_rows(info: dict[str, Any]) -> list[tuple[str, str]]:
    """Weights of the parts of the model, and what each part reaches on the validation graphs."""
    found = info.get("companion")
    if found is None:
        return []
    names, weights = found["names"], found["weights"]
    parts = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
    graphs = count_noun(found["graphs"], "graph")
    where = f"out-of-fold predictions of {graphs}" if found["stacked"] else f"{graphs} of the validation set"
    losses = [entry["log_loss"] for entry in found["validation"]]
    each = ", ".join(f"{name} {loss:.3f}" for name, loss in zip([*names, "mixture"], losses, strict=True))
    return [("weights", f"{parts}; chosen on {where}"), ("", f"validation log loss: {each}")]


def _test_rows(info: dict[str, Any], *, is_molecules: bool) -> list[tuple[str, str]]:
    """Results on the test graphs of a split."""
    if info.get("test_accuracy") is None:
        return []
    accuracy = _accuracy(info, "test")
    rows = [("test accuracy", f"{accuracy}, which were not used in training ({info['split']})")]
    rows += [(f"test {name}", value) for name, value in metric_rows(info["test_metrics"])]
    rows += _caution_rows(info, "test")
    if count := info.get("test_graphs_with_new_labels"):
        read_as = "read as 'other'" if is_molecules else "encoded as zeros"
        unit = "molecule" if is_molecules else "graph"
        have = f"1 test {unit} has" if count == 1 else f"{count:,} test {unit}s have"
        rows.append(("unseen values", f"{have} values that no training {unit} has, {read_as}"))
    return rows


def _caution_rows(info: dict[str, Any], part: str) -> list[tuple[str, str]]:
    """A caution about metrics of a part with few graphs of a class, or of one class only."""
    from graphcaps.metrics import metric_caution

    counts = info.get(f"{part}_class_counts")
    caution = metric_caution(f"the {part} set", counts) if counts else ""
    return [("", caution)] if caution else []
