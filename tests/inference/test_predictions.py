"""Predictions of a store: counts, accuracy, rows and the CSV table."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.mixture import AnswerParts
from graphcaps.inference.predictions import Predictions, predict_store
from graphcaps.metrics import class_metrics
from tests.small_models import labelled, labelled_model

NAN = float("nan")
PREDICTIONS = Predictions(
    ("a", 'b,"'),
    "lengths",
    np.array([[0.2, 0.6], [NAN, NAN], [0.9, 0.1]]),
    np.array([[0.25, 0.75], [NAN, NAN], [0.9, 0.1]]),
    ("", "it is broken", ""),
    ('b,"', "a", "other"),
)


def test_a_failed_graph_has_no_class_and_is_not_counted():
    assert PREDICTIONS.predicted == ['b,"', None, "a"]
    assert (
        PREDICTIONS.summary()
        == {
            "graphs": 3,
            "predicted": 2,
            "failed": 1,
            "abstained": 0,
            "out_of_distribution": None,
            "class_counts": {"a": 1, 'b,"': 1},
            "used_in": None,
            "other_labels": {"other": 1},  # not a class of the model
            "accuracy": 1.0,
            "accuracies": {"unknown": {"graphs": 1, "accuracy": 1.0}},
            "measured_group": "unknown",
            "metrics": class_metrics(np.array([1]), PREDICTIONS.probabilities[:1]),
        }
    )


def test_rows_are_json_values():
    rows = list(PREDICTIONS.rows())
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[1] == {
        "graph": 2,
        "class": None,
        "probability": None,
        "probabilities": None,
        "lengths": None,
        "abstained": False,
        "out_of_distribution": None,
        "used_in": None,
        "true_class": "a",
        "error": "it is broken",
    }
    assert (rows[0]["probability"], rows[0]["lengths"]) == (0.75, {"a": 0.2, 'b,"': 0.6})


def test_csv_round_trip():
    table = list(csv.reader(io.StringIO(PREDICTIONS.to_csv())))
    assert table == [
        [
            *("graph", "class", "probability", "probability[a]", 'probability[b,"]'),
            *(
                "length[a]",
                'length[b,"]',
                "abstained",
                "out_of_distribution",
                "used_in",
                "true_class",
                "error",
            ),
        ],
        ["1", 'b,"', "0.75", "0.25", "0.75", "0.2", "0.6", "", "", "", 'b,"', ""],
        ["2", "", "", "", "", "", "", "", "", "", "a", "it is broken"],
        ["3", "a", "0.9", "0.9", "0.1", "0.9", "0.1", "", "", "", "other", ""],
    ]


def test_names_and_reasons_do_not_become_formulas() -> None:
    formula = '=HYPERLINK("http://x","y")'
    hostile = replace(
        PREDICTIONS,
        class_names=(formula, "-1"),
        ids=("@SUM(A1)", "+1", "c"),
        errors=("", "=broken", ""),
        true_classes=("-1", "-x", ""),
    )
    rows = list(csv.DictReader(io.StringIO(hostile.to_csv())))
    assert [row["id"] for row in rows] == ["'@SUM(A1)", "+1", "c"]
    assert [row["class"] for row in rows] == ["-1", "", f"'{formula}"]
    assert [row["true_class"] for row in rows] == ["-1", "'-x", ""]
    assert rows[1]["error"] == "'=broken"
    raw = list(csv.DictReader(io.StringIO(hostile.to_csv(raw_text=True))))
    assert (raw[0]["id"], raw[2]["class"], raw[1]["error"]) == ("@SUM(A1)", formula, "=broken")


def test_without_classes_there_is_no_accuracy_and_no_column():
    unlabelled = predict_store(labelled_model(), replace(labelled(), y=None))
    assert unlabelled.accuracy is None
    assert "true_class" not in unlabelled.to_csv()
    assert unlabelled.num_failed == 0
    assert unlabelled.predicted == labelled_model().predict(labelled()).tolist()


def test_probabilities_belong_to_their_graph():
    predictions = predict_store(labelled_model(), labelled())
    np.testing.assert_allclose(
        predictions.probabilities, labelled_model().predict_proba(labelled()), rtol=1e-6
    )
    assert predictions.accuracy == pytest.approx(
        np.mean([a == b for a, b in zip(predictions.predicted, predictions.true_classes, strict=True)])
    )


def test_abstentions_have_no_class_and_are_counted():
    abstaining = replace(PREDICTIONS, abstain_below=0.8, ids=("x", "y", "z"))
    assert abstaining.predicted == [None, None, "a"]
    assert abstaining.abstained == [True, False, False]
    assert abstaining.summary()["abstained"] == 1
    assert abstaining.summary()["metrics"] == PREDICTIONS.summary()["metrics"]
    first = next(iter(csv.DictReader(io.StringIO(abstaining.to_csv()))))
    assert (first["id"], first["class"], first["probability"], first["abstained"]) == ("x", "", "0.75", "yes")
    with pytest.raises(ArgumentError, match="from 0 to 1, got 2"):
        predict_store(labelled_model(), labelled(), abstain_below=2)


def test_out_of_distribution_graphs_get_a_reason():
    model = replace(labelled_model(), profile=TrainingProfile.from_store(labelled()))
    odd = replace(labelled(), node_attributes=labelled().node_attributes + 99)
    predictions = predict_store(model, odd)
    assert predictions.summary()["out_of_distribution"] == 30
    assert "attribute" in next(predictions.rows())["out_of_distribution"]
    assert predict_store(labelled_model(), odd).out_of_distribution is None
    assert predict_store(model, labelled()).summary()["out_of_distribution"] <= 1


def test_accuracy_counts_graphs_that_did_not_train_the_model():
    # Three of four training graphs are right, one of two test graphs, and neither the new nor the validation graph.
    true = ("a", "a", "a", "b", "a", "b", "b", "a")
    predicted = ("a", "a", "a", "a", "a", "a", "a", "b")
    parts = ("training",) * 4 + ("test", "test", None, "validation")
    probabilities = np.array([[0.8, 0.2] if name == "a" else [0.3, 0.7] for name in predicted])
    predictions = Predictions(
        ("a", "b"), "lengths", probabilities, probabilities, ("",) * 8, true, used_in=parts
    )
    assert predictions.accuracies == {
        "test": {"graphs": 2, "accuracy": 0.5},
        "new": {"graphs": 1, "accuracy": 0.0},
        "validation": {"graphs": 1, "accuracy": 0.0},
        "training": {"graphs": 4, "accuracy": 0.75},
    }
    assert list(predictions.accuracies) == ["test", "new", "validation", "training"]
    assert (predictions.accuracy, predictions.measured_group) == (0.5, "test")
    assert predictions.metrics == class_metrics(np.array([0, 1]), probabilities[4:6])
    without_test = replace(predictions, used_in=("training",) * 4 + (None, None, None, "validation"))
    assert (without_test.accuracy, without_test.measured_group) == (pytest.approx(1 / 3), "new")
    assert without_test.metrics == class_metrics(np.array([0, 1, 1]), probabilities[4:7])
    assert predictions.summary()["used_in"] == {"training": 4, "validation": 1, "test": 2, "left-out": 0}
    assert [row["used_in"] for row in predictions.rows()] == list(parts)
    table = list(csv.DictReader(io.StringIO(predictions.to_csv())))
    assert [row["used_in"] for row in table] == [part or "" for part in parts]
    only_training = replace(predictions, used_in=("training",) * 8)
    assert (only_training.accuracy, only_training.metrics, only_training.measured_group) == (None, None, None)
    assert replace(predictions, used_in=None).accuracy == pytest.approx(4 / 8)


def _csv_by_rows(predictions: Predictions) -> list[dict[str, str]]:
    """The cells of the CSV file, one row of JSON values after the other."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.9g}"

    table = []
    for row in predictions.rows(first=7):
        cells = {"graph": str(row["graph"]), "id": row["id"], "class": row["class"] or ""}
        cells["probability"] = number(row["probability"])
        for name, values in (("probability", row["probabilities"]), ("length", row["lengths"])):
            cells |= {f"{name}[{each}]": number(values and values[each]) for each in predictions.class_names}
        for part in row["parts"] or [{"model": name} for name in ("hgcn", "wl-forest")]:
            for entry in ("probability", "weight", "contribution"):
                cells[f"part_{entry}[{part['model']}]"] = number(part.get(entry))
        cells["disagreement"] = number(row["disagreement"])
        cells["abstained"] = "yes" if row["abstained"] else ""
        for name in ("out_of_distribution", "used_in", "true_class", "error"):
            cells[name] = row[name] or ""
        table.append(cells)
    return table


def test_csv_columns_equal_rows() -> None:
    draw = np.random.default_rng(0)
    p, q = draw.dirichlet([1.0, 1.0, 1.0], (2, 6))
    p[4] = q[4] = np.nan
    predictions = Predictions(
        class_names=("a", "b", "c"),
        score_kind="lengths",
        scores=p**2,
        probabilities=0.25 * p + 0.75 * q,
        errors=("", "", "", "", "no nodes", ""),
        true_classes=("a", "", "c", "a", "b", "b"),
        abstain_below=0.6,
        out_of_distribution=("", "too large", "", "", "", ""),
        ids=tuple("uvwxyz"),
        used_in=("training", None, "test", None, None, "validation"),
        disagreement=draw.random(6),
        parts=AnswerParts(("hgcn", "wl-forest"), (0.25, 0.75), np.stack([p, q])),
    )
    table = list(csv.DictReader(io.StringIO(predictions.to_csv(first=7))))
    assert table == _csv_by_rows(predictions)
    assert {row["abstained"] for row in table} == {"", "yes"}
    without_header = predictions.to_csv(first=7, header=False)
    assert predictions.to_csv(first=7).split("\n", 1)[1] == without_header
