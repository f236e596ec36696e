"""The report file: data block, size limit and texts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.errors import DataError, ShapeError
from graphcaps.explanation import explain_store, molecule_drawings
from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals
from graphcaps.explanation.report import report_page, write_report
from graphcaps.explanation.report.report_data import read_block
from graphcaps.explanation.report.report_page import SCRIPTS, page_script
from graphcaps.explanation.report.report_text import describe, measure_sets, measured_accuracy
from graphcaps.metrics import MIN_CALIBRATION_GRAPHS, NUM_BINS, class_metrics
from graphcaps.nn.hard_assignment import hard_assignment
from tests.explanation.synthetic import FakeModel, make_explanations, make_store
from tests.small_models import train_small

PAGE = Path(report_page.__file__).parent / "page"


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    (text,) = re.findall(r'id="data">([^<]*)<', path.read_text("utf-8"))
    return read_block(text)


def test_columns_hold_the_explanations(tmp_path: Path) -> None:
    store = make_store(8)
    explanations = make_explanations(store, capsules=(4, 2))
    meta, columns = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations, title="T"))
    assert (meta["iterations"], [level["capsules"] for level in meta["levels"]]) == (3, [4, 2, 3])
    assert columns["node_ptr"].tolist() == explanations.node_ptr.tolist()
    assert np.stack([columns["edge_a"], columns["edge_b"]]).tolist() == explanations.edges.tolist()
    for number in (1, 2):
        c, graph = explanations.iterations[0][number], explanations.node_graph
        expected = hard_assignment(c, None, explanations.groups, graph)
        assert columns[f"top_0_{number}"].tolist() == expected.tolist()
        weights = columns[f"weights_0_{number}"].reshape(-1, 4) / 255
        assert np.abs(weights - explanations.iterations[0][number].numpy()).max() <= 0.5 / 255 + 1e-9
    above = columns["weights_1_2"].reshape(8, 4, 2) / 255
    assert np.abs(above - explanations.assignments[1].numpy()).max() <= 0.5 / 255 + 1e-9
    lengths = columns["length_2"].reshape(8, 3) * meta["levels"][2]["step"]
    assert np.abs(lengths - explanations.class_scores.numpy()).max() < 1e-4
    coarse = columns["coarse_1"].reshape(8, 3)  # of two capsules: 1 with 1, 1 with 2, 2 with 2
    assert (coarse[:, 1] == 255).all()
    scale = columns["score_scale"].repeat(explanations.node_ptr.diff().numpy())
    assert (
        np.abs(columns["score"] / 127 * scale - explanations.node_scores.numpy()).max()
        < 0.5 / 127 * scale.max() + 1e-6
    )
    assert columns["true_class"].tolist() == explanations.true_class.tolist()
    assert columns["confidence"] == pytest.approx(explanations.probabilities.amax(-1).numpy(), abs=1e-6)


def test_capsules_in_use(tmp_path: Path) -> None:
    store = make_store(8)
    explanations = make_explanations(store, capsules=(4,))
    meta, _ = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations, title="T"))
    share = explanations.assignments[0].argmax(-1).bincount(minlength=4) / explanations.node_ptr[-1]
    in_use = int((share >= 0.05).sum())
    assert in_use > 1
    assert meta["capsule_use"] == {"in_use": in_use, "capsules": 4}
    assert meta["facts"][-1] == [
        "Capsules in use",
        f"{in_use} of 4",
        "at the lowest level, over all graphs",
        "",
    ]
    explanations.assignments[0][:] = torch.tensor([0.2, 0.2, 0.4, 0.2])
    meta, _ = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations, title="T"))
    assert meta["facts"][-1] == [
        "Capsules in use",
        "1 of 4",
        "almost all nodes belong to it: parts say little",
        "",
    ]


def test_unknown_values_are_left_out(tmp_path: Path) -> None:
    store = make_store(3, labels=0)
    explanations = replace(make_explanations(store), true_class=None, reconstruction_error=None)
    meta, columns = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations))
    assert set(columns["true_class"].tolist()) == {-1}
    assert not {"label", "planted", "edge_error", "node_number", "part", "atom"} & set(columns)
    assert (meta["sets"], meta["history"], meta["metrics"]) == ([], None, [])


def test_graphs_without_edges_and_of_one_node(tmp_path: Path) -> None:
    from graphcaps.data.store import GraphStore

    store = GraphStore(
        "bare",
        torch.tensor([0, 1, 4]),
        torch.zeros(5, dtype=torch.long),
        torch.empty(0, dtype=torch.int32),
        y=torch.tensor([0, 1]),
        class_names=("a", "b"),
    )
    _, columns = read(write_report(tmp_path, FakeModel(("a", "b")), store, make_explanations(store)))
    assert columns["edge_a"].size == 0
    assert columns["node_ptr"].tolist() == [0, 1, 4]


def test_a_real_model_and_planted_parts(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=9)
    fitted = train_small(store)
    meta, columns = read(write_report(tmp_path, fitted, store, explain_store(fitted, store)))
    assert columns["planted"].tolist() == (store.truth["kind"] - 1).tolist()
    assert meta["planted"]["names"][:2] == ["ring", "star"]
    assert f"{sum(p.numel() for p in fitted.model.parameters()):,} parameters" in meta["lead"]


def test_truncated_graphs_keep_their_node_numbers(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=9)
    fitted = train_small(store, max_nodes=20)
    with pytest.warns(TruncationWarning, match="9 of 9 graphs are truncated"):
        explanations = explain_store(fitted, store)
    _, columns = read(write_report(tmp_path, fitted, store, explanations))
    assert explanations.nodes is not None
    assert columns["node_number"].tolist() == explanations.nodes.tolist()
    rows = store.node_ptr[:-1][explanations.node_graph] + explanations.nodes
    assert columns["planted"].tolist() == (store.truth["kind"][rows] - 1).tolist()


def test_texts_name_the_source_of_the_graphs(tmp_path: Path) -> None:
    store = make_store(10)
    explanations = make_explanations(store)
    right = explanations.predicted == explanations.true_class

    def report_of(training: dict[str, Any], used_in: list[str | None] | None = None) -> dict[str, Any]:
        model = FakeModel(store.class_names, training)
        return read(write_report(tmp_path, model, store, explanations, used_in=used_in))[0]

    meta = report_of({"dataset": "synthetic"})
    assert "include the training graphs" in meta["caveats"]
    assert "training graphs possibly included" in meta["facts"][0][2]
    assert "trained on other" in report_of({"dataset": "other"})["caveats"]
    meta = report_of({"dataset": "synthetic"}, ["training"] * 7 + [None] * 3)
    assert "7 training, 3 new" in meta["caveats"]
    assert meta["facts"][0][2].startswith(f"{int(right[7:].sum())} of 3 ")
    assert meta["other_facts"][0][2].startswith(f"{int(right[:7].sum())} of 7 ")


PARTS = ["training"] * 10 + ["validation"] * 4 + ["test"] * 6


def report_meta(
    tmp_path: Path, parts: list[str | None], training: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Header of a report whose model is right on training and validation graphs and wrong on the others."""
    store = make_store(len(parts))
    explanations = make_explanations(store, right=1.0)
    wrong = torch.tensor([part not in ("training", "validation") for part in parts])
    probabilities = explanations.probabilities.clone()
    probabilities[wrong] = probabilities[wrong].roll(1, -1)
    model = FakeModel(store.class_names, training or {"dataset": "synthetic"})
    changed = replace(explanations, probabilities=probabilities)
    return read(write_report(tmp_path, model, store, changed, used_in=parts))[0]


