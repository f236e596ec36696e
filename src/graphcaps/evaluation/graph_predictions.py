"""Predictions of every validation and test graph of one seed, by the model of its fold at the selected epoch."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphcaps._io.csv_cells import csv_text
from graphcaps.errors import DataError
from graphcaps.training.replicas import Replica

__all__ = ["PARTS", "GraphPredictions", "predictions_csv"]

PARTS = ("validation", "test")
"""Names of the parts of a split that predictions have, in the order of their codes."""
_MAX_ROWS = 10**7  # bounds the memory that a small malicious file can claim


@dataclass(frozen=True, eq=False)
class GraphPredictions:
    """Predicted probabilities of graphs by models that were not trained on them, M rows.

    Args:
        graph (ndarray): Index of the graph, ``[M]``.
        fold (ndarray): Fold whose model predicts, counted from 0, ``[M]``.
        part (ndarray): 0 if the graph is in the validation set of that fold, 1 if it is in its test set, ``[M]``.
        y (ndarray): Class of the graph, ``[M]``.
        probabilities (ndarray): Uncalibrated probability of each class, float64 ``[M, C]``.
    """

    graph: np.ndarray
    fold: np.ndarray
    part: np.ndarray
    y: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def from_replicas(
        cls, replicas: Sequence[Replica], probabilities: Sequence[np.ndarray], y: np.ndarray
    ) -> GraphPredictions:
        """The predictions of several folds.

        Args:
            replicas (list): Folds of one seed.
            probabilities (list): For each of them those of its validation graphs, then of its test graphs, ``[n, O]``.
            y (ndarray): Class of all graphs of the data set, ``[G]``.
        """
        graphs, folds, parts = [], [], []
        for replica in replicas:
            for part, indices in enumerate((replica.validation, replica.test)):
                graphs.append(indices.cpu().numpy().astype(np.int64))
                folds.append(np.full(len(graphs[-1]), replica.fold))
                parts.append(np.full(len(graphs[-1]), part))
        graph = np.concatenate(graphs)
        columns = np.concatenate(folds), np.concatenate(parts), y[graph].astype(np.int64)
        return cls(graph, *columns, np.concatenate(probabilities).astype(np.float64))

    @staticmethod
    def join(parts: Sequence[GraphPredictions]) -> GraphPredictions:
        """Concatenates the rows of several predictions."""
        names = [entry.name for entry in fields(GraphPredictions)]
        return GraphPredictions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.graph)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphPredictions):
            return NotImplemented
        names = [entry.name for entry in fields(self)]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __repr__(self) -> str:
        return f"GraphPredictions(rows={len(self)}, classes={self.probabilities.shape[1]})"

    # ------------------------------------------------------------------ saving
    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back."""
        sizes = {"rows": len(self), "classes": self.probabilities.shape[1]}
        return sizes | {entry.name: _pack(getattr(self, entry.name), entry.name) for entry in fields(self)}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> GraphPredictions:
        """Reads what :meth:`as_dict` wrote.

        Raises:
            DataError: If an entry is missing, truncated or out of range.
        """
        entries: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        M, C = entries.get("rows"), entries.get("classes")
        if type(M) is not int or type(C) is not int or not (M > 0 and C > 0 and M * C <= _MAX_ROWS):
            raise DataError(where, "numbers of rows and classes under 'predictions'", repr(values)[:60])
        columns = {
            entry.name: _unpack(entries.get(entry.name), entry.name, M, C, f"{where}, {entry.name}")
            for entry in fields(cls)
        }
        found = cls(**columns)
        p = found.probabilities
        in_range = (found.graph >= 0).all() and (found.fold >= 0).all() and np.isin(found.part, (0, 1)).all()
        if not (in_range and ((found.y >= 0) & (found.y < C)).all() and ((p >= 0) & (p <= 1)).all()):
            raise DataError(where, "predictions of graphs, with probabilities from 0 to 1", "other values")
        return found


def predictions_csv(
    seeds: Iterable[tuple[int, GraphPredictions]],
    class_names: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    smiles: Sequence[str | None] | None = None,
    split_seeds: Sequence[int] = (),
    divisions: Sequence[int] = (),
    raw_text: bool = False,
) -> str:
    """A table with a row per seed, fold and graph, as text.

    Columns: ``graph`` (number, counted from 1), ``id`` and ``smiles`` where they are known, ``seed`` of the training,
    ``division`` where there are several, ``fold`` (counted from 1), ``split_seed`` where a seeded split stands in the
    place of each fold, ``split`` (``validation`` or ``test``), ``label`` (true class), ``predicted``, and
    ``probability[class]`` for each class. Numbers are written in full: metrics that are computed from the file are the
    printed ones.

    Args:
        seeds (iterable): Seeds with their predictions.
        class_names (sequence): Name of each class.
        ids (sequence, optional): Name of each graph of the data set.
        smiles (sequence, optional): SMILES of each graph of the data set.
        split_seeds (sequence): Seed of the split of each fold; empty for folds. (default: empty)
        divisions (sequence): Division of each of ``seeds``; empty if there is one. (default: empty)
        raw_text (bool): Write names and SMILES as they are. Otherwise those that a spreadsheet could read as a formula
            get an apostrophe in front. (default: ``False``)
    """
    columns: list[tuple[str, Sequence[str | None] | None]] = [("id", ids), ("smiles", smiles)]
    extra = [(name, values) for name, values in columns if values is not None]
    classes = [f"probability[{name}]" for name in class_names]
    numbers = ["seed", *(["division"] if divisions else []), "fold", *(["split_seed"] if split_seeds else [])]
    names = [name for name, _ in extra]
    table: list[list[object]] = [["graph", *names, *numbers, "split", "label", "predicted", *classes]]
    for number, (seed, predictions) in enumerate(seeds):
        division = [divisions[number]] if divisions else []
        # In the order of folds, validation before test graphs, then of graphs.
        for row in np.lexsort((predictions.graph, predictions.part, predictions.fold)).tolist():
            graph, p = int(predictions.graph[row]), predictions.probabilities[row]
            fold = int(predictions.fold[row])
            where = [seed, *division, fold + 1, *([split_seeds[fold]] if split_seeds else [])]
            label, predicted = class_names[predictions.y[row]], class_names[int(p.argmax())]
            known = [column[graph] or "" for _, column in extra]
            cells = [*known, *where, PARTS[predictions.part[row]], label, predicted]
            table.append([graph + 1, *cells, *map(repr, p.tolist())])
    return csv_text(table, raw_text=raw_text)


def _dtype(name: str) -> str:
    return "<f8" if name == "probabilities" else "<i4"


def _pack(values: np.ndarray, name: str) -> str:
    content = np.ascontiguousarray(values.astype(_dtype(name))).tobytes()
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def _unpack(text: Any, name: str, M: int, C: int, where: str) -> np.ndarray:
    shape, dtype = ((M, C) if name == "probabilities" else (M,)), np.dtype(_dtype(name))
    size = int(np.prod(shape)) * dtype.itemsize
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise DataError(where, "packed numbers", "something else") from error
    if len(raw) != size:
        raise DataError(where, f"{M:,} rows", "more or fewer")
    values = np.frombuffer(raw, dtype=dtype).reshape(shape)
    return values.astype(np.float64 if name == "probabilities" else np.int64)
