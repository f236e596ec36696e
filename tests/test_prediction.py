"""Predictions graph by graph: counts, accuracy, rows and the table."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from graphcaps.prediction import Predictions, predict_each
from tests.small_models import labelled, labelled_model

NAN = float("nan")
FOUND = Predictions(
    ("a", 'b,"'),
    "lengths",
    np.array([[0.2, 0.6], [NAN, NAN], [0.9, 0.1]]),
    np.array([[0.25, 0.75], [NAN, NAN], [0.9, 0.1]]),
    ("", "it is broken", ""),
    ('b,"', "a", "other"),
)


def test_a_failed_graph_has_no_class_and_does_not_count():
    assert FOUND.predicted == ['b,"', None, "a"]
    assert FOUND.summary() == {
        "graphs": 3,
        "predicted": 2,
        "failed": 1,
        "class_counts": {"a": 1, 'b,"': 1},
        "accuracy": 0.5,
    }


def test_rows_are_plain_json():
    rows = list(FOUND.rows())
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[1] == {
        "graph": 2,
        "class": None,
        "probability": None,
        "probabilities": None,
        "lengths": None,
        "true_class": "a",
        "error": "it is broken",
    }
    assert (rows[0]["probability"], rows[0]["lengths"]) == (0.75, {"a": 0.2, 'b,"': 0.6})


def test_the_table_reads_back():
    table = list(csv.reader(io.StringIO(FOUND.to_csv())))
    assert table == [
        [
            *("graph", "class", "probability", "probability[a]", 'probability[b,"]'),
            *("length[a]", 'length[b,"]', "true_class", "error"),
        ],
        ["1", 'b,"', "0.75", "0.25", "0.75", "0.2", "0.6", 'b,"', ""],
        ["2", "", "", "", "", "", "", "a", "it is broken"],
        ["3", "a", "0.9", "0.9", "0.1", "0.9", "0.1", "other", ""],
    ]


def test_without_classes_there_is_no_accuracy_and_no_column():
    from dataclasses import replace

    bare = predict_each(labelled_model(), replace(labelled(), y=None))
    assert bare.accuracy is None
    assert "true_class" not in bare.to_csv()
    assert bare.num_failed == 0
    assert bare.predicted == labelled_model().predict(labelled()).tolist()


def test_probabilities_belong_to_their_graph():
    found = predict_each(labelled_model(), labelled())
    np.testing.assert_allclose(found.probabilities, labelled_model().predict_proba(labelled()), rtol=1e-6)
    assert found.accuracy == pytest.approx(
        np.mean([a == b for a, b in zip(found.predicted, found.true_classes, strict=True)])
    )
