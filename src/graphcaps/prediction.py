"""Predictions graph by graph: one that cannot be read says why, and the rest are predicted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphcaps.data.misfits import Unseen, check_columns, find_misfits
from graphcaps.data.store import GraphStore
from graphcaps.fitted import FittedModel, probabilities

__all__ = ["Predictions", "predict_each"]

_NO_NUMBER = "the model gives no number for it; check its attributes for extreme values"


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says about each of G graphs.

    Args:
        class_names (tuple): The O classes of the model.
        scores_are (str): ``"lengths"`` of class capsules, or ``"logits"``.
        scores (ndarray): ``[G, O]``, NaN for a graph that could not be predicted.
        probabilities (ndarray): ``[G, O]``, NaN likewise.
        errors (tuple): Per graph the reason why it could not be predicted, or "".
        true_classes (tuple, optional): Name of each graph's own class, where the source has them.
    """

    class_names: tuple[str, ...]
    scores_are: str
    scores: np.ndarray
    probabilities: np.ndarray
    errors: tuple[str, ...]
    true_classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def num_failed(self) -> int:
        """Graphs without a prediction."""
        return sum(bool(error) for error in self.errors)

    @property
    def predicted(self) -> list[str | None]:
        """Class of each graph; ``None`` where there is no prediction."""
        best = np.nan_to_num(self.probabilities, nan=-1.0).argmax(-1)
        pairs = zip(self.errors, best, strict=True)
        return [None if error else self.class_names[index] for error, index in pairs]

    @property
    def accuracy(self) -> float | None:
        """Share of the predicted graphs whose own class was found; ``None`` where none has one."""
        if self.true_classes is None or self.num_failed == len(self):
            return None
        pairs = zip(self.predicted, self.true_classes, strict=True)
        return sum(found == true for found, true in pairs) / (len(self) - self.num_failed)

    def summary(self) -> dict[str, Any]:
        """Counts in JSON's own types: graphs, failures, how often each class was predicted, accuracy."""
        predicted = self.predicted
        return {
            "graphs": len(self),
            "predicted": len(self) - self.num_failed,
            "failed": self.num_failed,
            "class_counts": {name: predicted.count(name) for name in self.class_names},
            "accuracy": self.accuracy,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per graph in JSON's own types; graphs are counted from 1, as in TU files."""
        kind = "lengths" if self.scores_are == "lengths" else "scores"
        for index, found in enumerate(self.predicted):
            shares, scores = self.probabilities[index].tolist(), self.scores[index].tolist()
            row: dict[str, Any] = {"graph": index + 1, "class": found}
            row["probability"] = None if found is None else max(shares)
            for name, values in (("probabilities", shares), (kind, scores)):
                row[name] = None if found is None else dict(zip(self.class_names, values, strict=True))
            if self.true_classes is not None:
                row["true_class"] = self.true_classes[index]
            row["error"] = self.errors[index] or None
            yield row

    def to_csv(self) -> str:
        """A table with a heading, in UTF-8 text; a graph without a prediction has empty cells."""
        kind = "length" if self.scores_are == "lengths" else "score"
        heading = ["graph", "class", "probability"]
        heading += [f"probability[{name}]" for name in self.class_names]
        heading += [f"{kind}[{name}]" for name in self.class_names]
        heading += [] if self.true_classes is None else ["true_class"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*heading, "error"])
        for row in self.rows():
            cells = [row["graph"], row["class"] or "", _number(row["probability"])]
            for values in (row["probabilities"], row[f"{kind}s"]):
                cells += [_number(value) for value in (values or dict.fromkeys(self.class_names)).values()]
            cells += [] if self.true_classes is None else [row["true_class"]]
            writer.writerow([*cells, row["error"] or ""])
        return text.getvalue()


def predict_each(fitted: FittedModel, store: GraphStore, *, unseen: Unseen = "refuse") -> Predictions:
    """Predicts every graph that the model can read, and says why of each that it cannot.

    Args:
        fitted (FittedModel): A trained model.
        store (GraphStore): Graphs, with classes or without.
        unseen (str): As in :meth:`FittedModel.scores`.

    Raises:
        ArgumentError: If the store as a whole lacks the columns that the model reads.
    """
    check_columns(store, fitted.recipe, "predict")
    errors = find_misfits(store, fitted.recipe, unseen=unseen, dtype=fitted.dtype)
    sound = torch.tensor([graph for graph in range(len(store)) if graph not in errors], dtype=torch.long)
    scores = torch.full((len(store), len(fitted.class_names)), float("nan"), dtype=fitted.dtype)
    if sound.numel():
        scores[sound] = fitted.scores(store if not errors else store[sound], unseen=unseen)
    broken = ~scores.isfinite().all(-1)
    errors |= {graph: errors.get(graph, _NO_NUMBER) for graph in broken.nonzero().flatten().tolist()}
    scores[broken] = float("nan")
    shares = probabilities(scores, fitted.scores_are)
    shares[broken.numpy()] = np.nan
    return Predictions(
        fitted.class_names,
        fitted.scores_are,
        scores.numpy(),
        shares,
        tuple(errors.get(graph, "") for graph in range(len(store))),
        None if store.y is None else tuple(store.class_names[index] for index in store.y.tolist()),
    )


def _number(value: float | None) -> str:
    """Nine digits give a float32 back, and read well."""
    return "" if value is None else f"{value:.9g}"
