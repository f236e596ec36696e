"""Training and evaluation of an HGCN on small graphs through one operation, :mod:`graphcaps.ops.fused_loss`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.losses import ABSENT_WEIGHT
from graphcaps.nn.primary_capsules import PrimaryCapsules
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.fused_loss.fused_loss import (
    FusedLevel,
    FusedNetwork,
    Norm,
    fused_loss,
    fused_scores,
    fused_tiles,
)
from graphcaps.types import GraphBatch, LossOptions, ModelOutput, TrainingLoss

__all__ = ["FusedScoring", "FusedTraining", "fused_network"]


class FusedTraining:
    """Loss and class scores of a batch: in one operation where that serves, otherwise layer by layer.

    Args:
        model (GraphModel): The model, whose ``training_loss`` is the reference implementation.
        network (FusedNetwork): Its parameters, from :func:`fused_network`.
        modules (list): Its normalisations; all must be in training mode, as the model.
        dropout (ReplicaDropout): The dropout of its primary capsules.
    """

    def __init__(
        self, model: GraphModel, network: FusedNetwork, modules: Sequence[nn.Module], dropout: ReplicaDropout
    ) -> None:
        self.model, self.network, self.dropout = model, network, dropout
        self._modules = (model, dropout, *modules)

    def __call__(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss:
        tiles = None
        if _has_classes(batch) and not isinstance(options.reconstruction_weight, Tensor):
            tiles = fused_tiles(self.network, batch)
        if tiles is None or not all(module.training for module in self._modules):
            return self.model.training_loss(batch, options)
        return fused_loss(self.network, batch, tiles, options, self.dropout.next_dropout())


class FusedScoring:
    """Class scores of a batch in evaluation: in one operation where that serves, otherwise the output of the layers.

    Args:
        model (GraphModel): The model, whose ``forward_batch`` is the reference implementation.
        network (FusedNetwork): Its parameters, from :func:`fused_network`.
        modules (list): Its normalisations; all must be in evaluation mode, as the model.
    """

    def __init__(self, model: GraphModel, network: FusedNetwork, modules: Sequence[nn.Module]) -> None:
        self.model, self.network = model, network
        self._modules = (model, *modules)

    def __call__(self, batch: GraphBatch) -> ModelOutput:
        plain = torch.is_grad_enabled() or any(module.training for module in self._modules)
        tiles = None if plain else fused_tiles(self.network, batch)
        if tiles is None:
            return self.model.forward_batch(batch)
        return ModelOutput(fused_scores(self.network, batch, tiles))


def _has_classes(batch: GraphBatch) -> bool:
    """Whether every graph has a class, on a CPU."""
    y = batch.y
    if y is None or not y.is_cpu or y.dtype != torch.int64 or not y.numel():
        return False
    return y.size(-1) == batch.num_graphs and bool(y.numpy().min() >= 0)


def fused_network(
    primary: nn.Module,
    layers: Iterable[nn.Module],
    decoder: nn.Module | None,
    margins: tuple[float | Tensor, float | Tensor],
    lead: tuple[int, ...],
) -> FusedNetwork | None:
    """Parameters and constants of an HGCN; ``None`` if it has an option that the operation lacks.

    Args:
        primary (Module): Primary capsules.
        layers (iterable): Capsule layers, from the nodes to the classes.
        decoder (Module, optional): The decoder.
        margins (tuple): Upper and lower margin.
        lead (tuple): Leading axes of the parameters.
    """
    upper, lower = margins
    if torch.Size(lead).numel() != 1 or isinstance(upper, Tensor) or isinstance(lower, Tensor):
        return None
    if type(primary) is not PrimaryCapsules or primary.norm is None or primary.factor_squash != "joined":
        return None
    parameters: list[Tensor] = [primary.norm.weight, primary.norm.bias, primary.weight, primary.bias]
    levels = []
    for layer in layers:
        if type(layer) is not CapsuleLayer or layer.norm is None or not _is_plain(layer):
            return None
        levels.append(
            FusedLevel(
                _norm(layer.norm),
                _flat(layer.weight, 3),
                _flat(layer.bias, 2),
                layer.routing_iterations,
                layer.residual,
                layer.residual_nodes,
            )
        )
        parameters += [layer.norm.weight, layer.norm.bias, layer.weight, layer.bias]
    weights: tuple[Tensor, Tensor] | None = None
    if decoder is not None:
        if type(decoder) is not AdjacencyDecoder or decoder.reconstruct_up_to is not None:
            return None
        weights = _flat(decoder.weight, 2), _flat(decoder.bias, 1)
        parameters += [decoder.weight, decoder.bias]
    return FusedNetwork(
        _norm(primary.norm), _flat(primary.weight, 2), _flat(primary.bias, 1), tuple(levels), weights,
        upper, lower, ABSENT_WEIGHT, tuple(parameters), torch.Size(lead),
    )  # fmt: skip


def _is_plain(layer: CapsuleLayer) -> bool:
    """Whether a layer is one of the released program, without the extensions."""
    extended = layer.trunk or layer.context or layer.modulation or layer.groups
    return layer.released and layer.detach and not extended and layer.method in ("auto", "factored")


def _norm(norm: RaggedBatchNorm) -> Norm:
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    weight, bias, mean, var = (_flat(tensor, 1) for tensor in tensors)
    return Norm(weight, bias, mean, var, norm.momentum, norm.epsilon)


def _flat(tensor: Tensor, axes: int) -> Tensor:
    """The tensor without leading axes, which are of one model, and without a gradient."""
    return tensor.detach().view(tensor.shape[tensor.dim() - axes :])
