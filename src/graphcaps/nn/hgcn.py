"""The Hierarchical Graph Capsule Network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, TypeVar, cast, get_args

from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.context import Context, ContextKind, context_kinds
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.nn.fused_training import (
    FusedScoring,
    FusedTraining,
    KernelTraining,
    VoteTraining,
    fused_network,
    kernel_network,
    vote_network,
)
from graphcaps.nn.graph_model import GraphModel, ScoringFunction, TrainingFunction
from graphcaps.nn.losses import LOWER_MARGIN, UPPER_MARGIN, margin_loss
from graphcaps.nn.part_loss import (
    CONTEXT_HOPS,
    CONTEXT_LAYERS,
    Parts,
    PartsOutput,
    block_loss,
    check_parts,
)
from graphcaps.nn.primary_capsules import FactorSquash, Formulation, InputCapsules, PrimaryCapsules
from graphcaps.nn.replica_number import set_margins
from graphcaps.nn.trunk import Trunk, TrunkKind
from graphcaps.ops._triton.dispatch import kernels_available
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.lengths.lengths import lengths
from graphcaps.ops.propagation.normalised_hop import Hop
from graphcaps.ops.reconstruction.pair_loss_sampled import EXACT_UP_TO
from graphcaps.ops.routing import RoutingMethod
from graphcaps.profiling import profiled
from graphcaps.registry import MODELS, Choices, DataOption, Interval, ScoreKind
from graphcaps.types import GraphBatch, HGCNOutput, LossOptions, LossTerms, ModelOutput

__all__ = ["HGCN", "auto_class_residual", "auto_dropout", "auto_reconstruct_up_to"]


Network = TypeVar("Network")

_SMALL_DATASET = 1500  # graphs
_DROPOUT_SMALL, _DROPOUT_LARGE = 0.5, 0.1
_FEW_CLASSES = 6


def auto_reconstruct_up_to(max_nodes: int) -> int | None:
    """The value of ``reconstruct_up_to`` for the largest graph: ``None`` up to 4,096 nodes, 4,096 above.

    Memory grows linearly with the nodes either way, but the time of the exact loss with their square.
    """
    return EXACT_UP_TO if max_nodes > EXACT_UP_TO else None


def auto_dropout(num_graphs: int, num_classes: int) -> float:
    """Dropout by the size of the data set: 0.5 up to 1,500 graphs of at most 6 classes, 0.1 above.

    Small data sets overfit, and dropout reduces that. The threshold separates the data sets it was chosen with: at
    most 1,500 graphs, or at least 2,000, whose folds train on 1,600 or more. Many classes lie closer together than the
    noise of a dropout of 0.5, with which training is slow and its accuracy falls back between epochs
    (docs/estimator.md).
    """
    is_small = num_graphs <= _SMALL_DATASET and num_classes <= _FEW_CLASSES
    return _DROPOUT_SMALL if is_small else _DROPOUT_LARGE


def auto_class_residual(num_classes: int) -> bool:
    """Whether class capsules have a residual: up to 6 classes.

    The residual is the same vector for all class capsules of a graph, and longer than their votes at the start: all
    lengths are then about 0.99, where the squash has hardly a gradient. The more classes there are, the more capsules
    the training has to shorten again before it can tell them apart (docs/estimator.md).
    """
    return num_classes <= _FEW_CLASSES


def _check_context(context: str, layers: int) -> None:
    """Rejects unknown kinds, and no layers."""
    kinds = ("none", *context_kinds())
    if context not in kinds:
        raise ArgumentError("HGCN", "context", f"be one of {', '.join(kinds)}", repr(context))
    if layers < 1:
        raise ArgumentError("HGCN", "context_layers", "be at least 1", layers)


@MODELS.register("hgcn")
class HGCN(GraphModel):
    r"""Classifies graphs with a hierarchy of capsules.

    Hierarchical Graph Capsule Network (AAAI 2021, https://arxiv.org/abs/2012.08734):

    .. math::
        u^{(1)} = \mathrm{primary}(x), \quad
        u^{(l+1)}, A^{(l+1)} = \mathrm{capsules}_l(u^{(l)}, A^{(l)}), \quad
        \mathrm{score}_o = \|u^{(L)}_o\|

    with a layer of ``num_capsules[l]`` capsules per entry and a last layer with one capsule per class.
    :class:`PrimaryCapsules`, :class:`CapsuleLayer` and :class:`AdjacencyDecoder` hold the equations.

    Two formulations. ``"released"`` is the program that produced the published results. ``"paper"`` follows the
    equations of the text, completed where they leave a choice: σ is ReLU; no BatchNorm; squash(0) = 0; gradient
    through c; the residual is added after the squash and divided by the graph's number of nodes; the coarse adjacency
    keeps its diagonal; products ZZᵀ are clamped to [1e-7, 1 − 1e-7].

    A graph without nodes has capsules of zero on every level and scores of zero; it has no gradient.

    Ablations of the paper: A1 is ``disentangle=False`` (features as capsules; the residual of the first layer is left
    out if widths differ), A2 ``residual=False``, A3 ``reconstruction=False``.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes O.
        capsule_dim (int): Dimension of a capsule. (default: 128)
        num_capsules (tuple or int): Number of capsules of each hidden level, from nodes upwards. (default: (10,))
        num_factors (int): Number of factors K of a primary capsule. (default: 4)
        routing_iterations (int): Routing iterations R. (default: 3)
        dropout (float): Dropout probability of the factors. (default: 0.0)
        residual (bool): Whether the mean input capsule is added to every output capsule. (default: True)
        residual_nodes (int, optional): Fixed divisor of the released residual over nodes; ``None`` divides by the
            number of nodes of each graph. (default: None)
        class_residual (bool): Whether class capsules have the residual, too; ignored without ``residual``.
            (default: True)
        disentangle (bool): Whether features are projected onto factors. (default: True)
        reconstruction (bool): Whether there is a decoder. (default: True)
        reconstruct_up_to (int, optional): Extension: for graphs with more nodes the reconstruction loss is an unbiased
            estimate from sampled pairs, in linear time; ``None`` is exact for all graphs. (default: None)
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        trunk (str or Module, optional): ``"gin"``, ``"gine"``, ``"sage"``, ``"gat"`` or a module: message passing that
            replaces the hop under the votes over nodes, see :class:`Trunk`. (default: None)
        trunk_layers (int): Number of layers of a named trunk. (default: 1)
        context (str): Extension: message passing layers under the votes over nodes in place of the hop,
            ``"residual"``, ``"gated"`` or ``"gin"`` as in :class:`Context`; excludes ``trunk``, and ``parts``, which
            has its own. (default: "none", the published model)
        context_layers (int): Number of these layers; ignored without them. (default: 2)
        context_jumping (bool): Whether the votes read all of these layers, not the last one only; ignored without
            them. (default: False)
        edge_kinds (tuple or int): Extension: number of values of each edge label column that the message passing under
            the votes over nodes reads (:class:`EdgeModulation`). A configured model takes it from the data, with
            ``edge_labels = "messages"`` under ``[features]``. (default: (), the published model ignores edge labels)
        factor_squash (str): ``"joined"`` as published, or ``"separate"``, which squashes each factor separately.
            (default: "joined")
        parts (str, optional): Extension: ``"blocks"`` trains the capsules of the first level to be parts of the graph,
            one kind of part per capsule, with :class:`Context` under the votes, gradient through the routing, and a
            loss (:func:`graphcaps.nn.part_loss.block_loss`); ``num_capsules[0]`` is then the largest number of kinds.
            (default: None, the published model)
        parts_weight (float): Weight of the loss of ``"blocks"``. (default: 1.0)
        upper_margin (float): Length from which the capsule of the true class has no loss, in training. The loss in
            evaluation mode has the published margins whatever those in training are, so that the validation losses of
            different margins can be compared. (default: 0.9, as published)
        lower_margin (float): Length up to which capsules of other classes have no loss, in training. (default: 0.1, as
            published)
        routing (str): Implementation of the routing, as ``method`` of :func:`graphcaps.ops.route`. (default: "auto")
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Example:
        >>> model = HGCN(in_channels=7, num_classes=2, num_capsules=(20, 8))
        >>> output = model(data.x, data.edge_index, data.batch)          # doctest: +SKIP
        >>> output.class_scores.argmax(-1)                               # doctest: +SKIP
    """

    upper_margin: float | Tensor
    lower_margin: float | Tensor
    has_capsules: ClassVar[bool] = True
    scores: ClassVar[ScoreKind] = "lengths"
    reference: ClassVar[str] = (
        "Hierarchical Graph Capsule Network, AAAI 2021, https://arxiv.org/abs/2012.08734"
    )
    width_option: ClassVar[str | None] = "capsule_dim"
    memory_options: ClassVar[tuple[str, ...]] = ("num_capsules", "capsule_dim")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "dropout": DataOption(lambda size: auto_dropout(size.num_graphs, size.num_classes)),
        "class_residual": DataOption(lambda size: auto_class_residual(size.num_classes), kept=True),
        "residual_nodes": DataOption(lambda size: size.max_nodes, kept=True),
        "reconstruct_up_to": DataOption(lambda size: auto_reconstruct_up_to(size.max_nodes)),
    }
    replica_options: ClassVar[tuple[str, ...]] = ("dropout", "upper_margin", "lower_margin")
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "capsule_dim": Choices((32, 64, 128)),
        "num_capsules": Choices(((5,), (10,), (20,), (10, 5))),
        "num_factors": Choices((2, 4, 8)),
        "routing_iterations": Interval(1, 4),
        "dropout": Interval(0.0, 0.7),
        "upper_margin": Interval(0.7, 0.95),
        "lower_margin": Interval(0.05, 0.3),
        "context": Choices(("none", "gin")),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        capsule_dim: int = 128,
        num_capsules: int | tuple[int, ...] = (10,),
        num_factors: int = 4,
        routing_iterations: int = 3,
        dropout: float = 0.0,
        residual: bool = True,
        residual_nodes: int | None = None,
        class_residual: bool = True,
        disentangle: bool = True,
        reconstruction: bool = True,
        reconstruct_up_to: int | None = None,
        formulation: Formulation = "released",
        trunk: TrunkKind | nn.Module | None = None,
        trunk_layers: int = 1,
        context: ContextKind | Literal["none"] = "none",
        context_layers: int = 2,
        context_jumping: bool = False,
        edge_kinds: int | tuple[int, ...] = (),
        factor_squash: FactorSquash = "joined",
        parts: Parts | None = None,
        parts_weight: float = 1.0,
        upper_margin: float = UPPER_MARGIN,
        lower_margin: float = LOWER_MARGIN,
        routing: RoutingMethod = "auto",
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        for name, value in (
            ("capsule_dim", capsule_dim),
            ("reconstruct_up_to", 1 if reconstruct_up_to is None else reconstruct_up_to),
        ):
            if value < 1:
                raise ArgumentError("HGCN", name, "be at least 1", value)
        if formulation not in ("released", "paper"):
            raise ArgumentError("HGCN", "formulation", "be 'released' or 'paper'", repr(formulation))
        if isinstance(num_capsules, int):
            num_capsules = (num_capsules,)
        if routing not in get_args(RoutingMethod):
            raise ArgumentError(
                "HGCN", "routing", f"be one of {', '.join(get_args(RoutingMethod))}", repr(routing)
            )
        check_parts(parts, parts_weight)
        if parts is not None and trunk is not None:
            raise ArgumentError("HGCN", "trunk", f"be None beside parts='{parts}'", "both")
        _check_context(context, context_layers)
        if context != "none" and (parts is not None or trunk is not None):
            other = "a trunk" if parts is None else f"parts='{parts}'"
            raise ArgumentError("HGCN", "context", f"be 'none' beside {other}", repr(context))
        if not num_capsules:
            raise ArgumentError("HGCN", "num_capsules", "name at least one hidden level", "()")
        self.formulation = formulation
        self.parts, self.parts_weight = parts, parts_weight
        self.assigns_groups = parts is None  # parts trains the assignment of single nodes
        set_margins(self, upper_margin, lower_margin)
        self.edge_kinds = check_edge_kinds("HGCN", edge_kinds)
        self.primary: PrimaryCapsules | InputCapsules
        if disentangle:
            self.primary = PrimaryCapsules(
                in_channels,
                capsule_dim,
                num_factors=num_factors,
                dropout=dropout,
                factor_squash=factor_squash,
                formulation=formulation,
                lead=lead,
            )
        else:
            self.primary = InputCapsules(in_channels, formulation=formulation, lead=lead)
        width = self.primary.capsule_dim
        inner: Trunk | None = None
        if trunk:
            inner = Trunk(trunk, width, num_layers=trunk_layers, edge_kinds=self.edge_kinds, lead=lead)
        self.capturable = inner is None or inner.capturable
        passing: Context | None = None
        if parts is not None:
            passing = Context(width, CONTEXT_LAYERS, hops=CONTEXT_HOPS, edge_kinds=self.edge_kinds, lead=lead)
        elif context != "none":
            passing = Context(
                width,
                context_layers,
                kind=context,
                jumping=context_jumping,
                edge_kinds=self.edge_kinds,
                lead=lead,
            )
        layers = []
        for level, size in enumerate((*num_capsules, num_classes)):
            over_nodes = level == 0
            finds_parts = over_nodes and parts is not None
            layers.append(
                CapsuleLayer(
                    width if over_nodes else capsule_dim,
                    capsule_dim,
                    size,
                    routing_iterations=routing_iterations,
                    residual=residual and (class_residual or level < len(num_capsules)),
                    residual_nodes=residual_nodes if over_nodes else None,
                    coarsen=level < len(num_capsules),
                    formulation=formulation,
                    trunk=inner if over_nodes else None,
                    context=passing if over_nodes else None,
                    edge_kinds=self.edge_kinds if over_nodes and inner is None and passing is None else (),
                    detach=False if finds_parts else None,
                    method=routing,
                    lead=lead,
                )
            )
        self.layers = nn.ModuleList(layers)
        self.decoder = (
            AdjacencyDecoder(
                num_classes,
                capsule_dim,
                width,
                formulation=formulation,
                reconstruct_up_to=reconstruct_up_to,
                lead=lead,
            )
            if reconstruction
            else None
        )

    def reset_parameters(self) -> None:
        for part in (self.primary, *self.layers, self.decoder):
            if part is not None:
                part.reset_parameters()

    def forward_batch(
        self,
        batch: GraphBatch,
        y: Tensor | None = None,
        *,
        reconstruct: bool | None = None,
        trace: bool = False,
    ) -> HGCNOutput:
        """Classifies the graphs of a :class:`GraphBatch`.

        Args:
            batch (GraphBatch): Batch of graphs.
            y (Tensor, optional): Classes, ``[*lead, B]``, −1 at padding.
            reconstruct (bool, optional): Whether the reconstruction loss is computed; without ``y`` for the predicted
                class. (default: if there is ``y``)
            trace (bool): For explanations: every level keeps the assignments of all routing iterations, ``primary``
                is a leaf of the graph of gradients, and no gradient flows through assignments. Results differ from
                those without a trace by rounding. (default: False)
        """
        segments = batch.segments
        lowest, *above = self.layers
        hop = self._hop(batch, trace=trace)
        primary = hop.inputs
        level = cast(CapsuleLayer, lowest).route(hop, batch.edges, segments, trace=trace)
        levels = [level]
        with profiled("class level"):
            for layer in above:
                assert level.adjacency is not None
                level = cast(CapsuleLayer, layer).forward_dense(
                    level.capsules,
                    level.adjacency,
                    segments.graph_mask,
                    clear=segments.may_be_empty,
                    trace=trace,
                )
                levels.append(level)
        scores = lengths(level.capsules)
        loss = None
        if self.decoder is not None and (y is not None if reconstruct is None else reconstruct):
            classes = scores.argmax(-1) if y is None else y
            if classes.shape != scores.shape[:-1]:
                raise ShapeError(
                    "HGCN", "y", f"have one class per graph, {list(scores.shape[:-1])}", list(classes.shape)
                )
            with profiled("reconstruction"):
                loss = self.decoder(primary, batch.edges, segments, class_capsules=level.capsules, y=classes)
        if self.parts is None:
            return HGCNOutput(scores, level.capsules, primary, tuple(levels), loss)
        parts_loss = None if y is None else block_loss(levels[0].assignment, batch.edges, segments)
        return PartsOutput(scores, level.capsules, primary, tuple(levels), loss, parts_loss)

    def _hop(self, batch: GraphBatch, *, trace: bool = False) -> Hop:
        """The primary capsules, and what the votes over nodes read of them; arguments as in :meth:`forward_batch`."""
        # PrimaryCapsules can read features from the store; InputCapsules needs gathered rows.
        x = batch.features if isinstance(self.primary, PrimaryCapsules) else batch.x
        segments = batch.segments
        if tuple(x.shape[:-2]) != tuple(self.lead):
            raise ShapeError("HGCN", "x", f"have the leading axes {self.lead}", tuple(x.shape[:-2]))
        mask = segments.row_mask
        if mask is not None and isinstance(x, Tensor) and self.formulation == "paper":
            # BatchNorm and the store ignore padding rows; the formulation of the paper has no BatchNorm.
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        with profiled("primary"):
            u = self.primary(x, batch.edges, segments)
        if trace:
            u = u.detach().requires_grad_()
        with profiled("hop"):
            hop = cast(CapsuleLayer, self.layers[0]).hop(u, batch.edges, segments)
        return replace(hop, inputs=u) if trace else hop

    def loss(
        self,
        output: ModelOutput,
        y: Tensor,
        options: LossOptions = LossOptions(),
    ) -> LossTerms:
        """Margin loss plus the weighted losses of reconstruction and parts, if the model has them.

        Args:
            output (HGCNOutput): Output of ``forward_batch``.
            y (Tensor): Classes, −1 at padding, ``[*lead, B]``.
            options (LossOptions): Weights of classes and graphs in the margin loss, and weight β of the
                reconstruction loss.
        """
        upper, lower = (
            (self.upper_margin, self.lower_margin) if self.training else (UPPER_MARGIN, LOWER_MARGIN)
        )
        margin = margin_loss(
            output.class_scores, y, upper=upper, lower=lower,
            class_weight=options.class_weight, graph_weight=options.graph_weight,
        )  # fmt: skip
        loss = LossTerms(margin, {"margin": margin})
        if isinstance(output, HGCNOutput):
            loss = loss.plus("reconstruction", output.reconstruction_loss, options.reconstruction_weight)
        if isinstance(output, PartsOutput):
            loss = loss.plus("parts", output.parts_loss, self.parts_weight)
        return loss

    def training_function(self) -> TrainingFunction:
        """What training steps call: one operation for small graphs on a CPU (:class:`FusedTraining`), on a GPU for the
        published model (:class:`KernelTraining`) and for others from the votes on (:class:`VoteTraining`)."""
        if kernels_available(*self.parameters()):
            stacked = self._network(kernel_network)
            if stacked is not None:
                return KernelTraining(
                    self, stacked, self._switched, cast(PrimaryCapsules, self.primary).dropout
                )
            votes = self._network(vote_network)
            if votes is not None:
                return VoteTraining(self, votes, self._switched, self._hop)
            return super().training_function()
        network = self._network(fused_network)
        if network is None:
            return super().training_function()
        return FusedTraining(self, network, self._switched, cast(PrimaryCapsules, self.primary).dropout)

    def scoring_function(self) -> ScoringFunction:
        """What evaluations call; for small graphs on a CPU it is one operation (:class:`FusedScoring`)."""
        network = self._network(fused_network)
        return super().scoring_function() if network is None else FusedScoring(self, network, self._switched)

    def _network(self, build: Callable[..., Network | None]) -> Network | None:
        """The layers as one operation; ``None`` if that does not compute what they do."""
        computed = ("forward_batch", "loss", "training_loss", "_hop")
        if self.parts is not None or any(
            getattr(type(self), each) is not getattr(HGCN, each) for each in computed
        ):
            return None
        margins = self.upper_margin, self.lower_margin
        return build(self.primary, self.layers, self.decoder, margins, self.lead)

    @property
    def _switched(self) -> list[nn.Module]:
        """Parts that do something else in evaluation: normalisations, and a decoder that samples pairs."""
        # The primary capsules may be a user's module.
        norms = [getattr(part, "norm", None) for part in (self.primary, *self.layers)]
        samples = self.decoder is not None and self.decoder.reconstruct_up_to is not None
        return [part for part in (*norms, self.decoder if samples else None) if part is not None]
