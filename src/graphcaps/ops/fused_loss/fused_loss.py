r"""The loss of an HGCN on a batch of small graphs, and the gradients of all its parameters, without autograd.

A training step of a small model takes as long as its operations are many. The layers of :class:`graphcaps.nn.HGCN` are
some fifteen autograd functions, between which rows are copied into tiles and back. Here the gradient of the whole
network is written out, and capsules stay in the layout that the next product reads: nodes as tiles ``[B, t, d]``, one
per graph, and output capsules as ``[J, B, d]``. Products of matrices and normalisations are torch's. Operations on
short arrays are numpy's, which start several times faster; both read the same memory.

The layers are the reference implementation: values and gradients are equal up to rounding. This form serves one model,
in training, on a CPU, in the released formulation, where every graph of the batch is one tile
(:mod:`graphcaps.ops.propagation.adjacency_tiles`) and assignments are constants for the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import kernels_available, needs_plain_operations
from graphcaps.ops.activation.hashed_dropout import HashedDropout, hash_rows
from graphcaps.ops.autocast import autocast_enabled
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.graph_mean import weight_graphs
from graphcaps.ops.propagation.adjacency_tiles import AdjacencyTiles, adjacency_tiles
from graphcaps.ops.reconstruction.pair_loss import open_interval
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import Phase, profiled
from graphcaps.types import GraphBatch, LossOptions, LossTerms, TrainingLoss

__all__ = ["FusedLevel", "FusedLoss", "FusedNetwork", "Norm", "fused_loss", "fused_scores", "fused_tiles"]

Array = npt.NDArray[Any]

_COARSENING: Phase = "coarsening"
_CLASS_LEVEL: Phase = "class level"  # with the coarse graphs above the first


@dataclass(frozen=True)
class Norm:
    """Batch normalisation: γ and β, running mean and variance, all ``[C]``, and its constants."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    var: Tensor
    momentum: float
    epsilon: float


@dataclass(frozen=True)
class FusedLevel:
    """One level of capsules.

    Args:
        norm (Norm): Normalises the input capsules.
        weight (Tensor): W, ``[J, d, d']``.
        bias (Tensor): e, ``[J, d']``.
        iterations (int): Routing iterations R.
        residual (bool): Whether the mean input capsule is added before the last squash.
        divisor (int, optional): Divides the sum of the input capsules in that mean. (default: their number)
    """

    norm: Norm
    weight: Tensor
    bias: Tensor
    iterations: int
    residual: bool
    divisor: int | None = None


@dataclass(frozen=True)
class FusedNetwork:
    """Parameters and constants of an HGCN. Tensors have no leading axes and no gradient, and share their memory with
    the parameters.

    Args:
        norm (Norm): Normalises the features.
        weight, bias (Tensor): Projection of the features, ``[C, d]`` and ``[d]``.
        levels (tuple): Levels of capsules; the last is the class level.
        decoder (tuple, optional): Weight ``[O·d, d]`` and bias ``[d]`` of the adjacency decoder.
        upper, lower, absent_weight (float): As in :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`.
        parameters (tuple): The parameters themselves, ``[*lead, …]``: weight and bias of the norm, and weight and bias
            of the projection; the same of each level; weight and bias of the decoder.
        lead (Size): Leading axes of the parameters, of one model.
    """

    norm: Norm
    weight: Tensor
    bias: Tensor
    levels: tuple[FusedLevel, ...]
    decoder: tuple[Tensor, Tensor] | None
    upper: float
    lower: float
    absent_weight: float
    parameters: tuple[Tensor, ...]
    lead: torch.Size


def fused_tiles(network: FusedNetwork, batch: GraphBatch) -> AdjacencyTiles | None:
    """The tiles that :func:`fused_loss` reads; ``None`` where it does not serve.

    It serves small graphs of one model on a CPU, without padding; errors are left to the layers.
    """
    x, segments, weight = batch.features, batch.segments, network.weight
    if not isinstance(x, Tensor) or not x.is_cpu or segments.padded or segments.index.numel() < 2:
        return None
    if x.dtype != weight.dtype or x.size(-1) != weight.size(0) or x.requires_grad:
        return None
    if x.shape[:-2] != network.lead or x.shape[:-1] != segments.index.shape:
        return None
    if needs_plain_operations() or kernels_available(x) or autocast_enabled(x) or current_shard() is not None:
        return None
    return adjacency_tiles(batch.edges, segments, x.dtype)


