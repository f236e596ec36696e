"""What the page says about its figures, in plain sentences: which graphs they are of, and what they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.explanation.report.report_tables import confusion_matrix, reliability

__all__ = ["ReportModel", "describe"]


class ReportModel(Protocol):
    """What the page reads of a fitted model; :class:`graphcaps.FittedModel` has it."""

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def training(self) -> dict[str, Any]: ...

    def info(self) -> dict[str, Any]: ...


def describe(
    fitted: ReportModel | None,
    name: str,
    found: StoreExplanationData,
    trained: np.ndarray | None,
    history: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    """Sentences, facts and figures of the whole store, for the header of the data block.

    Args:
        fitted (FittedModel, optional): The model.
        name (str): Name of the data set.
        found (StoreExplanation): Every graph explained.
        trained (ndarray, optional): Whether the model was trained on each graph, where that is known.
        history (list, optional): A row per epoch, as ``graphcaps train`` writes it.
    """
    training: Mapping[str, Any] = {} if fitted is None else fitted.training
    kept = training.get("epoch")
    meta: dict[str, Any] = {
        "classes": list(found.class_names),
        "lead": _lead(fitted, name, found),
        "honest": _honest(training, name, trained, _probabilities(fitted)),
        "history": [_row(row) for row in history] if history else None,
        "kept": kept if isinstance(kept, int) else None,
        "confusion": None,
        "reliability": None,
        "ece": None,
        "counted": 0,
    }
    facts: list[list[str]] = []
    confidence = _confidence(found)
    known = np.full(len(found), -1) if found.true_class is None else found.true_class.numpy()
    # A graph without a number has no confidence to judge.
    rows = (known >= 0) & np.isfinite(confidence)
    if rows.any():
        predicted = found.predicted.numpy()
        right = (known == predicted)[rows]
        groups = reliability(confidence[rows], right)
        cells = confusion_matrix(known[rows], predicted[rows], len(found.class_names))
        meta |= {"confusion": cells.tolist(), "counted": int(rows.sum()), "ece": groups.ece}
        meta["reliability"] = [
            {"confidence": float(c), "accuracy": float(a), "count": int(n)}
            for c, a, n in zip(groups.confidence, groups.accuracy, groups.count, strict=True)
        ]
        facts += _accuracies(right, None if trained is None else trained[rows], _whose(training, name))
        facts.append(
            [
                "Calibration error",
                f"{100 * groups.ece:.1f}\u00a0%",
                "confidence against accuracy, same graphs",
            ]
        )
    share = training.get("validation_accuracy")
    if isinstance(share, int | float) and trained is None:
        graphs = training.get("validation_graphs")
        note = (
            f"of {graphs} graphs that chose the epoch; no test"
            if graphs
            else "of the graphs that chose the epoch"
        )
        facts.append(["Validation accuracy", f"{100 * share:.1f}\u00a0%", note])
    levels = " → ".join(str(own.size(-1)) for own in found.assignments[:-1])
    facts.append(["Capsules", levels or "–", f"per graph, for {len(found.class_names)} classes"])
    return meta | {"facts": facts}


def _lead(fitted: ReportModel | None, name: str, found: StoreExplanationData) -> str:
    nodes = int(found.node_ptr[-1])
    graphs = f"{len(found):,} graphs" if len(found) != 1 else "One graph"
    of = f" of {name}" if name else ""
    sentence = f"{graphs}{of}, {nodes:,} nodes, {len(found.class_names)} classes."
    if fitted is None:
        return sentence
    model = fitted.info()["model"]
    form = f", {model['formulation']} formulation" if model.get("formulation") else ""
    return f"{sentence} Model: {model['name']}{form}, {model['parameters']:,} parameters."


def _whose(training: Mapping[str, Any], name: str) -> str:
    """Whose graphs an accuracy is of, where the split is not known."""
    source = training.get("dataset")
    if source is None or source == name:
        return "graphs of this data set, among which are those it was trained on"
    return f"graphs of {name}; the model was trained on {source}"


def _probabilities(fitted: ReportModel | None) -> str:
    """How probabilities came about; nothing where only the explanation is known."""
    if fitted is None:
        return ""
    made = "Probabilities are lengths of class capsules divided by their sum"
    calibration = fitted.info().get("calibration")
    if calibration is None:
        return f" {made}; they are not calibrated."
    return f" {made}, calibrated ({calibration['method']}) on {calibration['graphs']:,} graphs held out."


def _honest(training: Mapping[str, Any], name: str, trained: np.ndarray | None, told: str) -> str:
    source = training.get("dataset")
    closing = f"{told} A picture shows how this model routed a graph, not what makes the class in nature."
    if not training:
        return closing.strip()
    if trained is not None:
        seen = int(trained.sum())
        start = (
            f"Of these graphs {seen:,} trained the model and {len(trained) - seen:,} did not. Where those chose the "
            "epoch, their accuracy is not that of new graphs either: cross-validation gives that figure."
        )
    elif source is None or source == name:
        start = (
            "These are graphs of the data set on which the model was trained, and those that it was trained on are "
            "among them: the model file does not say which. Figures here describe the model; they are no test of it. "
            "For an honest accuracy run: graphcaps evaluate."
        )
    else:
        start = f"The model was trained on {source}; these graphs are of {name}."
    return start + closing


def _accuracies(right: np.ndarray, trained: np.ndarray | None, whose: str) -> list[list[str]]:
    def fact(title: str, own: np.ndarray, words: str) -> list[str]:
        return [title, f"{100 * own.mean():.1f}\u00a0%", f"{int(own.sum()):,} of {len(own):,} {words}"]

    if trained is None or trained.all():
        return [fact("Accuracy", right, whose)]
    facts = [fact("Accuracy, not trained on", right[~trained], "graphs that did not train it")]
    if trained.any():
        facts.append(fact("Accuracy, trained on", right[trained], "graphs that trained it"))
    return facts


def _confidence(found: StoreExplanationData) -> np.ndarray:
    own: np.ndarray = found.probabilities.gather(1, found.predicted[:, None]).squeeze(1).double().numpy()
    return own


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of an epoch that the curves show."""
    names = ("epoch", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
    return {name: row[name] for name in names if _is_number(row.get(name))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