def test_the_headline_is_of_graphs_that_did_not_train_the_model(tmp_path: Path) -> None:
    """Accuracy over all graphs would be 70 %."""
    meta = report_meta(tmp_path, PARTS)
    title, value, note, caution = meta["facts"][0]
    assert (title, value) == ("Test accuracy", "0.0\u00a0%")
    interval = "95 % interval 0.0 % to 39.0 %".replace(" %", "\u00a0%")
    assert note == f"0 of 6 test graphs, which training did not use; {interval}"
    assert caution == "Caution: fewer than 30 graphs say little."
    assert [(fact[0], fact[1]) for fact in meta["other_facts"]] == [
        ("Validation accuracy", "100.0\u00a0%"),
        ("Training accuracy", "100.0\u00a0%"),
    ]
    assert meta["other_title"] == "Not a test: graphs that trained or selected the model"
    assert [(each["name"], each["graphs"]) for each in meta["sets"]] == [
        ("test", 6),
        ("validation", 4),
        ("training", 10),
    ]
    for each in meta["sets"]:
        assert sum(map(sum, each["confusion"])) == each["graphs"]
        assert sum(row["count"] for row in each["reliability"]) == each["graphs"]
    confusion = meta["sets"][0]["confusion"]
    assert sum(confusion[o][o] for o in range(3)) == 0


