"""Predictions for a store of graphs, with an error message for each graph that cannot be predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch

from graphcaps._io.csv_cells import csv_text, escape_formula
from graphcaps.data.features.compatibility import CheckedGraphs, UnseenPolicy
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.abstention import abstains, check_abstention
from graphcaps.inference.applicability import NO_NODES
from graphcaps.inference.disagreement import join_reasons, mutual_information
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.mixture import AnswerParts
from graphcaps.inference.split_hashes import Part
from graphcaps.metrics import class_counts, class_metrics
from graphcaps.registry import ScoreKind

__all__ = ["Predictions", "predict_in_parts", "predict_store", "with_skipped_rows"]

_Value = TypeVar("_Value")
_PARTS = get_args(Part)
_GROUPS = (
    "test",
    "new",
    "unknown",
    "validation",
    "training",
    "left-out",
)  # best evidence first, as in reports
_PART_COLUMNS = {  # entries of a part in a row, and the beginning of their column names
    "probability": "part_probability",
    "weight": "part_weight",
    "contribution": "part_contribution",
}
_PART_SIZE = 1 << 13  # graphs that are predicted at once
_NOT_FINITE = "its scores are not finite; check its attributes for extreme values"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for G graphs.

    Args:
        class_names (tuple): The O classes of the model.
        score_kind (str): ``"lengths"`` of class capsules, ``"logits"`` or ``"probabilities"``.
        scores (ndarray): ``[G, O]``, NaN for a graph that could not be predicted.
        probabilities (ndarray): ``[G, O]``, NaN for a graph that could not be predicted.
        errors (tuple): For each graph the reason why it could not be predicted, or "".
        true_classes (tuple, optional): True class name of each graph if the source has labels; "" if unknown.
        abstain_below (float, optional): Graphs whose highest probability is below this get no class.
        out_of_distribution (tuple, optional): For each graph the reason why it lies outside the applicability domain,
            or ""; ``None`` if the model has no training profile and all graphs have nodes.
        ids (tuple, optional): Identifier of each graph in the source.
        used_in (tuple, optional): For each graph ``"training"``, ``"validation"`` or ``"test"`` if it was in that part
            when the model was trained, ``"left-out"`` if it was left out because of contradicting labels, else
            ``None``; ``None`` if the model has no record of its graphs.
        disagreement (ndarray, optional): Disagreement of the members of a committee on each graph, in nats, NaN for a
            graph that could not be predicted, ``[G]``; ``None`` for a single model.
        max_disagreement (float, optional): Graphs with a higher disagreement get no class.
        parts (AnswerParts, optional): Probabilities of the network and of its companions, where they were asked for.
    """

    class_names: tuple[str, ...]
    score_kind: ScoreKind
    scores: np.ndarray
    probabilities: np.ndarray
    errors: tuple[str, ...]
    true_classes: tuple[str, ...] | None = None
    abstain_below: float | None = None
    out_of_distribution: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    used_in: tuple[Part | None, ...] | None = None
    disagreement: np.ndarray | None = None
    max_disagreement: float | None = None
    parts: AnswerParts | None = None

    def __len__(self) -> int:
        return len(self.errors)

    @staticmethod
    def join(parts: Sequence[Predictions]) -> Predictions:
        """Predictions of one part of the graphs after the other, at least one, as one object."""
        if len(parts) == 1:
            return parts[0]

        def optional(read: Callable[[Predictions], tuple[_Value, ...] | None]) -> tuple[_Value, ...] | None:
            listed = [read(part) for part in parts]
            return None if None in listed else tuple(value for values in listed for value in values or ())

        outside: tuple[str, ...] | None = None
        if any(part.out_of_distribution is not None for part in parts):
            outside = tuple(
                reason for part in parts for reason in part.out_of_distribution or ("",) * len(part)
            )
        disagreement = [part.disagreement for part in parts if part.disagreement is not None]
        answers = [part.parts for part in parts if part.parts is not None]
        return replace(
            parts[0],
            scores=np.concatenate([part.scores for part in parts]),
            probabilities=np.concatenate([part.probabilities for part in parts]),
            errors=tuple(error for part in parts for error in part.errors),
            true_classes=optional(lambda part: part.true_classes),
            out_of_distribution=outside,
            ids=optional(lambda part: part.ids),
            used_in=optional(lambda part: part.used_in),
            disagreement=np.concatenate(disagreement) if disagreement else None,
            parts=AnswerParts.join(answers) if answers else None,
        )

    @property
    def num_failed(self) -> int:
        """Number of graphs that could not be predicted."""
        return sum(bool(error) for error in self.errors)

    @property
    def predicted(self) -> list[str | None]:
        """Class of each graph; ``None`` if it could not be predicted or the model abstains."""
        rows = zip(self.errors, self.abstained, self._best, strict=True)
        return [None if error or abstained else self.class_names[index] for error, abstained, index in rows]

    @property
    def abstained(self) -> list[bool]:
        """Whether the model abstains, for each graph; False for graphs that could not be predicted."""
        limits = self.abstain_below, self.max_disagreement
        return abstains(self.probabilities, self.disagreement, *limits).tolist()

    @property
    def accuracies(self) -> dict[str, dict[str, Any]]:
        """Number of labelled graphs that got a class, and accuracy over them, by what the graphs were used for.

        Graphs with a label that is no class of the model (:attr:`other_labels`) do not count.

        Returns:
            dict: ``{"graphs", "accuracy"}`` under ``"test"``, ``"new"`` (graphs that are in no part of the training
            data), ``"validation"``, ``"training"`` and ``"left-out"``, in this order and only for groups with graphs;
            under ``"unknown"`` if the model has no record of its graphs. Empty if the source has no labels.
        """
        if self.true_classes is None:
            return {}
        groups: dict[str, list[bool]] = {name: [] for name in _GROUPS}
        for group, predicted, true in zip(self._groups, self.predicted, self.true_classes, strict=True):
            if predicted is not None and true in self.class_names:
                groups[group].append(predicted == true)
        return {
            name: {"graphs": len(hits), "accuracy": sum(hits) / len(hits)}
            for name, hits in groups.items()
            if hits
        }

    @property
    def other_labels(self) -> dict[str, int]:
        """Labels of the source that are no classes of the model, and the number of graphs with each, most first."""
        counts = Counter(name for name in self.true_classes or () if name and name not in self.class_names)
        return dict(counts.most_common())

    @property
    def accuracy(self) -> float | None:
        """Accuracy over the labelled graphs of :attr:`measured_group` that got a class; ``None`` if there are none."""
        found = self.accuracies.get(self.measured_group or "")
        return None if found is None else float(found["accuracy"])

    @property
    def measured_group(self) -> Literal["test", "new", "unknown"] | None:
        """The graphs that :attr:`accuracy` and :attr:`metrics` are over: those that did not train the model.

        Test graphs of the model if there are any, else graphs that are in no part of its training data; all graphs if
        the model has no record of them. ``None`` without such graphs, or without labels.
        """
        labels = zip(self.errors, self.true_classes or (), self._groups, strict=False)
        groups = {group for error, true, group in labels if not error and true in self.class_names}
        for name in ("test", "new", "unknown"):
            if name in groups:
                return name
        return None

    @property
    def metrics(self) -> dict[str, float | None] | None:
        """Classification metrics over the graphs of :attr:`accuracy`, abstentions included; ``None`` without any."""
        rows, y = self._measured
        return class_metrics(y, self.probabilities[rows]) if rows else None

    @property
    def metric_counts(self) -> dict[str, int] | None:
        """Number of graphs of each class that :attr:`metrics` cover; ``None`` without any."""
        rows, y = self._measured
        return class_counts(y, self.class_names) if rows else None

    @property
    def _measured(self) -> tuple[list[int], np.ndarray]:
        """The graphs that :attr:`metrics` cover, and their class indices."""
        index = {name: number for number, name in enumerate(self.class_names)}
        labels = zip(self.errors, self.true_classes or (), self._groups, strict=False)
        measured_group = self.measured_group
        measured = {
            row: index[true]
            for row, (error, true, group) in enumerate(labels)
            if not error and true in index and group == measured_group
        }
        return [*measured], np.array([*measured.values()], dtype=np.int64)

    @property
    def _groups(self) -> list[str]:
        """The group of each graph in :attr:`accuracies`."""
        if self.used_in is None:
            return ["unknown"] * len(self)
        return [part or "new" for part in self.used_in]

    def summary(self) -> dict[str, Any]:
        """Counts and metrics as JSON values."""
        predicted, outside = self.predicted, self.out_of_distribution
        return {
            "graphs": len(self),
            "predicted": sum(name is not None for name in predicted),
            "failed": self.num_failed,
            "abstained": sum(self.abstained),
            "out_of_distribution": None if outside is None else sum(map(bool, outside)),
            **({} if self.disagreement is None else {"disagreement": _mean_and_max(self.disagreement)}),
            "class_counts": {name: predicted.count(name) for name in self.class_names},
            "used_in": None if self.used_in is None else {name: self.used_in.count(name) for name in _PARTS},
            "other_labels": self.other_labels,
            "accuracy": self.accuracy,
            "accuracies": self.accuracies,
            "measured_group": self.measured_group,
            "metrics": self.metrics,
        }

    def rows(self, first: int = 0) -> Iterator[dict[str, Any]]:
        """One dictionary of JSON values per graph; graphs are numbered from 1, as in TU files.

        Args:
            first (int): Number of graphs before these, if these are a part. (default: 0)
        """
        score_name = "lengths" if self.score_kind == "lengths" else "scores"
        abstained, outside = self.abstained, self.out_of_distribution
        shares = self._contributions()
        for index, predicted in enumerate(self.predicted):
            probabilities, scores = self.probabilities[index].tolist(), self.scores[index].tolist()
            row: dict[str, Any] = {"graph": first + index + 1}
            row |= {} if self.ids is None else {"id": self.ids[index]}
            row["class"] = predicted
            failed = bool(self.errors[index])
            row["probability"] = None if failed else max(probabilities)
            for name, values in (("probabilities", probabilities), (score_name, scores)):
                row[name] = None if failed else dict(zip(self.class_names, values, strict=True))
            if self.parts is not None and shares is not None:
                row["parts"] = None if failed else self._row_parts(self.parts, index, shares[:, index])
            if self.disagreement is not None:
                row["disagreement"] = None if failed else float(self.disagreement[index])
            row["abstained"] = abstained[index]
            row["out_of_distribution"] = None if outside is None else outside[index] or None
            row["used_in"] = None if self.used_in is None else self.used_in[index]
            if self.true_classes is not None:
                row["true_class"] = self.true_classes[index] or None
            row["error"] = self.errors[index] or None
            yield row

    def _contributions(self) -> np.ndarray | None:
        """Share of each part in the probability of each graph's most probable class, ``[K, G]``."""
        return None if self.parts is None else self.parts.contributions(self._best)

    @property
    def _best(self) -> np.ndarray:
        """Index of the most probable class of each graph, 0 for a graph that could not be predicted, ``[G]``."""
        best: np.ndarray = np.nan_to_num(self.probabilities, nan=-1.0).argmax(-1)
        return best

    def _row_parts(self, parts: AnswerParts, index: int, shares: np.ndarray) -> list[dict[str, Any]]:
        """What one answer is made of: the network and its companions."""
        best = int(self.probabilities[index].argmax())
        columns = zip(parts.names, parts.weights, parts.probabilities[:, index], shares, strict=True)
        return [
            {
                "model": name,
                "weight": weight,
                "probability": float(p[best]),
                "contribution": float(share),
                "probabilities": dict(zip(self.class_names, p.tolist(), strict=True)),
            }
            for name, weight, p, share in columns
        ]

    def to_csv(self, *, raw_text: bool = False, first: int = 0, header: bool = True) -> str:
        """The rows as CSV with a header line; a graph without a prediction has empty cells.

        Args:
            raw_text (bool): Write names and reasons as they are. Otherwise those that a spreadsheet could read as a
                formula get an apostrophe in front. (default: ``False``)
            first (int): As in :meth:`rows`. (default: 0)
            header (bool): Whether there is a header line. (default: ``True``)
        """
        score_name = "length" if self.score_kind == "lengths" else "score"
        failed = [bool(error) for error in self.errors]

        def numbers(values: np.ndarray) -> list[str]:  # nine significant digits identify a float32 exactly
            return [
                "" if fails else f"{value:.9g}" for fails, value in zip(failed, values.tolist(), strict=True)
            ]

        def texts(values: Iterable[str | None]) -> list[str]:
            return [escape_formula(value) if value and not raw_text else value or "" for value in values]

        columns: dict[str, Sequence[object]] = {"graph": range(first + 1, first + len(self) + 1)}
        columns |= {} if self.ids is None else {"id": texts(self.ids)}
        columns |= {"class": texts(self.predicted), "probability": numbers(self.probabilities.max(-1))}
        for name, values in (("probability", self.probabilities), (score_name, self.scores)):
            columns |= {f"{name}[{each}]": numbers(values[:, i]) for i, each in enumerate(self.class_names)}
        columns |= self._part_columns(numbers)
        columns |= {} if self.disagreement is None else {"disagreement": numbers(self.disagreement)}
        columns["abstained"] = ["yes" if each else "" for each in self.abstained]
        for name, reasons in (("out_of_distribution", self.out_of_distribution), ("used_in", self.used_in)):
            columns[name] = [""] * len(self) if reasons is None else texts(reasons)
        columns |= {} if self.true_classes is None else {"true_class": texts(self.true_classes)}
        columns["error"] = texts(self.errors)
        head = csv_text([[*columns]], raw_text=raw_text) if header else ""
        return head + csv_text(zip(*columns.values(), strict=True), raw_text=True)

    def _part_columns(self, numbers: Callable[[np.ndarray], list[str]]) -> dict[str, Sequence[object]]:
        """Columns of what each answer is made of; none without :attr:`parts`."""
        shares = self._contributions()
        if self.parts is None or shares is None:
            return {}
        best = self._best
        columns: dict[str, Sequence[object]] = {}
        for part, name in enumerate(self.parts.names):
            values = {
                "probability": self.parts.probabilities[part, np.arange(len(self)), best],
                "weight": np.full(len(self), self.parts.weights[part]),
                "contribution": shares[part],
            }
            columns |= {f"{_PART_COLUMNS[entry]}[{name}]": numbers(each) for entry, each in values.items()}
        return columns


