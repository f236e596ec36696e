"""Export of a trained HGCN as a ``torch.export`` program or as ONNX.

The exported program takes tensors, which :func:`export_inputs` computes from graphs. It uses standard tensor operations
instead of the ragged tiles and kernels of training, so that the sizes may differ between calls.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from graphcaps._io.atomic_write import write_atomically
from graphcaps.config import RunConfig
from graphcaps.data.coerce import as_store
from graphcaps.data.features.compatibility import check_compatible
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import ArgumentError
from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.primary_capsules import PrimaryCapsules
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.coarsening import clamp_adjacency
from graphcaps.ops.propagation.propagation import dense_propagate
from graphcaps.ops.squash import RELEASED_EPSILON

__all__ = ["INPUTS", "ExportableHGCN", "export", "export_inputs"]

INPUTS = ("x", "edge_index", "edge_weight", "batch", "sizes")
"""Inputs of an exported program, in order, with shapes ``[V, in]``, ``[2, E]``, ``[E]``, ``[V]``, ``[B]``."""


class ExportSource(Protocol):
    """The members of a :class:`graphcaps.FittedModel` that export reads."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def config(self) -> RunConfig: ...

    @property
    def recipe(self) -> FeatureRecipe: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...


class ExportableHGCN(nn.Module):
    """An HGCN in evaluation mode, written in operations that ``torch.export`` and ONNX support.

    Args:
        model (HGCN): A single model; its weights are shared, not copied.

    Returns (from ``forward``):
        Tensor: Lengths of the class capsules, ``[B, O]``, as in ``FittedModel.scores``.

    Raises:
        ArgumentError: If the model is not an HGCN, holds replicas, or has a trunk.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, HGCN):
            raise ArgumentError("export", "model", "be an HGCN", type(model).__name__)
        if model.lead:
            raise ArgumentError("export", "model", "be a single model", f"{model.lead[0]} replicas")
        if any(layer.trunk is not None for layer in model.layers):
            fix = "Layers of torch-geometric cannot be exported."
            raise ArgumentError("export", "model", "have no trunk", "a model with a trunk", fix)
        self.model = model
        self.epsilon = RELEASED_EPSILON if model.formulation == "released" else 0.0

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor, sizes: Tensor
    ) -> Tensor:
        """Class scores of B graphs.

        Args:
            x (Tensor): Features of all nodes, ``[V, in]``.
            edge_index (Tensor): Each edge in both directions, once, without self-loops, ``[2, E]``.
            edge_weight (Tensor): Edge weights, 1 for unweighted graphs, ``[E]``.
            batch (Tensor): Graph of each node, ``[V]``.
            sizes (Tensor): Number of nodes of each graph, ``[B]``.
        """
        u = self._primary(x)
        lowest, *above = (cast(CapsuleLayer, layer) for layer in self.model.layers)
        capsules, adjacency = self._over_nodes(lowest, u, edge_index, edge_weight, batch, sizes)
        for layer in above:
            capsules, adjacency = self._dense(layer, capsules, adjacency)
        return capsules.square().sum(-1).sqrt()

    def _primary(self, x: Tensor) -> Tensor:
        primary = self.model.primary
        if not isinstance(primary, PrimaryCapsules):
            return _squash(_normalise(primary.norm, x), self.epsilon)
        if primary.norm is not None:
            z = (_normalise(primary.norm, x) @ primary.weight + primary.bias).relu()
        else:
            z = (x @ primary.weight).relu() + primary.bias
        if primary.factor_squash == "joined":
            return _squash(z, self.epsilon)
        K = primary.num_factors
        return (_squash(z.unflatten(-1, (K, -1)), self.epsilon) / K**0.5).flatten(-2)

    def _over_nodes(
        self,
        layer: CapsuleLayer,
        u: Tensor,
        edge_index: Tensor,
        weight: Tensor,
        batch: Tensor,
        sizes: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hat = _normalise(layer.norm, u)
        source, target = edge_index[0], edge_index[1]
        degree = torch.zeros_like(u[:, 0]).index_add(0, target, weight)
        scale = (degree + 1).clamp_min(1).rsqrt().unsqueeze(-1)

        def sum_neighbours(rows: Tensor) -> Tensor:
            return torch.zeros_like(rows).index_add(0, target, rows[source] * weight.unsqueeze(-1))

        def hop(rows: Tensor) -> Tensor:
            return (sum_neighbours(rows * scale) + rows * scale) * scale

        if layer.context is None:
            h = hop(hat)
        else:
            h = hat
            for projection, norm in zip(layer.context.weights, layer.context.norms, strict=True):
                message = torch.cat([h, hop(h)], -1) @ projection
                h = h + _normalise(cast(RaggedBatchNorm, norm), message).relu()
            for _ in range(layer.context.hops):
                h = hop(h)
        mean = None
        if layer.residual:
            total = u.new_zeros(sizes.shape[0], hat.shape[1]).index_add(0, batch, hat)
            divisor = layer.residual_nodes if layer.released else None
            count = sizes.to(u.dtype).clamp_min(1).unsqueeze(-1)
            mean = (total / (float(divisor) if divisor else count)).unsqueeze(-2)
        votes = torch.einsum("vd,jde->vje", h, layer.weight) + layer.bias
        J = layer.num_capsules
        b = torch.zeros_like(votes[..., 0])
        for round_ in range(layer.routing_iterations):
            last = round_ == layer.routing_iterations - 1
            c = b.softmax(-1)
            s = votes.new_zeros(sizes.shape[0], J, votes.shape[-1])
            s = s.index_add(0, batch, c.unsqueeze(-1) * votes)
            if last and mean is not None and layer.released:
                s = s + mean
            output = _squash(s, self.epsilon)
            if not last:
                b = b + (votes * output[batch]).sum(-1)
        if mean is not None and not layer.released:
            output = output + mean
        joined = c.unsqueeze(-1) * sum_neighbours(c).unsqueeze(-2)  # [V, J, J]
        adjacency = votes.new_zeros(sizes.shape[0], J, J).index_add(0, batch, joined)
        return output, clamp_adjacency(adjacency) if layer.released else adjacency

    def _dense(self, layer: CapsuleLayer, u: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        u = _normalise(layer.norm, u)
        h = dense_propagate(u, adjacency)
        mean = u.mean(-2, keepdim=True) if layer.residual else None
        votes = torch.einsum("bnd,jde->bnje", h, layer.weight) + layer.bias
        b = torch.zeros_like(votes[..., 0])
        for round_ in range(layer.routing_iterations):
            last = round_ == layer.routing_iterations - 1
            c = b.softmax(-1)
            s = (c.unsqueeze(-1) * votes).sum(1)
            if last and mean is not None and layer.released:
                s = s + mean
            output = _squash(s, self.epsilon)
            if not last:
                b = b + (votes * output.unsqueeze(1)).sum(-1)
        if mean is not None and not layer.released:
            output = output + mean
        above = c.mT @ (adjacency @ c)
        return output, clamp_adjacency(above) if layer.released else above


def export_inputs(fitted: ExportSource, graphs: Any, *, unseen: Any = "refuse") -> tuple[Tensor, ...]:
    """Inputs of the exported program for the given graphs, in the order of :data:`INPUTS`.

    Args:
        fitted (FittedModel): The exported model.
        graphs, unseen: As in :meth:`FittedModel.scores`.
    """
    store = as_store(graphs, attributes=bool(fitted.recipe.num_attributes))
    check_compatible(store, fitted.recipe, unseen=unseen, dtype=fitted.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # check_compatible has already warned
        encoded = encode_graphs(
            store,
            fitted.recipe,
            max_nodes=fitted.config.features.max_nodes,
            unseen="ignore",
            dtype=fitted.dtype,
        )
    part = encoded.store
    node = torch.arange(part.num_nodes)
    target = node.repeat_interleave(part.degree)
    source = part.neighbours.long() + part.node_ptr[part.node_graph].repeat_interleave(part.degree)
    weight = torch.ones(len(source)) if part.edge_weight is None else part.edge_weight
    return (
        encoded.x,
        torch.stack([source, target]),
        weight.to(encoded.x.dtype),
        part.node_graph,
        part.sizes,
    )


def export(fitted: ExportSource, path: str | Path) -> None:
    """Writes the model as a ``torch.export`` program (``.pt2``) or as ONNX (``.onnx``).

    The numbers of nodes, edges and graphs are dynamic. The output is that of ``FittedModel.scores``; probabilities are
    computed from it (docs/calibration.md).

    Args:
        fitted (FittedModel): A fitted HGCN without a trunk.
        path (str or Path): File to write, with the suffix ``.pt2`` or ``.onnx``.

    Raises:
        ArgumentError: If the suffix is another one, or the model cannot be exported.
        MissingExtraError: For ``.onnx`` without the extra ``export``.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".pt2", ".onnx"):
        raise ArgumentError("export", "path", "end in .pt2 or .onnx", f"'{path.name}'")
    module = ExportableHGCN(fitted.model).eval()
    example = tuple(value.to(fitted.device) for value in _example(fitted))
    program = _program(module, example)
    if suffix == ".onnx":
        data = _onnx_bytes(program, example)
    else:
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        data = buffer.getvalue()
    write_atomically(path, data)