@pytest.mark.parametrize(
    ("parts", "title", "value"),
    [
        (["training"] * 8 + ["validation"] * 4 + [None] * 3, "Accuracy on new graphs", "0.0\u00a0%"),
        (["training"] * 8 + ["validation"] * 4, "Validation accuracy", "100.0\u00a0%"),
        ([None] * 12, "Accuracy on new graphs", "0.0\u00a0%"),
        (["training"] * 12, "Accuracy", "no figure"),
    ],
)
def test_the_headline_without_test_graphs(
    tmp_path: Path, parts: list[str | None], title: str, value: str
) -> None:
    meta = report_meta(tmp_path, parts)
    assert meta["facts"][0][:2] == [title, value]
    if value == "no figure":
        assert meta["facts"][0][2] == "none of the graphs is new to this model"
        assert meta["other_facts"][0][0] == "Training accuracy"


def test_a_test_accuracy_of_the_model_file_is_on_top(tmp_path: Path) -> None:
    training = {"dataset": "synthetic", "test_accuracy": 0.637, "test_graphs": 152}
    meta = report_meta(tmp_path, ["training"] * 9, training)
    interval = "95 % interval 55.9 % to 71.0 %".replace(" %", "\u00a0%")
    assert meta["facts"][0] == [
        "Test accuracy",
        "63.7\u00a0%",
        f"97 of 152 test graphs when the model was trained; {interval}",
        "",
    ]
    assert meta["other_facts"][0][0] == "Training accuracy"


def test_one_test_graph_has_an_interval_and_a_caution(tmp_path: Path) -> None:
    """100 % of one graph says little."""
    store = make_store(31)
    explanations = make_explanations(store, right=1.0)
    model = FakeModel(store.class_names, {"dataset": "synthetic"})
    for tests, interval in ((1, "20.7 % to 100.0 %"), (30, "88.6 % to 100.0 %")):
        parts = ["training"] * (31 - tests) + ["test"] * tests
        meta = read(write_report(tmp_path, model, store, explanations, used_in=parts))[0]
        _, value, note, caution = (text.replace("\u00a0", " ") for text in meta["facts"][0])
        assert value == "100.0 %"
        noun = "graph" if tests == 1 else "graphs"
        assert note.startswith(f"{tests} of {tests} test {noun}, which ")
        assert note.endswith(f"95 % interval {interval}")
        assert caution == ("Caution: fewer than 30 graphs say little." if tests < 30 else "")
        assert "interval" not in meta["other_facts"][0][2]  # of training graphs


def test_figures_are_over_the_labelled_graphs(tmp_path: Path) -> None:
    store = make_store(8)
    explanations = make_explanations(store)
    true = explanations.true_class.clone()
    true[[1, 5]] = -1
    meta, columns = read(
        write_report(
            tmp_path, FakeModel(store.class_names), store, replace(explanations, true_class=true),
            used_in=["test"] * 8,
        )
    )  # fmt: skip
    assert meta["sets"][0]["graphs"] == 6
    assert (
        "2 graphs have no label among the classes of the model; accuracies are over the other 6."
        in meta["caveats"]
    )
    assert columns["true_class"].tolist() == true.tolist()


def test_ids_and_smiles_are_on_the_page(tmp_path: Path) -> None:
    store = make_store(5)
    explanations = replace(make_explanations(store), smiles=("C", None, "CC", "CCC", "O"))
    ids = ["a", "b", "c", "d", "e"]
    meta, columns = read(
        write_report(tmp_path, FakeModel(store.class_names), store, explanations, ids=ids, used_in=[None] * 5)
    )
    assert (meta["ids"], meta["smiles"]) == (ids, ["C", None, "CC", "CCC", "O"])
    assert columns["part"].tolist() == [1] * 5
    assert (
        read(write_report(tmp_path, FakeModel(store.class_names), store, make_explanations(store)))[0]["ids"]
        is None
    )


def test_contributions_on_the_page_add_up_to_the_lengths(tmp_path: Path) -> None:
    store = make_store(7)
    explanations = make_explanations(store, capsules=(5, 3))
    meta, columns = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations))
    for level, below in ((1, 5), (2, 3)):
        entry = meta["levels"][level]
        values = columns[f"contribution_{level}"].reshape(7, below + 1, -1) * entry["contribution_step"]
        expected = explanations.lengths[level].numpy()
        np.testing.assert_allclose(values.sum(1), expected, atol=(below + 1) * entry["contribution_step"])


