"""The one place that decides which form of an operation runs: its torch, its Triton or its reference form.

An operation asks for its form and calls it; all forms have the same signature::

    form = select("margin_loss", _margin_loss, class_scores, class_weight, graph_weight)
    return form(class_scores, y, upper, lower, absent_weight, class_weight, graph_weight)

The reference form is chosen inside ``use_kernels("reference")``. It consists of standard tensor operations, and no
shape in it depends on the values of a tensor, so that ``torch.export`` and ONNX can represent it. An operation has one
only where its torch form cannot be exported. The scores of a model can then be exported, its reconstruction loss not.

The Triton form is chosen if all of these hold:

* Triton is installed and kernels are not switched off (:func:`use_kernels`, ``GRAPHCAPS_KERNELS``);
* every tensor is on a GPU, and every floating-point tensor is float32 (:func:`kernels_available`);
* the operation's own condition in :data:`TRITON_FORMS` holds;
* the batch is whole, or the form computes parts of it too (``whole_batch`` in :data:`TRITON_FORMS`).

Triton modules are imported when their form is first selected, because Triton is an optional dependency.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.compilation import is_traced

__all__ = [
    "LARGEST_ROUTED_GRAPH",
    "MOST_ASSIGNMENT_COLUMNS",
    "MOST_DENSE_CAPSULES",
    "MOST_FUSED_CLASSES",
    "MOST_FUSED_INPUTS",
    "MOST_ROUTED_CAPSULES",
    "MOST_SAMPLED_PAIRS",
    "TRITON_FORMS",
    "WIDEST_ACTIVATION",
    "WIDEST_ATTENTION",
    "WIDEST_ROUTED_CAPSULE",
    "KernelMode",
    "TritonForm",
    "kernels_available",
    "needs_plain_operations",
    "select",
    "supports",
    "triton_installed",
    "use_kernels",
    "uses_reference",
]

KernelMode = Literal["auto", "off", "always", "reference"]

WIDEST_ACTIVATION = 1024
"""Longest row of the activation kernel and of rows of length 1: a program holds a whole row."""
WIDEST_ATTENTION = 256
"""Longest row of the edge attention kernels: a program holds whole rows."""
MOST_DENSE_CAPSULES = 64
"""Largest number of capsules of a graph in the dense hop kernel: a program holds a whole graph."""
MOST_ASSIGNMENT_COLUMNS = 64
"""Largest number of columns of the left factor in the segment product kernel."""
MOST_ROUTED_CAPSULES = 128
"""Largest J of the routing kernels: a program holds the assignments of its rows to all capsules."""
WIDEST_ROUTED_CAPSULE = 128
"""Largest d and d' of the routing kernels."""
LARGEST_ROUTED_GRAPH = 16384
"""Largest number of rows of a graph in the routing kernels, which keep the sums of all its chunks."""
MOST_FUSED_INPUTS = 64
"""Largest number of capsules of a graph whose class level is routed by one kernel."""
MOST_FUSED_CLASSES = 6
"""Largest number of classes of that kernel: a program holds a matrix of each."""
MOST_SAMPLED_PAIRS = 64
"""Largest number of partners of a node in the sampled reconstruction kernel: a program holds their rows."""

_VARIABLE, _MODES = "GRAPHCAPS_KERNELS", get_args(KernelMode)
_mode: ContextVar[str | None] = ContextVar("kernels", default=None)

Form = TypeVar("Form", bound=Callable[..., object])


def _no_condition(*_: Tensor | None) -> bool:
    """No further condition."""
    return True


def _activate(z: Tensor, _bias: Tensor) -> bool:
    """There are rows, and none is longer than ``WIDEST_ACTIVATION``."""
    return z.numel() > 0 and z.size(-1) <= WIDEST_ACTIVATION


def _project(_x: Tensor, node: Tensor, weight: Tensor) -> bool:
    """There are rows, and they have the leading axes of the weight."""
    return node.numel() > 0 and node.shape[:-1] == weight.shape[:-2]


def _projected_capsules(x: Tensor, node: Tensor, weight: Tensor) -> bool:
    """The same, and capsules are no longer than ``WIDEST_ROUTED_CAPSULE``: a program holds whole rows."""
    return _project(x, node, weight) and weight.size(-1) <= WIDEST_ROUTED_CAPSULE


