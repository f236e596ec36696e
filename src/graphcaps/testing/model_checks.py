"""Checks of the model contract: what training, evaluation, prediction and files assume of every registered model.

All computations are in float64 on small graphs, so that results that should be equal agree to about 1e-12. The
command ``pytest`` of a package with its own model needs one test::

    @pytest.mark.parametrize(("name", "check"), model_checks("my-model").items())
    def test_contract(name, check):
        check()
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise, product

import torch
from torch import Tensor

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.models.builder import (
    ModelBuilder,
    join_builders,
    model_factory,
    precomputation_of,
)
from graphcaps.models.lookup import find_graph_model, is_classical
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops.edge_kinds import edge_kind
from graphcaps.ops.edges import clean_edges
from graphcaps.ops.structure.structure import Structure
from graphcaps.testing.classical_checks import classical_checks
from graphcaps.testing.expectations import ContractError, expect, expect_equal
from graphcaps.testing.padded_batch import with_padding
from graphcaps.testing.subject import (
    Subject,
    check_description,
    check_model_file,
    check_unknown_options,
    reorder_nodes,
)
from graphcaps.training.replicas import Replica, pick_replica, stack_replicas
from graphcaps.training.trainer import StepMode, Trainer
from graphcaps.types import EdgeLabelUse, GraphBatch, LossOptions, ModelOutput

__all__ = ["check_model", "model_checks"]

_CHANNELS, _CLASSES = 5, 3
_SIZES = (7, 12, 1, 4, 9, 2, 6, 8)  # nodes of each graph
_EDGE_KINDS = (3, 2)  # values of each edge label column
_LEARNING_STEPS = 60
_DRAWN = ((0, 1, 3), (5, 4, 2), (6, 7, -1))  # graphs of each replica; −1 is padding


@dataclass(frozen=True)
class _Network(Subject):
    """A registered network under test; with the option ``edge_kinds`` it reads the edge labels of the graphs."""

    @property
    def edge_kinds(self) -> tuple[int, ...]:
        return _EDGE_KINDS if self.options.get("edge_kinds") else ()

    @cached_property
    def kind(self) -> type[GraphModel]:
        return find_graph_model(self.name)

    @property
    def size_option(self) -> str | None:
        return self.kind.width_option

    def config(self, **options: object) -> RunConfig:
        arguments = self.arguments(**options)
        arguments.pop("edge_kinds", None)  # of a configured model it follows from the graphs
        use: EdgeLabelUse | None = "messages" if self.edge_kinds else None
        return RunConfig(
            model=self.name,
            model_arguments=arguments,
            features=FeatureConfig(degree_onehot=4, propagation=1, edge_labels=use),
            training=TrainConfig(epochs=2, batch_size=3, learning_rate=0.01),
        )

    def configure(self, **options: object) -> GraphModel:
        return self.factory(**options)(())

    def construct(self, **options: object) -> GraphModel:
        return self.kind(_CHANNELS, _CLASSES, **options)  # type: ignore[arg-type]

    def factory(self, **options: object) -> ModelBuilder:
        return model_factory(self.config(**options), _CHANNELS, _CLASSES, self.edge_kinds)

    def build(self, lead: tuple[int, ...] = (), seed: int = 0) -> GraphModel:
        """A model in float64 and training mode; torch's generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.factory()(lead).double().train()


