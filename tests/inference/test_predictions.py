"""Predictions graph by graph: counts, accuracy, rows and the table."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.predictions import Predictions, predict_each
from graphcaps.metrics import class_metrics
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
        "abstained": 0,
        "unlike": None,
        "class_counts": {"a": 1, 'b,"': 1},
        "accuracy": 0.5,
        "metrics": class_metrics(np.array([1]), FOUND.probabilities[:1]),  # the model knows no 'other'
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
        "abstained": False,
        "unlike": None,
        "true_class": "a",
        "error": "it is broken",
    }
    assert (rows[0]["probability"], rows[0]["lengths"]) == (0.75, {"a": 0.2, 'b,"': 0.6})


def test_the_table_reads_back():
    table = list(csv.reader(io.StringIO(FOUND.to_csv())))
    assert table == [
        [
            *("graph", "class", "probability", "probability[a]", 'probability[b,"]'),
            *("length[a]", 'length[b,"]', "abstained", "unlike", "true_class", "error"),
        ],
        ["1", 'b,"', "0.75", "0.25", "0.75", "0.2", "0.6", "", "", 'b,"', ""],
        ["2", "", "", "", "", "", "", "", "", "a", "it is broken"],
        ["3", "a", "0.9", "0.9", "0.1", "0.9", "0.1", "", "", "other", ""],
    ]


def test_without_classes_there_is_no_accuracy_and_no_column():
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


def test_abstaining_takes_the_class_away_and_counts():
    quiet = replace(FOUND, abstain_below=0.8, ids=("x", "y", "z"))
    assert quiet.predicted == [None, None, "a"]
    assert quiet.abstained == [True, False, False]
    assert quiet.summary()["abstained"] == 1
    assert quiet.summary()["metrics"] == FOUND.summary()["metrics"]
    first = next(iter(csv.DictReader(io.StringIO(quiet.to_csv()))))
    assert (first["id"], first["class"], first["probability"], first["abstained"]) == ("x", "", "0.75", "yes")
    with pytest.raises(ArgumentError, match="from 0 to 1, got 2"):
        predict_each(labelled_model(), labelled(), abstain_below=2)


def test_unlike_graphs_are_named():
    model = replace(labelled_model(), profile=TrainingProfile.of(labelled()))
    odd = replace(labelled(), node_attributes=labelled().node_attributes + 99)
    found = predict_each(model, odd)
    assert found.summary()["unlike"] == 30
    assert "attribute" in next(found.rows())["unlike"]
    assert predict_each(labelled_model(), odd).unlike is None
    assert predict_each(model, labelled()).summary()["unlike"] <= 1