def predict_store(
    fitted: FittedModel,
    graphs: Any,
    *,
    unseen: UnseenPolicy = "refuse",
    abstain_below: float | None = None,
    max_disagreement: float | None = None,
    ids: tuple[str, ...] | None = None,
    true_classes: tuple[str, ...] | None = None,
    parts: bool = False,
) -> Predictions:
    """Predicts every graph that matches the model's feature recipe and records the reason for each other one.

    Args:
        fitted (FittedModel): A trained model.
        graphs: Graphs with or without classes, as in :meth:`FittedModel.scores`, or the result of
            :meth:`FittedModel.check`.
        unseen (str): As in :meth:`FittedModel.scores`.
        abstain_below (float, optional): Graphs whose highest probability is below this get no class.
        max_disagreement (float, optional): Graphs on which the members of a committee disagree by more than this, in
            nats, get no class.
        ids (tuple, optional): Identifier of each graph, written as a column.
        true_classes (tuple, optional): Class name of each graph, "" if it is unknown. (default: those of the store, if
            it has classes)
        parts (bool): Add the probabilities of the network and of its companions, for a model that has companions.
            (default: ``False``)

    Raises:
        ArgumentError: If the whole store lacks columns that the model reads, a threshold is out of range, or ``parts``
            are asked of a model without companions.
    """
    if parts and not fitted.companions:
        expected, fix = "be left out for a model without a companion", "Train one with --companion wl-forest."
        raise ArgumentError("predict", "parts", expected, f"a model '{fitted.config.model}' alone", fix)
    check_abstention(abstain_below, max_disagreement, is_committee=fitted.is_committee)
    checked = fitted.check(graphs, unseen=unseen, owner="predict")
    store, errors = checked.store, dict(checked.errors)
    shape = (len(fitted.members), len(store), len(fitted.class_names))
    scores = _scores(fitted, checked, shape)
    failed = ~np.isfinite(scores).all(axis=(0, 2))
    errors |= {graph: errors.get(graph, _NOT_FINITE) for graph in np.flatnonzero(failed).tolist()}
    scores[:, failed] = np.nan
    p, answer = np.full(shape, np.nan), np.full(shape[1:], np.nan)
    answer_parts = None
    if parts and fitted.mixture is not None:
        unknown = np.full((len(fitted.part_names), *shape[1:]), np.nan)
        answer_parts = AnswerParts(fitted.part_names, fitted.mixture.weights, unknown)
    valid = np.flatnonzero(~failed)
    if len(valid):
        is_empty = np.diff(store.host_node_ptr.numpy()) == 0
        empty = torch.from_numpy(np.flatnonzero(is_empty[valid]))
        members = fitted.calibrate_scores(torch.from_numpy(scores[:, valid]), empty)
        mixed = fitted.mix(members, checked.select(torch.from_numpy(valid)))
        p[:, valid], answer[valid] = members, mixed.probabilities
        if parts and mixed.parts is not None:
            answer_parts = mixed.parts.spread(~failed)
    disagreement = mutual_information(p) if fitted.is_committee else None
    if true_classes is None and store.y is not None:
        true_classes = tuple(store.class_names[index] for index in store.y.tolist())
    return Predictions(
        class_names=fitted.class_names,
        score_kind=fitted.score_kind,
        scores=scores.mean(0),
        probabilities=answer,
        errors=tuple(errors.get(graph, "") for graph in range(len(store))),
        true_classes=true_classes,
        abstain_below=abstain_below,
        out_of_distribution=_reasons(fitted, store, disagreement, errors),
        ids=ids,
        used_in=fitted.used_in(checked),
        disagreement=disagreement,
        max_disagreement=max_disagreement,
        parts=answer_parts,
    )