def fused_loss(
    network: FusedNetwork,
    batch: GraphBatch,
    matrices: AdjacencyTiles,
    options: LossOptions,
    dropout: HashedDropout | None,
) -> FusedLoss:
    """The loss of a training batch, and its class scores.

    Args:
        network (FusedNetwork): The model; running averages are updated.
        batch (GraphBatch): Small graphs, all with a class.
        matrices (AdjacencyTiles): Their tiles, from :func:`fused_tiles`.
        options (LossOptions): Weights of classes, graphs and loss terms; that of the reconstruction is a number.
        dropout (HashedDropout, optional): The dropout of this step. (default: none)
    """
    y = batch.y
    assert y is not None
    with torch.inference_mode():  # operations start faster; results that leave this function are made below
        done = _Pass(network, batch, matrices, y, options, dropout)
    values = torch.tensor(done.losses, dtype=network.weight.dtype)
    total, *terms = values.view(-1, *network.lead).unbind()
    scores = torch.from_numpy(done.margin.scores.T).view(*y.shape, -1)
    names = ("margin", "reconstruction")[: len(terms)]
    return FusedLoss(LossTerms(total, dict(zip(names, terms, strict=True))), scores, done)


def fused_scores(network: FusedNetwork, batch: GraphBatch, matrices: AdjacencyTiles) -> Tensor:
    """Class scores of a batch in evaluation mode, ``[*lead, B, O]``; arguments as in :func:`fused_loss`."""
    with torch.inference_mode():
        classes = _CapsulePass(network, batch, matrices, None, training=False).classes
    scores = torch.from_numpy(np.sqrt(_dots(classes, classes)).T)
    return scores.reshape(*network.lead, *scores.shape)


@dataclass(frozen=True, repr=False, eq=False)
class FusedLoss(TrainingLoss):
    """A loss whose gradients are written out: only :meth:`backward` computes them, its tensors have none."""

    forward_pass: _Pass = field(repr=False)

    def backward(self) -> None:
        """Adds the gradients of the loss to those of the parameters."""
        done = self.forward_pass
        with torch.no_grad():
            for parameter, grad in zip(done.network.parameters, done.backward(), strict=True):
                if grad is None or not parameter.requires_grad:
                    continue
                shaped = grad.view(parameter.size())
                parameter.grad = shaped if parameter.grad is None else parameter.grad + shaped


class _Pass:
    """A forward pass, and what its backward pass needs; tensors and arrays have no leading axes.

    Attributes:
        losses (list): The total, the margin loss and, with a decoder, the reconstruction loss.
    """

    def __init__(
        self,
        network: FusedNetwork,
        batch: GraphBatch,
        matrices: AdjacencyTiles,
        y: Tensor,
        options: LossOptions,
        dropout: HashedDropout | None,
    ) -> None:
        self.network = network
        self.capsules = _CapsulePass(network, batch, matrices, dropout)
        classes = self.capsules.classes
        self.margin = _Margin(network, classes, y, options)
        self.losses = [self.margin.loss, self.margin.loss]
        self.decoder: _Decoder | None = None
        weight = options.reconstruction_weight
        assert not isinstance(weight, Tensor)
        self.weight = weight
        if network.decoder is not None and weight != 0:
            with profiled("reconstruction"):
                self.decoder = _Decoder(network.decoder, classes, self.margin.true, self.capsules, matrices)
            loss = self.decoder.loss
            self.losses = [self.margin.loss + weight * loss, self.margin.loss, loss]

    def backward(self) -> list[Tensor | None]:
        """Gradients of all parameters; ``None`` for a decoder whose loss has no weight."""
        grad = self.margin.backward()
        of_rows: Array | None = None
        of_decoder: list[Tensor | None] = [] if self.network.decoder is None else [None, None]
        if self.decoder is not None:
            of_rows, of_classes, of_decoder[:] = self.decoder.backward(self.weight)
            grad += of_classes
        listed: list[Sequence[Tensor | None]] = [of_decoder]
        for level in reversed(self.capsules.levels):
            grad, of_level = level.backward(grad)
            listed.append(of_level)
        if of_rows is not None:
            grad += of_rows
        listed.append(self.capsules.primary.backward(grad))
        return [each for grads in reversed(listed) for each in grads]