@dataclass(frozen=True, eq=False)
class _Graphs:
    """Random graphs with features ``x [N, in]`` in float64, classes, and edges with labels and kinds."""

    store: GraphStore
    x: Tensor

    @classmethod
    def draw(cls, subject: _Network, dtype: torch.dtype = torch.float64) -> _Graphs:
        """The graphs, with what the model precomputes from them in type ``dtype``."""
        generator = torch.Generator().manual_seed(0)
        ptr = torch.tensor((0, *_SIZES)).cumsum(0)
        pairs = [
            torch.randint(first, end, (2, 2 * (end - first)), generator=generator)
            for first, end in pairwise(ptr.tolist())
        ]
        edges = torch.cat(pairs, 1)
        y = torch.arange(len(_SIZES)) % _CLASSES
        x = torch.randn(sum(_SIZES), _CHANNELS, generator=generator, dtype=torch.float64)
        names = tuple(str(c) for c in range(_CLASSES))
        columns = [torch.randint(0, count, edges.shape[1:], generator=generator) for count in _EDGE_KINDS]
        clean = clean_edges(edges[0], edges[1], sum(_SIZES), labels=torch.stack(columns, -1))
        store = GraphStore.from_clean_edges("checks", ptr, clean, y=y, class_names=names)
        assert store.edge_labels is not None
        store = store.with_edge_kind(edge_kind(store.edge_labels, _EDGE_KINDS))
        return cls(precompute(store, precomputation_of(subject.factory()), dtype=dtype), x)

    def batch(self, graphs: object = None) -> GraphBatch:
        return self.store.batch(self.x, None if graphs is None else torch.as_tensor(graphs))

    def weighted(self, dtype: torch.dtype = torch.float64) -> _Graphs:
        """The same graphs with a weight from 0.5 to 2 for each edge."""
        assert self.store.edge_kind is not None
        weight = (1 + self.store.edge_kind % 4).to(dtype) / 2  # kinds are equal in both directions
        return _Graphs(replace(self.store, edge_weight=weight), self.x)

    def reordered(self, model: GraphModel) -> _Graphs:
        """The same graphs with their nodes in another order.

        A model that is not ``order_invariant`` keeps what it precomputed, with its nodes in the other order.
        """
        store, old_of = reorder_nodes(self.store)
        if model.order_invariant:
            store = precompute(store, model.precomputation, dtype=torch.float64)
        elif self.store.structure is not None:
            store = store.with_structure(_reorder_structure(self.store.structure, store, old_of))
        return _Graphs(store, self.x[old_of])


def _reorder_structure(structure: Structure, store: GraphStore, old_of: Tensor) -> Structure:
    """The structure for the nodes of ``store`` in another order, where ``old_of [N]`` has their former index."""
    columns = None if structure.columns is None else structure.columns[old_of]
    if not structure.levels:
        return Structure((), columns)
    level = structure.levels[0]
    first = store.node_ptr[:-1].repeat_interleave(level.entry_ptr.diff())
    members = old_of.argsort()[level.members + first] - first
    return Structure((replace(level, members=members.int()), *structure.levels[1:]), columns)


def _step(model: GraphModel, batch: GraphBatch) -> tuple[ModelOutput, Tensor]:
    """Output and loss of one training step; the gradients are those of the sum of the losses."""
    assert batch.y is not None
    output = model.forward_batch(batch, batch.y)
    total = model.loss(output, batch.y).total
    total.sum().backward()
    return output, total


def _gradients(model: GraphModel) -> dict[str, Tensor]:
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }


# ---------------------------------------------------------------------- the checks
def _check_pickling(subject: _Network) -> None:
    """The factory of the model can be sent to another process."""
    factory = pickle.loads(pickle.dumps(subject.factory()))
    model = factory((2,))
    expect(type(model) is subject.kind, "a pickled factory must build the same model")
    expect(
        (model.in_channels, model.num_classes, model.lead) == (_CHANNELS, _CLASSES, (2,)),
        "the model must pass in_channels, num_classes and lead on to GraphModel.__init__",
    )


def _check_scores(subject: _Network) -> None:
    """Class scores have one row per graph, the type of the weights, and are what ``scores`` says."""
    graphs, model = _Graphs.draw(subject), subject.build()
    output = model.eval().forward_batch(graphs.batch())
    expect(isinstance(output, ModelOutput), "forward_batch must return a ModelOutput")
    scores = output.class_scores
    shape = (len(_SIZES), _CLASSES)
    expect(scores.shape == shape, f"class_scores must have the shape {shape}, got {tuple(scores.shape)}")
    expect(scores.dtype == torch.float64, f"a model in float64 must give float64, got {scores.dtype}")
    expect(bool(scores.isfinite().all()), "class_scores must be finite")
    if model.scores != "logits":
        expect(bool((scores >= 0).all()), f"{model.scores} must not be negative")
    if model.scores == "probabilities":
        expect_equal(scores.sum(-1), torch.ones(len(_SIZES)), "the sum of the probabilities of a graph")