def _reasons(
    fitted: FittedModel, store: GraphStore, disagreement: np.ndarray | None, errors: Collection[int]
) -> tuple[str, ...] | None:
    """Why each graph lies outside the applicability domain, "" for others; ``None`` if nothing is known of it."""
    if fitted.profile is None:
        is_known = store.empty_graphs.numel() > 0
        return tuple("" if size else NO_NODES for size in store.sizes.tolist()) if is_known else None
    reasons = fitted.profile.reasons(store, fitted.recipe.source_columns.get("node_attributes"))
    if fitted.disagreement_profile is not None and disagreement is not None:
        reasons = join_reasons(reasons, fitted.disagreement_profile.reasons(disagreement))
    # A graph that could not be predicted already has an error message.
    return tuple("" if graph in errors else reason for graph, reason in enumerate(reasons))


def _scores(fitted: FittedModel, checked: CheckedGraphs, shape: tuple[int, int, int]) -> np.ndarray:
    """Scores by each member, NaN for graphs with an error, ``[M, G, O]``."""
    valid = [graph for graph in range(len(checked.store)) if graph not in checked.errors]
    indices = torch.tensor(valid, dtype=torch.long)
    if len(valid) == shape[1] and valid:
        return fitted.member_scores(checked.select(indices)).numpy()
    scores = torch.full(shape, float("nan"), dtype=fitted.dtype)
    if valid:
        scores[:, indices] = fitted.member_scores(checked.select(indices))
    return scores.numpy()


