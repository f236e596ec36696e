"""Export of a trained model as a ``torch.export`` program or as ONNX.

The exported program takes tensors, which :func:`export_inputs` computes from graphs. It is the forward pass of the
model with the reference forms of all operations (:func:`graphcaps.ops._triton.dispatch.use_kernels`): standard tensor
operations instead of the ragged tiles and kernels of training, so that the sizes may differ between calls.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphcaps._io.atomic_write import write_atomically
from graphcaps.data.features.compatibility import UnseenPolicy
from graphcaps.data.features.encoding import encode_checked
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edges import edge_table_from_list
from graphcaps.registry import RegisteredModel
from graphcaps.types import EdgeList, GraphBatch, Segments

__all__ = ["INPUTS", "ExportableModel", "export", "export_inputs"]

INPUTS = ("x", "edge_index", "edge_weight", "batch", "sizes")
"""Inputs of an exported program, in order, with shapes ``[V, in]``, ``[2, E]``, ``[E]``, ``[V]``, ``[B]``. A model with
``edge_kinds`` has a sixth, ``edge_kind``, int32 ``[E]`` (:mod:`graphcaps.ops.edge_kinds`)."""


class ExportableModel(nn.Module):
    """A model, or a committee, in evaluation mode that takes plain tensors, for ``torch.export`` and ONNX.

    Args:
        members (sequence): A single model, or several; their weights are shared, not copied.
        empty_scores (Tensor): Scores of a graph without nodes, ``[O]``.

    Returns (from ``forward``):
        Tensor: Class scores, ``[B, O]``, as in ``FittedModel.scores``; those of the members of a committee,
        ``[M, B, O]``, as in ``FittedModel.member_scores``.

    Raises:
        ArgumentError: If a model is a classical one, holds replicas, has a trunk, or has no format of export.
    """

    empty_scores: Tensor

    def __init__(self, members: Sequence[RegisteredModel], empty_scores: Tensor) -> None:
        super().__init__()
        self.members = nn.ModuleList(_exportable(member) for member in members)
        self.register_buffer("empty_scores", empty_scores)
        network = cast(GraphModel, self.members[0])
        self.formats, self.name = network.export_formats, type(network).__name__

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        batch: Tensor,
        sizes: Tensor,
        edge_kind: Tensor | None = None,
    ) -> Tensor:
        """Class scores of B graphs.

        Args:
            x (Tensor): Features of all nodes, ``[V, in]``.
            edge_index (Tensor): Each edge in both directions, once, without self-loops, ``[2, E]``.
            edge_weight (Tensor): Edge weights, 1 for unweighted graphs, ``[E]``.
            batch (Tensor): Graph of each node, ``[V]``.
            sizes (Tensor): Number of nodes of each graph, 0 for a graph without nodes, ``[B]``.
            edge_kind (Tensor, optional): Kind of each edge, for a model with ``edge_kinds``, int32, ``[E]``.
        """
        segments = Segments(torch.nn.functional.pad(sizes.cumsum(0), (1, 0)), batch, padded=False)
        pairs = EdgeList(edge_index[0], edge_index[1], edge_weight, edge_kind)
        graphs = GraphBatch(x, segments, edge_table_from_list(pairs, x.size(0)))
        with use_kernels("reference"):
            each = [cast(GraphModel, member).forward_batch(graphs).class_scores for member in self.members]
        scores = torch.stack(each) if len(each) > 1 else each[0]
        return torch.where((sizes == 0).unsqueeze(-1), self.empty_scores, scores)


def _exportable(model: RegisteredModel) -> GraphModel:
    """The network, after a check that it can be exported."""
    if not isinstance(model, GraphModel):
        raise ArgumentError("export", "model", "be a network", type(model).__name__)
    if model.lead:
        raise ArgumentError("export", "model", "be a single model", f"{model.lead[0]} replicas")
    if isinstance(model, HGCN) and any(layer.trunk is not None for layer in model.layers):
        fix = "An exported program has edge weights as an input, which a trunk does not read."
        raise ArgumentError("export", "model", "have no trunk", "a model with a trunk", fix)
    if not model.export_formats or model.precomputation is not None:
        fix = "Its arrays have sizes that depend on the values of others, or are computed beforehand."
        raise ArgumentError("export", "model", "be one that can be exported", type(model).__name__, fix)
    return model


def export_inputs(fitted: FittedModel, graphs: Any, *, unseen: UnseenPolicy = "refuse") -> tuple[Tensor, ...]:
    """Inputs of the exported program for the given graphs, in the order of :data:`INPUTS`, and kinds of edges.

    Args:
        fitted (FittedModel): The exported model.
        graphs, unseen: As in :meth:`FittedModel.scores`.
    """
    store = fitted.check(graphs, unseen=unseen, owner="export_inputs").require()
    encoded = encode_checked(store, fitted.recipe, max_nodes=fitted.max_nodes, dtype=fitted.dtype)
    part = encoded.store
    target, source = part.entry_rows()
    weight = torch.ones(len(source)) if part.edge_weight is None else part.edge_weight
    edges = torch.stack([source, target]), weight.to(encoded.x.dtype)
    reads_kinds = isinstance(fitted.model, GraphModel) and bool(fitted.model.edge_kinds)
    kinds = () if part.edge_kind is None or not reads_kinds else (part.edge_kind,)
    return (encoded.x, *edges, part.node_graph, part.sizes, *kinds)


def export(fitted: FittedModel, path: str | Path) -> None:
    """Writes the model as a ``torch.export`` program (``.pt2``) or as ONNX (``.onnx``).

    The numbers of nodes, edges and graphs are dynamic; there must be a node. The output is that of
    ``FittedModel.scores``, or of ``FittedModel.member_scores`` for a committee; probabilities are computed from it
    (docs/calibration.md).

    Args:
        fitted (FittedModel): A fitted network without a trunk.
        path (str or Path): File to write, with the suffix ``.pt2`` or ``.onnx``.

    Raises:
        ArgumentError: If the suffix is another one, or the model cannot be exported: a model with companions, whose
            trees are no tensor operations, is refused. ``fitted.network`` is its network alone.
        UsageError: If its forward pass cannot be exported, because its control flow depends on values of tensors.
        MissingExtraError: For ``.onnx`` without the extra ``export``.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".pt2", ".onnx"):
        raise ArgumentError("export", "path", "end in .pt2 or .onnx", f"'{path.name}'")
    if len(fitted.part_names) > 1:
        got = f"the companion {', '.join(fitted.part_names[1:])}, which cannot be exported"
        fix = (
            "Export the network alone with model.network.export(path); its probabilities are not those of the "
            "model with its companion."
        )
        raise ArgumentError("export", "model", "be a network without a companion", got, fix)
    module = ExportableModel(fitted.members, fitted.empty_scores.to(fitted.device)).eval()
    formats = module.formats
    if suffix not in formats:
        name = module.name
        raise ArgumentError("export", "path", f"end in {' or '.join(formats)} for {name}", f"'{path.name}'")
    example = tuple(value.to(fitted.device) for value in _example(fitted))
    program = _program(module, example)
    if suffix == ".onnx":
        data = _onnx_bytes(program, example)
    else:
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        data = buffer.getvalue()
    write_atomically(path, data)