def _without_mask(x: Tensor, mask: Tensor | None) -> bool:
    """There are rows, and no mask."""
    return x.numel() > 0 and mask is None


def _short_rows(x: Tensor) -> bool:
    """There are rows, and none is longer than ``WIDEST_ACTIVATION``."""
    return x.numel() > 0 and x.size(-1) <= WIDEST_ACTIVATION


def _not_empty(x: Tensor, *_: Tensor | None) -> bool:
    """The first tensor is not empty."""
    return x.numel() > 0


def _on_gpu(order: Tensor) -> bool:
    """The tensors are on a GPU, also in mode ``"always"``: under the interpreter the kernel is too slow."""
    return order.is_cuda


def _normalised_rows(x: Tensor, parameter: Tensor) -> bool:
    """There are rows, and they have the leading axes of the parameters."""
    return x.numel() > 0 and x.shape[:-2] == parameter.shape[:-1]


def _norm_with_means(x: Tensor, parameter: Tensor, index: Tensor, *, training: bool) -> bool:
    """The same while training, with one row per row of the batch."""
    return training and _normalised_rows(x, parameter) and x.shape[:-1] == index.shape


def _activated_product(
    one: Tensor, _two: Tensor, matrix: Tensor, parameter: Tensor, _residual: Tensor | None
) -> bool:
    """There are rows, and they have the leading axes of the matrix and of the parameters."""
    return _normalised_rows(one, parameter) and one.shape[:-2] == matrix.shape[:-2]


def _normalised_dense_hop(u: Tensor, adjacency: Tensor, weight: Tensor, *, training: bool) -> bool:
    """While training, of at most ``MOST_DENSE_CAPSULES`` capsules, and if the adjacency needs no gradient."""
    rows = u.numel() > 0 and u.size(-2) <= MOST_DENSE_CAPSULES and u.shape[:-3] == weight.shape[:-1]
    return training and rows and not adjacency.requires_grad


def _normalised_hop(
    u: Tensor, weight: Tensor, node: Tensor, index: Tensor, edge_weight: Tensor | None, *, training: bool
) -> bool:
    """While training, where rows match the batch and the parameters, and edge weights need no gradient."""
    rows = node.shape == index.shape and u.numel() > 0 and u.shape[:-2] == weight.shape[:-1]
    return training and rows and _along_edges(u, node, edge_weight)


def _unweighted(_scores: Tensor, class_weight: Tensor | None, graph_weight: Tensor | None) -> bool:
    """Neither classes nor graphs are weighted."""
    return class_weight is None and graph_weight is None


def _float32(x: Tensor) -> bool:
    """The values are float32: integers take the torch form."""
    return x.dtype == torch.float32


def _segment_product(a: Tensor, x: Tensor) -> bool:
    """``a`` has at most ``MOST_ASSIGNMENT_COLUMNS`` columns."""
    return a.size(-1) <= MOST_ASSIGNMENT_COLUMNS


def _along_edges(x: Tensor, node: Tensor, edge_weight: Tensor | None) -> bool:
    """There is one row per row of the batch, and edge weights need no gradient."""
    return x.shape[:-1] == node.shape and not (edge_weight is not None and edge_weight.requires_grad)


def _block_loss(assignment: Tensor, node: Tensor, edge_weight: Tensor | None) -> bool:
    """There are rows, of at most ``MOST_ROUTED_CAPSULES`` columns, and edge weights need no gradient."""
    rows = assignment.numel() > 0 and assignment.size(-1) <= MOST_ROUTED_CAPSULES
    return rows and _along_edges(assignment, node, edge_weight)


def _edge_attention(
    x: Tensor,
    centre: Tensor,
    _member: Tensor,
    node: Tensor,
    edge_weight: Tensor | None,
    _bias: Tensor | None,
) -> bool:
    """There are rows, as in the batch, of at most ``WIDEST_ATTENTION`` columns, and edge weights need no gradient."""
    rows = x.numel() > 0 and x.size(-1) <= WIDEST_ATTENTION and x.shape[:-1] == centre.shape
    return rows and _along_edges(x, node, edge_weight)