class _CapsulePass:
    """The forward pass from features to class capsules.

    Args:
        network (FusedNetwork): The model.
        batch (GraphBatch): The graphs.
        matrices (AdjacencyTiles): Their tiles.
        dropout (HashedDropout, optional): The dropout of a training step.
        training (bool): Whether rows are normalised by their own statistics, or by the running ones. (default: True)

    Attributes:
        sizes (array): Number of nodes of each graph, ``[B]``.
        nodes (Tensor): Primary capsules, ``[V, d]``.
        classes (array): Class capsules, ``[O, B, d]``.
    """

    def __init__(
        self,
        network: FusedNetwork,
        batch: GraphBatch,
        matrices: AdjacencyTiles,
        dropout: HashedDropout | None,
        *,
        training: bool = True,
    ) -> None:
        with profiled("primary"):
            self.primary = _Primary(network, batch.x, dropout, training)
        self.nodes = torch.from_numpy(self.primary.squashed.u)
        ptr = batch.segments.ptr.numpy().reshape(-1)
        self.sizes: Array = ptr[1:] - ptr[:-1]
        first, *above = network.levels
        self.levels: list[_Nodes | _Capsules] = [_Nodes(first, self.nodes, matrices, self.sizes, training)]
        adjacency, phase = matrices.adjacency, _COARSENING
        for level in above:
            routing = self.levels[-1].routing
            with profiled(phase):
                adjacency = routing.coarsen(adjacency)
            phase = _CLASS_LEVEL
            with profiled(phase):
                self.levels.append(_Capsules(level, routing.squashed.u, adjacency, training))
        self.classes = self.levels[-1].routing.squashed.u


class _Primary:
    """Primary capsules: squash(k ReLU(x̂ (γ W) + β W + e)) with factors k of the dropout, 0 or its scale."""

    def __init__(
        self, network: FusedNetwork, x: Tensor, dropout: HashedDropout | None, training: bool
    ) -> None:
        x = x.view(x.shape[-2:])
        V, width = x.size(0), network.weight.size(-1)
        self.scale, self.shift = network.norm.weight.unsqueeze(-1), network.norm.bias
        self.weight = network.weight
        self.hat, _, _ = _normalise(x, network.norm, training, scaled=False)
        bias = torch.addmv(network.bias, self.weight.mT, self.shift)
        self.factor = 1.0 if dropout is None else float(dropout.scale)  # of the numbers that are not dropped
        weight = self.scale * self.weight
        z = torch.addmm(bias, self.hat, weight, beta=self.factor, alpha=self.factor).relu_()
        self.kept: Array = z.numpy()
        if dropout is not None:
            keep = hash_rows(dropout.keys, V, width).numpy() >= int(dropout.threshold)
            self.kept *= keep.reshape(V, width)
        self.squashed = _squash_with_derivative(self.kept)

    def backward(self, grad: Array) -> list[Tensor]:
        # Where a is 0, the number is dropped or the ReLU is 0.
        da = torch.from_numpy(_squash_backward(self.kept, self.squashed, grad, self.factor))
        dz = torch.ops.aten.threshold_backward(da, torch.from_numpy(self.kept), 0)
        dbias = dz.sum(0)
        dfolded = self.hat.mT @ dz
        dweight = torch.addr(dfolded * self.scale, self.shift, dbias)
        return [(dfolded * self.weight).sum(-1), self.weight @ dbias, dweight, dbias]