def _program(module: ExportableModel, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    nodes, edges, graphs = (torch.export.Dim(name, min=1) for name in ("nodes", "edges", "graphs"))
    shapes: tuple[dict[int, Any], ...] = ({0: nodes}, {1: edges}, {0: edges}, {0: nodes}, {0: graphs})
    if len(example) > len(shapes):
        shapes = (*shapes, {0: edges})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
        except Exception as error:  # torch has no common class for what it cannot export
            name, reason = module.name, str(error).strip().partition("\n")[0]
            raise UsageError(f"export: the forward pass of {name} cannot be exported: {reason}") from error
    program.graph.eliminate_dead_code()  # of the edge table only the list is used, so that nothing is sorted
    program.graph_module.recompile()
    return program


def _onnx_bytes(program: torch.export.ExportedProgram, example: tuple[Tensor, ...]) -> bytes:
    from graphcaps._io.optional_imports import require

    require("onnxscript", extra="export", purpose="Export as ONNX")
    with warnings.catch_warnings(), _without_logging():
        warnings.simplefilter("ignore")
        try:
            program = program.run_decompositions({torch.ops.aten.index_add.default: _index_add_by_elements})
            exported = torch.onnx.export(
                program,
                example,
                dynamo=True,
                input_names=[*INPUTS, "edge_kind"][: len(example)],
                output_names=["scores"],
                verbose=False,
            )
        except Exception as error:  # torch has no public class for what it cannot convert
            cause = error.__cause__ or error
            reason = " ".join(str(cause).split("\n\n")[0].split())
            raise UsageError(
                f"export: torch {torch.__version__} cannot convert the model to ONNX: {reason}"
            ) from error
    assert exported is not None
    data: bytes = exported.model_proto.SerializeToString()
    return data


def _index_add_by_elements(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """``x.index_add(dim, index, source, alpha=alpha)`` as a sum of elements.

    ONNX Runtime divides a sum by rows (ScatterND) among threads that may add to one row at the same time, so that rows
    are lost now and then. A sum by elements (ScatterElements) runs in one thread.
    """
    shape = [1] * x.dim()
    shape[dim] = -1
    return x.scatter_add(dim, index.reshape(shape).expand(source.shape), source * alpha)


@contextlib.contextmanager
def _without_logging() -> Iterator[None]:
    """Suppresses the exporter's log lines about optional packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _example(fitted: FittedModel) -> tuple[Tensor, ...]:
    """A triangle and a path of four nodes as example inputs: no size is 1 and no two sizes are equal."""
    edge_index = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 4, 4, 5, 5, 6], [1, 0, 2, 1, 2, 0, 4, 3, 5, 4, 6, 5]])
    x = torch.zeros(7, fitted.recipe.num_columns, dtype=fitted.dtype)
    weight = torch.ones(edge_index.size(1), dtype=fitted.dtype)
    reads_kinds = isinstance(fitted.model, GraphModel) and bool(fitted.model.edge_kinds)
    kinds = (torch.zeros(edge_index.size(1), dtype=torch.int32),) if reads_kinds else ()
    return x, edge_index, weight, torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([3, 4]), *kinds
