"""Exported programs give the scores of the model for graphs of any size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from graphcaps.data import from_networkx
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.inference.export import INPUTS, ExportableModel, export, export_inputs
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.models import is_classical, model_names
from graphcaps.models.gin import GIN
from graphcaps.models.lookup import find_graph_model
from graphcaps.models.majority import Majority
from graphcaps.types import GraphBatch, ModelOutput
from tests.graphs import with_empty_graphs
from tests.small_models import (
    bonded,
    bonded_model,
    labelled,
    labelled_model,
    planted,
    small_committee,
    train_small,
)

# torch 2.11 reads the archive that it wrote from a read-only buffer.
pytestmark = pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")

SMALL = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}
MODELS = {
    "one level": SMALL,
    "two levels": SMALL | {"num_capsules": (5, 3)},
    "paper": SMALL | {"formulation": "paper", "dropout": 0.2},
    "separate factors": SMALL | {"factor_squash": "separate"},
    "features as capsules": SMALL | {"disentangle": False},
    "no residual": SMALL | {"residual": False},
    "fixed divisor": SMALL | {"residual_nodes": 40, "routing_iterations": 1},
    "blocks": SMALL | {"parts": "blocks"},
    "context": SMALL | {"context": "residual"},
    "context, gin": SMALL | {"context": "gin", "context_jumping": True},
}


@cache
def trained(name: str) -> FittedModel:
    return train_small(planted(), arguments=MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_exportable_module_gives_the_same_scores(name):
    model = trained(name)
    with torch.no_grad():
        actual = ExportableModel(model.members, model.empty_scores)(*export_inputs(model, planted()))
    torch.testing.assert_close(actual, model.scores(planted()), rtol=1e-5, atol=1e-5)


def test_inputs_are_truncated_with_the_warning_of_a_prediction():
    with pytest.warns(TruncationWarning, match="export_inputs: 30 of 30 graphs are truncated"):
        _, _, _, _, sizes = export_inputs(train_small(planted(), max_nodes=8), planted())
    assert sizes.tolist() == [8] * 30


def test_edge_weights_are_used():
    store = planted()
    draw = torch.Generator().manual_seed(3)
    both = torch.rand(store.num_nodes, generator=draw)
    target = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    first = store.node_ptr[store.node_graph].repeat_interleave(store.degree)
    weighted = replace(store, edge_weight=both[target] * both[store.neighbours.long() + first] + 0.1)
    model = trained("one level")
    with torch.no_grad():
        actual = ExportableModel(model.members, model.empty_scores)(*export_inputs(model, weighted))
    torch.testing.assert_close(actual, model.scores(weighted), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(actual, model.scores(store), atol=1e-3)


def test_torch_export(tmp_path: Path):
    """Any number of graphs, one of a single node without an edge, and graphs without nodes, whose scores are 0."""
    model, store = trained("two levels"), planted()
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    single, some_empty = (
        from_networkx([nx.empty_graph(1)], [0]),
        with_empty_graphs(store[:3], [1, 0, 1, 1])[0],
    )
    for graphs in (store, store[[7]], store[[3, 4]], single, some_empty):
        with torch.no_grad():
            actual = program(*export_inputs(model, graphs))
        torch.testing.assert_close(actual, model.scores(graphs), rtol=1e-5, atol=1e-5)
    assert len(some_empty.empty_graphs) == 3
    assert not actual[some_empty.empty_graphs].any()


@pytest.mark.slow
def test_edge_labels_are_a_sixth_input(tmp_path: Path):
    model, store = bonded_model(), bonded()
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for graphs in (range(30), [7]):
        *inputs, kind = export_inputs(model, store[graphs])
        with torch.no_grad():
            actual, other = program(*inputs, kind), program(*inputs, torch.zeros_like(kind))
        torch.testing.assert_close(actual, model.scores(store[graphs]), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(actual, other, atol=1e-4)


@pytest.mark.slow
def test_edge_labels_in_onnx(tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, store = bonded_model(), bonded()
    model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    names = tuple(entry.name for entry in session.get_inputs())
    assert names == (*INPUTS, "edge_kind")
    values = [value.numpy() for value in export_inputs(model, store)]
    (actual,) = session.run(["scores"], dict(zip(names, values, strict=True)))
    np.testing.assert_allclose(actual, model.scores(store).numpy(), rtol=1e-5, atol=1e-5)


NETWORKS = [name for name in model_names() if not is_classical(name)]


# An export takes 5 to 11 s of CPU time. CI exports a network that selects nodes and one whose rows are added up by
# threads of ONNX Runtime, besides HGCN.
_MARKS = {"sagpool": pytest.mark.slow, "mincut": pytest.mark.slow}
_EXPORTED = [
    pytest.param(name, marks=_MARKS.get(name, pytest.mark.exhaustive))
    for name in NETWORKS
    if find_graph_model(name).export_formats
]


def operators(path: Path) -> set[str]:
    """Names of the operators of an ONNX file."""
    import onnx

    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("name", _EXPORTED)
def test_a_network_is_exported_to_the_formats_that_it_names(name: str, tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = train_small(planted(), name)
    model.export(tmp_path / "model.pt2")
    program, session = torch.export.load(tmp_path / "model.pt2").module(), None
    if ".onnx" in find_graph_model(name).export_formats:
        try:
            model.export(tmp_path / "model.onnx")
        except UsageError as error:
            if "aten.add" in str(error):
                pytest.skip("this version of torch cannot convert a parameter plus a number (torch 2.11)")
            raise
        assert "ScatterND" not in operators(tmp_path / "model.onnx"), "rows would be lost among threads"
        session = runtime.InferenceSession(tmp_path / "model.onnx")
    else:
        with pytest.raises(ArgumentError, match=r"'path' must end in \.pt2 for \w+, got 'model.onnx'"):
            model.export(tmp_path / "model.onnx")
    for store in (planted(), planted()[[4]], from_networkx([nx.path_graph(3), nx.empty_graph(0)], [0, 1])):
        inputs, expected = export_inputs(model, store), model.scores(store)
        with torch.no_grad():
            torch.testing.assert_close(program(*inputs), expected, rtol=1e-5, atol=1e-5)
        if session is not None:
            arrays = dict(zip(INPUTS, (value.numpy() for value in inputs), strict=True))
            (scores,) = session.run(["scores"], arrays)
            np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NETWORKS if not find_graph_model(name).export_formats])
def test_a_network_without_a_format_is_refused(name: str):
    model = find_graph_model(name)(4, 2)
    with pytest.raises(ArgumentError, match="'model' must be one that can be exported, got"):
        ExportableModel([model], torch.zeros(2))


class Branching(GIN):
    """A network whose control flow depends on values."""

    def forward_batch(self, batch: GraphBatch, y: torch.Tensor | None = None) -> ModelOutput:
        output = super().forward_batch(batch, y)
        return ModelOutput(-output.class_scores) if bool(output.class_scores.sum() > 0) else output


def _branching() -> FittedModel:
    fitted = train_small(planted(), "gin")
    return replace(fitted, model=Branching(fitted.recipe.num_columns, len(fitted.class_names), hidden=8))


@pytest.mark.slow
def test_onnx(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, store = labelled_model(), labelled()
    model.export(tmp_path / "model.onnx")
    assert capfd.readouterr().out == ""
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert tuple(entry.name for entry in session.get_inputs()) == INPUTS
    for graphs in (range(30), [7], [3, 4]):
        values = [value.numpy() for value in export_inputs(model, store[graphs])]
        (actual,) = session.run(["scores"], dict(zip(INPUTS, values, strict=True)))
        np.testing.assert_allclose(actual, model.scores(store[graphs]).numpy(), rtol=1e-5, atol=1e-5)


def test_errors_of_export(tmp_path: Path):
    with pytest.raises(ArgumentError, match=r"'path' must end in .pt2 or .onnx, got 'model.bin'"):
        export(labelled_model(), tmp_path / "model.bin")
    with pytest.raises(ArgumentError, match="'model' must be a network, got Majority"):
        ExportableModel([Majority(4)], torch.zeros(4))
    with pytest.raises(UsageError, match="the forward pass of Branching cannot be exported: "):
        _branching().export(tmp_path / "model.pt2")
    with pytest.raises(ArgumentError, match="'model' must have no trunk"):
        train_small(planted(), arguments=SMALL | {"trunk": "gin"}).export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_committee_gives_the_scores_of_its_members(tmp_path):
    committee = small_committee()
    model = replace(committee, others=committee.others[:1])
    model.export(tmp_path / "c.pt2")
    inputs = export_inputs(model, planted()[torch.arange(5)])
    scores = torch.export.load(tmp_path / "c.pt2").module()(*inputs)
    expected = model.member_scores(planted()[torch.arange(5)])
    assert scores.shape == (2, 5, 3)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        model.to_probabilities(scores), model.predict_proba(planted()[torch.arange(5)]), atol=1e-5
    )
