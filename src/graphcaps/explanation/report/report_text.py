"""Texts and metrics of the page header: which graphs the numbers refer to, and their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.explanation.report.report_tables import confusion_matrix, reliability

__all__ = ["ReportModel", "describe"]


class ReportModel(Protocol):
    """The members of a :class:`graphcaps.FittedModel` that the page reads."""

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def training(self) -> dict[str, Any]: ...

    def info(self) -> dict[str, Any]: ...


def describe(
    fitted: ReportModel | None,
    name: str,
    explanations: StoreExplanationData,
    trained: np.ndarray | None,
    history: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    """Texts and metrics over the whole store, for the header of the data block.

    Args:
        fitted (FittedModel, optional): The model.
        name (str): Name of the data set.
        explanations (StoreExplanation): Explanations of all graphs.
        trained (ndarray, optional): Whether each graph was in the training set, if known.
        history (list, optional): One row per epoch, as ``graphcaps train`` writes it.
    """
    training: Mapping[str, Any] = {} if fitted is None else fitted.training
    best_epoch = training.get("epoch")
    meta: dict[str, Any] = {
        "classes": list(explanations.class_names),
        "lead": _lead(fitted, name, explanations),
        "caveats": _caveats(training, name, trained, _probabilities(fitted)),
        "history": [_row(row) for row in history] if history else None,
        "best_epoch": best_epoch if isinstance(best_epoch, int) else None,
        "confusion": None,
        "reliability": None,
        "ece": None,
        "num_labelled": 0,
    }
    facts: list[list[str]] = []
    confidence = _confidence(explanations)
    true = (
        np.full(len(explanations), -1) if explanations.true_class is None else explanations.true_class.numpy()
    )
    # Graphs with non-finite probabilities have no confidence.
    rows = (true >= 0) & np.isfinite(confidence)
    if rows.any():
        predicted = explanations.predicted.numpy()
        correct = (true == predicted)[rows]
        bins = reliability(confidence[rows], correct)
        cells = confusion_matrix(true[rows], predicted[rows], len(explanations.class_names))
        meta |= {"confusion": cells.tolist(), "num_labelled": int(rows.sum()), "ece": bins.ece}
        meta["reliability"] = [
            {"confidence": float(c), "accuracy": float(a), "count": int(n)}
            for c, a, n in zip(bins.confidence, bins.accuracy, bins.count, strict=True)
        ]
        facts += _accuracies(correct, None if trained is None else trained[rows], _source(training, name))
        facts.append(
            [
                "Calibration error",
                f"{100 * bins.ece:.1f}\u00a0%",
                "mean difference of confidence and accuracy, same graphs",
            ]
        )
    accuracy = training.get("validation_accuracy")
    if isinstance(accuracy, int | float) and trained is None:
        graphs = training.get("validation_graphs")
        note = (
            f"{graphs} validation graphs, used to select the epoch"
            if graphs
            else "validation graphs, used to select the epoch"
        )
        facts.append(["Validation accuracy", f"{100 * accuracy:.1f}\u00a0%", note])
    levels = " → ".join(str(assignment.size(-1)) for assignment in explanations.assignments[:-1])
    facts.append(["Capsules", levels or "–", f"per graph, for {len(explanations.class_names)} classes"])
    return meta | {"facts": facts}


def _lead(fitted: ReportModel | None, name: str, explanations: StoreExplanationData) -> str:
    nodes = int(explanations.node_ptr[-1])
    graphs = f"{len(explanations):,} graphs" if len(explanations) != 1 else "One graph"
    of = f" of {name}" if name else ""
    sentence = f"{graphs}{of}, {nodes:,} nodes, {len(explanations.class_names)} classes."
    if fitted is None:
        return sentence
    model = fitted.info()["model"]
    form = f", {model['formulation']} formulation" if model.get("formulation") else ""
    return f"{sentence} Model: {model['name']}{form}, {model['parameters']:,} parameters."


def _source(training: Mapping[str, Any], name: str) -> str:
    """Which graphs an accuracy refers to, if the split is unknown."""
    dataset = training.get("dataset")
    if dataset is None or dataset == name:
        return "graphs of this data set, training graphs included"
    return f"graphs of {name}; the model was trained on {dataset}"


def _probabilities(fitted: ReportModel | None) -> str:
    """How the probabilities were computed; "" without a model."""
    if fitted is None:
        return ""
    computed = "Probabilities are the lengths of the class capsules divided by their sum"
    calibration = fitted.info().get("calibration")
    if calibration is None:
        return f" {computed}; they are not calibrated."
    return f" {computed}, calibrated ({calibration['method']}) on {calibration['graphs']:,} held-out graphs."


def _caveats(training: Mapping[str, Any], name: str, trained: np.ndarray | None, probabilities: str) -> str:
    source = training.get("dataset")
    closing = f"{probabilities} A drawing shows how this model routed a graph, not what causes the class."
    if not training:
        return closing.strip()
    if trained is not None:
        seen = int(trained.sum())
        start = (
            f"Of these graphs, {seen:,} are training graphs and {len(trained) - seen:,} are not. If the latter were "
            "used to select the epoch, their accuracy is optimistic too; cross-validation gives the held-out accuracy."
        )
    elif source is None or source == name:
        start = (
            "These graphs are from the training data set and include the training graphs; the model file does not "
            "record which. The metrics here describe the model and are not a test. "
            "For held-out accuracy run: graphcaps evaluate."
        )
    else:
        start = f"The model was trained on {source}; these graphs are from {name}."
    return start + closing


def _accuracies(correct: np.ndarray, trained: np.ndarray | None, source: str) -> list[list[str]]:
    def fact(title: str, values: np.ndarray, note: str) -> list[str]:
        return [
            title,
            f"{100 * values.mean():.1f}\u00a0%",
            f"{int(values.sum()):,} of {len(values):,} {note}",
        ]

    if trained is None or trained.all():
        return [fact("Accuracy", correct, source)]
    facts = [fact("Accuracy, other graphs", correct[~trained], "graphs outside the training set")]
    if trained.any():
        facts.append(fact("Accuracy, training graphs", correct[trained], "training graphs"))
    return facts


def _confidence(explanations: StoreExplanationData) -> np.ndarray:
    values = explanations.probabilities.gather(1, explanations.predicted[:, None]).squeeze(1).double()
    return np.asarray(values.numpy())


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one epoch that the training curves show."""
    names = ("epoch", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
    return {name: row[name] for name in names if _is_number(row.get(name))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