def test_texts_describe_the_probabilities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(10)
    model = FakeModel(store.class_names, {"dataset": "synthetic"})
    explanations, plain = make_explanations(store), model.info()
    assert "they are not calibrated" in read(write_report(tmp_path, model, store, explanations))[0]["caveats"]
    calibrated = plain | {"calibration": {"method": "temperature", "graphs": 50}}
    monkeypatch.setattr(FakeModel, "info", lambda self: calibrated)
    meta = read(write_report(tmp_path, model, store, explanations))[0]
    assert "calibrated (temperature) on 50 held-out graphs" in meta["caveats"]
    assert "not calibrated" not in meta["caveats"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"dropout": 0.5}, "during the epoch, with dropout"), ({"dropout": 0.0}, "during the epoch")],
)
def test_the_page_says_how_training_graphs_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, float], expected: str
) -> None:
    store = make_store(3)
    model = FakeModel(store.class_names)
    plain = model.info()
    named = plain | {"model": plain["model"] | {"arguments": arguments}}
    monkeypatch.setattr(FakeModel, "info", lambda self: named)
    meta, _ = read(write_report(tmp_path, model, store, make_explanations(store)))
    assert meta["train_measured"] == expected


def test_history_keeps_numbers_only(tmp_path: Path) -> None:
    store = make_store(3)
    rows: list[dict[str, Any]] = [
        {"epoch": 1, "seconds": 2.0, "train_loss": 0.5, "validation_loss": None},
        {"epoch": 2, "train_loss": float("nan")},
    ]
    model = FakeModel(store.class_names, {"epoch": 1})
    meta, _ = read(write_report(tmp_path, model, store, make_explanations(store), history=rows))
    assert meta["history"] == [{"epoch": 1, "train_loss": 0.5}, {"epoch": 2}]
    assert meta["best_epoch"] == 1


def test_a_large_page_is_reduced_and_states_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(80)
    explanations = make_explanations(store, capsules=(6,))
    full = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations))[0]
    assert "To limit the file size" not in full["foot"]
    monkeypatch.setattr(report_page, "MAX_BLOCK_CHARS", 8000)
    path = write_report(tmp_path, FakeModel(store.class_names), store, explanations)
    meta, columns = read(path)
    kept = len(columns["number"])
    assert 1 < kept < 80
    assert f"the list holds {kept} of 80 graphs" in meta["foot"]
    assert "weights_0_1" not in columns
    assert "top_0_1" in columns
    assert sum(sum(row) for row in meta["sets"][0]["confusion"]) == 80  # metrics are over all graphs
    gaps = np.diff(columns["number"])
    assert gaps.max() - gaps.min() <= 1


def test_a_page_lists_a_limited_number_of_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.explanation.report.report_page.MAX_GRAPHS", 5)
    store = make_store(12)
    meta, columns = read(
        write_report(tmp_path, FakeModel(store.class_names), store, make_explanations(store))
    )
    assert columns["number"].tolist() == [0, 2, 5, 8, 11]
    assert "the list holds 5 of 12 graphs, evenly spaced; all metrics are over all graphs." in meta["foot"]
    assert sum(each["graphs"] for each in meta["sets"]) == 12


def test_nan_and_lone_surrogates_are_handled(tmp_path: Path) -> None:
    store = make_store(4, class_names=("a", "b\ud800"))
    explanations = make_explanations(store)
    explanations.class_scores[0] = explanations.probabilities[0] = explanations.node_scores[0] = float("nan")
    meta, _ = read(write_report(tmp_path, FakeModel(store.class_names), store, explanations, title="t\ud800"))
    assert meta["sets"][0]["graphs"] == 3
    assert meta["classes"] == ["a", "b\\ud800"]


def test_invalid_arguments(tmp_path: Path) -> None:
    store = make_store(4)
    explanations, model = make_explanations(store), FakeModel(store.class_names)
    with pytest.raises(ShapeError, match=r"write_report: 'explanations' must be one per graph, 3, got 4\."):
        write_report(tmp_path, model, store[:3], explanations)
    with pytest.raises(ShapeError, match="'used_in' must have one entry per graph, 4, got 1"):
        write_report(tmp_path, model, store, explanations, used_in=[None])
    with pytest.raises(ShapeError, match="'ids' must have one entry per graph, 4, got 2"):
        write_report(tmp_path, model, store, explanations, ids=["a", "b"])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="a writable folder"):
        write_report(tmp_path / "file", model, store, explanations)
    assert not (tmp_path / "index.html").exists()


