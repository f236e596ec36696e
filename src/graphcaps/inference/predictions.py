"""Predictions graph by graph: one that cannot be read says why, and the rest are predicted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch

from graphcaps.data.features.compatibility import UnseenPolicy, check_columns, find_incompatible
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.metrics import class_metrics

__all__ = ["Predictions", "predict_each", "with_bad_rows"]

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
        true_classes (tuple, optional): Name of each graph's own class, where the source has them; "" where one
            is not known.
        abstain_below (float, optional): A graph whose most probable class is less probable gets no class.
        unlike (tuple, optional): Per graph how it is unlike the training graphs, or ""; ``None`` where the
            model knows nothing of these.
        ids (tuple, optional): What the source calls each graph.
    """

    class_names: tuple[str, ...]
    scores_are: str
    scores: np.ndarray
    probabilities: np.ndarray
    errors: tuple[str, ...]
    true_classes: tuple[str, ...] | None = None
    abstain_below: float | None = None
    unlike: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def num_failed(self) -> int:
        """Graphs without a prediction."""
        return sum(bool(error) for error in self.errors)

    @property
    def predicted(self) -> list[str | None]:
        """Class of each graph; ``None`` where there is no prediction, or the model abstains."""
        best = np.nan_to_num(self.probabilities, nan=-1.0).argmax(-1)
        silent = zip(self.errors, self.abstained, best, strict=True)
        return [None if error or quiet else self.class_names[index] for error, quiet, index in silent]

    @property
    def abstained(self) -> list[bool]:
        """Whether the model abstains, for each graph that it can read."""
        if self.abstain_below is None:
            return [False] * len(self)
        sure = np.nan_to_num(self.probabilities, nan=2.0).max(-1)
        return [bool(share < self.abstain_below) for share in sure]

    @property
    def accuracy(self) -> float | None:
        """Share of the graphs that got a class whose own it is; ``None`` where none has one."""
        given = [found is not None for found in self.predicted]
        if self.true_classes is None or not any(given):
            return None
        pairs = zip(self.predicted, self.true_classes, strict=True)
        return sum(found == true for found, true in pairs) / sum(given)

    @property
    def metrics(self) -> dict[str, float | None] | None:
        """Figures of all graphs that could be read, abstentions too; ``None`` where no class is known.

        Graphs of a class that the model does not know are left out: it could not have named it.
        """
        if self.true_classes is None:
            return None
        index = {name: place for place, name in enumerate(self.class_names)}
        told = zip(self.errors, self.true_classes, strict=True)
        rows = [row for row, (error, true) in enumerate(told) if not error and true in index]
        if not rows:
            return None
        y = np.array([index[self.true_classes[row]] for row in rows])
        return class_metrics(y, self.probabilities[rows])

    def summary(self) -> dict[str, Any]:
        """Counts in JSON's own types: graphs, failures, how often each class was predicted, and figures."""
        predicted = self.predicted
        return {
            "graphs": len(self),
            "predicted": sum(found is not None for found in predicted),
            "failed": self.num_failed,
            "abstained": sum(self.abstained),
            "unlike": None if self.unlike is None else sum(map(bool, self.unlike)),
            "class_counts": {name: predicted.count(name) for name in self.class_names},
            "accuracy": self.accuracy,
            "metrics": self.metrics,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per graph in JSON's own types; graphs are counted from 1, as in TU files."""
        kind = "lengths" if self.scores_are == "lengths" else "scores"
        abstained = self.abstained
        for index, found in enumerate(self.predicted):
            shares, scores = self.probabilities[index].tolist(), self.scores[index].tolist()
            row: dict[str, Any] = {"graph": index + 1}
            row |= {} if self.ids is None else {"id": self.ids[index]}
            row["class"] = found
            failed = bool(self.errors[index])
            row["probability"] = None if failed else max(shares)
            for name, values in (("probabilities", shares), (kind, scores)):
                row[name] = None if failed else dict(zip(self.class_names, values, strict=True))
            row["abstained"] = abstained[index]
            row["unlike"] = None if self.unlike is None else self.unlike[index] or None
            if self.true_classes is not None:
                row["true_class"] = self.true_classes[index] or None
            row["error"] = self.errors[index] or None
            yield row

    def to_csv(self) -> str:
        """A table with a heading, in UTF-8 text; a graph without a prediction has empty cells."""
        kind = "length" if self.scores_are == "lengths" else "score"
        heading = ["graph", *([] if self.ids is None else ["id"]), "class", "probability"]
        heading += [f"probability[{name}]" for name in self.class_names]
        heading += [f"{kind}[{name}]" for name in self.class_names]
        heading += ["abstained", "unlike"]
        heading += [] if self.true_classes is None else ["true_class"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*heading, "error"])
        for row in self.rows():
            cells = [row["graph"], *([] if self.ids is None else [row["id"]])]
            cells += [row["class"] or "", _number(row["probability"])]
            for values in (row["probabilities"], row[f"{kind}s"]):
                cells += [_number(value) for value in (values or dict.fromkeys(self.class_names)).values()]
            cells += ["yes" if row["abstained"] else "", row["unlike"] or ""]
            cells += [] if self.true_classes is None else [row["true_class"] or ""]
            writer.writerow([*cells, row["error"] or ""])
        return text.getvalue()