def _program(module: ExportableHGCN, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    nodes, edges, graphs = (torch.export.Dim(name, min=1) for name in ("nodes", "edges", "graphs"))
    shapes = ({0: nodes}, {1: edges}, {0: edges}, {0: nodes}, {0: graphs})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, example, dynamic_shapes=shapes, strict=False)


def _onnx_bytes(program: torch.export.ExportedProgram, example: tuple[Tensor, ...]) -> bytes:
    from graphcaps._io.optional_imports import require

    require("onnxscript", extra="export", purpose="Export as ONNX")
    with warnings.catch_warnings(), _without_logging():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            program,
            example,
            dynamo=True,
            input_names=list(INPUTS),
            output_names=["scores"],
            verbose=False,
        )
    assert exported is not None
    data: bytes = exported.model_proto.SerializeToString()
    return data


@contextlib.contextmanager
def _without_logging() -> Iterator[None]:
    """Suppresses the exporter's log lines about optional packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _example(fitted: ExportSource) -> tuple[Tensor, ...]:
    """A triangle and a path of four nodes as example inputs: no size is 1 and no two sizes are equal."""
    edge_index = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 4, 4, 5, 5, 6], [1, 0, 2, 1, 2, 0, 4, 3, 5, 4, 6, 5]])
    x = torch.zeros(7, fitted.recipe.num_columns, dtype=fitted.dtype)
    weight = torch.ones(edge_index.size(1), dtype=fitted.dtype)
    return x, edge_index, weight, torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([3, 4])


def _normalise(norm: RaggedBatchNorm | None, rows: Tensor) -> Tensor:
    if norm is None:
        return rows
    scale = norm.weight * (norm.running_var + norm.epsilon).rsqrt()
    return (rows - norm.running_mean) * scale + norm.bias


def _squash(z: Tensor, epsilon: float) -> Tensor:
    squared = z.square().sum(-1, keepdim=True)
    if epsilon > 0:
        return z * (squared / ((1 + squared) * (squared + epsilon).sqrt()))
    return z * squared.sqrt() / (1 + squared)
