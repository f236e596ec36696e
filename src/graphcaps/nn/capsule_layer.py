"""A capsule layer: votes along graph edges, routing by agreement, and the coarse graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError, check_at_least
from graphcaps.nn.context import Context
from graphcaps.nn.edge_modulation import EdgeModulation
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.primary_capsules import Formulation
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.trunk import Trunk
from graphcaps.ops.coarsening.coarsening import clamp_adjacency, coarsen, dense_coarsen
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.normalised_dense_hop import DenseHop
from graphcaps.ops.propagation.normalised_hop import Hop
from graphcaps.ops.propagation.propagation import dense_hop, propagate
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.ops.routing import RoutingMethod, route, route_dense
from graphcaps.ops.routing.contributions import routing_contributions
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import profiled
from graphcaps.types import CapsuleLevel, Contributions, EdgeTable, Segments

__all__ = ["CapsuleLayer"]

_MAX_ITERATIONS = 1000  # routing converges within ten


class CapsuleLayer(GraphLayer[CapsuleLevel]):
    r"""Groups capsules into capsules of the next level along graph edges.

    Voting and routing of HGCN (AAAI 2021, Eq. 4-5, https://arxiv.org/abs/2012.08734):

    .. math::
        v_{j|i} &= W_j^\top (\hat A u)_i + e_j \\
        c_{ij} &= \mathrm{softmax}_j(b_{ij}), \quad
        u'_j = \mathrm{squash}\Big(\sum_i c_{ij} v_{j|i}\Big) \\
        b_{ij} &\leftarrow b_{ij} + v_{j|i}^\top u'_j, \quad A' = C^\top A C

    with input capsules :math:`u`, output capsules :math:`u'` and :math:`b` zero at the start. Votes are never stored:
    see :func:`graphcaps.ops.route`.

    Shapes: V input capsules of B graphs, J output capsules per graph.

    Two formulations. ``"released"``: BatchNorm of the input capsules; no gradient through c nor through iterations but
    the last; the mean input capsule is added before the last squash, over nodes as a sum divided by
    ``residual_nodes``; A' is clamped to at most 1, with a zero diagonal. ``"paper"``: no BatchNorm; gradient through c;
    the mean input capsule, divided by the graph's size, is added after the squash; A' is kept as it is, so that its
    diagonal adds to the self-loops of the next layer.

    Args:
        in_channels (int): Dimension of an input capsule.
        capsule_dim (int): Dimension of an output capsule.
        num_capsules (int): Number of output capsules J.
        routing_iterations (int): Routing iterations R, at least 1. (default: 3)
        residual (bool): Whether the mean input capsule is added; ignored if input and output capsules differ in
            length. (default: True)
        residual_nodes (int, optional): Fixed divisor of the released residual over nodes; ``None`` divides by the
            number of nodes of each graph. (default: None)
        coarsen (bool): Whether A' is computed. (default: True)
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        trunk (Trunk, optional): Message passing that replaces :math:`\hat A u`, over nodes only.
        context (Context, optional): The same with residual layers; excludes ``trunk``.
        edge_kinds (tuple or int): Number of values of each edge label column: :math:`\hat A u` over nodes becomes an
            :class:`EdgeModulation`. A trunk or context has its own. (default: (), labels are not read)
        detach (bool, optional): Whether c carries no gradient. (default: according to the formulation)
        method (str): As in :func:`graphcaps.ops.route`. (default: "auto")
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward`` and ``forward_dense``):
        CapsuleLevel: ``capsules [*lead, B, J, d]``, ``assignment [*lead, V, J]`` (dense:
        ``[*lead, B, n, J]``), ``adjacency [*lead, B, J, J]``.

    Raises:
        ShapeError: If the batch and ``x`` disagree on V.

    Example:
        >>> layer = CapsuleLayer(8, 16, num_capsules=4)
        >>> layer(torch.rand(5, 8), torch.tensor([[0, 1, 3], [1, 2, 4]]), torch.tensor([0, 0, 0, 1, 1]))
        CapsuleLevel(capsules=[2, 4, 16], assignment=[5, 4], adjacency=[2, 4, 4])
    """

    def __init__(
        self,
        in_channels: int,
        capsule_dim: int,
        num_capsules: int,
        *,
        routing_iterations: int = 3,
        residual: bool = True,
        residual_nodes: int | None = None,
        coarsen: bool = True,
        formulation: Formulation = "released",
        trunk: Trunk | None = None,
        context: Context | None = None,
        edge_kinds: int | tuple[int, ...] = (),
        detach: bool | None = None,
        method: RoutingMethod = "auto",
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        check_at_least("CapsuleLayer", 1, num_capsules=num_capsules, routing_iterations=routing_iterations)
        if routing_iterations > _MAX_ITERATIONS:  # a model file could ask for hours
            expected = f"be at most {_MAX_ITERATIONS}"
            raise ArgumentError("CapsuleLayer", "routing_iterations", expected, routing_iterations)
        if residual_nodes is not None and residual_nodes < 1:
            raise ArgumentError("CapsuleLayer", "residual_nodes", "be at least 1, or None", residual_nodes)
        self.in_channels, self.capsule_dim, self.num_capsules = in_channels, capsule_dim, num_capsules
        self.routing_iterations, self.residual_nodes = routing_iterations, residual_nodes
        self.residual = residual and in_channels == capsule_dim
        if trunk is not None and context is not None:
            raise ArgumentError("CapsuleLayer", "context", "be None if there is a trunk", "both")
        self.coarsen, self.formulation, self.method, self.lead = coarsen, formulation, method, lead
        self.released = formulation == "released"
        self.norm = RaggedBatchNorm(in_channels, lead=lead) if self.released else None
        self.trunk, self.context = trunk, context
        message_passing = trunk or context
        kinds = check_edge_kinds("CapsuleLayer", edge_kinds)
        if message_passing is not None:
            if kinds:
                raise ArgumentError("CapsuleLayer", "edge_kinds", "be those of its trunk or context", kinds)
            kinds = message_passing.edge_kinds
        self.edge_kinds = kinds
        modulates = bool(kinds) and message_passing is None
        self.modulation = EdgeModulation(in_channels, kinds, lead=lead) if modulates else None
        self.detach = self.released if detach is None else detach
        self.weight = nn.Parameter(torch.empty(*lead, num_capsules, in_channels, capsule_dim))
        self.bias = nn.Parameter(torch.empty(*lead, num_capsules, capsule_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.norm is not None:
            self.norm.reset_parameters()
        if self.trunk is not None:
            self.trunk.reset_parameters()
        if self.context is not None:
            self.context.reset_parameters()
        if self.modulation is not None:
            self.modulation.reset_parameters()
        glorot_(self.weight, self.in_channels, self.capsule_dim)
        nn.init.zeros_(self.bias)

    def _routing(self, trace: bool) -> dict[str, float | bool]:
        return {"detach": self.detach or trace, "epsilon": self._epsilon, "trace": trace}

    @property
    def _epsilon(self) -> float:
        return RELEASED_EPSILON if self.released else 0.0

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> CapsuleLevel:
        """Output capsules from the nodes of a ragged batch, ``x [*lead, V, in]``."""
        return self.route(self.hop(x, edges, segments), edges, segments)

    def hop(self, u: Tensor, edges: EdgeTable, segments: Segments) -> Hop:
        """The first half of ``forward``: normalisation, propagation and mean, before the votes.

        Other readers of ``u`` should use the equal ``inputs`` of the result, which saves a pass in the backward pass.
        """
        if u.shape[-2] != segments.num_rows:
            raise ShapeError(
                "CapsuleLayer", "u", f"have one row per node of the batch, {segments.num_rows}", u.shape[-2]
            )
        divisor = self.residual_nodes if self.released else None
        message_passing = self.trunk or self.context or self.modulation
        if self.norm is not None and message_passing is None:
            return self.norm.hop(u, edges, segments, residual=self.residual, divisor=divisor)
        if self.norm is None:
            rows, mean, inputs = u, segment_mean(u, segments) if self.residual else None, u
        else:
            rows, mean, inputs = self.norm.with_means(u, segments, residual=self.residual, divisor=divisor)
        h = propagate(rows, edges) if message_passing is None else message_passing(rows, edges, segments)
        return Hop(h, mean, inputs)

    def route(self, hop: Hop, edges: EdgeTable, segments: Segments, *, trace: bool = False) -> CapsuleLevel:
        """The second half of ``forward``: routing, and the graph of the output capsules.

        With ``trace`` the assignments of every iteration and the contributions to the lengths of the output capsules
        are kept; no assignment carries a gradient.
        """
        mean = None if hop.mean is None else hop.mean.unsqueeze(-2)  # [*lead, B, 1, d]
        with profiled("routing"):
            routing = route(
                hop.h,
                self.weight,
                self.bias,
                segments,
                self.routing_iterations,
                residual=mean if self.released else None,
                method=self.method,
                **self._routing(trace),  # type: ignore[arg-type]
            )
            capsules = self._add_residual(routing.capsules, mean)
        with profiled("coarsening"):
            adjacency = self._clamp(coarsen(routing.assignment, edges, segments)) if self.coarsen else None
        contributions = (
            routing_contributions(
                hop.h,
                self.weight,
                self.bias,
                segments,
                routing,
                residual=mean,
                after_squash=not self.released,
            )
            if trace
            else None
        )
        return CapsuleLevel(capsules, routing.assignment, adjacency, routing.iterations, contributions)

    def forward_dense(
        self,
        u: Tensor,
        adjacency: Tensor,
        mask: Tensor | None = None,
        *,
        clear: bool = False,
        trace: bool = False,
    ) -> CapsuleLevel:
        """Output capsules from the capsules of the level below, in dense form.

        Args:
            u (Tensor): Input capsules, ``[*lead, B, n, in]``.
            adjacency (Tensor): Their graph, ``[*lead, B, n, n]``.
            mask (Tensor, optional): True at graphs with nodes, ``[*lead, B]``; the others do not count in BatchNorm.
                (default: all)
            clear (bool): Whether the results of the other graphs are set to zero. (default: False, undefined)
            trace (bool): As in ``route``. (default: False)
        """
        n = u.size(-2)
        if adjacency.shape != (*u.shape[:-1], n):
            raise ShapeError(
                "CapsuleLayer", "adjacency", f"have the shape {[*u.shape[:-1], n]}", list(adjacency.shape)
            )
        hop = (
            DenseHop(*dense_hop(u, adjacency))
            if self.norm is None
            else self.norm.dense_hop(u, adjacency, mask)
        )
        h, mean = hop.h, hop.mean if self.residual else None
        routing = route_dense(
            h,
            self.weight,
            self.bias,
            self.routing_iterations,
            mean if self.released else None,
            sums=hop.sums,
            **self._routing(trace),  # type: ignore[arg-type]
        )
        capsules = self._add_residual(routing.capsules, mean)
        coarse = self._clamp(dense_coarsen(routing.assignment, adjacency)) if self.coarsen else None
        contributions = (
            routing_contributions(
                h, self.weight, self.bias, None, routing, residual=mean, after_squash=not self.released
            )
            if trace
            else None
        )
        level = CapsuleLevel(capsules, routing.assignment, coarse, routing.iterations, contributions)
        return level if mask is None or not clear else _clear(level, mask)

    def _add_residual(self, capsules: Tensor, mean: Tensor | None) -> Tensor:
        """Adds the residual of the paper; the released one is added during the routing."""
        return capsules if self.released or mean is None else capsules + mean

    def _clamp(self, adjacency: Tensor) -> Tensor:
        return clamp_adjacency(adjacency) if self.released else adjacency

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.capsule_dim}, num_capsules={self.num_capsules}"
        shown += f", routing_iterations={self.routing_iterations}, residual={self.residual}"
        return shown + (f", lead={self.lead}" if self.lead else "")


def _clear(level: CapsuleLevel, mask: Tensor) -> CapsuleLevel:
    """Zeros for the graphs where ``mask [*lead, B]`` is False: biases would give them capsules of their own."""
    other = ~mask[..., None, None]
    return CapsuleLevel(
        level.capsules.masked_fill(other, 0),
        level.assignment.masked_fill(other, 0),
        None if level.adjacency is None else level.adjacency.masked_fill(other, 0),
        None if level.iterations is None else level.iterations.masked_fill(other, 0),
        None
        if level.contributions is None
        else Contributions(
            level.contributions.inputs.masked_fill(other, 0),
            level.contributions.residual.masked_fill(other.squeeze(-1), 0),
        ),
    )
