import pytest
import torch

from graphcaps.data import FeatureRecipe, encode_graphs, planted_parts
from graphcaps.errors import ArgumentError
from graphcaps.explanation import node_parts
from graphcaps.models import GIN
from graphcaps.nn import HGCN
from tests.graphs import assert_equal


def test_parts_are_those_of_the_model_whatever_the_batch() -> None:
    torch.manual_seed(0)
    prepared = encode_graphs(
        planted_parts(num_graphs=9), FeatureRecipe(degree_onehot=10), dtype=torch.float64
    )
    store, x = prepared.store, prepared.x
    model = HGCN(x.size(1), 3, capsule_dim=8, num_capsules=(4,), dropout=0.5).double()
    found = node_parts(model, store, x, batch_size=2)
    assert model.training  # the mode is given back
    output = model.eval().forward_batch(store.batch(x))
    assert_equal(found.assignment, output.levels[0].assignment)
    assert_equal(found.class_scores, output.class_scores)
    assert torch.equal(found.capsule, output.levels[0].assignment.argmax(-1))


def test_a_model_without_capsules_is_refused() -> None:
    store = planted_parts(num_graphs=3)
    x = torch.ones(store.num_nodes, 1)
    with pytest.raises(ArgumentError, match=r"node_parts: 'model' must have capsules, got GIN\."):
        node_parts(GIN(1, 3), store, x)  # type: ignore[arg-type]
