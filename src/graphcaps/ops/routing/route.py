"""Entry points of routing by agreement: check the shapes and choose the implementation."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops._triton.dispatch import kernels_available, select, uses_reference
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.routing.factored import route_dense_factored, route_factored
from graphcaps.ops.routing.iterations import route_traced
from graphcaps.ops.routing.naive import route_naive
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Routing, Segments

__all__ = ["RoutingMethod", "route", "route_dense"]

RoutingMethod = Literal["auto", "factored", "naive", "kernel"]


@full_precision
def route(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    batch: Tensor | Segments,
    iterations: int,
    *,
    num_graphs: int | None = None,
    residual: Tensor | None = None,
    detach: bool = True,
    method: RoutingMethod = "auto",
    epsilon: float = RELEASED_EPSILON,
    trace: bool = False,
) -> Routing:
    r"""Routes input capsules to output capsules by agreement (HGCN, Eq. 4-5).

    .. math::
        v_{j|i} &= W_j^\top h_i + e_j, \quad c_{ij} = \mathrm{softmax}_j(b_{ij}) \\
        u_j &= \mathrm{squash}\Big(\textstyle\sum_i c_{ij} v_{j|i}\Big), \quad
        b_{ij} \leftarrow b_{ij} + v_{j|i}^\top u_j

    Args:
        h (Tensor): Input capsules, propagated along the edges, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        batch (Tensor or Segments): Graph of each input capsule, sorted, ``[*lead, V]``; rows of graph
            ``num_graphs`` are padding.
        iterations (int): Routing iterations R, at least 1.
        num_graphs (int, optional): B. (default: the largest number in ``batch``, plus one)
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d']``.
        detach (bool): Whether c is a constant for the gradient, so that only the last sum carries one, as in
            the released program; with ``False`` the gradient flows through all iterations. (default: True)
        method (str): ``"factored"`` stores no votes; ``"naive"`` stores all of them and is the reference
            implementation; ``"kernel"`` is ``"factored"`` in fused kernels (float32 on a GPU), which falls back to
            it for sizes that the kernels do not support (:mod:`graphcaps.ops._triton.dispatch` states the rule);
            ``"auto"`` is the fastest that gives the same result. Reference forms of operations
            (``use_kernels("reference")``) always take ``"naive"``. (default: "auto")
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        trace (bool): Whether the assignments of all iterations are returned, ``iterations [R, *lead, V, J]``. Needs
            ``detach``, and does not depend on ``method``: results differ from those without a trace by rounding.
            (default: False)

    Returns:
        Routing: ``capsules [*lead, B, J, d']`` and ``assignment [*lead, V, J]``.

    Raises:
        ShapeError: If the sizes disagree.
        ArgumentError: If ``method`` is ``"kernel"`` and kernels are not available, or ``trace`` is set without
            ``detach``.
    """
    if isinstance(batch, Segments):
        segments = batch
    else:
        if bool((batch[..., 1:] < batch[..., :-1]).any()):
            raise ShapeError(
                "route", "batch", "be sorted", "graphs out of order", "Sort the input capsules by graph."
            )
        segments = Segments.from_index(batch, num_graphs)
    _check(h, weight, bias, segments, iterations, residual, method)
    if trace:
        _check_trace(detach)
        return route_traced(h, weight, bias, segments, iterations, residual, epsilon)
    if method == "naive" or uses_reference():
        form = route_naive
    elif method == "factored":
        form = route_factored
    else:
        form = select(
            "route", route_factored, h, weight, bias, residual,
            max_size=segments.max_size, num_graphs=segments.num_graphs,
        )  # fmt: skip
    return form(h, weight, bias, segments, iterations, residual, detach, epsilon)


@full_precision
def route_dense(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
    trace: bool = False,
    sums: Tensor | None = None,
) -> Routing:
    """As :func:`route`, for graphs with the same number n of input capsules, ``h [*lead, B, n, d]``.

    The assignment is ``[*lead, B, n, J]``. Kernels are used where they support the sizes. ``sums [*lead, B, d]`` are
    those of h over each graph, where the caller has them: the first iteration then needs no pass over h.
    """
    if trace:
        _check_trace(detach)
        return route_traced(h, weight, bias, None, iterations, residual, epsilon)
    B, n = h.shape[-3:-1]
    tensors = (h, weight, bias, residual)
    form = select("route_dense", route_dense_factored, *tensors, max_size=n, num_graphs=B)
    return form(h, weight, bias, iterations, residual, detach, epsilon, sums)


def _check_trace(detach: bool) -> None:
    if not detach:
        raise ArgumentError("route", "detach", "be True with a trace", detach)


def _check(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None,
    method: str,
) -> None:
    if method not in get_args(RoutingMethod):
        raise ArgumentError(
            "route", "method", f"be one of {', '.join(get_args(RoutingMethod))}", repr(method)
        )
    if method == "kernel" and not (kernels_available(h, weight, bias, residual) or uses_reference()):
        raise ArgumentError(
            "route",
            "method",
            "be available here",
            f"'kernel' for {h.dtype} on {h.device.type}",
            "Kernels need float32 tensors on a GPU and Triton, and must not be switched off; use 'auto'.",
        )
    if iterations < 1:
        raise ArgumentError("route", "iterations", "be at least 1", iterations)
    if h.dim() < 2 or weight.dim() < 3:
        expected = "have at least the axes [V, d] and [J, d, d']"
        raise ShapeError("route", "h, weight", expected, f"{list(h.shape)} and {list(weight.shape)}")
    lead = tuple(h.shape[:-2])
    V, d = h.shape[-2:]
    if tuple(segments.index.shape) != (*lead, V):
        raise ShapeError(
            "route", "batch", f"have one entry per input capsule, {[*lead, V]}", list(segments.index.shape)
        )
    if tuple(weight.shape[:-3]) != lead or weight.size(-2) != d:
        raise ShapeError("route", "weight", f"have the shape {[*lead, 'J', d]} + [d']", list(weight.shape))
    J, d_out = weight.size(-3), weight.size(-1)
    if tuple(bias.shape) != (*lead, J, d_out):
        raise ShapeError("route", "bias", f"have the shape {[*lead, J, d_out]}", list(bias.shape))
    if residual is not None and tuple(residual.shape) != (*lead, segments.num_graphs, 1, d_out):
        raise ShapeError(
            "route",
            "residual",
            f"have the shape {[*lead, segments.num_graphs, 1, d_out]}",
            list(residual.shape),
        )