def predict_in_parts(
    fitted: FittedModel,
    graphs: Any,
    *,
    ids: tuple[str, ...] | None = None,
    true_classes: tuple[str, ...] | None = None,
    rows: GraphMetadata | None = None,
    **options: Any,
) -> Iterator[Predictions]:
    """As :func:`predict_store`, for some thousand graphs after the other, so that they can be written meanwhile.

    :meth:`Predictions.join` of all parts gives the result of :func:`predict_store`, up to rounding.

    Args:
        fitted, graphs, ids, true_classes: As in :func:`predict_store`.
        rows (GraphMetadata, optional): Adds error rows as :func:`with_skipped_rows` does.
        options: Further arguments of :func:`predict_store`.

    Raises:
        ArgumentError: As :func:`predict_store` does.
    """
    checked = fitted.check(graphs, unseen=options.pop("unseen", "refuse"), owner="predict")
    num_graphs, next_row, next_skipped = len(checked.store), 0, 0
    for start in range(0, max(num_graphs, 1), _PART_SIZE):
        end = min(start + _PART_SIZE, num_graphs)
        predictions = predict_store(
            fitted,
            checked.part(start, end),
            ids=None if ids is None else ids[start:end],
            true_classes=None if true_classes is None else true_classes[start:end],
            **options,
        )
        if rows is not None and rows.row_indices is not None:
            total = len(rows.row_indices) + len(rows.skipped)
            end_row = total if end == num_graphs else rows.row_indices[end]
            end_skipped = next_skipped + end_row - next_row - len(predictions)
            own = GraphMetadata(
                ids=(),
                skipped=rows.skipped[next_skipped:end_skipped],
                skipped_ids=rows.skipped_ids[next_skipped:end_skipped],
                row_indices=tuple(row - next_row for row in rows.row_indices[start:end]),
            )
            predictions = with_skipped_rows(predictions, own)
            next_row, next_skipped = end_row, end_skipped
        yield predictions


