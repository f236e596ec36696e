"""The padded program equals HGCN, and its training equals HGCN trained with torch's Adam."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from benchmarks.baselines import PaddedGraphs, PaddedHGCN, PaddedTraining, check_padded, padded_bytes
from torch import Tensor

from graphcaps.bench import CheckError
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN
from tests.graphs import Graphs, assert_equal, random_graphs

CHANNELS = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "fixed divisor": {"residual_nodes": 40},
    "two hidden levels": {"num_capsules": (6, 3)},
    "one iteration": {"routing_iterations": 1},
    "no residual": {"residual": False},
    "no reconstruction": {"reconstruction": False},
}


def _model(**arguments: Any) -> HGCN:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}
    model = HGCN(CHANNELS, 2, **(sizes | arguments)).double()
    with torch.no_grad():  # biases, norms and running averages away from their initial values
        for name, tensor in model.state_dict().items():
            if "bias" in name or "norm" in name:
                tensor.add_(torch.rand_like(tensor) * 0.3)
    return model


def _graphs() -> Graphs:
    return random_graphs([7, 40, 1, 12, 9, 3], CHANNELS)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_padded_is_hgcn(variant: dict[str, Any], training: bool) -> None:
    graphs = _graphs()
    model = _model(**variant).train(training)
    padded = PaddedHGCN.from_hgcn(model)
    assert padded.training == training
    dense = PaddedGraphs.from_store(graphs.as_store(), graphs.x)

    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    terms = model.loss(output, graphs.y)
    padded_output = padded(dense.x, dense.adjacency, dense.mask, dense.y)
    padded_terms = padded.loss(padded_output, dense.y)
    assert_equal(padded_output.class_scores, output.class_scores, "scores", 1e-9)
    assert_equal(padded_output.class_capsules, output.class_capsules, "capsules", 1e-9)
    assert padded_terms.terms.keys() == terms.terms.keys()
    for name, term in terms.terms.items():
        assert_equal(padded_terms.terms[name], term, name, 1e-9)
    terms.total.backward()
    padded_terms.total.backward()
    gradients = padded.by_hgcn_names(_grad)
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert_equal(gradients[name], parameter.grad, f"gradient of {name}", 1e-9)
    for padded_layer, layer in zip(padded.layers, model.layers, strict=True):
        assert_equal(padded_layer.norm.norm.running_var, layer.norm.running_var, "running variance", 1e-9)


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_more_padding_changes_nothing() -> None:
    graphs, model = _graphs(), _model()
    padded = PaddedHGCN.from_hgcn(model)
    dense = PaddedGraphs.from_store(graphs.as_store(), graphs.x)
    pad = torch.nn.functional.pad
    wider = (pad(dense.x, (0, 0, 0, 9)), pad(dense.adjacency, (0, 9, 0, 9)), pad(dense.mask, (0, 9)), dense.y)
    a, b = padded(dense.x, dense.adjacency, dense.mask, dense.y), padded(*wider)
    assert_equal(b.class_scores, a.class_scores, "scores")
    assert_equal(b.reconstruction_loss, a.reconstruction_loss, "reconstruction")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"formulation": "paper"}, "formulation"),
        ({"lead": (2,)}, "lead"),
        ({"disentangle": False}, "disentangle"),
        ({"factor_squash": "separate"}, "factor_squash"),
        ({"trunk": "gin"}, "trunk"),
    ],
)
def test_options_that_the_published_program_lacks_are_refused(arguments: dict[str, Any], name: str) -> None:
    model = HGCN(CHANNELS, 2, capsule_dim=8, num_factors=2, **arguments)
    with pytest.raises(ArgumentError, match=f"PaddedHGCN: '{name}' must be"):
        PaddedHGCN.from_hgcn(model)


def test_padded_graphs_hold_the_graphs() -> None:
    graphs = _graphs()
    store = graphs.as_store()
    dense = PaddedGraphs.from_store(store, graphs.x)
    assert dense.x.shape == (6, 40, CHANNELS)
    assert dense.mask.sum(1).tolist() == [7, 40, 1, 12, 9, 3]
    assert int(dense.adjacency.sum()) == 2 * store.num_edges
    one = graphs.one(3)
    expected = torch.zeros(12, 12, dtype=torch.float64)
    expected[one.edge_index[0], one.edge_index[1]] = 1
    assert torch.equal(dense.adjacency[3, :12, :12], expected)
    assert torch.equal(dense.x[3, :12], one.x)
    assert padded_bytes(store, graphs.x) == 8 * (dense.x.numel() + dense.adjacency.numel())
    with pytest.raises(ShapeError, match="one row per node, 72, got 71"):
        PaddedGraphs.from_store(store, graphs.x[:-1])


def _training(model: HGCN, **arguments: Any) -> PaddedTraining:
    graphs = _graphs()
    parts = {"train": torch.tensor([0, 1, 3, 5]), "test": torch.tensor([4, 2])}
    store = graphs.as_store()
    options = {"batch_size": 3, "learning_rate": 0.01} | arguments
    return PaddedTraining(model, store, graphs.x.to(model.primary.weight.dtype), **parts, **options)


def test_an_epoch_is_hgcn_trained_with_adam() -> None:
    """Same order of graphs, no dropout: the same losses, and the same classes afterwards."""
    graphs, model = _graphs(), _model()
    reference = copy.deepcopy(model).train()
    training = _training(model, halve_every=1)
    training.check()
    order: Any = torch.utils.data.DataLoader(
        training.train.tolist(), 3, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    adam = torch.optim.Adam(reference.parameters(), lr=0.01, weight_decay=0.0001)
    store = graphs.as_store()
    for epoch in range(2):
        adam.param_groups[0]["lr"] = 0.01 * 0.5**epoch
        total = 0.0
        for chosen in order:
            batch = store.batch(graphs.x, chosen)
            adam.zero_grad()
            loss = reference.loss(reference.forward_batch(batch, batch.y), batch.y).total
            loss.backward()
            adam.step()
            total += float(loss.detach()) * len(chosen) / 4
        training.epoch()
        # A bias before a norm has a true gradient of 0: Adam makes rounding visible in weights, not in losses.
        assert training.train_loss == pytest.approx(total, abs=1e-5)
    reference.eval()
    batch = store.batch(graphs.x, training.test)
    correct = (reference.forward_batch(batch).class_scores.argmax(-1) == batch.y).double().mean()
    assert training.accuracy() == pytest.approx(float(correct))


def test_epoch_needs_a_check_which_leaves_the_model_alone() -> None:
    model = _model(dropout=0.5)
    before = copy.deepcopy(model.state_dict())
    training = _training(model)
    with pytest.raises(CheckError, match=r"padded: call check\(\) before epoch\(\)"):
        training.epoch()
    training.check()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert model.primary.dropout.p == 0.5
    assert training.model.dropout.p == 0.5
    assert 0 <= training.epoch() <= 1


@pytest.mark.parametrize("fault", ["routing", "norm", "loss"])
def test_check_catches_a_wrong_program(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.baselines import padded_hgcn as padded

    if fault == "routing":
        route = padded.PaddedCapsules._route
        monkeypatch.setattr(
            padded.PaddedCapsules, "_route", lambda self, votes, mean: route(self, votes, None)
        )
    elif fault == "norm":  # padding counted as nodes
        monkeypatch.setattr(
            padded.MaskedBatchNorm,
            "forward",
            lambda self, x, mask: self.norm(x.flatten(0, 1)).view(x.shape),
        )
    else:
        monkeypatch.setattr(padded, "_LOG_EPSILON", 1e-4)
    training = _training(_model())
    with pytest.raises(CheckError, match="must equal HGCN's to 1e-09, got a difference of"):
        training.check()
    assert not training.checked


def test_check_works_on_single_precision_weights() -> None:
    graphs = _graphs()
    check_padded(_model().float(), graphs.as_store(), graphs.x.float(), torch.tensor([1, 4, 0]))


def test_an_epoch_does_the_work_of_the_published_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training graph once and every test graph twice, with reconstruction; every step is logged."""
    training = _training(_model())
    training.check()
    passes: list[tuple[bool, int, bool]] = []
    forward = PaddedHGCN.forward

    def counted(self: PaddedHGCN, x: Tensor, *rest: Tensor) -> Any:
        output = forward(self, x, *rest)
        passes.append((self.training, len(x), output.reconstruction_loss is not None))
        assert x.shape[1] == 40  # the largest of the store, whatever the batch holds
        return output

    monkeypatch.setattr(PaddedHGCN, "forward", counted)
    training.epoch()
    assert passes == [(True, 3, True), (True, 1, True), (False, 2, True), (False, 2, True)]
    assert [len(terms) for terms in training.log] == [2, 2]
    assert 0 <= training.train_accuracy <= 1
    assert training.test_loss > 0