class _Nodes:
    """The level over nodes: normalisation and hop of the tiles, then routing."""

    def __init__(
        self, level: FusedLevel, u: Tensor, matrices: AdjacencyTiles, sizes: Array, training: bool
    ) -> None:
        self.level, self.inputs, self.matrices = level, u, matrices
        tiles, d = matrices.tiles, u.size(-1)
        counts = sizes.astype(u.numpy().dtype)
        with profiled("hop"):
            hat, *self.statistics = _normalise(u, level.norm, training)
            X = hat.index_select(0, tiles.to_tile[0]).view(-1, tiles.height, d)
            h = torch.bmm(matrices.hop, X)
            mean: Array | None = None
            if level.residual:
                self.share = 1 / (counts if level.divisor is None else np.full_like(counts, level.divisor))
                mean = torch.bmm(matrices.filled, X).view(-1, d).numpy()
                mean *= self.share[:, None]
        with profiled("routing"):
            self.routing = _Routing(level, h, matrices.filled, counts, mean)

    def backward(self, grad: Array) -> tuple[Array, list[Tensor]]:
        """Gradients in the rows of the input capsules, and of the parameters."""
        dh, dmean, dweight, dbias = self.routing.backward(grad)
        hop, tiles = self.matrices.hop, self.matrices.tiles
        if self.level.residual:  # holes get a gradient too, and are left out below
            dmean *= self.share[:, None]
            dX = torch.baddbmm(torch.from_numpy(dmean).unsqueeze(1), hop, dh)
        else:
            dX = torch.bmm(hop, dh)
        rows = dX.view(-1, dX.size(-1)).index_select(0, tiles.to_row[0])
        du, dscale, dshift = _normalise_backward(rows, self.inputs, self.level.norm, *self.statistics)
        return du.numpy(), [dscale, dshift, dweight, dbias]


class _Capsules:
    """A level over capsules, ``[J, B, d]``, and their coarse graphs."""

    def __init__(self, level: FusedLevel, u: Array, adjacency: Tensor, training: bool) -> None:
        self.level, (J, B, d) = level, u.shape
        self.inputs = torch.from_numpy(u).view(-1, d)
        hat, *self.statistics = _normalise(self.inputs, level.norm, training)
        X = hat.view(J, B, d)
        self.hop = _hop_matrices(adjacency)
        h = torch.bmm(self.hop, X.transpose(0, 1))
        mean = X.numpy().mean(0) if level.residual else None
        self.routing = _Routing(level, h, None, np.full(B, J, dtype=hat.numpy().dtype), mean)

    def backward(self, grad: Array) -> tuple[Array, list[Tensor]]:
        dh, dmean, dweight, dbias = self.routing.backward(grad)
        J = self.hop.size(-1)
        if self.level.residual:
            dmean *= 1 / J
            dX = torch.baddbmm(torch.from_numpy(dmean).unsqueeze(1), self.hop.mT, dh)
        else:
            dX = torch.bmm(self.hop.mT, dh)
        rows = dX.transpose(0, 1).reshape(self.inputs.shape)
        du, dscale, dshift = _normalise_backward(rows, self.inputs, self.level.norm, *self.statistics)
        return du.numpy().reshape(J, -1, du.size(-1)), [dscale, dshift, dweight, dbias]


