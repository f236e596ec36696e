"""Predictions of graphs: rows of the folds, the table, and reading back what was written."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.errors import DataError
from graphcaps.evaluation.graph_predictions import GraphPredictions, predictions_csv
from graphcaps.training.replicas import Replica

Y = np.array([0, 1, 1, 0, 1])


def predictions() -> GraphPredictions:
    """Two folds; the rows of the second come in another order than those of the first."""
    train = torch.tensor([0])
    replicas = [
        Replica(train, torch.tensor([1, 2]), torch.tensor([3, 4]), fold=0),
        Replica(train, torch.tensor([4]), torch.tensor([2, 1]), fold=1),
    ]
    first = np.array([[0.1, 0.9], [0.6, 0.4], [1 / 3, 2 / 3], [0.5, 0.5]])
    second = np.array([[0.2, 0.8], [0.7, 0.3], [1e-17, 1.0]])
    return GraphPredictions.from_replicas(replicas, [first, second], Y)


def test_rows_of_the_folds() -> None:
    found = predictions()
    assert found.graph.tolist() == [1, 2, 3, 4, 4, 2, 1]
    assert found.fold.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert found.part.tolist() == [0, 0, 1, 1, 0, 1, 1]
    assert found.y.tolist() == [1, 1, 0, 1, 1, 1, 1]
    assert GraphPredictions.join([found]) == found
    assert len(GraphPredictions.join([found, found])) == 14
    assert repr(found) == "GraphPredictions(rows=7, classes=2)"


def test_the_table_has_a_row_per_seed_fold_and_graph_with_exact_numbers() -> None:
    found = predictions()
    text = predictions_csv(
        [(0, found), (1, found)],
        ["no", "yes, very"],
        ids=["a", "b", "c", "d", "e"],
        smiles=["C", "N", "O", "S", "P"],
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 14
    assert [*rows[0]] == [
        *("graph", "id", "smiles", "seed", "fold", "split", "label", "predicted"),
        *("probability[no]", "probability[yes, very]"),
    ]
    assert [row["graph"] for row in rows[:7]] == ["2", "3", "4", "5", "5", "2", "3"]
    first = rows[0]
    assert (first["id"], first["smiles"], first["seed"], first["fold"]) == ("b", "N", "0", "1")
    assert (first["split"], first["label"], first["predicted"]) == ("validation", "yes, very", "yes, very")
    assert {float(row["probability[yes, very]"]) for row in rows} == set(found.probabilities[:, 1].tolist())
    assert rows[3]["predicted"] == "no"  # equal probabilities: the first class, as in the accuracy
    assert rows[7]["seed"] == "1"
    assert "id" not in predictions_csv([(0, found)], ["no", "yes"]).splitlines()[0]
    seeded = predictions_csv([(0, found)], ["no", "yes"], split_seeds=[7, 9])
    assert {(row["fold"], row["split_seed"]) for row in csv.DictReader(io.StringIO(seeded))} == {
        *(("1", "7"), ("2", "9"))
    }


def test_names_and_smiles_do_not_become_formulas() -> None:
    names = {"ids": ["=a", "=b", "-3", "=d", "=e"], "smiles": ["C", "@N", "O", None, "P"]}
    shown, raw = (
        list(
            csv.DictReader(
                io.StringIO(predictions_csv([(0, predictions())], ["-1", "+yes"], raw_text=is_raw, **names))
            )
        )
        for is_raw in (False, True)
    )
    assert [(row["id"], row["smiles"]) for row in shown[:3]] == [("'=b", "'@N"), ("-3", "O"), ("'=d", "")]
    assert {row["label"] for row in shown} == {"-1", "'+yes"}
    assert [(row["id"], row["smiles"]) for row in raw[:3]] == [("=b", "@N"), ("-3", "O"), ("=d", "")]
    assert {row["label"] for row in raw} == {"-1", "+yes"}


def test_what_is_written_is_read_back() -> None:
    found = predictions()
    assert GraphPredictions.from_dict(found.as_dict(), "file") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 8}, "8 rows"),
        ({"rows": -1}, "numbers of rows and classes"),
        ({"rows": 10**9}, "numbers of rows and classes"),
        ({"classes": 3}, "7 rows"),
        ({"y": "AAAA"}, "packed numbers"),
        ({"fold": None}, "packed numbers"),
    ],
)
def test_a_damaged_entry_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        GraphPredictions.from_dict(predictions().as_dict() | change, "file")


def test_values_out_of_range_are_refused() -> None:
    found = predictions()
    wrong = GraphPredictions(found.graph, found.fold, found.part, found.y + 1, found.probabilities)
    with pytest.raises(DataError, match="probabilities from 0 to 1"):
        GraphPredictions.from_dict(wrong.as_dict(), "file")
