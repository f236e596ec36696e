"""``graphcaps.explain``: inputs, results, and independence of the graphs in a store."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import torch

import graphcaps
from graphcaps.data import to_networkx
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation import Explanation, StoreExplanation, explain_store
from graphcaps.explanation.model_inputs import batch_spans, encode_for_model
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from tests.explanation.synthetic import make_explanations, make_store
from tests.graphs import assert_equal, tiny_graphs
from tests.small_models import labelled, labelled_model, planted, small_model, train_small


def test_a_store_gives_the_explanations_of_its_graphs() -> None:
    store, fitted = planted(), small_model()
    explanations = graphcaps.explain(fitted, store)
    assert isinstance(explanations, StoreExplanation)
    assert len(explanations) == len(list(explanations)) == 30
    assert_equal(explanations.class_scores, fitted.scores(store), "scores", 1e-6)
    assert torch.equal(explanations.true_class, store.y)
    assert explanations.node_scores.shape == (store.num_nodes,)
    assert explanations.edges.shape == (2, store.num_edges)
    assert_equal(
        explanations.probabilities, torch.from_numpy(fitted.predict_proba(store)), "probabilities", 1e-5
    )
    for graph in (0, 17, -1):
        one = graphcaps.explain(fitted, store[graph])
        assert isinstance(one, Explanation)
        same = explanations[graph]
        assert same.graph == graph % 30
        for name in ("class_scores", "node_scores", "edge_scores", "reconstruction_error", "edges"):
            assert_equal(getattr(one, name), getattr(same, name), name, 1e-5)
        for level, other in zip(one.levels, same.levels, strict=True):
            assert_equal(level.iterations, other.iterations, "iterations", 1e-5)
            assert_equal(level.lengths, other.lengths, "lengths", 1e-5)
            assert torch.equal(level.iterations[-1], level.assignment)
        assert one.levels[0].adjacency.shape == (4, 4)
        assert one.levels[-1].adjacency is None
    with pytest.raises(ArgumentError, match="from 0 to 29"):
        explanations[30]


def test_edges_are_those_of_the_graph_each_once() -> None:
    store = planted()
    explanation = graphcaps.explain(small_model(), store)[4]
    assert (explanation.edges[0] < explanation.edges[1]).all()
    graph = to_networkx(store, 4)
    assert {tuple(edge) for edge in explanation.edges.T.tolist()} == {
        tuple(sorted(edge)) for edge in graph.edges
    }
    assert_equal(explanation.edge_scores, explanation.node_scores[explanation.edges].mean(0), "edge scores")
    assert explanation.num_nodes == len(graph)


def test_reconstruction_error_is_that_of_the_decoder() -> None:
    store, fitted = planted(), small_model()
    explanations, network = graphcaps.explain(fitted, store), fitted.model
    with torch.no_grad():
        output = network.forward_batch(store.batch(encode_for_model(fitted, store).x))
    assert_equal(explanations.assignments[0], output.levels[0].assignment, "assignment", 1e-6)
    z = output.primary + network.decoder.code(output.class_capsules, explanations.predicted)[store.node_graph]
    source, target = explanations[7].edges + store.node_ptr[7]
    expected = 1 - (z[source] * z[target]).sum(-1).detach().clamp(0, 1)
    assert_equal(explanations[7].reconstruction_error, expected, "error", 1e-5)
    assert 0.001 < float(expected.mean()) < 0.999
    bare = train_small(store, arguments={"capsule_dim": 8, "num_capsules": (4,), "reconstruction": False})
    assert graphcaps.explain(bare, store)[0].reconstruction_error is None


def test_data_and_networkx_graphs_are_accepted() -> None:
    from torch_geometric.data import Data

    store, fitted = planted(), small_model()
    expected = graphcaps.explain(fitted, store)[2]
    graph = to_networkx(store, 2)
    edge_index = torch.tensor(list(graph.edges)).T
    data = Data(edge_index=torch.cat([edge_index, edge_index.flip(0)], 1), num_nodes=len(graph), y=7)
    for source in (graph, data):
        one = fitted.explain(source)
        assert_equal(one.node_scores, expected.node_scores, "node scores", 1e-5)
        assert one.true_class is None
    assert isinstance(graphcaps.explain(fitted, [data]), StoreExplanation)  # also for a list of one graph
    assert len(graphcaps.explain(fitted, [graph, nx.path_graph(3)])) == 2


def test_graphs_without_edges() -> None:
    one = graphcaps.explain(small_model(), nx.empty_graph(1))
    assert one.edges.shape == (2, 0)
    assert one.node_scores.shape == (1,)
    assert one.levels[0].assignment.shape == (1, 4)
    json.loads(one.to_json())
    none = graphcaps.explain(small_model(), nx.empty_graph(5))
    assert none.edge_scores.numel() == 0
    assert_equal(none.node_scores, none.node_scores[:1].expand(5), "equal nodes", 1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_explain_works_under_no_grad(mode: type) -> None:
    expected = graphcaps.explain(small_model(), planted()[:3])
    with mode():
        explanations = graphcaps.explain(small_model(), planted()[:3])
    assert_equal(explanations.node_scores, expected.node_scores, "scores")


def test_target_class() -> None:
    store, fitted = planted(), small_model()
    own_class = graphcaps.explain(fitted, store)
    assert torch.equal(own_class.target, own_class.predicted)
    second = graphcaps.explain(fitted, store, target=1)
    named = graphcaps.explain(fitted, store, target=store.class_names[1])
    each = graphcaps.explain(fitted, store, target=store.y)
    assert_equal(second.node_scores, named.node_scores, "name")
    assert torch.equal(each.target, store.y)
    rows = store.y[store.node_graph] == 1
    assert_equal(each.node_scores[rows], second.node_scores[rows], "own class", 1e-6)
    assert not torch.allclose(each.node_scores[~rows], second.node_scores[~rows])
    with pytest.raises(ArgumentError, match="'target' must be one of ring-star, ring-clique"):
        graphcaps.explain(fitted, store, target="nothing")
    with pytest.raises(ArgumentError, match="from 0 to 2, got 3"):
        graphcaps.explain(fitted, store, target=3)
    with pytest.raises(ShapeError, match="each of the 30 graphs"):
        graphcaps.explain(fitted, store, target=torch.zeros(4))


def test_true_classes_are_class_indices_of_the_model() -> None:
    store = planted()
    permuted = replace(store, class_names=(store.class_names[2], "other", store.class_names[0]))
    explanations = graphcaps.explain(small_model(), permuted)
    assert explanations.true_class.tolist() == [{0: 2, 1: -1, 2: 0}[label] for label in store.y.tolist()]
    unknown = int((store.y == 1).nonzero()[0])
    assert explanations[unknown].true_class is None


def test_a_bare_hgcn_takes_features() -> None:
    graphs = tiny_graphs()
    torch.manual_seed(0)
    model = HGCN(5, 2, capsule_dim=8, num_capsules=(3, 2), formulation="paper").double()
    explanations = graphcaps.explain(model, graphs.as_store(), x=graphs.x)
    assert model.training  # the mode is restored
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = model.eval().forward_batch(graphs.as_batch())
    assert_equal(explanations.class_scores, expected.class_scores, "scores")
    assert [tuple(value.shape) for value in explanations.assignments] == [(7, 3), (3, 3, 2), (3, 2, 2)]
    assert explanations[1].levels[1].assignment.shape == (3, 2)
    with pytest.raises(ArgumentError, match="'x' must be passed with a bare HGCN"):
        graphcaps.explain(model, graphs.as_store())
    with pytest.raises(ShapeError, match=r"have the shape \[7, 5\]"):
        graphcaps.explain(model, graphs.as_store(), x=graphs.x[:, :4])
    with pytest.raises(ArgumentError, match="'x' must be omitted"):
        graphcaps.explain(small_model(), planted(), x=graphs.x)


def test_truncated_graphs_keep_node_indices() -> None:
    store = planted()
    fitted = train_small(store, max_nodes=20)
    with pytest.warns(TruncationWarning, match="explain: .* graphs are truncated"):
        explanations = graphcaps.explain(fitted, store)
    with pytest.warns(TruncationWarning):
        scores = fitted.scores(store)
    assert_equal(explanations.class_scores, scores, "scores", 1e-6)
    one = explanations[3]
    assert one.num_nodes == 20
    assert one.nodes.tolist() == sorted(one.nodes.tolist())
    degree = store[3].degree
    lost = sorted(set(range(int(store.sizes[3]))) - set(one.nodes.tolist()))
    assert degree[one.nodes].min() >= degree[lost].max()
    all_edges = set(to_networkx(store, 3).edges)
    for a, b in one.nodes[one.edges].T.tolist():
        assert (a, b) in all_edges or (b, a) in all_edges


def test_node_labels_are_kept_and_unseen_ones_rejected() -> None:
    store = labelled()
    assert torch.equal(graphcaps.explain(labelled_model(), store)[5].node_labels, store[5].node_labels)
    unseen_labels = replace(store, node_labels=store.node_labels + 7)
    with pytest.raises(ArgumentError):
        graphcaps.explain(labelled_model(), unseen_labels)
    with pytest.warns(UserWarning, match="labels"):
        assert len(graphcaps.explain(labelled_model(), unseen_labels, unseen="ignore")) == 30


def test_errors_of_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="'model' must be an HGCN, or a FittedModel with one, got GIN"):
        graphcaps.explain(GIN(1, 2), planted())
    with pytest.raises(ArgumentError, match="be a single model, got 2 replicas"):
        graphcaps.explain(HGCN(5, 2, lead=(2,)), planted())
    huge = replace(labelled(), node_attributes=labelled().node_attributes.sign() * 1e38)
    with pytest.raises(ArgumentError, match=r"attribute 0 of node 0 is .*, too large to compute with"):
        explain_store(labelled_model(), huge)
    monkeypatch.setattr("graphcaps.data.features.compatibility._MAX_FLOAT32", torch.inf)  # whatever the cause
    with pytest.raises(ArgumentError, match="finite scores, got NaN or infinity for graph 0"):
        explain_store(labelled_model(), huge)


def test_batch_spans_cover_every_graph_once() -> None:
    store = planted()
    spans = list(batch_spans(store, nodes=100, entries=10**6))
    assert [first for first, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, 30)
    assert all(int(store.node_ptr[end] - store.node_ptr[first]) <= 100 for first, end in spans)
    assert list(batch_spans(store, nodes=1)) == [(graph, graph + 1) for graph in range(30)]


@pytest.mark.parametrize("capsules", [(4,), (5, 3)])
def test_contributions_of_the_tree_add_up_to_the_lengths(capsules: tuple[int, ...]) -> None:
    store = make_store(5)
    checked = 0
    for explanation in make_explanations(store, capsules=capsules):
        entries = list(explanation.tree["classes"])
        while entries:
            entry = entries.pop()
            if "residual_contribution" not in entry:  # a capsule of the lowest level, whose parts are nodes
                continue
            listed = sum(part["contribution"] for part in entry["parts"])
            rest = entry["other_contributions"] + entry["residual_contribution"]
            assert listed + rest == pytest.approx(entry["length"], abs=1e-4)
            entries += entry["parts"]
            checked += 1
    assert checked == 5 * (3 + sum(capsules[1:]))


def test_tree_and_json_are_complete() -> None:
    explanation = graphcaps.explain(small_model(), planted())[1]
    tree = json.loads(json.dumps(explanation.tree))
    assert [row["class"] for row in tree["classes"]] == list(explanation.class_names)
    capsules = [part for row in tree["classes"] for part in row["parts"]]
    assert sorted(part["capsule"] for part in capsules) == [0, 1, 2, 3]
    nodes = [(part["capsule"], leaf["node"]) for part in capsules for leaf in part["parts"]]
    assert sorted(node for _, node in nodes) == list(range(explanation.num_nodes))
    assert all(int(explanation.levels[0].capsule[node]) == capsule for capsule, node in nodes)
    for number, row in enumerate(tree["classes"]):
        for part in row["parts"]:
            assert int(explanation.levels[1].contributions[part["capsule"]].argmax()) == number
            assert part["contribution"] == max(part["contributions"])
            assert part["weight"] == part["weights"][number]
            assert part["length"] == pytest.approx(
                float(explanation.levels[0].lengths[part["capsule"]]), abs=1e-5
            )
    values = json.loads(explanation.to_json())
    assert values["node_scores"] == pytest.approx(explanation.node_scores.tolist(), rel=1e-4)
    assert len(values["levels"][0]["iterations"]) == 3
    assert values["predicted"] == explanation.class_names[explanation.predicted]


def test_draw_and_to_html(tmp_path: Path) -> None:
    explanation = graphcaps.explain(small_model(), planted()[1])
    explanation.draw(tmp_path / "parts.svg")
    assert "</svg>" in (tmp_path / "parts.svg").read_text("utf-8")
    page = explanation.to_html(tmp_path / "one.html")
    assert "</html>" in page
    assert (tmp_path / "one.html").read_text("utf-8") == page


def test_predicted_class_is_that_of_predict() -> None:
    """Also if the calibration changes the order of the classes."""
    from dataclasses import replace

    from graphcaps.inference.probabilities import Calibration
    from tests.small_models import planted, small_model

    store, uncalibrated = planted(), small_model()
    ends = ((0.0, 0.01), (0.9, 0.95), (0.1, 0.2))  # the second class always becomes the most probable
    model = replace(
        uncalibrated, calibration=Calibration("isotonic", 9, curves=tuple(((0.0, 1.0), e) for e in ends))
    )
    assert set(explain_store(uncalibrated, store).predicted.tolist()) != {1}
    explanations = explain_store(model, store)
    names = [explanations.class_names[index] for index in explanations.predicted.tolist()]
    assert names == list(model.predict(store))
    assert explanations.target.tolist() == explanations.predicted.tolist()
    assert explanations[0].predicted == int(explanations.predicted[0])