def with_skipped_rows(predictions: Predictions, rows: GraphMetadata) -> Predictions:
    """Adds an error row for each table row that the reader skipped, in the order of the table.

    Args:
        predictions (Predictions): Predictions of the graphs that were read, with ``ids``.
        rows (GraphMetadata): Positions of these graphs in the table, and the skipped rows with their reasons.
    """
    if rows.row_indices is None:
        return predictions
    total = len(rows.row_indices) + len(rows.skipped)
    is_graph = np.zeros(total, dtype=bool)
    is_graph[list(rows.row_indices)] = True

    def expand(values: np.ndarray) -> np.ndarray:
        expanded = np.full((total, *values.shape[1:]), np.nan, dtype=values.dtype)
        expanded[is_graph] = values
        return expanded

    def merge(values: tuple[_Value, ...], skipped: Iterable[_Value]) -> tuple[_Value, ...]:
        left, right = iter(values), iter(skipped)
        return tuple(next(left) if graph else next(right) for graph in is_graph.tolist())

    def merge_optional(
        values: tuple[_Value, ...] | None, skipped: Iterable[_Value]
    ) -> tuple[_Value, ...] | None:
        return None if values is None else merge(values, skipped)

    reasons = (f"it is not a valid SMILES: {row.reason}" for row in rows.skipped)
    return replace(
        predictions,
        scores=expand(predictions.scores),
        probabilities=expand(predictions.probabilities),
        errors=merge(predictions.errors, reasons),
        true_classes=merge_optional(predictions.true_classes, repeat("")),
        out_of_distribution=merge_optional(predictions.out_of_distribution, repeat("")),
        ids=merge_optional(predictions.ids, rows.skipped_ids),
        used_in=merge_optional(predictions.used_in, repeat(None)),
        disagreement=None if predictions.disagreement is None else expand(predictions.disagreement),
        parts=None if predictions.parts is None else predictions.parts.spread(is_graph),
    )


def _mean_and_max(values: np.ndarray) -> dict[str, float | None]:
    """Mean and maximum of the values that are numbers; ``None`` without any."""
    known = values[~np.isnan(values)]
    return {
        name: float(take()) if len(known) else None
        for name, take in (("mean", known.mean), ("max", known.max))
    }