def _check_call(subject: _Network) -> None:
    """A call with ``x, edge_index, batch`` gives the scores of ``forward_batch``."""
    graphs, model = _Graphs.draw(subject), subject.build().eval()
    store = graphs.store
    labels = store.edge_labels if subject.edge_kinds else None
    called = model(graphs.x, store.entry_rows(), store.node_graph, edge_attr=labels)
    expect_equal(
        called.class_scores, model.forward_batch(graphs.batch()).class_scores, "the scores of a call"
    )


def _check_gradients(subject: _Network) -> None:
    """Every parameter gets a finite gradient, and some of them are not zero."""
    model = subject.build()
    _step(model, _Graphs.draw(subject).batch())
    for name, parameter in model.named_parameters():
        expect(parameter.grad is not None, f"the parameter '{name}' must have a gradient")
        expect(bool(_gradients(model)[name].isfinite().all()), f"the gradient of '{name}' must be finite")
    expect(any(bool(value.any()) for value in _gradients(model).values()), "some gradient must not be zero")


def _check_loss(subject: _Network) -> None:
    """The loss is one number; class weights of 1 change nothing, and a class of weight 0 has no gradient."""
    graphs, model = _Graphs.draw(subject), subject.build().eval()
    batch = graphs.batch()
    assert batch.y is not None
    output = model.forward_batch(batch)
    total = model.loss(output, batch.y).total
    expect(total.shape == (), f"the loss of one model must be one number, got the shape {list(total.shape)}")
    ones = LossOptions(class_weight=torch.ones(_CLASSES, dtype=torch.float64))
    expect_equal(model.loss(output, batch.y, ones).total, total, "the loss with class weights of 1")
    weight = torch.tensor([0.0] + [1.0] * (_CLASSES - 1), dtype=torch.float64)
    scores = output.class_scores.detach().requires_grad_()
    model.loss(ModelOutput(scores), batch.y, LossOptions(class_weight=weight)).total.backward()
    assert scores.grad is not None
    expect(not bool(scores.grad[batch.y == 0].any()), "graphs of a class with weight 0 must have no gradient")
    expect(bool(scores.grad[batch.y != 0].any()), "graphs of other classes must have a gradient")


def _check_sample_weight(subject: _Network) -> None:
    """A graph of weight 0 has no gradient, and the sum of weighted losses is that of graphs repeated as often."""
    graphs, model = _Graphs.draw(subject), subject.build().eval()
    batch = graphs.batch()
    assert batch.y is not None
    scores, y = model.forward_batch(batch).class_scores.detach(), batch.y
    counts = torch.arange(y.numel()) % 3  # 0, 1, 2, 0, …
    leaf = scores.clone().requires_grad_()
    options = LossOptions(graph_weight=counts.to(scores.dtype))
    total = model.loss(ModelOutput(leaf), y, options).total
    repeated = model.loss(ModelOutput(scores.repeat_interleave(counts, 0)), y.repeat_interleave(counts)).total
    total.backward()
    assert leaf.grad is not None
    expect(not bool(leaf.grad[counts == 0].any()), "graphs of weight 0 must have no gradient")
    expect_equal(total * y.numel(), repeated * int(counts.sum()), "the sum of the losses of weighted graphs")


def _check_reset(subject: _Network) -> None:
    """``reset_parameters`` draws a new model from torch's generator, whatever the state was before."""
    new = [subject.build(seed=seed).state_dict() for seed in (1, 2)]
    drawn = []
    for fill in (7.0, 8.0):
        model = subject.build()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(fill)
        _step(model, _Graphs.draw(subject).batch())  # changes running statistics and counters
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model.reset_parameters()
        drawn.append(model.state_dict())
    for name, value in drawn[0].items():
        what = f"'{name}' after reset_parameters"
        expect_equal(value, drawn[1][name], f"{what} with the same random numbers")
        if torch.equal(new[0][name], new[1][name]):
            expect_equal(value, new[0][name], f"{what} and in a new model")
        else:
            expect(not bool((value == 7.0).any()), f"{what} must be drawn again")