def test_the_same_input_gives_the_same_page(tmp_path: Path) -> None:
    store = make_store(4)
    pages = [
        write_report(
            tmp_path / name, FakeModel(store.class_names), store, make_explanations(store)
        ).read_bytes()
        for name in "ab"
    ]
    assert pages[0] == pages[1]


def test_all_scripts_are_included_and_build_no_markup_from_text() -> None:
    files = {path.stem: path.read_text("utf-8") for path in PAGE.glob("*.js")}
    assert set(files) == set(SCRIPTS)
    assert len(SCRIPTS) == len(set(SCRIPTS))
    for path in PAGE.iterdir():
        assert len(path.read_text("utf-8").splitlines()) <= 300, path.name
    # No markup is made from text, and nothing is run from text.
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</script"):
        assert word not in page_script(), word
    json.dumps(page_script())


def test_the_calibration_error_is_that_of_the_metrics() -> None:
    """As ``info`` and ``predict`` give it."""
    store = make_store(MIN_CALIBRATION_GRAPHS)
    explanations = make_explanations(store, right=0.7)
    (measured,) = measure_sets(explanations, ["test"] * MIN_CALIBRATION_GRAPHS)
    assert store.y is not None
    expected = class_metrics(store.y.numpy(), explanations.probabilities.numpy())["ece"]
    assert measured["ece"] == pytest.approx(expected)
    assert len(measured["reliability"]) == NUM_BINS


def test_few_graphs_have_no_calibration_error() -> None:
    explanations = make_explanations(make_store(MIN_CALIBRATION_GRAPHS), right=0.7)
    for new, title in ((MIN_CALIBRATION_GRAPHS, "Calibration error"), (15, "Capsules")):
        used_in = [None] * new + ["training"] * (MIN_CALIBRATION_GRAPHS - new)
        described = describe(None, "", explanations, used_in, None)
        assert [fact[0] for fact in described["facts"][:2]] == ["Accuracy on new graphs", title]
    assert described["sets"][0]["ece"] is None


def test_a_set_of_one_graph_has_a_singular() -> None:
    measured = {"correct": 1, "graphs": 1, "name": "test", "note": "test graphs, which training did not use"}
    assert measured_accuracy(measured)[1].startswith("1 of 1 test graph, which training did not use; ")
    two = measured | {"graphs": 2}
    assert measured_accuracy(two)[1].startswith("1 of 2 test graphs, which training did not use; ")


def test_a_molecule_that_rdkit_cannot_draw_is_laid_out_as_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    store = make_store(3, name="MUTAG")
    calls = molecule_drawings.call_rdkit

    def fail_once(task: str, items: Any, *options: Any, **named: Any) -> Any:
        answers = calls(task, items, *options, **named)
        if task != "draw-graph" or failed:
            return answers
        failed.append(task)
        return [answer._replace(problem="RDKit took too long") for answer in answers]

    failed: list[str] = []
    monkeypatch.setattr(molecule_drawings, "call_rdkit", fail_once)
    path = write_report(tmp_path, FakeModel(store.class_names), store, make_explanations(store))
    _, columns = read_block(re.findall(r'id="data">([^<]*)<', path.read_text("utf-8"))[0])
    first, second = (slice(*columns["node_ptr"][at : at + 2].tolist()) for at in (0, 1))
    assert failed
    assert not columns["atom_x"][first].any()  # the page computes a layout
    assert columns["atom_x"][second].any()


def test_class_names_and_counterfactuals_are_values_of_the_block(tmp_path: Path) -> None:
    store = make_store(4, class_names=("</script><b>", "no"))
    explanations = make_explanations(store)
    change = Counterfactual("removal", (1,), ((1, 0),), True, "", 1, "no", 0.6)
    found = {2: Counterfactuals((change,), 3, 1)}
    path = write_report(tmp_path, FakeModel(store.class_names), store, explanations, counterfactuals=found)
    text = path.read_text("utf-8")
    assert "</script><b>" not in text
    meta, _ = read_block(re.findall(r'id="data">([^<]*)<', text)[0])
    assert meta["counterfactuals"][0] is None
    (entry,) = meta["counterfactuals"][2]["found"]
    assert (entry["nodes"], entry["predicted"], entry["probability"]) == ([1], 1, 0.6)
    assert [card["capsule"] for card in meta["cards"]["cards"]] == [0, 1, 2, 3]
    for card in meta["cards"]["cards"]:
        for group in card["typical"]:
            row, nodes = group["example"]
            assert len(nodes) == group["nodes"]
            assert 0 <= row < 4
