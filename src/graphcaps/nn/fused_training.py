"""Training and evaluation of an HGCN through one operation, :mod:`graphcaps.ops.fused_loss`.

On a CPU it serves small graphs. On a GPU it serves models with one hidden level: all of the published model, and those
with message passing or primary capsules of their own from the votes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeGuard, TypeVar

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
    fused_batch,
    fused_loss,
    fused_scores,
)
from graphcaps.ops.fused_loss.kernel_loss import (
    KernelDecoder,
    KernelLevel,
    KernelNetwork,
    KernelPrimary,
    Sampling,
    kernel_loss,
    loss_of_rows,
)
from graphcaps.ops.propagation.normalised_hop import Hop
from graphcaps.types import GraphBatch, LossOptions, ModelOutput, TrainingLoss

__all__ = [
    "FusedScoring",
    "FusedTraining",
    "KernelTraining",
    "VoteTraining",
    "fused_network",
    "kernel_network",
    "vote_network",
]

Network = TypeVar("Network", bound=FusedNetwork | KernelNetwork)


class _OneOperation(Generic[Network]):
    """Loss and class scores of a batch: in one operation where that serves, otherwise layer by layer.

    The operation calls no hooks of the modules and parameters that it replaces.

    Args:
        model (GraphModel): The model, whose ``training_loss`` is the reference implementation.
        network (FusedNetwork or KernelNetwork): Its parameters, from :func:`fused_network`, :func:`kernel_network` or
            :func:`vote_network`.
        modules (list): Parts that do something else in evaluation; all must be in training mode, as the model.
    """

    def __init__(self, model: GraphModel, network: Network, modules: Sequence[nn.Module]) -> None:
        self.model, self.network = model, network
        self._modules = (model, *modules)

    def __call__(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss:
        loss = None
        if _has_classes(batch) and all(module.training for module in self._modules):
            loss = self._compute(batch, options)
        return self.model.training_loss(batch, options) if loss is None else loss

    def _compute(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss | None:
        """The loss, or ``None`` where the layers have to compute it."""
        raise NotImplementedError


class _WithDropout(_OneOperation[Network]):
    """An operation that computes the primary capsules.

    Args:
        dropout (ReplicaDropout): Their dropout.
    """

    def __init__(
        self, model: GraphModel, network: Network, modules: Sequence[nn.Module], dropout: ReplicaDropout
    ) -> None:
        super().__init__(model, network, (dropout, *modules))
        self.dropout = dropout


class FusedTraining(_WithDropout[FusedNetwork]):
    """Training on small graphs on a CPU."""

    def _compute(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss | None:
        graphs, y = fused_batch(self.network, batch), batch.y
        if graphs is None or y is None or not graphs.has_classes(y):
            return None
        return fused_loss(self.network, graphs, y, options, self.dropout.next_dropout())


class KernelTraining(_WithDropout[KernelNetwork]):
    """Training in kernels of their own on a GPU."""

    def _compute(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss | None:
        return kernel_loss(self.network, batch, options, self.dropout.next_dropout)


class VoteTraining(_OneOperation[KernelNetwork]):
    """Training on a GPU with layers up to the votes, and kernels of their own from there.

    Args:
        hop (callable): The layers up to the votes.
    """

    def __init__(
        self,
        model: GraphModel,
        network: KernelNetwork,
        modules: Sequence[nn.Module],
        hop: Callable[[GraphBatch], Hop],
    ) -> None:
        super().__init__(model, network, modules)
        self._hop = hop

    def _compute(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss | None:
        return loss_of_rows(self.network, batch, options, lambda: self._hop(batch))


class FusedScoring:
    """Class scores of a batch in evaluation: in one operation where that serves, otherwise the output of the layers.

    Args:
        model (GraphModel): The model, whose ``forward_batch`` is the reference implementation.
        network (FusedNetwork): Its parameters, from :func:`fused_network`.
        modules (list): Parts that do something else in training; all must be in evaluation mode, as the model.
    """

    def __init__(self, model: GraphModel, network: FusedNetwork, modules: Sequence[nn.Module]) -> None:
        self.model, self.network = model, network
        self._modules = (model, *modules)

    def __call__(self, batch: GraphBatch) -> ModelOutput:
        plain = torch.is_grad_enabled() or any(module.training for module in self._modules)
        graphs = None if plain else fused_batch(self.network, batch)
        if graphs is None:
            return self.model.forward_batch(batch)
        return ModelOutput(fused_scores(self.network, graphs))


def _has_classes(batch: GraphBatch) -> bool:
    """Whether there is a number per graph, where the graphs are."""
    y, ptr = batch.y, batch.segments.ptr
    if y is None or y.device != ptr.device or y.dtype != torch.int64:
        return False
    return y.shape == (*ptr.shape[:-1], batch.num_graphs)


@dataclass(frozen=True)
class _PlainParts:
    """Layers of an HGCN that has no option besides those of the released program."""

    primary: PrimaryCapsules
    primary_norm: RaggedBatchNorm
    layers: tuple[CapsuleLayer, ...]
    norms: tuple[RaggedBatchNorm, ...]
    decoder: AdjacencyDecoder | None

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Weight and bias of the norm and of the projection; the same of each layer; those of the decoder."""
        parts: list[Any] = [self.primary_norm, self.primary]
        for norm, layer in zip(self.norms, self.layers, strict=True):
            parts += [norm, layer]
        return _weights_and_biases(*parts, self.decoder)