def _check_batch(subject: _Network) -> None:
    """Scores of a graph in evaluation mode do not depend on the other graphs of its batch."""
    graphs, model = _Graphs.draw(subject), subject.build()
    with torch.no_grad():
        model.forward_batch(graphs.batch())  # running statistics that are not those of a new model
        model.eval()
        together = model.forward_batch(graphs.batch()).class_scores
        alone = [model.forward_batch(graphs.batch([g])).class_scores for g in range(len(graphs.store))]
    expect_equal(torch.cat(alone), together, "the scores of a graph alone and in a batch")


def _check_node_order(subject: _Network) -> None:
    """Scores do not depend on the order of the nodes, other than through what the model precomputes."""
    graphs, model = _Graphs.draw(subject), subject.build().eval()
    other = graphs.reordered(model)
    expected = model.forward_batch(graphs.batch()).class_scores
    expect_equal(model.forward_batch(other.batch()).class_scores, expected, "scores with other node orders")


def _check_edge_weights(subject: _Network) -> None:
    """Edge weights are refused, or those of 1 give the scores of unweighted graphs."""
    graphs, model = _Graphs.draw(subject), subject.build().eval()
    ones = torch.ones(graphs.store.neighbours.numel(), dtype=torch.float64)
    weighted = _Graphs(replace(graphs.store, edge_weight=ones), graphs.x)
    try:
        scores = model.forward_batch(weighted.batch()).class_scores
    except ArgumentError:
        return
    expected = model.forward_batch(graphs.batch()).class_scores
    expect_equal(scores, expected, "scores with edge weights of 1")


def _check_padding(subject: _Network) -> None:
    """Padding rows with NaN and graphs without nodes change neither scores nor loss nor gradients."""
    batch = _Graphs.draw(subject).batch()
    bare, padded = subject.build(), subject.build()
    expected, loss = _step(bare, batch)
    output, padded_loss = _step(padded, with_padding(batch))
    real = len(_SIZES)
    expect_equal(output.class_scores[:real], expected.class_scores, "scores beside padding")
    expect(bool(output.class_scores.isfinite().all()), "scores of graphs without nodes must be finite")
    expect_equal(padded_loss, loss, "the loss beside padding")
    gradients = _gradients(padded)
    for name, gradient in _gradients(bare).items():
        expect_equal(gradients[name], gradient, f"the gradient of '{name}' beside padding")
    state = padded.state_dict()
    for name, value in bare.state_dict().items():
        expect_equal(state[name], value, f"'{name}' after a step beside padding")


def _check_replica_options(subject: _Network) -> None:
    """With one number per replica for its ``replica_options``, replica f gives what a model with its numbers gives."""
    graphs, F = _Graphs.draw(subject), len(_DRAWN)
    options = subject.kind.options()
    numbers = {
        name: [(float(options[name].default) or 1) * share for share in (0.5, 0.25, 0.75)]
        for name in subject.kind.replica_options
        if name in options
    }
    each = [{name: values[f] for name, values in numbers.items()} for f in range(F)]
    none = torch.empty(0, dtype=torch.long)
    replicas = [Replica(torch.tensor(_DRAWN[f]), none, none, seed=f, variant=f"{f}") for f in range(F)]
    builders = {f"{f}": subject.factory(**each[f]) for f in range(F)}
    joined = join_builders([*builders.values()])
    stacked = stack_replicas(joined, replicas, torch.float64, builders).train()
    singles = [pick_replica(stacked, builder, f).train() for f, builder in enumerate(builders.values())]
    output, total = _step(stacked, graphs.batch(_DRAWN))
    for f, single in enumerate(singles):
        indices = [g for g in _DRAWN[f] if g >= 0]
        alone, loss = _step(single, graphs.batch(indices))
        what = f"of a replica with the numbers {each[f]} and of a model with them"
        expect_equal(output.class_scores[f, : len(indices)], alone.class_scores, f"scores {what}")
        expect_equal(total[f], loss, f"the loss {what}")