class _Routing:
    """Routing of input capsules ``h [B, n, d]``, zero in holes, as in :mod:`graphcaps.ops.routing.detached`.

    Biases are added beside the products, so that the weights are not copied.

    Args:
        level (FusedLevel): Weights and number of iterations.
        h (Tensor): Propagated input capsules, ``[B, n, d]``.
        filled (Tensor, optional): 0 in holes and 1 elsewhere, ``[B, 1, n]``. (default: no holes)
        sizes (array): Number of input capsules of each graph, ``[B]``.
        residual (array, optional): Added before the last squash, ``[B, d']``.
    """

    def __init__(
        self, level: FusedLevel, h: Tensor, filled: Tensor | None, sizes: Array, residual: Array | None
    ) -> None:
        J = level.weight.size(0)
        self.weight = W = level.weight
        bias: Array = level.bias.numpy()[:, None]
        Wt, Ht = W.mT, h.mT
        G = h.sum(1).div_(J).expand(J, -1, -1)
        m: Array = (sizes / J)[None]  # [J or 1, B]
        T = tau = c = None
        for _ in range(level.iterations - 1):
            s = torch.baddbmm(torch.from_numpy(m[..., None] * bias), G, W).numpy()
            u = _squash(s)
            products, agreement = torch.from_numpy(u), np.einsum("jbe,jxe->jbx", u, bias)  # [J, B, 1]
            if T is None or tau is None:
                T, tau = torch.bmm(products, Wt), agreement
            else:
                T.baddbmm_(products, Wt)
                tau += agreement
            b = torch.baddbmm(torch.from_numpy(tau).transpose(0, 1), T.transpose(0, 1), Ht)
            c = b.softmax(1)  # [B, J, n]
            G = torch.bmm(c, h).transpose(0, 1)  # [J, B, d]
            m = (c.sum(-1) if filled is None else torch.bmm(c, filled.mT).squeeze(-1)).numpy().T
        self.s = torch.baddbmm(torch.from_numpy(m[..., None] * bias), G, W).numpy()
        if residual is not None:
            self.s += residual
        self.squashed = _squash_with_derivative(self.s)
        self.G, self.m, self.c, self.n = G, m, c, h.size(1)

    def coarsen(self, adjacency: Tensor) -> Tensor:
        """CᵀAC, at most 1 and 0 on the diagonal, ``[B, J, J]``; A is 0 in holes."""
        J = self.weight.size(0)
        c = adjacency.new_full((adjacency.size(0), J, self.n), 1 / J) if self.c is None else self.c
        coarse = torch.bmm(torch.bmm(c, adjacency), c.mT).clamp_max_(1)
        coarse.numpy().reshape(-1, J * J)[:, :: J + 1] = 0
        return coarse

    def backward(self, grad: Array) -> tuple[Tensor, Array, Tensor, Tensor]:
        """From the gradient in the output capsules ``[J, B, d']``: those in h, in the residual ``[B, d']``, W, e."""
        g = _squash_backward(self.s, self.squashed, grad)
        products, W = torch.from_numpy(g), self.weight
        dG = torch.bmm(products, W.mT).transpose(0, 1)  # [B, J, d]
        if self.c is None:
            dh = (dG.sum(1, keepdim=True) / W.size(0)).expand(-1, self.n, -1)
        else:
            dh = torch.bmm(self.c.mT, dG)
        dbias = np.einsum("jb,jbe->je", self.m, g)
        return dh, g.sum(0), torch.bmm(self.G.mT, products), torch.from_numpy(dbias)


class _Margin:
    """Margin loss of the lengths of class capsules ``[O, B, d]``."""

    def __init__(self, network: FusedNetwork, classes: Array, y: Tensor, options: LossOptions) -> None:
        num_classes, B = classes.shape[:2]
        self.classes = classes
        self.true: Array = y.numpy().reshape(1, B) == np.arange(num_classes)[:, None]  # [O, B]
        self.scores: Array = np.sqrt(_dots(classes, classes))
        self.sign = np.where(self.true, -1, 1).astype(classes.dtype)
        bound = np.where(self.true, network.upper, -network.lower)
        excess = (self.scores * self.sign + bound).clip(min=0)
        weighted = excess * np.where(self.true, 1, network.absent_weight)
        if options.class_weight is not None or options.graph_weight is not None:
            ones = torch.ones(y.shape, dtype=network.weight.dtype)
            weighted *= (
                weight_graphs(ones, y, options.class_weight, options.graph_weight).numpy().reshape(1, B)
            )
        self.loss = float((weighted * excess).sum() / B)
        self.slope: Array = weighted * self.sign * (2 / B)

    def backward(self) -> Array:
        """The gradient in the class capsules."""
        lengths = np.where(self.scores == 0, 1, self.scores)  # where a length is 0, the capsule is too
        return self.classes * (self.slope / lengths)[..., None].astype(self.classes.dtype)