def _weights_and_biases(*parts: Any) -> tuple[Tensor, ...]:
    return tuple(tensor for part in parts if part is not None for tensor in (part.weight, part.bias))


def _plain_parts(
    primary: nn.Module, layers: Iterable[nn.Module], decoder: nn.Module | None
) -> _PlainParts | None:
    """The layers; ``None`` if one of them has an option that the operations lack."""
    if type(primary) is not PrimaryCapsules or primary.norm is None or primary.factor_squash != "joined":
        return None
    plain, norms = [], []
    for layer in layers:
        if not _is_routed(layer) or not _is_plain(layer) or layer.norm is None:
            return None
        plain.append(layer)
        norms.append(layer.norm)
    if decoder is not None and type(decoder) is not AdjacencyDecoder:
        return None
    return _PlainParts(primary, primary.norm, tuple(plain), tuple(norms), decoder)


def _is_routed(layer: nn.Module) -> TypeGuard[CapsuleLayer]:
    """Whether the votes of a layer are routed as in the released program."""
    if type(layer) is not CapsuleLayer or not layer.released or not layer.detach:
        return False
    return layer.method in ("auto", "factored")


def _is_plain(layer: CapsuleLayer) -> bool:
    """Whether what the votes read is that of the released program, too."""
    return not (layer.trunk or layer.context or layer.modulation)


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
    F, parts = torch.Size(lead).numel(), _plain_parts(primary, layers, decoder)
    if parts is None or (parts.decoder is not None and parts.decoder.reconstruct_up_to is not None):
        return None
    levels = [
        FusedLevel(
            _norms(norm, F), _view(layer.weight, -1, *layer.weight.shape[-2:]),
            _view(layer.bias, -1, layer.bias.size(-1)),
            layer.routing_iterations, layer.residual, layer.residual_nodes,
        )
        for layer, norm in zip(parts.layers, parts.norms, strict=True)
    ]  # fmt: skip
    decoders = None
    if parts.decoder is not None:
        weight, bias = parts.decoder.weight, parts.decoder.bias
        decoders = tuple(zip(_replicas(weight, F, 2), _replicas(bias, F, 1), strict=True))
    upper, lower = (
        each.double().cpu().numpy().reshape(F, 1, 1) if isinstance(each, Tensor) else each for each in margins
    )
    return FusedNetwork(
        _norms(parts.primary_norm, F), _replicas(parts.primary.weight, F, 2), _replicas(parts.primary.bias, F, 1),
        tuple(levels), decoders, upper, lower, ABSENT_WEIGHT, parts.parameters, torch.Size(lead),
    )  # fmt: skip


