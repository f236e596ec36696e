"""Fidelity equals the fraction of graphs whose class changes when nodes are masked."""

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.explanation.attributions import reference_features
from graphcaps.explanation.explainer import explain_encoded
from graphcaps.explanation.fidelity import node_fidelity, top_nodes
from graphcaps.explanation.model_inputs import encode_for_model, unwrap_hgcn
from graphcaps.explanation.pyg_explainer import GraphProbabilities
from tests.small_models import planted, train_small


def test_top_nodes_by_hand() -> None:
    scores = torch.tensor([1.0, 3.0, 2.0, 3.0, -1.0, 9.0, 8.0])
    ptr = torch.tensor([0, 5, 6, 7])
    assert top_nodes(scores, ptr, 0.4).tolist() == [False, True, False, True, False, True, True]
    assert top_nodes(scores, ptr, 0.2).tolist() == [False, True, False, False, False, True, True]
    assert top_nodes(scores, ptr, 1).all()
    with pytest.raises(ArgumentError, match="above 0 and at most 1, got 0"):
        top_nodes(scores, ptr, 0)


def test_fidelity_counts_changed_classes() -> None:
    store = planted()
    fitted = train_small(store, epochs=40)
    encoded, network = encode_for_model(fitted, store), unwrap_hgcn(fitted)
    explanations = explain_encoded(network, encoded)
    module = GraphProbabilities(fitted, centred=True)
    result = node_fidelity(module, encoded, explanations.predicted, explanations.node_scores, 0.8)
    top = top_nodes(explanations.node_scores, explanations.node_ptr, 0.8)

    def classes(kept: torch.Tensor) -> torch.Tensor:
        x = torch.where(kept.unsqueeze(-1), encoded.x, reference_features(network))
        return network.forward_batch(store.batch(x)).class_scores.argmax(-1)

    assert result.plus == pytest.approx(float((classes(~top) != explanations.predicted).double().mean()))
    assert result.minus == pytest.approx(float((classes(top) != explanations.predicted).double().mean()))
    assert 0 < result.plus != result.minus  # otherwise a mix-up of the two would pass
    sizes = store.sizes
    assert result.sparsity == pytest.approx(1 - float(((0.8 * sizes - 1e-9).ceil() / sizes).mean()), abs=1e-6)