def _check_replicas(subject: _Network) -> None:
    """Replica f of F gives the scores, losses, gradients and buffers of a single model with its parameters."""
    graphs, F = _Graphs.draw(subject), len(_DRAWN)
    none = torch.empty(0, dtype=torch.long)
    replicas = [Replica(torch.tensor(_DRAWN[f]), none, none, seed=f) for f in range(F)]
    factory = subject.factory()
    stacked = stack_replicas(factory, replicas, torch.float64).train()
    singles = [pick_replica(stacked, factory, f).train() for f in range(F)]
    output, total = _step(stacked, graphs.batch(_DRAWN))
    expect(
        total.shape == (F,), f"the loss of {F} replicas must have the shape ({F},), got {tuple(total.shape)}"
    )
    with torch.no_grad():  # gradients as parameters of a single model, whatever the layout of replicas is
        buffers = [pick_replica(stacked, factory, f).state_dict() for f in range(F)]
        for name, gradient in _gradients(stacked).items():
            stacked.get_parameter(name).copy_(gradient)
        gradients = [dict(pick_replica(stacked, factory, f).named_parameters()) for f in range(F)]
    for f, single in enumerate(singles):
        indices = [g for g in _DRAWN[f] if g >= 0]
        alone, loss = _step(single, graphs.batch(indices))
        what = f"of replica {f} and of a single model"
        expect_equal(output.class_scores[f, : len(indices)], alone.class_scores, f"scores {what}")
        expect_equal(total[f], loss, f"the loss {what}")
        for name, gradient in _gradients(single).items():
            expect_equal(gradients[f][name], gradient, f"the gradient of '{name}' {what}")
        for name, value in single.named_buffers():
            expect_equal(buffers[f][name], value, f"'{name}' {what}")


def _train(
    subject: _Network, replicas: list[Replica], mode: StepMode, device: str = "cpu", weighted: bool = False
) -> GraphModel:
    dtype = torch.float64 if device == "cpu" else torch.float32
    graphs = _Graphs.draw(subject, dtype)
    graphs = graphs.weighted(dtype) if weighted else graphs
    model = stack_replicas(subject.factory(), replicas, dtype).to(device)
    x = graphs.x.to(device, dtype)
    trainer = Trainer(model, graphs.store.to(device), x, replicas, subject.config().training, step_mode=mode)
    for _ in trainer.run():
        pass
    return model.cpu()


def _replicas() -> list[Replica]:
    rest = torch.tensor([7])
    return [
        Replica(torch.tensor(train), rest, rest, fold=f)
        for f, train in enumerate(((0, 1, 2, 3, 4), (6, 5, 4, 1)))
    ]


def _check_training(subject: _Network) -> None:
    """Two replicas trained together have the weights that each has when it is trained alone."""
    replicas, factory = _replicas(), subject.factory()
    together = _train(subject, replicas, "eager")
    for f, replica in enumerate(replicas):
        alone = pick_replica(_train(subject, [replica], "eager"), factory, 0).state_dict()
        for name, value in pick_replica(together, factory, f).state_dict().items():
            expect_equal(value, alone[name], f"'{name}' of replica {f}, trained together and alone", 1e-7)


def _check_learning(subject: _Network) -> None:
    """Training lowers the loss of the graphs that it trains on, within 60 steps."""
    batch, model = _Graphs.draw(subject).batch(), subject.build()
    assert batch.y is not None
    y = batch.y

    def loss() -> float:
        with torch.no_grad():
            return float(model.eval().loss(model.forward_batch(batch), y).total)

    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    before = after = loss()
    for step in range(1, _LEARNING_STEPS + 1):
        model.train()
        adam.zero_grad()
        _step(model, batch)
        adam.step()
        if step % 10 == 0:
            after = loss()
            if after < before:
                return
    raise ContractError(f"{_LEARNING_STEPS} steps must lower the loss, got {after:.4g} after {before:.4g}")