class _Decoder:
    """Reconstruction of the adjacency from primary capsules and the capsule of the class."""

    def __init__(
        self,
        parameters: tuple[Tensor, Tensor],
        classes: Array,
        true: Array,
        capsules: _CapsulePass,
        matrices: AdjacencyTiles,
    ) -> None:
        B = classes.shape[1]
        self.matrices, self.true = matrices, true[..., None]
        self.weight, bias = parameters
        masked = (classes * self.true).swapaxes(0, 1).reshape(B, -1)
        self.masked = torch.from_numpy(masked)
        self.code = torch.addmm(bias, self.masked, self.weight).relu_()
        tiles = matrices.tiles
        self.Z = (
            capsules.nodes.index_select(0, tiles.to_tile[0])
            .view(B, tiles.height, -1)
            .add_(self.code.unsqueeze(1))
        )
        self.S = torch.bmm(self.Z, self.Z.mT)
        # The sign is 0 on the diagonal and in holes, where the value becomes that of P = 0.
        P = self.S.clamp(RELEASED.low, RELEASED.high)
        value = torch.addcmul(matrices.absent, P, matrices.sign, value=-1)
        self.value = value.add_(matrices.pairs, alpha=RELEASED.epsilon)
        self.share = 1 / max(1, int((capsules.sizes**2).sum()))
        self.loss = float(self.value.log().sum()) * -self.share

    def backward(self, weight: float) -> tuple[Array, Array, list[Tensor]]:
        """Gradients of the loss times a weight in the rows of the primary capsules, in the class capsules
        ``[O, B, d]``, and in the parameters."""
        Z, (num_classes, B, _) = self.Z, self.true.shape
        g = torch.ops.aten.hardtanh_backward(
            self.matrices.sign / self.value, self.S, *open_interval(RELEASED, Z.dtype)
        ).mul_(2 * weight * self.share)
        dZ = torch.bmm(g, Z)
        dcode = torch.ops.aten.threshold_backward(dZ.sum(1), self.code, 0)
        rows = dZ.view(-1, Z.size(-1)).index_select(0, self.matrices.tiles.to_row[0])
        dclasses = (dcode @ self.weight.mT).numpy().reshape(B, num_classes, -1).swapaxes(0, 1) * self.true
        return rows.numpy(), dclasses, [self.masked.mT @ dcode, dcode.sum(0)]


@dataclass(frozen=True)
class _Squashed:
    """As :class:`graphcaps.ops.squash.Squashed`; factor and derivative without the last axis."""

    u: Array
    factor: Array
    derivative: Array


def _dots(one: Array, two: Array) -> Array:
    """Dot product of each row with the same row of the other array, ``[…, d]`` to ``[…]``."""
    return np.einsum("jbd,jbd->jb" if one.ndim == 3 else "vd,vd->v", one, two)


def _squash(z: Array) -> Array:
    """:func:`graphcaps.ops.squash` of the released program."""
    squared = _dots(z, z)
    return z * (squared / ((1 + squared) * np.sqrt(squared + RELEASED_EPSILON)))[..., None]


def _squash_with_derivative(z: Array) -> _Squashed:
    squared = _dots(z, z)
    inner, one = squared + RELEASED_EPSILON, 1 + squared
    divisor = one * np.sqrt(inner)
    factor = squared / divisor
    return _Squashed(z * factor[..., None], factor, (2 / one - squared / inner) / divisor)


def _squash_backward(z: Array, squashed: _Squashed, grad: Array, scale: float = 1.0) -> Array:
    """The gradient in z times a number."""
    along = squashed.derivative * _dots(z, grad)
    result = grad * (squashed.factor * scale)[..., None]
    result += z * (along * scale)[..., None]
    return result


def _hop_matrices(adjacency: Tensor) -> Tensor:
    """The matrices of :func:`graphcaps.ops.propagation.propagation.dense_hop`, ``[B, J, J]``; A is at least 0."""
    A: Array = adjacency.numpy()
    J = A.shape[-1]
    scale = 1 / np.sqrt(A.sum(-1) + 1)  # [B, J]
    hop = A * scale[:, :, None]
    hop.reshape(-1, J * J)[:, :: J + 1] += scale
    hop *= scale[:, None, :]
    return torch.from_numpy(hop)


def _normalise(
    x: Tensor, norm: Norm, training: bool, *, scaled: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """torch's batch normalisation of rows ``[N, C]``, with γ and β or without: the result, mean and 1 / σ."""
    weight, bias = (norm.weight, norm.bias) if scaled else (None, None)
    hat, mean, rstd = torch.native_batch_norm(
        x, weight, bias, norm.mean, norm.var, training, norm.momentum, norm.epsilon
    )
    return hat, mean, rstd


def _normalise_backward(
    grad: Tensor, x: Tensor, norm: Norm, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the rows, in γ and in β."""
    dx, dscale, dshift = torch.ops.aten.native_batch_norm_backward(
        grad, x, norm.weight, None, None, mean, rstd, True, norm.epsilon, [True, True, True]
    )
    return dx, dscale, dshift