def _edge_relu_sum(x: Tensor, shift: Tensor, node: Tensor, edge_weight: Tensor | None) -> bool:
    """There are rows, as in the batch and the parameters, and edge weights need no gradient."""
    rows = x.numel() > 0 and x.shape[:-2] == shift.shape[:-2]
    return rows and _along_edges(x, node, edge_weight)


def _modulated_hop(
    x: Tensor, scale: Tensor, _shift: Tensor, node: Tensor, edge_weight: Tensor | None
) -> bool:
    """There are rows, as in the batch and the parameters, and edge weights need no gradient."""
    return _edge_relu_sum(x, scale, node, edge_weight)


def _weighted_degrees(edge_weight: Tensor) -> bool:
    """Edge weights need no gradient."""
    return not edge_weight.requires_grad


def _sampled_pairs(_z: Tensor, _shift: Tensor | None, *, num_rows: int, pairs: int) -> bool:
    """A node has at most ``MOST_SAMPLED_PAIRS`` partners, and products of their numbers with rows have 32 bits."""
    return pairs <= MOST_SAMPLED_PAIRS and (pairs + 2) * num_rows < 2**31


def _clamp_adjacency(adjacency: Tensor) -> bool:
    """There are capsules, and the adjacency needs no gradient."""
    return adjacency.numel() > 0 and not adjacency.requires_grad


def _dense_hop(x: Tensor, _adjacency: Tensor) -> bool:
    """A graph has at most ``MOST_DENSE_CAPSULES`` capsules."""
    return x.size(-2) <= MOST_DENSE_CAPSULES


def _route(
    h: Tensor,
    weight: Tensor,
    _bias: Tensor,
    _residual: Tensor | None,
    *,
    max_size: int | None,
    num_graphs: int,
) -> bool:
    """Sizes are within the three limits for routing above.

    The largest graph of the batch must be known (``max_size``), and the output capsules of a replica have fewer
    than 2³¹ numbers.
    """
    J, d, e = weight.shape[-3:]
    known = max_size is not None and max_size <= LARGEST_ROUTED_GRAPH
    small = (
        J <= MOST_ROUTED_CAPSULES
        and max(d, e) <= WIDEST_ROUTED_CAPSULE
        and num_graphs * J * max(d, e) < 2**31
    )
    return known and small and num_graphs > 0 and min(h.numel(), J, e) > 0


def _loss_of_rows(
    rows: Tensor,
    votes: Tensor,
    edge_weight: Tensor | None,
    *,
    max_size: int | None,
    num_graphs: int,
    classes: int,
    iterations: int,
    pairs: int,
) -> bool:
    """Edge weights need no gradient, and there are at least two routing iterations.

    Sizes are within the limits for routing and for sampled pairs, and there are at most ``MOST_FUSED_INPUTS`` capsules
    per graph and ``MOST_FUSED_CLASSES`` classes.
    """
    small = votes.size(-3) <= MOST_FUSED_INPUTS and classes <= MOST_FUSED_CLASSES
    constant = edge_weight is None or not edge_weight.requires_grad
    routed = _route(rows, votes, votes, None, max_size=max_size, num_graphs=num_graphs)
    sampled = _sampled_pairs(rows, None, num_rows=rows.size(-1), pairs=pairs)
    return constant and small and iterations > 1 and routed and sampled


def _kernel_loss(
    x: Tensor, node: Tensor, weight: Tensor, votes: Tensor, edge_weight: Tensor | None, **sizes: Any
) -> bool:
    """As ``loss_of_rows`` and ``projected_capsules``."""
    return _loss_of_rows(node, votes, edge_weight, **sizes) and _projected_capsules(x, node, weight)


@dataclass(frozen=True)
class TritonForm:
    """Where the Triton form of an operation is, and when it is used.

    Args:
        module (str): Module below ``graphcaps.ops``.
        function (str): Entry point, with the signature of the torch form.
        condition (Callable): Takes what the operation passes to :func:`select`; its docstring states the rule.
            (default: no further condition)
        whole_batch (bool): Whether it needs a whole batch, not a :class:`~graphcaps.ops.batch_shard.BatchShard`: it
            reads the position of a row in the batch or the number of graphs, or computes statistics or sums over the
            batch. No default, so that every entry decides.
    """

    module: str
    function: str
    condition: Callable[..., bool] = _no_condition
    whole_batch: bool = field(kw_only=True)

    def load(self) -> object:
        """The entry point; its module is imported on the first call."""
        return getattr(_module(self.module), self.function)


