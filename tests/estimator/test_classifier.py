"""HGCNClassifier: input formats, scikit-learn conventions, training, predictions, files and messages."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.data import to_networkx, to_pyg
from graphcaps.data.coercion import coerce
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.label_encoding import text_code
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.estimator.fit_inputs import encode_classes
from graphcaps.training import Callback, EpochEnd, TrainingLoop
from graphcaps.training.baseline import fit_baseline
from graphcaps.training.learning_warning import LearningWarning
from tests.estimator.small_classifier import fitted, small
from tests.small_models import labelled


def as_networkx(store: GraphStore) -> list[Any]:
    return [to_networkx(store, graph) for graph in range(len(store))]


# ---------------------------------------------------------------------- input
def test_three_input_formats_give_the_same_model():
    store = labelled()
    formats = [store, to_pyg(store), as_networkx(store)]
    names = np.array(store.class_names)[store.y]
    probabilities = [small().fit(graphs, names).predict_proba(graphs) for graphs in formats]
    np.testing.assert_array_equal(probabilities[1], probabilities[0])
    np.testing.assert_array_equal(probabilities[2], probabilities[0])


def test_classes_are_taken_from_y_or_from_the_graphs():
    store = labelled()
    assert fitted().classes_.tolist() == sorted(store.class_names)
    data = to_pyg(store)
    assert small().fit(data).classes_.tolist() == [0, 1, 2]
    graphs = as_networkx(store)
    assert small().fit(graphs).classes_.tolist() == sorted(store.class_names)
    y = np.array([2.0, 7.0] * 15)
    model = small().fit(store, y)
    assert model.classes_.tolist() == [2.0, 7.0]
    assert set(model.predict(store)) <= {2.0, 7.0}
    assert model.model_.class_names == ("2", "7")
    y = np.array(["yes", "no"] * 15, dtype=object)
    assert small().fit(store, y).classes_.tolist() == ["no", "yes"]


def test_text_labels_are_encoded_as_in_training():
    graphs = as_networkx(labelled())
    letters = "CNOF"
    for graph in graphs:
        for _, entry in graph.nodes(data=True):
            entry["label"] = letters[entry["label"]]
            del entry["attributes"]
    model = small().fit(graphs)
    alone = [graph for graph in graphs if all(e["label"] in "CN" for _, e in graph.nodes(data=True))]
    probe = graphs[:3] + alone
    np.testing.assert_allclose(model.predict_proba(probe)[:3], model.predict_proba(graphs)[:3], atol=1e-6)
    assert model.model_.recipe.label_values == (tuple(sorted(text_code(text) for text in letters)),)
    assert sorted(model.model_.info()["expects"]["node_labels"][0]) == sorted(letters)


def test_smiles_strings():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "c1ccncc1", "CCN", "c1ccccc1O"] * 3
    ring = np.array(["c1" in text for text in smiles])
    model = small(validation=0).fit(smiles, ring)
    assert model.classes_.tolist() == [False, True]
    assert model.predict(["CCCO", "c1ccccc1C"]).dtype == bool


def test_the_featurizer_of_smiles():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "c1ccncc1", "CCN", "c1ccccc1O"]
    ring = ["c1" in text for text in smiles]
    widths = {}
    for name in (None, "standard", "elements"):
        model = small(validation=0, epochs=1, featurizer=name).fit(smiles, ring)
        widths[name] = model.n_features_in_
        assert model.model_.recipe.featurizer == (name or "standard")
        assert model.predict(smiles[:2]).shape == (2,)
    assert widths == {None: 7, "standard": 7, "elements": 1}
    with pytest.raises(
        ArgumentError, match=r"'featurizer' must be one of None, 'standard', 'elements', got 'full'"
    ):
        small(featurizer="full").fit(smiles, ring)
    with pytest.raises(ArgumentError, match=r"'featurizer' must be omitted for graph stores"):
        small(featurizer="elements").fit(graphcaps.data.from_smiles(smiles), ring)


def test_concatenated_stores_equal_the_store():
    store = labelled()
    joined = concat_stores([store[graph] for graph in range(len(store))])
    for name in ("node_ptr", "edge_ptr", "neighbours", "y", "node_labels", "node_attributes"):
        assert torch.equal(getattr(joined, name), getattr(store, name)), name
    with pytest.raises(ArgumentError, match="all have 'node_labels', or none"):
        concat_stores([store, replace(store, node_labels=None)])


# ---------------------------------------------------------------------- scikit-learn conventions
def test_the_option_context():
    model = small(context="gin", context_layers=1, context_jumping=True, epochs=1).fit(labelled())
    arguments = model.model_.config.model_arguments
    assert (arguments["context"], arguments["context_layers"], arguments["context_jumping"]) == (
        "gin",
        1,
        True,
    )
    context = model.model_.model.layers[0].context
    assert (context.kind, len(context.weights)) == ("gin", 1)
    assert "context" not in small(epochs=1).fit(labelled()).model_.config.model_arguments
    for options, message in (
        ({"context": "gcn"}, "'context' must be one of None, 'none', 'residual', 'gated', 'gin', got 'gcn'"),
        ({"context_layers": 0}, "'context_layers' must be an integer of at least 1, or None, got 0"),
        (
            {"context_layers": 2},
            "'context_layers' must come with a context, 'residual', 'gated', 'gin', got 2",
        ),
        ({"context": "none", "context_jumping": True}, "'context_jumping' must come with a context"),
        ({"context": "gin", "parts": "blocks"}, "'context' must be 'none' beside parts='blocks', got 'gin'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            small(**options).fit(labelled())


def test_the_option_parts():
    model = small(parts="blocks", epochs=1).fit(labelled())
    assert model.model_.config.model_arguments["parts"] == "blocks"
    assert "parts" not in small(epochs=1).fit(labelled()).model_.config.model_arguments
    with pytest.raises(ArgumentError, match="'parts' must be one of None, 'blocks', got 'bricks'"):
        small(parts="bricks").fit(labelled())


def test_cross_validation_grid_search_and_pipeline():
    store = labelled()
    y = store.y.numpy()
    data, folds = to_pyg(store), StratifiedKFold(2)
    by_list = cross_val_score(small(), data, y, cv=folds)
    by_store = cross_val_score(small(), store, y, cv=folds)
    np.testing.assert_array_equal(by_list, by_store)
    assert cross_val_score(small(epochs=1), data, cv=2).shape == (2,)  # classes from the graphs
    search = GridSearchCV(small(epochs=1), {"num_capsules": [2, (3, 2)], "dropout": [0.0]}, cv=2)
    search.fit(data, y)
    assert search.best_params_["num_capsules"] in (2, (3, 2))
    assert search.best_estimator_.predict(data).shape == (30,)
    from sklearn.linear_model import LogisticRegression

    pipe = make_pipeline(small(epochs=1), LogisticRegression(max_iter=500)).fit(data, y)
    assert pipe.predict(data).shape == (30,)
    assert list(pipe[:-1].get_feature_names_out()[:2]) == ["0[0]", "0[1]"]


def test_clone_and_pickle():
    model = fitted()
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "model_")
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict_proba(labelled()), model.predict_proba(labelled()))


def test_the_same_random_state_gives_identical_predictions():
    again = small().fit(labelled()).predict_proba(labelled())
    np.testing.assert_array_equal(again, fitted().predict_proba(labelled()))
    other = small(random_state=1).fit(labelled()).predict_proba(labelled())
    assert not np.allclose(other, again)
    once = small(random_state=np.random.RandomState(5)).fit(labelled())
    twice = small(random_state=np.random.RandomState(5)).fit(labelled())
    assert once.model_.training["seed"] == twice.model_.training["seed"]


def test_transform_returns_the_class_capsules():
    rows = fitted().transform(labelled())
    assert rows.shape == (30, 3 * 8)
    assert len(fitted().get_feature_names_out()) == 24
    lengths = np.linalg.norm(rows.reshape(30, 3, 8), axis=-1)
    np.testing.assert_allclose(lengths, fitted().model_.scores(labelled()).numpy(), atol=1e-6)
    assert fitted().model_.embed(labelled(), level=0).shape == (30, 4 * 8)
    with pytest.raises(ArgumentError, match="one of the 2 capsule levels"):
        fitted().model_.embed(labelled(), level=2)


# ---------------------------------------------------------------------- training
def test_early_stopping_keeps_the_best_epoch(monkeypatch):
    monkeypatch.setattr("graphcaps.training.early_stopping.MIN_STEPS", 1)  # of an epoch
    model = small(epochs=60, patience=5, learning_rate=0.01).fit(labelled())
    kept = model.model_.training["epoch"]
    assert model.n_iter_ == len(model.history_) < 60
    assert kept == model.n_iter_ - 5 >= 21
    assert "stopped: no progress above 0.0005 in 5 epochs" in model.model_.training["rule"]
    assert small(epochs=25, patience=None).fit(labelled()).n_iter_ == 25


def test_without_validation_all_graphs_are_trained_on_and_nothing_is_calibrated():
    model = small(validation=0, patience=1).fit(labelled())
    assert model.n_iter_ == 3
    assert model.model_.training["train_graphs"] == 30
    assert model.model_.calibration is None
    assert "validation_loss" not in model.history_[0]


def test_warm_start_continues_from_the_fitted_weights():
    model = small(warm_start=True, validation=0).fit(labelled())
    first = {name: value.clone() for name, value in model.model_.model.state_dict().items()}
    model.set_params(epochs=1, learning_rate=1e-9, weight_decay=0.0, dropout=0.0).fit(labelled())
    second = model.model_.model.state_dict()
    for name in ("primary.weight", "layers.0.weight"):
        torch.testing.assert_close(second[name], first[name], atol=1e-5, rtol=0)
    with pytest.raises(ArgumentError, match="be a model of the same sizes"):
        model.set_params(capsule_dim=16).fit(labelled())
    with pytest.raises(ArgumentError, match="have the classes of the graphs"):
        model.set_params(capsule_dim=8).fit(labelled(), np.arange(30) % 2)


def test_progress_is_printed_and_reported(capsys: pytest.CaptureFixture[str]):
    seen: list[int] = []

    class Epochs(Callback):
        def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
            seen.append(event.epoch)

    small(epochs=4, verbose=2, callbacks=[Epochs()]).fit(labelled())
    printed = capsys.readouterr()
    assert seen == [1, 2, 3, 4]
    assert printed.out == ""
    *lines, last = printed.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 2 of 4", "epoch 4 of 4"]
    number = r"\d\.\d{4}"
    pattern = (
        f"train_loss {number}, train_accuracy \\(during the epoch, with dropout\\) {number}, "
        f"validation_loss {number}, validation_accuracy {number}"
    )
    assert all(re.fullmatch(pattern, line.partition(": ")[2]) for line in lines)
    store = encode_classes(coerce(labelled()), None)[1]
    baseline = fit_baseline(store, seed=0, validation=0.1)
    assert baseline is not None
    assert last == baseline.sentence
    assert last.startswith("features-trees on the same graphs: validation accuracy")


def test_no_baseline_is_printed_without_validation_graphs_or_if_silent(capsys: pytest.CaptureFixture[str]):
    small(epochs=1, verbose=5, validation=0, calibrate=False).fit(labelled())
    small(epochs=1).fit(labelled())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("calibrate", "method"), [(True, "temperature"), ("isotonic", "isotonic")])
def test_probabilities_are_calibrated(calibrate, method):
    model = small(calibrate=calibrate).fit(labelled())
    assert model.model_.calibration.method == method
    assert model.model_.calibration.graphs == 3  # a tenth of each class, at least one graph
    plain = small(calibrate=False).fit(labelled())
    assert plain.model_.calibration is None
    assert not np.allclose(plain.predict_proba(labelled()), model.predict_proba(labelled()))
    expected = model.model_.calibration.apply(plain.predict_proba(labelled()))
    np.testing.assert_allclose(expected, model.predict_proba(labelled()))


# ---------------------------------------------------------------------- predictions
def test_abstaining_and_out_of_distribution_graphs():
    model, store = fitted(), labelled()
    confidence = model.predict_proba(store).max(1)
    threshold = float(np.median(confidence))
    predictions = model.predict(store, abstain_below=threshold)
    assert [name is None for name in predictions] == (confidence < threshold).tolist()
    assert sum(map(bool, model.out_of_distribution(store))) <= 1
    big = replace(store, node_attributes=store.node_attributes * 1000)
    assert all("attribute" in reason for reason in model.out_of_distribution(big))


def test_explain_takes_a_class_label():
    explanation = fitted().explain(labelled()[0], target=fitted().classes_[1])
    assert type(explanation).__name__ == "Explanation"
    with pytest.raises(ArgumentError, match="be a class among"):
        fitted().explain(labelled()[0], target="no such class")


def test_unseen_labels_give_a_warning_or_an_error():
    store = labelled()
    unseen = replace(store, node_labels=store.node_labels + 1)
    with pytest.warns(
        UserWarning, match="encoded as zeros in 30 of 30 graphs. Graph 0: node label 4, on 7 nodes"
    ):
        fitted().predict(unseen)
    refusing = small(unseen="refuse").fit(store)
    with pytest.raises(ArgumentError, match="label"):
        refusing.predict(unseen)


# ---------------------------------------------------------------------- node labels
def graphs_with_labels(labels: Sequence[Any] | None) -> list[nx.Graph]:
    result = []
    for number in range(12):
        graph = nx.cycle_graph(5 + number % 3) if number % 2 else nx.path_graph(5 + number % 3)
        for node in graph if labels is not None else ():
            graph.nodes[node]["label"] = labels[node % len(labels)]  # type: ignore[index]
        result.append(graph)
    return result


@cache
def fitted_on_labels(labels: tuple[Any, ...] | None) -> HGCNClassifier:
    model = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=1, device="cpu", random_state=0
    )
    return model.fit(graphs_with_labels(labels), [number % 2 for number in range(12)])


@pytest.mark.parametrize("labels", [(0, 1), ("a", "b"), ("1", "2"), ("a", 1)])
def test_labels_for_a_model_without_labels_are_refused(labels: tuple[Any, ...]) -> None:
    with pytest.raises(
        ArgumentError, match="must have no node label columns, as the graphs that the model was"
    ):
        fitted_on_labels(None).predict(graphs_with_labels(labels))


def test_unseen_text_is_encoded_as_zeros() -> None:
    model = fitted_on_labels(("a", "b"))
    with pytest.warns(UserWarning, match="encoded as zeros") as warned:
        probabilities = model.predict_proba(graphs_with_labels(("a", "z")))
    assert [str(warning.message) for warning in warned] == [
        "HGCNClassifier: unseen labels are encoded as zeros in 12 of 12 graphs. Graph 0: node label 'z', on 2 nodes, "
        "not seen in training."
    ]
    with pytest.warns(UserWarning, match="encoded as zeros"):
        other = model.predict_proba(graphs_with_labels(("a", "y")))
    assert np.array_equal(probabilities, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.array_equal(probabilities, model.predict_proba(graphs_with_labels(("a", "b"))))


def test_unseen_text_is_refused_on_request() -> None:
    model = HGCNClassifier(unseen="refuse")
    model.__dict__ |= {
        key: value for key, value in vars(fitted_on_labels(("a", "b"))).items() if key != "unseen"
    }
    with pytest.raises(ArgumentError) as caught:
        model.predict(graphs_with_labels(("a", "z")))
    assert str(caught.value) == (
        "HGCNClassifier: 'X' must hold graphs that the model can read, got graph 0 of graphs: node label 'z', on "
        "2 nodes, not seen in training (12 such graphs). Pass unseen='ignore' to encode unseen labels as zeros."
    )


def test_a_number_is_not_confused_with_the_code_of_a_text() -> None:
    with pytest.warns(UserWarning, match="Graph 0: node labels 0, 1, on 5 nodes, not seen in training"):
        fitted_on_labels(("a", "b")).predict(graphs_with_labels((0, 1)))


def test_numpy_numbers_are_read_as_numbers() -> None:
    read = coerce(graphs_with_labels(("red", np.int64(2), np.int8(3))))
    assert read.store.node_labels[:3].flatten().tolist() == [text_code("red"), 2, 3]


def test_text_is_hashed_unless_it_spells_a_number() -> None:
    read = coerce(graphs_with_labels(("red", "2", 3)))
    assert read.store.node_labels[:3].flatten().tolist() == [text_code("red"), 2, 3]
    assert read.store.label_names == {text_code("red"): "red"}


@pytest.mark.parametrize("label", [0.5, {}, None])
def test_invalid_labels_are_refused(label: object) -> None:
    model = fitted_on_labels(("a", "b"))
    for read in (model.fit, model.predict):
        with pytest.raises(ArgumentError, match=r"^HGCNClassifier: 'label' must be .* of graph 0\.$"):
            read(graphs_with_labels(("a", label)))


# ---------------------------------------------------------------------- speed
@pytest.mark.exhaustive
def test_mutag_with_defaults_takes_less_than_60_cpu_seconds(shared_data):
    """CPU time, which does not depend on other programs: 30 seconds on two cores."""
    import time

    mutag = graphcaps.load_dataset("MUTAG", shared_data)
    start = time.process_time()
    model = HGCNClassifier(random_state=0, device="cpu").fit(mutag)
    seconds = time.process_time() - start
    assert model.score(mutag) > 0.8
    assert seconds < 60, f"{seconds:.1f} s"


def test_the_metric_selects_the_epoch():
    model = small(metric="balanced-accuracy").fit(labelled())
    assert model.model_.training["metric"] == "balanced-accuracy"
    assert all(0 <= row["validation_metric"] <= 1 for row in model.history_)
    assert "validation_metric" not in small().fit(labelled()).history_[0]


def test_a_model_that_has_hardly_learned_is_said() -> None:
    """As by ``graphcaps train``; not with weights, which may lower accuracy on purpose."""
    store = labelled()
    y = np.arange(len(store)) % 2  # unrelated to the graphs
    with pytest.warns(LearningWarning) as warned:
        small(epochs=1, random_state=0).fit(store, y)
    message = next(str(each.message) for each in warned if each.category is LearningWarning)
    assert message.startswith("HGCNClassifier: The model has hardly learned: its training accuracy is ")
    assert message.endswith("Train longer (epochs).")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LearningWarning)
        small(epochs=1, random_state=0, class_weight="balanced").fit(store, y)
        small(epochs=1, random_state=0).fit(store, y, sample_weight=1.0 + y)


# ---------------------------------------------------------------------- committees
@cache
def committee() -> HGCNClassifier:
    """Two members, fitted on thirty graphs; treat as read-only."""
    return small(n_estimators=2).fit(labelled())


def test_a_committee_averages_its_members(tmp_path):
    model, store = committee(), labelled()
    p = model.model_.member_probabilities(store)
    assert p.shape == (2, 30, 3)
    np.testing.assert_array_equal(model.predict_proba(store), p.mean(0))
    assert model.disagreement(store).shape == (30,)
    assert model.disagreement(store).max() > 0
    assert fitted().disagreement(store).tolist() == [0] * 30
    assert model.transform(store).shape == (30, 2 * 3 * 8)
    names = model.get_feature_names_out()
    assert (len(names), names[0], names[24]) == (
        *(48, f"member 1: {model.classes_[0]}[0]"),
        f"member 2: {model.classes_[0]}[0]",
    )
    losses = [entry["validation_loss"] for entry in model.model_.training["members"]]
    assert model.history_[-1]["validation_loss"] == pytest.approx(sum(losses) / 2)
    limit = float(np.median(model.disagreement(store)))
    predicted = model.predict(store, max_disagreement=limit)
    assert [label is None for label in predicted] == (model.disagreement(store) > limit).tolist()
    model.save(tmp_path / "c.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "c.safetensors")
    assert loaded.n_estimators == 2
    np.testing.assert_array_equal(loaded.predict_proba(store), model.predict_proba(store))
    pickled = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(pickled.predict_proba(store), model.predict_proba(store))


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "5"])
def test_a_wrong_number_of_members_is_refused(number):
    with pytest.raises(ArgumentError, match="'n_estimators' must be an integer of at least 1, or None, got"):
        small(n_estimators=number).fit(labelled())


def test_a_warm_start_keeps_the_number_of_members():
    model = clone(committee()).set_params(warm_start=True, epochs=1).fit(labelled())
    model.fit(labelled())
    assert len(model.model_.members) == 2
    with pytest.raises(
        ArgumentError, match="'n_estimators' must be 2, as in the fit that is continued, got 3"
    ):
        model.set_params(n_estimators=3).fit(labelled())


# ---------------------------------------------------------------------- restarts
def test_the_best_of_several_networks_is_kept(tmp_path):
    store = labelled()
    model = small(n_init=3, validation=0.3).fit(store)
    record = model.model_.training["restarts"]
    losses = [run["criterion"] for run in record["runs"]]
    assert record["kept_seed"] == losses.index(min(losses))
    assert not model.model_.is_committee
    assert model.history_[-1]["validation_loss"] == pytest.approx(model.model_.training["validation_loss"])
    assert model.get_params()["n_init"] == 3
    assert clone(model).n_init == 3
    assert model.transform(store).shape == (30, 3 * 8)
    model.save(tmp_path / "m.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "m.safetensors")
    assert loaded.n_init == 3
    np.testing.assert_array_equal(loaded.predict_proba(store), model.predict_proba(store))
    model.model_.save(tmp_path / "trained.safetensors")  # as graphcaps train writes it
    assert HGCNClassifier.load(tmp_path / "trained.safetensors").n_init == 3


def test_one_network_is_the_default():
    model, store = small(n_init=np.int64(1)).fit(labelled()), labelled()
    np.testing.assert_array_equal(model.predict_proba(store), fitted().predict_proba(store))
    assert "restarts" not in model.model_.training


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_init": 0}, "'n_init' must be an integer of at least 1, got 0."),
        ({"n_init": 1.5}, "'n_init' must be an integer of at least 1, got 1.5."),
        ({"n_init": True}, "'n_init' must be an integer of at least 1, got True."),
        (
            {"n_init": 3, "n_estimators": 2},
            "'n_init' must be 1 with a committee, which keeps all of its members, got 3 with 2 members. "
            "Set n_estimators=1 to keep one of 3 models.",
        ),
        (
            {"n_init": 3, "preset": "best"},
            "'n_init' must be 1 with a committee, which keeps all of its members, got 3 with 5 members of the preset "
            "'best'. Set n_estimators=1 to keep one of 3 models.",
        ),
        (
            {"n_init": 3, "validation": 0},
            "'n_init' must be 1 without validation graphs, which choose the network to keep, got 3. "
            "Set 'validation' above 0.",
        ),
    ],
)
def test_networks_that_cannot_be_chosen_from_are_refused(changes, message):
    with pytest.raises(ArgumentError) as refused:
        small(**changes).fit(labelled())
    assert str(refused.value) == f"HGCNClassifier: {message}"


def test_a_validation_set_of_its_own_chooses_the_network():
    store = labelled()
    train, held_out = store[torch.arange(20)], store[torch.arange(20, 30)]
    model = small(n_init=2, validation=0, epochs=1)
    model.fit(train, validation=(held_out, None))
    assert model.model_.training["restarts"]["count"] == 2


def test_a_continued_fit_has_no_restarts():
    model = small(n_init=2, epochs=1, warm_start=True).fit(labelled())
    message = r"'n_init' must be 1 in a fit that continues \(warm_start\), which starts from the weights of the first"
    with pytest.raises(ArgumentError, match=message):
        model.fit(labelled())
    model.set_params(n_init=1).fit(labelled())
    assert "restarts" not in model.model_.training
