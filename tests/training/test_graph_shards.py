"""Division of batches among ranks, and equality of a training by several ranks with one process."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.builder import model_factory, precomputation_of
from graphcaps.models.lookup import find_model, is_classical, model_names
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.training.graph_shards import ShardedGraphs, assign_graphs, divide_graphs
from graphcaps.training.ranks import Ranks
from tests.small_models import HGCN_SMALL, labelled, planted
from tests.training.thread_ranks import run_ranks

NETWORKS = [name for name in model_names() if not is_classical(name)]
NO_GRAPHS = torch.empty(0, dtype=torch.long)


# ---------------------------------------------------------------------- division


def test_graphs_are_dealt_out_part_by_part():
    train, validation = torch.tensor([0, 1, 3, 4, 6]), torch.tensor([2, 5])
    assert assign_graphs([train, validation], 8, 2).tolist() == [0, 1, 1, 0, 1, 0, 0, -1]


def test_a_graph_of_two_parts_has_one_rank():
    assert assign_graphs([torch.tensor([0, 1]), torch.tensor([1, 2, 3])], 4, 2).tolist() == [0, 1, 0, 1]


def test_ranks_divide_each_batch_and_keep_its_order():
    batch = torch.tensor([[5, 0, 3, 2], [4, 1, -1, -1]])
    owner = torch.tensor([0, 1, 1, 0, 0, 1])
    seen: list[list[tuple[int, int]]] = [[], []]
    for rank in range(2):
        owned = (owner == rank).nonzero().squeeze(-1)
        positions = torch.full((6,), -1)
        positions[owned] = torch.arange(owned.numel())
        own = ShardedGraphs.of(batch, positions)
        for f in range(2):
            real = own.graphs[f] >= 0
            assert own.rows[f][real].diff().gt(0).all()
            pairs = zip(owned[own.graphs[f][real]].tolist(), own.rows[f][real].tolist(), strict=True)
            seen[f] += pairs
    assert sorted(seen[0], key=lambda pair: pair[1]) == [(5, 0), (0, 1), (3, 2), (2, 3)]
    assert sorted(seen[1], key=lambda pair: pair[1]) == [(4, 0), (1, 1)]


def test_a_rank_without_a_graph_of_the_batch_has_padding():
    own = ShardedGraphs.of(torch.tensor([[1, 2]]), torch.tensor([0, -1, -1]))
    assert (own.graphs.tolist(), own.rows.tolist()) == ([[-1]], [[0]])
    assert own.padded().graphs.tolist() == [[-1, -1]]


def test_fewer_training_graphs_than_ranks_are_refused():
    with pytest.raises(
        ArgumentError, match=r"a training graph for each of the 3 processes, got 2\. Start fewer"
    ):
        divide_graphs(planted(), [torch.arange(2), torch.arange(2, 9)], Ranks(0, 3))


# ---------------------------------------------------------------------- equality with one process


def train(
    store: GraphStore,
    model: str,
    arguments: dict[str, object],
    ranks: int,
    *,
    members: int = 1,
    batch_size: int = 5,
    epochs: int = 2,
    class_weight: torch.Tensor | None = None,
    sample_weight: torch.Tensor | None = None,
    metric: str = "loss",
    state: dict[str, torch.Tensor] | None = None,
) -> list[tuple[dict[str, torch.Tensor], list[object]]]:
    """Weights and events of a float64 training, for each rank."""
    config = RunConfig(
        dataset=store.name,
        model=model,
        model_arguments=arguments,
        features=FeatureConfig(degree_onehot=4, propagation=1),
        training=TrainConfig(epochs=epochs, batch_size=batch_size, learning_rate=0.01),
    )
    recipe = FeatureRecipe.from_config(config.features).fit(store)
    factory = model_factory(config, recipe.num_columns, store.num_classes, recipe.edge_kinds)
    train_set, validation = torch.arange(0, 16), torch.arange(16, 23)
    replicas = [Replica(train_set, validation, NO_GRAPHS, seed=seed) for seed in range(members)]
    models = [stack_replicas(factory, replicas, torch.float64) for _ in range(ranks)]

    def run(each: Ranks) -> tuple[dict[str, torch.Tensor], list[object]]:
        shard, graphs = None, store
        if ranks > 1:
            shard = divide_graphs(store, [train_set, validation], each)
            graphs = store[shard.owned]
        encoded = encode_graphs(graphs, recipe, dtype=torch.float64)
        ready = precompute(encoded.store, precomputation_of(factory), dtype=torch.float64)
        trainer = Trainer(
            models[each.rank], ready, encoded.x, replicas, config.training,
            class_weight=class_weight, sample_weight=sample_weight, metric=metric, shard=shard,
        )  # fmt: skip
        if state is not None:
            trainer.load_state(state)
        events = [replace(event, seconds=0.0) for event in trainer.run()]
        return trainer.state(), events

    return run_ranks(ranks, run)


def assert_equal(
    store: GraphStore,
    model: str,
    arguments: dict[str, object],
    ranks: int = 2,
    *,
    tolerance: float = 1e-9,
    **options: object,
):
    ((alone, history),) = train(store, model, arguments, 1, **options)
    for state, events in train(store, model, arguments, ranks, **options):
        assert state.keys() == alone.keys()
        for name, value in state.items():
            torch.testing.assert_close(
                value, alone[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )
        for event, expected in zip(events, history, strict=True):
            for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy"):
                assert getattr(event, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
            assert event.validation_metric == pytest.approx(expected.validation_metric, rel=1e-9)
            for name, values in event.loss_terms.items():
                assert values == pytest.approx(expected.loss_terms[name], rel=1e-9), name


def small_arguments(model: str) -> dict[str, object]:
    if model == "hgcn":
        return dict(HGCN_SMALL)
    small = {"hidden": 8, "num_layers": 2}
    return {name: value for name, value in small.items() if name in find_model(model).options()}


def marked(names: list[str]) -> list[object]:
    """The fast models, and the others as slow ones."""
    return [name if name in ("hgcn", "gin") else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("model", marked(NETWORKS))
def test_two_ranks_equal_one_process(model):
    """Batches of 5 of 16 graphs: the last has one graph, so that a rank has none of it."""
    store, arguments = labelled(), small_arguments(model)
    options: dict[str, object] = {"class_weight": torch.tensor([0.5, 2.0, 1.0])}
    if model == "asap":
        # One step: a bias has the gradient 0, and Adam enlarges its rounding.
        options |= {"batch_size": 16, "epochs": 1}
    assert_equal(store, model, arguments, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.4},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {"parts": "blocks"},
                {"reconstruct_up_to": 12},
                {"trunk": "gin"},
                {"context": "gin", "dropout": 0.2},
                {"disentangle": False},
            )
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_options_of_hgcn_by_two_ranks_equal_one_process(options):
    assert_equal(labelled(), "hgcn", HGCN_SMALL | options)


@pytest.mark.slow
def test_the_formulation_of_the_paper_by_two_ranks_equals_one_process():
    """One step: products near the bound 1 − 1e-7 of the reconstruction loss enlarge rounding in later ones."""
    arguments = HGCN_SMALL | {"formulation": "paper", "dropout": 0.3}
    assert_equal(labelled(), "hgcn", arguments, batch_size=16, epochs=1)


def test_three_ranks_of_a_committee_with_sample_weights_equal_one_process():
    weights = torch.linspace(0.5, 2, len(labelled()), dtype=torch.float64)
    arguments = HGCN_SMALL | {"dropout": 0.2}
    # One process computes the step in one operation and ranks in layers, whose rounding differs.
    options = {"members": 2, "sample_weight": weights, "metric": "roc-auc"}
    assert_equal(labelled(), "hgcn", arguments, 3, tolerance=1e-8, **options)


def test_a_training_of_two_ranks_is_continued_by_three_and_by_one():
    arguments = HGCN_SMALL | {"dropout": 0.2}
    ((alone, _),) = train(labelled(), "hgcn", arguments, 1, epochs=3)
    state = None
    for epochs, ranks in ((1, 2), (2, 3), (3, 1)):
        state, _ = train(labelled(), "hgcn", arguments, ranks, epochs=epochs, state=state)[-1]
    for name, value in alone.items():
        torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-9)


def test_graphs_without_nodes_by_two_ranks_equal_one_process():
    store = labelled()
    sizes = store.sizes.clone()
    empty = torch.tensor([1, 4, 17])
    kept = [graph for graph in range(len(store)) if graph not in empty.tolist()]
    sizes[empty] = 0
    rest = store[kept]
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    with_empty = replace(rest, node_ptr=ptr, y=store.y)
    assert_equal(with_empty, "gin", small_arguments("gin"))


def test_dropped_attention_is_refused():
    with pytest.raises(UsageError, match="drops attention between nodes"):
        train(labelled(), "asap", small_arguments("asap") | {"attention_dropout": 0.5}, 2)