def kernel_network(
    primary: nn.Module,
    layers: Iterable[nn.Module],
    decoder: nn.Module | None,
    margins: tuple[float | Tensor, float | Tensor],
    lead: tuple[int, ...],
) -> KernelNetwork | None:
    """Parameters and constants of an HGCN as kernels read them; ``None`` if it has an option that they lack.

    Arguments as in :func:`fused_network`; there must be one hidden level.
    """
    F, parts = torch.Size(lead).numel(), _plain_parts(primary, layers, decoder)
    if parts is None or len(parts.layers) != 2:
        return None
    network = vote_network(primary, layers, decoder, margins, lead)
    if network is None:
        return None
    weight, bias = _stacked(parts.primary.weight, F, 2), _stacked(parts.primary.bias, F, 1)
    norm, nodes = (_stacked_norm(each, F) for each in (parts.primary_norm, parts.norms[0]))
    return replace(network, primary=KernelPrimary(norm, weight, bias, nodes), parameters=parts.parameters)


def vote_network(
    primary: nn.Module,
    layers: Iterable[nn.Module],
    decoder: nn.Module | None,
    margins: tuple[float | Tensor, float | Tensor],
    lead: tuple[int, ...],
) -> KernelNetwork | None:
    """The same from the votes on, whatever is below them; ``None`` if there is an option that the kernels lack.

    Arguments as in :func:`fused_network`; ``primary`` is not read. There must be one hidden level, and its
    capsules must be as long as those below it.
    """
    levels, F = list(layers), torch.Size(lead).numel()
    if len(levels) != 2 or (decoder is not None and type(decoder) is not AdjacencyDecoder):
        return None
    below, above = levels
    if not _is_routed(below) or not _is_routed(above) or not _is_plain(above) or above.norm is None:
        return None
    if below.in_channels != below.capsule_dim:
        return None
    nodes, classes = (
        KernelLevel(
            _stacked(layer.weight, F, 3), _stacked(layer.bias, F, 2),
            layer.routing_iterations, layer.residual, layer.residual_nodes,
        )
        for layer in (below, above)
    )  # fmt: skip
    upper, lower = (
        each.detach().float().reshape(F).contiguous() if isinstance(each, Tensor) else each
        for each in margins
    )
    return KernelNetwork(
        nodes, classes, _stacked_norm(above.norm, F), _kernel_decoder(decoder, F), upper, lower, ABSENT_WEIGHT,
        _weights_and_biases(below, above.norm, above, decoder), torch.Size(lead),
    )  # fmt: skip


def _kernel_decoder(decoder: AdjacencyDecoder | None, F: int) -> KernelDecoder | None:
    if decoder is None:
        return None
    weight, bias = _stacked(decoder.weight, F, 2), _stacked(decoder.bias, F, 1)
    up_to = decoder.reconstruct_up_to
    return KernelDecoder(weight, bias, None if up_to is None else Sampling(up_to, decoder.next_keys))


def _norms(norm: RaggedBatchNorm, F: int) -> tuple[Norm, ...]:
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    each = zip(*(_replicas(tensor, F, 1) for tensor in tensors), strict=True)
    return tuple(
        Norm(weight, bias, mean, var, norm.momentum, norm.epsilon) for weight, bias, mean, var in each
    )


def _stacked(tensor: Tensor, F: int, axes: int) -> Tensor:
    """The memory of all F replicas, with one leading axis."""
    return _view(tensor, F, *tensor.shape[tensor.dim() - axes :])


def _stacked_norm(norm: RaggedBatchNorm, F: int) -> Norm:
    weight, bias = _stacked(norm.weight, F, 1), _stacked(norm.bias, F, 1)
    mean, var = _stacked(norm.running_mean, F, 1), _stacked(norm.running_var, F, 1)
    return Norm(weight, bias, mean, var, norm.momentum, norm.epsilon)


def _view(tensor: Tensor, *shape: int) -> Tensor:
    """The memory of a tensor in another shape, without a gradient."""
    return tensor.detach().view(shape)


def _replicas(tensor: Tensor, F: int, axes: int) -> tuple[Tensor, ...]:
    """The memory of each of F replicas, without leading axes."""
    return _view(tensor, F, *tensor.shape[tensor.dim() - axes :]).unbind()
