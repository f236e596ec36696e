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
from graphcaps.errors import ArgumentError
from graphcaps.inference.export import INPUTS, ExportableHGCN, export, export_inputs
from graphcaps.inference.fitted_model import FittedModel
from tests.small_models import labelled, labelled_model, planted, train_small

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
}


@cache
def trained(name: str) -> FittedModel:
    return train_small(planted(), arguments=MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_exportable_module_gives_the_same_scores(name):
    model = trained(name)
    with torch.no_grad():
        actual = ExportableHGCN(model.model)(*export_inputs(model, planted()))
    torch.testing.assert_close(actual, model.scores(planted()), rtol=1e-5, atol=1e-5)


def test_edge_weights_are_used():
    store = planted()
    draw = torch.Generator().manual_seed(3)
    both = torch.rand(store.num_nodes, generator=draw)
    target = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    first = store.node_ptr[store.node_graph].repeat_interleave(store.degree)
    weighted = replace(store, edge_weight=both[target] * both[store.neighbours.long() + first] + 0.1)
    model = trained("one level")
    with torch.no_grad():
        actual = ExportableHGCN(model.model)(*export_inputs(model, weighted))
    torch.testing.assert_close(actual, model.scores(weighted), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(actual, model.scores(store), atol=1e-3)


# torch 2.11 reads the archive that it wrote from a read-only buffer.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
def test_torch_export(tmp_path: Path):
    model, store = labelled_model(), labelled()
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for graphs in (range(30), [7], [3, 4]):
        with torch.no_grad():
            actual = program(*export_inputs(model, store[graphs]))
        torch.testing.assert_close(actual, model.scores(store[graphs]), rtol=1e-5, atol=1e-5)


def test_a_graph_of_one_node_and_no_edges(tmp_path: Path):
    model = trained("one level")
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    single = from_networkx([nx.empty_graph(1)], [0])
    with torch.no_grad():
        actual = program(*export_inputs(model, single))
    torch.testing.assert_close(actual, model.scores(single), rtol=1e-5, atol=1e-5)


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
    with pytest.raises(ArgumentError, match="'model' must be an HGCN, got GIN"):
        train_small(planted(), "gin").export(tmp_path / "model.pt2")
    with pytest.raises(ArgumentError, match="'model' must have no trunk"):
        train_small(planted(), arguments=SMALL | {"trunk": "gin"}).export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