def predict_each(
    fitted: FittedModel,
    store: GraphStore,
    *,
    unseen: UnseenPolicy = "refuse",
    abstain_below: float | None = None,
    ids: tuple[str, ...] | None = None,
) -> Predictions:
    """Predicts every graph that the model can read, and says why of each that it cannot.

    Args:
        fitted (FittedModel): A trained model.
        store (GraphStore): Graphs, with classes or without.
        unseen (str): As in :meth:`FittedModel.scores`.
        abstain_below (float, optional): Graphs whose most probable class is less probable get none.
        ids (tuple, optional): What the source calls each graph; a column of its own.

    Raises:
        ArgumentError: If the store as a whole lacks the columns that the model reads.
    """
    if abstain_below is not None and not 0 <= abstain_below <= 1:
        raise ArgumentError("predict", "abstain_below", "be from 0 to 1", abstain_below)
    check_columns(store, fitted.recipe, "predict")
    errors = find_incompatible(store, fitted.recipe, unseen=unseen, dtype=fitted.dtype)
    sound = torch.tensor([graph for graph in range(len(store)) if graph not in errors], dtype=torch.long)
    scores = torch.full((len(store), len(fitted.class_names)), float("nan"), dtype=fitted.dtype)
    if sound.numel():
        scores[sound] = fitted.scores(store if not errors else store[sound], unseen=unseen)
    broken = ~scores.isfinite().all(-1)
    errors |= {graph: errors.get(graph, _NO_NUMBER) for graph in broken.nonzero().flatten().tolist()}
    scores[broken] = float("nan")
    shares = np.full(tuple(scores.shape), np.nan)
    if bool((~broken).any()):
        shares[(~broken).numpy()] = fitted.shares(scores[~broken])
    unlike = None
    if fitted.profile is not None:  # what could not be read has a reason of its own
        told = enumerate(fitted.profile.reasons(store))
        unlike = tuple("" if graph in errors else reason for graph, reason in told)
    return Predictions(
        fitted.class_names,
        fitted.scores_are,
        scores.numpy(),
        shares,
        tuple(errors.get(graph, "") for graph in range(len(store))),
        None if store.y is None else tuple(store.class_names[index] for index in store.y.tolist()),
        abstain_below,
        unlike,
        ids,
    )


def with_bad_rows(found: Predictions, rows: GraphMetadata) -> Predictions:
    """The same with a row for each that is no graph, in its place, so that rows are those of the table.

    Args:
        found (Predictions): Of the graphs that were read, with ``ids``.
        rows (GraphMetadata): What the table says about them, and about those that were left out.
    """
    if rows.row_indices is None:
        return found
    total = len(rows.row_indices) + len(rows.skipped)
    there = np.zeros(total, dtype=bool)
    there[list(rows.row_indices)] = True

    def numbers(known: np.ndarray) -> np.ndarray:
        wide = np.full((total, known.shape[1]), np.nan, dtype=known.dtype)
        wide[there] = known
        return wide

    def texts(known: tuple[str, ...], others: Iterable[str]) -> tuple[str, ...]:
        left, right = iter(known), iter(others)
        return tuple(next(left) if own else next(right) for own in there.tolist())

    def optional(known: tuple[str, ...] | None, others: Iterable[str]) -> tuple[str, ...] | None:
        return None if known is None else texts(known, others)

    return replace(
        found,
        scores=numbers(found.scores),
        probabilities=numbers(found.probabilities),
        errors=texts(found.errors, (f"it is no molecule in SMILES: {row.reason}" for row in rows.skipped)),
        true_classes=optional(found.true_classes, repeat("")),
        unlike=optional(found.unlike, repeat("")),
        ids=optional(found.ids, rows.skipped_ids),
    )


def _number(value: float | None) -> str:
    """Nine digits give a float32 back, and read well."""
    return "" if value is None else f"{value:.9g}"
