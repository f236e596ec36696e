"""All readers of an explanation agree on the capsule of a node, with and without mean coefficients."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.explanation import capsule_cards, explain_store
from graphcaps.explanation.agreement import capsule_usage
from graphcaps.explanation.drawings import node_paths
from graphcaps.explanation.explanation_data import NO_MEANS_NOTE
from graphcaps.explanation.fidelity import pyg_batches
from graphcaps.explanation.model_inputs import encode_for_model
from graphcaps.explanation.node_groups import find_groups, node_capsules
from graphcaps.explanation.pyg_explainer import GraphProbabilities, groups_of_nodes
from graphcaps.explanation.report import explanation_page
from graphcaps.explanation.report.report_data import explanation_columns, read_block
from graphcaps.explanation.report.report_text import describe
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn.hard_assignment import group_nodes, hard_assignment, lift
from tests.small_models import means_of, planted, small_model, two_level_model


@pytest.fixture
def model() -> FittedModel:
    """Two levels of four and three capsules, with mean coefficients."""
    return two_level_model()


def test_levels_and_tree(model: FittedModel) -> None:
    explanations, means = explain_store(model, planted()), means_of(model)
    groups = explanations.groups
    assert groups is not None
    assert torch.equal(groups, group_nodes(planted().batch(torch.zeros(planted().num_nodes, 1))))
    c, graph = explanations.assignments[0], explanations.node_graph
    capsule = hard_assignment(c, means[0][-1], groups, graph)
    assert torch.equal(explanations.capsule, capsule)
    assert torch.equal(capsule, capsule[groups])
    for other in (
        hard_assignment(c, means[0][-1], graph=graph),
        hard_assignment(c, None, groups, graph),
        hard_assignment(c, means[0][-1], groups),
    ):
        assert not torch.equal(capsule, other)
    one = explanations[2]
    rows = slice(*explanations.node_ptr[2:4].tolist())
    assert torch.equal(one.levels[0].capsule, capsule[rows])
    assert torch.equal(one.levels[0].lift, lift(one.levels[0].assignment, means[0][-1]))
    dump = one.as_dict()["levels"][0]
    assert dump["capsule"] == capsule[rows].tolist()
    assert dump["groups"] == (groups[rows] - rows.start).tolist()
    assert one.as_dict()["levels"][1]["groups"] is None
    assert dump["mean_coefficients"] == pytest.approx(means[0][-1].tolist(), rel=1e-5)
    listed = {}
    for entry in one.tree["classes"]:
        for above in entry["parts"]:
            for part in above["parts"]:
                listed |= {node["node"]: (part["capsule"], node["weight"]) for node in part["parts"]}
    c = one.levels[0].assignment
    for node, (under, weight) in listed.items():
        assert under == int(one.levels[0].capsule[node])
        assert weight == pytest.approx(float(c[node, under]), rel=1e-5)
    assert len(listed) == one.num_nodes


def test_higher_levels_groups_and_cards(model: FittedModel) -> None:
    explanations, means = explain_store(model, planted()), means_of(model)
    above = hard_assignment(explanations.assignments[1], means[1][-1])
    expected = above[explanations.node_graph, explanations.capsule]
    assert torch.equal(node_capsules(explanations, 1), expected)
    groups = find_groups(explanations, 0)
    assert groups.capsule[groups.group].tolist() == explanations.capsule.tolist()
    assert node_paths(explanations[2])[1].tolist() == expected[explanations.node_graph == 2].tolist()
    counts = explanations.capsule.bincount(minlength=4)
    nodes = {
        card.capsule: card.nodes for card in capsule_cards(explanations, planted()).cards if card.level == 1
    }
    assert [nodes.get(capsule, 0) for capsule in range(4)] == counts.tolist()
    usage = capsule_usage(explanations.assignments[0], explanations.capsule, explanations.node_ptr)
    assert usage["dead_capsules"] == int((counts == 0).sum())


def test_page_has_the_capsules_of_every_iteration(model: FittedModel) -> None:
    explanations, means = explain_store(model, planted()), means_of(model)
    columns, _ = explanation_columns(explanations, torch.arange(len(planted())).numpy(), weights=[2])
    for level in range(3):
        for number in (1, 2):
            own = () if level else (explanations.groups, explanations.node_graph)
            expected = hard_assignment(explanations.iterations[level][number], means[level][number], *own)
            assert columns[f"top_{level}_{number}"].tolist() == expected.tolist()
    rows = slice(*explanations.node_ptr[2:4].tolist())
    assert explanations[2].levels[0].capsule_after(1).tolist() == columns["top_0_1"][rows].tolist()
    (text,) = re.findall(r'id="data">([^<]*)<', explanation_page(explanations[2]))
    assert read_block(text)[1]["top_0_2"].tolist() == explanations[2].levels[0].capsule.tolist()


def test_order_of_nodes(model: FittedModel) -> None:
    """A graph with its nodes in another order has the same capsules."""
    store = planted()[4:5]
    order = torch.randperm(store.num_nodes, generator=torch.Generator().manual_seed(1))
    rank = order.argsort()
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    edges = torch.stack([rank[source], rank[store.neighbours.long()]])
    data = graph_of(edges, store.num_nodes)
    before, after = explain_store(model, store), explain_store(model, [data])
    assert after.capsule.tolist() == before.capsule[order].tolist()


def graph_of(edges: torch.Tensor, num_nodes: int) -> object:
    import torch_geometric

    return torch_geometric.data.Data(edge_index=edges, num_nodes=num_nodes)


def test_with_torch_geometric(model: FittedModel) -> None:
    store = planted()[:3]
    encoded = encode_for_model(model, store)
    module = GraphProbabilities(model, centred=True, reference=encoded.x.mean(0))
    (graphs,) = pyg_batches(module, encoded, torch.tensor([0, 1, 2]))
    whole = explain_store(model, store)
    assert groups_of_nodes(module, graphs).tolist() == find_groups(whole).group.tolist()
    blocks = two_level_model(parts="blocks")
    single = explain_store(blocks, store)
    found = groups_of_nodes(GraphProbabilities(blocks, centred=True, reference=encoded.x.mean(0)), graphs)
    assert found.tolist() == find_groups(single).group.tolist()
    assert single.groups is None


def test_missing_means_are_mentioned(model: FittedModel, tmp_path: Path) -> None:
    """On the page and by ``graphcaps explain``; not if there are means."""
    write_tu(planted()[:6], tmp_path / "SMALL")
    texts = []
    for name, fitted in (("with", model), ("without", small_model())):
        fitted.save(tmp_path / f"{name}.safetensors")
        words = ["explain", str(tmp_path / f"{name}.safetensors"), str(tmp_path / "SMALL"), "--device", "cpu"]
        texts.append(" ".join(CliRunner().invoke(app, words, env={"COLUMNS": "80"}).stdout.split()))
        one = CliRunner().invoke(app, [*words, "--graph", "2"], env={"COLUMNS": "300"}).stdout
        assert "it is listed under the one that gets more of its group than of an average node" in one
    assert NO_MEANS_NOTE not in texts[0]
    assert NO_MEANS_NOTE in texts[1]
    for fitted, expected in ((model, False), (small_model(), True)):
        explanations = explain_store(fitted, planted())
        values = describe(fitted, "planted", explanations, None, None)
        assert (NO_MEANS_NOTE in values["caveats"]) == expected


def test_equal_nodes_are_one_part(model: FittedModel) -> None:
    """If all coefficients are the means, nodes are not distributed by rounding, and capsules have collapsed."""
    explanations, mean = explain_store(model, planted()), means_of(model)[0][-1]
    noise = 1 + 1e-5 * torch.randn(
        explanations.assignments[0].shape, generator=torch.Generator().manual_seed(0)
    )
    equal = (mean * noise.double()).float()
    same = replace(explanations, assignments=(equal, *explanations.assignments[1:]))
    assert same.capsule.tolist() == [int(mean.argmax())] * len(equal)
    assert same.capsule_use.collapsed