def _check_capture(subject: _Network) -> None:
    """``capturable`` is a Boolean; where it is true, padded steps and, on a GPU, captured steps train the same.

    So they do with edge weights, unless the model refuses them.
    """
    expect(type(subject.build().capturable) is bool, "capturable must be True or False")
    replicas, factory = _replicas(), subject.factory()
    pairs: list[tuple[StepMode, StepMode, str, float]] = []
    if subject.build().capturable:
        pairs.append(("eager", "bucketed", "cpu", 1e-7))
        if torch.cuda.is_available():
            pairs.append(("bucketed", "captured", "cuda", 1e-4))
    weightings = [False] if _refuses_weights(subject) else [False, True]
    for (one, other, device, tolerance), weighted in product(pairs, weightings):
        expected, trained = (
            pick_replica(_train(subject, replicas, mode, device, weighted), factory, 0).state_dict()
            for mode in (one, other)
        )
        suffix = " on weighted edges" if weighted else ""
        for name, value in expected.items():
            what = f"'{name}' trained with steps '{other}' and '{one}'{suffix}"
            expect_equal(trained[name], value, what, tolerance)


def _refuses_weights(subject: _Network) -> bool:
    try:
        subject.build().eval().forward_batch(_Graphs.draw(subject).weighted().batch())
    except ArgumentError:
        return True
    return False


def _check_file(subject: _Network) -> None:
    """A model file gives the probabilities of the model that was saved, bit for bit."""
    store, config = _Graphs.draw(subject).store, subject.config()
    recipe = FeatureRecipe.from_config(config.features)
    encoded = encode_graphs(store, recipe)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kinds = encoded.recipe.edge_kinds
        model = model_factory(config, encoded.x.size(-1), store.num_classes, kinds)(())
    check_model_file(FittedModel(model, config, encoded.recipe, store.class_names), store)


_GRAPH_MODEL_CHECKS: dict[str, Callable[[_Network], None]] = {
    "description": check_description,
    "unknown-options": check_unknown_options,
    "pickling": _check_pickling,
    "scores": _check_scores,
    "call": _check_call,
    "gradients": _check_gradients,
    "loss": _check_loss,
    "sample-weight": _check_sample_weight,
    "reset": _check_reset,
    "batch": _check_batch,
    "node-order": _check_node_order,
    "edge-weights": _check_edge_weights,
    "padding": _check_padding,
    "replicas": _check_replicas,
    "replica-options": _check_replica_options,
    "training": _check_training,
    "learning": _check_learning,
    "capture": _check_capture,
    "file": _check_file,
}


def model_checks(name: str, options: Mapping[str, object] | None = None) -> dict[str, Callable[[], None]]:
    """The checks of a registered model by their names. Each raises :class:`ContractError` if it fails.

    Args:
        name (str): Name of the model.
        options (dict, optional): Options of the model. (default: its own defaults, with a width of 8) With
            ``edge_kinds``, whatever its value, the model reads the labels of the edges of the test graphs.

    Raises:
        GraphcapsError: If there is no such model, or it cannot be loaded.
    """
    if is_classical(name):
        return classical_checks(name, options)
    subject = _Network(name, options or {})
    return {check: partial(function, subject) for check, function in _GRAPH_MODEL_CHECKS.items()}


def check_model(name: str, options: Mapping[str, object] | None = None) -> None:
    """Runs all checks of a registered model; arguments as in :func:`model_checks`.

    Raises:
        ContractError: If a check fails; the message names it.

    Example:
        >>> graphcaps.testing.check_model("gin")
    """
    for check, function in model_checks(name, options).items():
        try:
            function()
        except ContractError as error:
            raise ContractError(f"model '{name}', check '{check}': {error}.") from error
