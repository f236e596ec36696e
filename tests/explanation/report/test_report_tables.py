import numpy as np

from graphcaps.explanation.report import confusion_matrix
from graphcaps.explanation.report.report_tables import metric_tables


def test_no_metrics_give_no_table() -> None:
    assert metric_tables(None) == []
    assert metric_tables({}) == []


def test_tables_of_evaluate_explanations() -> None:
    metrics = {
        "graphs": 360,
        "share": 0.2,
        "seed": 0,
        "methods": {
            "capsules": {"nmi": 0.6, "fidelity_plus": 0.7, "sparsity": None},
            "random": {"nmi": None, "fidelity_plus": 0.3, "sparsity": None},
        },
        "capsules": {"entropy": 0.3, "share": [0.5, 0.5], "used_per_graph": 5.8},
        "instances": None,
        "sample": {
            "graphs": [1, 2],
            "fidelity_plus": {"capsules": 0.5},
            "fidelity_minus": {"capsules": 0.25},
        },
        "stability": {"models": 2, "nmi": 0.4},
    }
    first, sample, use, stability = metric_tables(metrics)
    assert first["head"] == ["method", "NMI", "fidelity+"]  # a metric without values has no column
    assert first["rows"] == [["capsules", 0.6, 0.7], ["random", None, 0.3]]
    assert (
        first["caption"] == "One row per method, over 360 graphs, an explanation is 20 % of a graph's nodes."
    )
    assert [name for name, _ in first["definitions"]] == ["NMI", "fidelity+"]
    assert sample["rows"] == [["capsules", 0.5, 0.25]]
    assert "2 graphs" in sample["caption"]
    assert use["rows"] == [
        ["entropy", 0.3],
        ["share of a graph per capsule", "50 %, 50 %"],
        ["capsules per graph", 5.8],
    ]
    assert stability["rows"] == [["models", 2], ["NMI", 0.4]]


def test_other_shapes() -> None:
    (by_method,) = metric_tables({"a": {"b": {"c": 1.5}}, "d": {"x": float("nan")}})
    assert by_method["head"] == ["method", "b c"]
    assert by_method["rows"] == [["a", 1.5]]  # a row without any number is left out
    (plain,) = metric_tables({"nmi": 0.5, "odd_name": 3})
    assert plain["rows"] == [["NMI", 0.5], ["odd name", 3]]


def test_members_of_a_single_network_have_no_table() -> None:
    methods = {"methods": {"capsules": {"nmi": 0.6}}}
    assert len(metric_tables(methods | {"graphs": 9, "members": 1})) == 1
    assert metric_tables(methods | {"members": 3})[1]["rows"] == [["members", 3]]


def test_confusion_by_hand() -> None:
    true, predicted = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 0, 2, 2])
    assert confusion_matrix(true, predicted, 3).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]