TRITON_FORMS: dict[str, TritonForm] = {
    "accumulate_metrics": TritonForm(
        "metric_sums.metric_sums_triton", "accumulate_metrics_", whole_batch=False
    ),
    "activated_product": TritonForm(
        "activated_product.activated_product_triton",
        "activated_product",
        _activated_product,
        whole_batch=True,
    ),
    "activate": TritonForm("activation.activation_triton", "activate", _activate, whole_batch=True),
    "adam_update": TritonForm("adam.adam_triton", "adam_update_", whole_batch=False),
    "apply_dropout": TritonForm(
        "activation.activation_triton", "apply_dropout", _without_mask, whole_batch=True
    ),
    "batch_norm": TritonForm(
        "batch_norm.batch_norm_triton", "batch_norm", _normalised_rows, whole_batch=True
    ),
    "block_loss": TritonForm("block_loss.block_loss_triton", "block_loss", _block_loss, whole_batch=True),
    "clamp_adjacency": TritonForm(
        "coarsening.clamp_triton", "clamp_adjacency", _clamp_adjacency, whole_batch=False
    ),
    "class_code": TritonForm("class_code.class_code_triton", "class_code", whole_batch=False),
    "dense_hop": TritonForm("propagation.dense_hop_triton", "dense_hop", _dense_hop, whole_batch=False),
    "edge_attention": TritonForm(
        "propagation.edge_attention_triton", "edge_attention", _edge_attention, whole_batch=False
    ),
    "edge_relu_sum": TritonForm(
        "propagation.edge_relu_sum_triton", "edge_relu_sum", _edge_relu_sum, whole_batch=False
    ),
    "hop_with_skip": TritonForm(
        "propagation.neighbour_sum_triton", "hop_with_skip", _along_edges, whole_batch=False
    ),
    "next_step_keys": TritonForm(
        "activation.activation_triton", "next_step_keys", _not_empty, whole_batch=True
    ),
    "feature_statistics": TritonForm("projection.projection_triton", "feature_statistics", whole_batch=True),
    "kernel_loss": TritonForm("fused_loss.fused_loss_triton", "kernel_loss", _kernel_loss, whole_batch=True),
    "layout_batch": TritonForm("batch_layout.layout_triton", "layout_batch", _on_gpu, whole_batch=False),
    "lengths": TritonForm("lengths.lengths_triton", "lengths", whole_batch=False),
    "loss_of_rows": TritonForm(
        "fused_loss.loss_of_rows_triton", "loss_of_rows", _loss_of_rows, whole_batch=True
    ),
    "margin_loss": TritonForm("margin_loss.margin_loss_triton", "margin_loss", _unweighted, whole_batch=True),
    "modulated_hop": TritonForm(
        "propagation.modulated_hop_triton", "modulated_hop", _modulated_hop, whole_batch=False
    ),
    "neighbour_sum": TritonForm(
        "propagation.neighbour_sum_triton", "neighbour_sum", _along_edges, whole_batch=False
    ),
    "norm_with_means": TritonForm(
        "batch_norm.norm_with_means_triton", "norm_with_means", _norm_with_means, whole_batch=True
    ),
    "normalised_dense_hop": TritonForm(
        "propagation.normalised_dense_hop_triton",
        "normalised_dense_hop",
        _normalised_dense_hop,
        whole_batch=True,
    ),
    "normalised_hop": TritonForm(
        "propagation.normalised_hop_triton", "normalised_hop", _normalised_hop, whole_batch=True
    ),
    "project": TritonForm("projection.projection_triton", "project", _project, whole_batch=False),
    "projected_capsules": TritonForm(
        "projection.projection_triton", "projected_capsules", _projected_capsules, whole_batch=True
    ),
    "propagate": TritonForm("propagation.neighbour_sum_triton", "propagate", _along_edges, whole_batch=False),
    "reconstruction_loss": TritonForm(
        "reconstruction.pair_loss_triton", "reconstruction_loss", whole_batch=False
    ),
    "route": TritonForm("routing.route_triton", "route_triton", _route, whole_batch=False),
    "route_dense": TritonForm("routing.route_triton", "route_dense_triton", _route, whole_batch=False),
    "sampled_reconstruction_loss": TritonForm(
        "reconstruction.pair_loss_sampled_triton",
        "sampled_reconstruction_loss",
        _sampled_pairs,
        whole_batch=True,
    ),
    "segment_product": TritonForm(
        "ragged.ragged_triton", "segment_product", _segment_product, whole_batch=False
    ),
    "segment_sum": TritonForm("ragged.ragged_triton", "segment_sum", _float32, whole_batch=False),
    "segment_broadcast": TritonForm("ragged.ragged_triton", "segment_broadcast", _float32, whole_batch=False),
    "standardise": TritonForm(
        "batch_norm.batch_norm_triton", "standardise", _normalised_rows, whole_batch=True
    ),
    "unit_rows": TritonForm("unit_rows.unit_rows_triton", "unit_rows", _short_rows, whole_batch=False),
    "weighted_degrees": TritonForm(
        "propagation.neighbour_sum_triton", "weighted_degrees", _weighted_degrees, whole_batch=False
    ),
}
"""Every operation that has a Triton form."""


