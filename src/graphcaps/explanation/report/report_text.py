"""Texts and metrics of the page: on top those of graphs that did not train the model, then the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from graphcaps.explanation.explanation_data import NO_MEANS_NOTE, StoreExplanationData
from graphcaps.explanation.report.report_tables import confusion_matrix
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.metrics import MIN_CALIBRATION_GRAPHS, accuracy_caution, reliability, wilson_interval

__all__ = ["describe", "describe_unlabelled", "measure_sets", "measured_accuracy"]


def describe(
    fitted: FittedModel | None,
    name: str,
    explanations: StoreExplanationData,
    used_in: Sequence[str | None] | None,
    history: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    """Texts and metrics over the whole store, for the header of the data block.

    ``facts`` are about graphs that did not train the model, ``other_facts`` about the others: each has a title, a
    value, a note and a caution, which may be "". ``sets`` holds confusion matrix and reliability of each set of graphs,
    in the same order.

    Args:
        fitted (FittedModel, optional): The model.
        name (str): Name of the data set.
        explanations (StoreExplanation): Explanations of all graphs.
        used_in (sequence, optional): Part of the training data that each graph was in, as
            :meth:`graphcaps.FittedModel.used_in` gives it, if known.
        history (list, optional): One row per epoch, as ``graphcaps train`` writes it.
    """
    training: Mapping[str, Any] = {} if fitted is None else fitted.training
    best_epoch = training.get("epoch")
    sets = measure_sets(explanations, used_in)
    held_out = [measured for measured in sets if measured["name"] not in ("training", "left-out")][:1]
    others = [measured for measured in sets if measured not in held_out]
    levels = " → ".join(str(assignment.size(-1)) for assignment in explanations.assignments[:-1])
    shape = ["Capsules", levels or "–", f"per graph, for {len(explanations.class_names)} classes", ""]
    use = explanations.capsule_use
    little = "almost all nodes belong to it: parts say little"
    shown = little if use.collapsed else "at the lowest level, over all graphs"
    in_use = ["Capsules in use", f"{use.in_use} of {use.capsules}", shown, ""]
    return {
        "classes": list(explanations.class_names),
        "members": 1 if explanations.member_predicted is None else len(explanations.member_predicted),
        "parts": list(explanations.part_names),
        "lead": _lead(fitted, name, explanations),
        "caveats": _caveats(
            training, name, used_in, _probabilities(fitted), describe_unlabelled(explanations)
        )
        + ("" if explanations.mean_coefficients is not None else f" {NO_MEANS_NOTE}"),
        "history": [_row(row) for row in history] if history else None,
        "train_measured": _train_measured(fitted),
        "best_epoch": best_epoch if isinstance(best_epoch, int) else None,
        "sets": sets,
        "min_calibration_graphs": MIN_CALIBRATION_GRAPHS,
        "facts": [*_headline(held_out, sets, training), shape, in_use],
        "capsule_use": asdict(use),
        "other_facts": [_accuracy_fact(measured) for measured in others],
        "other_title": "Other graphs"
        if any(measured["name"] == "new" for measured in others)
        else "Not a test: graphs that trained or selected the model",
    }


_SETS = {  # title of a set, title of its accuracy, and what its graphs are, best evidence first
    "test": ("Test graphs", "Test accuracy", "test graphs, which training did not use"),
    "new": ("New graphs", "Accuracy on new graphs", "graphs that are not in the training data"),
    "unknown": (
        "All graphs",
        "Accuracy",
        "graphs, training graphs possibly included: the model file has no record of them",
    ),
    "validation": (
        "Validation graphs",
        "Validation accuracy",
        "validation graphs, which selected the epoch or calibrated the probabilities",
    ),
    "training": (
        "Training graphs",
        "Training accuracy",
        "training graphs: says nothing about new graphs",
    ),
    "left-out": (
        "Left-out graphs",
        "Accuracy on left-out graphs",
        "graphs that training left out, since copies have different labels",
    ),
}


def measure_sets(
    explanations: StoreExplanationData, used_in: Sequence[str | None] | None
) -> list[dict[str, Any]]:
    """Accuracy, confusion matrix and reliability of each set of graphs that has labelled graphs.

    Args:
        explanations, used_in: As in :func:`describe`.

    Returns:
        list: Sets in the order of the evidence that they give: test graphs, new graphs, validation graphs, training
        graphs, left-out graphs; or all graphs together if ``used_in`` is ``None``.
    """
    if explanations.true_class is None:
        return []
    true, predicted = explanations.true_class.numpy(), explanations.predicted.numpy()
    confidence = _confidence(explanations)
    labelled = (true >= 0) & np.isfinite(
        confidence
    )  # graphs with non-finite probabilities have no confidence
    parts = np.array(["unknown"] * len(true) if used_in is None else [part or "new" for part in used_in])
    sets = []
    for name, (title, accuracy_title, note) in _SETS.items():
        rows = labelled & (parts == name)
        if not rows.any():
            continue
        correct = (true == predicted)[rows]
        bins = reliability(confidence[rows], correct)
        sets.append(
            {
                "name": name,
                "title": title,
                "accuracy_title": accuracy_title,
                "note": note,
                "graphs": int(rows.sum()),
                "correct": int(correct.sum()),
                "ece": bins.ece if rows.sum() >= MIN_CALIBRATION_GRAPHS else None,
                "confusion": confusion_matrix(
                    true[rows], predicted[rows], len(explanations.class_names)
                ).tolist(),
                "reliability": [
                    {"confidence": float(c), "accuracy": float(a), "count": int(n)}
                    for c, a, n in zip(bins.confidence, bins.accuracy, bins.count, strict=True)
                ],
            }
        )
    return sets


def describe_unlabelled(explanations: StoreExplanationData) -> str:
    """A sentence on graphs without a known class where others have one, else ""."""
    if explanations.true_class is None:
        return ""
    unknown, graphs = int((explanations.true_class < 0).sum()), len(explanations)
    if not unknown or unknown == graphs:
        return ""
    have = "1 graph has" if unknown == 1 else f"{unknown:,} graphs have"
    return (
        f"{have} no label among the classes of the model; accuracies are over the other {graphs - unknown:,}."
    )


def measured_accuracy(measured: Mapping[str, Any]) -> tuple[str, str, str]:
    """Accuracy of a set of :func:`measure_sets`: the value, its count with the interval, and a caution or "".

    The interval is left out for training graphs and for graphs with contradicting labels, whose accuracy estimates
    nothing.
    """
    correct, graphs = measured["correct"], measured["graphs"]
    note = measured["note"] if graphs != 1 else measured["note"].replace("graphs", "graph", 1)
    value, count = _percent(correct / graphs), f"{correct:,} of {graphs:,} {note}"
    if measured["name"] in ("training", "left-out"):
        return value, count, ""
    return value, f"{count}; {_interval(correct, graphs)}", accuracy_caution(graphs)


def _interval(correct: int, graphs: int) -> str:
    low, high = wilson_interval(correct, graphs)
    return f"95\u00a0% interval {_percent(low)} to {_percent(high)}"


def _headline(
    held_out: list[dict[str, Any]], sets: list[dict[str, Any]], training: Mapping[str, Any]
) -> list[list[str]]:
    """Facts about graphs that did not train the model; the model file may hold a test accuracy of other graphs."""
    facts = []
    accuracy, graphs = training.get("test_accuracy"), training.get("test_graphs")
    has_test_set = any(measured["name"] == "test" for measured in sets)
    if not has_test_set and isinstance(accuracy, int | float) and isinstance(graphs, int) and graphs:
        correct = round(accuracy * graphs)
        count = (
            f"{correct:,} of {graphs:,} test graphs when the model was trained; {_interval(correct, graphs)}"
        )
        facts.append(["Test accuracy", _percent(accuracy), count, accuracy_caution(graphs)])
    if held_out:
        facts.append(_accuracy_fact(held_out[0]))
        if held_out[0]["ece"] is not None:
            note = "mean difference of confidence and accuracy, same graphs"
            facts.append(["Calibration error", _percent(held_out[0]["ece"]), note, ""])
    elif sets and not facts:
        facts.append(["Accuracy", "no figure", "none of the graphs is new to this model", ""])
    return facts


def _accuracy_fact(measured: Mapping[str, Any]) -> list[str]:
    return [measured["accuracy_title"], *measured_accuracy(measured)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _lead(fitted: FittedModel | None, name: str, explanations: StoreExplanationData) -> str:
    nodes = int(explanations.node_ptr[-1])
    graphs = f"{len(explanations):,} graphs" if len(explanations) != 1 else "One graph"
    of = f" of {name}" if name else ""
    sentence = f"{graphs}{of}, {nodes:,} nodes, {len(explanations.class_names)} classes."
    if fitted is None:
        return sentence
    model = fitted.info()["model"]
    form = f", {model['formulation']} formulation" if model.get("formulation") else ""
    committee = ""
    if "members" in model:
        committee = (
            f" Committee of {model['members']} members: node and edge scores are means over the members, capsules are "
            "those of the first member."
        )
    companion = _companion(model.get("companion"), explanations)
    return (
        f"{sentence} Model: {model['name']}{form}, {model['parameters']:,} parameters.{committee}{companion}"
    )


def _companion(found: Mapping[str, Any] | None, explanations: StoreExplanationData) -> str:
    """What the answers of a model with companions are made of; "" for a network alone."""
    if found is None or explanations.network_share is None:
        return ""
    weights = [f"network {found['network_weight']:.2f}"]
    weights += [f"{each['name']} {each['weight']:.2f}" for each in found["models"]]
    share = _percent(float(explanations.network_share.mean()))
    return (
        f" Companion: {', '.join(each['name'] for each in found['models'])}. Probabilities are a weighted mean "
        f"({', '.join(weights)}); the network contributes {share} of the probability of the predicted class, on "
        "average. Scores, capsules and lengths are of the network alone."
    )


def _probabilities(fitted: FittedModel | None) -> str:
    """How the probabilities were computed; "" without a model."""
    if fitted is None:
        return ""
    computed = "Probabilities are the lengths of the class capsules divided by their sum"
    if "companion" in fitted.info()["model"]:
        computed = "Probabilities of the network are the lengths of the class capsules divided by their sum"
    calibration = fitted.info().get("calibration")
    if calibration is None:
        return f" {computed}; they are not calibrated."
    return f" {computed}, calibrated ({calibration['method']}) on {calibration['graphs']:,} held-out graphs."


def _train_measured(fitted: FittedModel | None) -> str:
    """How the loss and accuracy of training graphs in the history were measured."""
    arguments = {} if fitted is None else fitted.info()["model"].get("arguments", {})
    return f"during the epoch{', with dropout' if arguments.get('dropout') else ''}"


def _caveats(
    training: Mapping[str, Any],
    name: str,
    used_in: Sequence[str | None] | None,
    probabilities: str,
    unlabelled: str,
) -> str:
    unlabelled = f" {unlabelled}" if unlabelled else ""
    closing = f"{unlabelled}{probabilities} A drawing shows how this model routed a graph, not what causes the class."
    if not training:
        return closing.strip()
    if used_in is not None:
        counts = {
            part: sum(entry == part for entry in used_in)
            for part in ("test", "validation", "training", "left-out")
        }
        listed = ", ".join(f"{count:,} {part}" for part, count in counts.items() if count)
        rest = len(used_in) - sum(counts.values())
        new = f"{rest:,} new" if rest else ""
        start = f"Of these graphs: {', '.join(filter(None, [listed, new]))}."
        if counts["training"]:
            start += " Graphs that equal a training graph count as training graphs."
        if counts["training"] == len(used_in):
            start += " For held-out accuracy run: graphcaps evaluate."
        return start + closing
    source = training.get("dataset")
    if source is None or source == name:
        start = (
            "These graphs are from the training data set and include the training graphs; the model file does not "
            "record which. The metrics here describe the model and are not a test. "
            "For held-out accuracy run: graphcaps evaluate."
        )
    else:
        start = f"The model was trained on {source}; these graphs are from {name}."
    return start + closing


def _confidence(explanations: StoreExplanationData) -> np.ndarray:
    values = explanations.probabilities.gather(1, explanations.predicted[:, None]).squeeze(1).double()
    return np.asarray(values.numpy())


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one epoch that the training curves show."""
    names = ("epoch", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
    return {name: row[name] for name in names if _is_number(row.get(name))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