def select(
    operation: str,
    torch_form: Form,
    *tensors: Tensor | None,
    reference: Form | None = None,
    **facts: bool | int | None,
) -> Form:
    """The form of an operation to call for these tensors.

    Args:
        operation (str): Key of :data:`TRITON_FORMS`.
        torch_form (Callable): What to return where the Triton form is not used; has the same signature.
        tensors (Tensor, optional): Tensors that decide, as the operation's condition takes them.
        reference (Callable, optional): The reference form. (default: the torch form)
        facts: Further arguments of the condition.
    """
    if supports(operation, *tensors, **facts):
        return cast(Form, TRITON_FORMS[operation].load())
    return torch_form if reference is None or not uses_reference() else reference


def supports(operation: str, *tensors: Tensor | None, **facts: bool | int | None) -> bool:
    """Whether :func:`select` returns the Triton form for these arguments."""
    if not kernels_available(*tensors):
        return False
    form = TRITON_FORMS[operation]
    return not (form.whole_batch and current_shard() is not None) and form.condition(*tensors, **facts)


def kernels_available(*tensors: Tensor | None) -> bool:
    """Whether Triton kernels run on these tensors: on a GPU, floating-point values in float32, Triton installed.

    This is the part of the rule that all operations share; ``None`` is skipped.
    """
    mode = _current_mode()
    if mode in ("off", "reference") or not triton_installed():
        return False
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            return False
        if tensor.device.type != "cuda" and mode != "always":
            return False
    return True


def needs_plain_operations() -> bool:
    """Whether an operation must consist of standard tensor operations, without a gradient that is written out.

    That is for reference forms, which are exported, and for what ``torch.compile`` traces.
    """
    return is_traced() or uses_reference()


def uses_reference() -> bool:
    """Whether operations use their reference forms."""
    return _current_mode() == "reference"


@contextmanager
def use_kernels(mode: KernelMode) -> Iterator[None]:
    """Sets which forms of operations run inside the block.

    ``"auto"`` uses kernels on a GPU, ``"off"`` never, ``"always"`` on a CPU too, under Triton's interpreter;
    ``"reference"`` uses the reference forms, which are slower and can be exported. The environment variable
    ``GRAPHCAPS_KERNELS`` sets the mode of a whole process. ``"always"`` needs ``TRITON_INTERPRET=1`` and is meant for
    tests: it is very slow.
    """
    token = _mode.set(_checked(mode, "mode"))
    try:
        yield
    finally:
        _mode.reset(token)


@cache
def triton_installed() -> bool:
    """Whether Triton can be imported; looked up once."""
    return find_spec("triton") is not None


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"graphcaps.ops.{name}")


def _current_mode() -> str:
    if is_traced():
        return "off"  # torch.compile traces the torch forms, and cannot read the variable
    return _mode.get() or _mode_of_process()


@cache
def _mode_of_process() -> str:
    """The mode that the environment sets; read once, since a step asks for it dozens of times."""
    return _checked(os.environ.get(_VARIABLE, "auto"), _VARIABLE)


def _checked(mode: str, name: str) -> str:
    if mode not in _MODES:
        raise ArgumentError("kernels", name, f"be one of {', '.join(_MODES)}", repr(mode))
    return mode
