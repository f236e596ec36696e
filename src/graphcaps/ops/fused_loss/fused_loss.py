r"""The loss of an HGCN on a batch of small graphs, and the gradients of all its parameters, without autograd.

A training step of a small model takes as long as its operations are many. The layers of :class:`graphcaps.nn.HGCN` are
some fifteen autograd functions, between which rows are copied into tiles and back. Here the gradient of the whole
network is written out, and capsules stay in the layout that the next product reads: nodes as tiles ``[B, t, d]``, one
per graph, and output capsules as ``[J, B, d]``. Products of matrices and normalisations are torch's. Operations on
short arrays are numpy's, which start several times faster; both read the same memory.

F replicas are one pass: their tiles are ``[F·B, t, d]`` and their capsules ``[F·J, B, d]``, so that an operation starts
once for all of them. Only what reads the rows of a replica without padding, the projection of the features and the
normalisations, is computed for one replica after another.

The layers are the reference implementation: values and gradients are equal up to rounding. This form serves models on a
CPU in the released formulation, where every graph of the batch is one tile
(:mod:`graphcaps.ops.propagation.adjacency_tiles`) and assignments are constants for the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import kernels_available, needs_plain_operations
from graphcaps.ops.activation.hashed_dropout import HashedDropout, hash_rows
from graphcaps.ops.autocast import autocast_enabled
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.fused_loss.written_out_loss import EarlyGradients, WrittenOutLoss
from graphcaps.ops.graph_mean import weight_graphs
from graphcaps.ops.propagation.adjacency_tiles import AdjacencyTiles, adjacency_tiles
from graphcaps.ops.reconstruction.pair_loss import open_interval
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import Phase, profiled
from graphcaps.types import GraphBatch, LossOptions

__all__ = [
    "FusedBatch",
    "FusedLevel",
    "FusedNetwork",
    "Norm",
    "fused_batch",
    "fused_loss",
    "fused_scores",
]

Array = npt.NDArray[Any]

_COARSENING: Phase = "coarsening"
_CLASS_LEVEL: Phase = "class level"  # with the coarse graphs above the first


@dataclass(frozen=True)
class Norm:
    """Batch normalisation of one replica: γ and β, running mean and variance, all ``[C]``, and its constants."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    var: Tensor
    momentum: float
    epsilon: float


@dataclass(frozen=True)
class FusedLevel:
    """One level of capsules of F replicas.

    Args:
        norms (tuple): Normalise the input capsules, one :class:`Norm` per replica.
        weight (Tensor): W, ``[F·J, d, d']``.
        bias (Tensor): e, ``[F·J, d']``.
        iterations (int): Routing iterations R.
        residual (bool): Whether the mean input capsule is added before the last squash.
        divisor (int, optional): Divides the sum of the input capsules in that mean. (default: their number)
    """

    norms: tuple[Norm, ...]
    weight: Tensor
    bias: Tensor
    iterations: int
    residual: bool
    divisor: int | None = None


@dataclass(frozen=True)
class FusedNetwork:
    """Parameters and constants of F replicas of an HGCN. Tensors have no gradient, and share their memory with the
    parameters.

    Args:
        norms (tuple): Normalise the features, one :class:`Norm` per replica.
        weights, biases (tuple): Projection of the features, ``[C, d]`` and ``[d]`` per replica.
        levels (tuple): Levels of capsules; the last is the class level.
        decoders (tuple, optional): Weight ``[O·d, d]`` and bias ``[d]`` of the adjacency decoder of each replica.
        upper, lower (float or array): As in :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`; one per replica
            as ``[F, 1, 1]``.
        absent_weight (float): As there.
        parameters (tuple): The parameters themselves, ``[*lead, …]``: weight and bias of the norm, and weight and bias
            of the projection; the same of each level; weight and bias of the decoder.
        lead (Size): Leading axes of the parameters, of F replicas.
    """

    norms: tuple[Norm, ...]
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    levels: tuple[FusedLevel, ...]
    decoders: tuple[tuple[Tensor, Tensor], ...] | None
    upper: float | Array
    lower: float | Array
    absent_weight: float
    parameters: tuple[Tensor, ...]
    lead: torch.Size

    @property
    def num_replicas(self) -> int:
        return len(self.norms)


@dataclass(frozen=True)
class FusedBatch:
    """A batch of small graphs, the rows of whose F replicas follow each other without padding, R in all.

    Args:
        x (sequence): Features of the nodes of each replica, ``[V_f, in]``.
        sizes (array): Number of nodes of each graph, 0 at padding, ``[F, B]``.
        num_rows, num_graphs (list): Number of nodes and of graphs of each replica; padding graphs are its last ones.
        matrices (AdjacencyTiles): The graphs as tiles.
        to_tile (Tensor): Row at each position of the tiles, any row in holes, ``[F·B·t]``.
        to_row (Tensor): Position of each row in the tiles, ``[R]``.
        is_padded (bool): Whether there are padding graphs.
    """

    x: Sequence[Tensor]
    sizes: Array
    num_rows: list[int]
    num_graphs: list[int]
    matrices: AdjacencyTiles
    to_tile: Tensor
    to_row: Tensor
    is_padded: bool

    def has_classes(self, y: Tensor) -> bool:
        """Whether every graph, and no padding, has a class ``y [*lead, B]``."""
        labels: Array = y.numpy()
        if not self.is_padded:
            return bool(labels.min() >= 0)
        return bool(((labels.reshape(self.sizes.shape) >= 0) == (self.sizes > 0)).all())


def fused_batch(network: FusedNetwork, batch: GraphBatch) -> FusedBatch | None:
    """A batch as :func:`fused_loss` reads it; ``None`` where it does not serve.

    It serves small graphs on a CPU, of which every replica has one; errors are left to the layers.
    """
    x, segments, weight = batch.features, batch.segments, network.weights[0]
    if not isinstance(x, Tensor) or not x.is_cpu or segments.index.numel() < 2:
        return None
    if x.dtype != weight.dtype or x.size(-1) != weight.size(0) or x.requires_grad:
        return None
    if x.shape[:-2] != network.lead or x.shape[:-1] != segments.index.shape:
        return None
    if needs_plain_operations() or kernels_available(x) or autocast_enabled(x) or current_shard() is not None:
        return None
    matrices = adjacency_tiles(batch.edges, segments, x.dtype)
    if matrices is None:
        return None
    F, B, V = network.num_replicas, segments.num_graphs, segments.num_rows
    ptr: Array = segments.ptr.numpy().reshape(F, B + 1)
    sizes = ptr[:, 1:] - ptr[:, :-1]
    features = _split(x.reshape(F * V, -1), [V] * F)
    (to_tile, _), (to_row, _) = matrices.tiles.to_tile, matrices.tiles.to_row
    if not segments.padded:
        return FusedBatch(features, sizes, [V] * F, [B] * F, matrices, to_tile, to_row, is_padded=False)
    num_rows, num_graphs = ptr[:, -1], (sizes > 0).sum(1)
    # Statistics of a single row, and a graph without nodes before others, are left to the layers.
    if num_rows.min() < 2 or not _is_first(sizes > 0, num_graphs):
        return None
    counts = num_rows.tolist()
    removed = V * np.arange(F) - num_rows.cumsum() + num_rows  # rows of padding before each replica
    to_tile = (to_tile.view(F, -1) - torch.from_numpy(removed[:, None])).view(-1)
    to_row = torch.cat([each[:count] for each, count in zip(to_row.view(F, V), counts, strict=True)])
    features = [each[:count] for each, count in zip(features, counts, strict=True)]
    is_padded = bool(num_graphs.min() < B)
    return FusedBatch(features, sizes, counts, num_graphs.tolist(), matrices, to_tile, to_row, is_padded)


def _is_first(real: Array, counts: Array) -> bool:
    """Whether the first ``counts [F]`` entries of ``real [F, B]`` are true, and no others."""
    return bool((real == (np.arange(real.shape[1]) < counts[:, None])).all())


def fused_loss(
    network: FusedNetwork,
    batch: FusedBatch,
    y: Tensor,
    options: LossOptions,
    dropout: HashedDropout | None,
) -> WrittenOutLoss:
    """The loss of a training batch, and its class scores.

    Args:
        network (FusedNetwork): The model; running averages are updated.
        batch (FusedBatch): Small graphs, from :func:`fused_batch`.
        y (Tensor): Class of each graph, −1 at padding, ``[*lead, B]``.
        options (LossOptions): Weights of classes, graphs and loss terms.
        dropout (HashedDropout, optional): The dropout of this step. (default: none)
    """
    with torch.inference_mode():  # operations start faster; results that leave this function are made below
        done = _Pass(network, batch, y, options, dropout)
    values = torch.tensor(done.losses, dtype=network.weights[0].dtype).view(-1, *network.lead)
    scores = _as_scores(done.margin.scores, network)
    return WrittenOutLoss.of_values(values, scores, done, network.parameters)


def fused_scores(network: FusedNetwork, batch: FusedBatch) -> Tensor:
    """Class scores of a batch in evaluation mode, ``[*lead, B, O]``; arguments as in :func:`fused_loss`."""
    with torch.inference_mode():
        classes = _CapsulePass(network, batch, None, training=False).classes
    scores = np.sqrt(_dots(classes, classes))
    if batch.is_padded:  # also a graph without nodes, whose scores are 0
        cleared = _by_replica(scores, network.num_replicas)
        cleared *= batch.sizes[:, None] > 0
    return _as_scores(scores, network)


def _as_scores(scores: Array, network: FusedNetwork) -> Tensor:
    """``[F·O, B]`` to ``[*lead, B, O]``."""
    each = torch.from_numpy(_by_replica(scores, network.num_replicas)).mT
    return each.reshape(*network.lead, *each.shape[1:])


class _Pass:
    """A forward pass, and what its backward pass needs.

    Attributes:
        losses (array): The total, the margin loss and, with a decoder, the reconstruction loss, float64 ``[F]`` each.
    """

    def __init__(
        self,
        network: FusedNetwork,
        batch: FusedBatch,
        y: Tensor,
        options: LossOptions,
        dropout: HashedDropout | None,
    ) -> None:
        self.network = network
        self.capsules = _CapsulePass(network, batch, dropout)
        classes = self.capsules.classes
        self.margin = _Margin(network, batch, classes, y, options)
        margin = self.margin.loss
        self.losses: Array = np.array([margin, margin])
        self.decoder: _Decoder | None = None
        weight = options.reconstruction_weight
        # As in LossTerms.plus: one weight per replica has the loss computed, whatever the weights are.
        if network.decoders is not None and (isinstance(weight, Tensor) or weight != 0):
            self.weight = weight.double().numpy().reshape(-1) if isinstance(weight, Tensor) else weight
            with profiled("reconstruction"):
                self.decoder = _Decoder(
                    network.decoders, classes, self.margin.true, self.capsules.nodes, batch
                )
            loss = self.decoder.loss
            self.losses = np.array([margin + self.weight * loss, margin, loss])

    def backward(self, early: EarlyGradients | None = None) -> list[Tensor | None]:
        """Gradients of all parameters; ``None`` for a decoder whose loss has no weight. None is early: on a CPU, an
        update takes the same time at the end."""
        grad = self.margin.backward()
        of_rows: Array | None = None
        of_decoder: list[Tensor | None] = [] if self.network.decoders is None else [None, None]
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
        batch (FusedBatch): The graphs.
        dropout (HashedDropout, optional): The dropout of a training step.
        training (bool): Whether rows are normalised by their own statistics, or by the running ones. (default: True)

    Attributes:
        nodes (Tensor): Primary capsules, ``[R, d]``.
        classes (array): Class capsules, ``[F·O, B, d]``.
    """

    def __init__(
        self,
        network: FusedNetwork,
        batch: FusedBatch,
        dropout: HashedDropout | None,
        *,
        training: bool = True,
    ) -> None:
        with profiled("primary"):
            self.primary = _Primary(network, batch, dropout, training)
        self.nodes = torch.from_numpy(self.primary.squashed.u)
        first, *above = network.levels
        self.levels: list[_Nodes | _Capsules] = [_Nodes(first, self.nodes, batch, training)]
        adjacency, phase = batch.matrices.adjacency, _COARSENING
        for level in above:
            routing = self.levels[-1].routing
            with profiled(phase):
                adjacency = routing.coarsen(adjacency)
            phase = _CLASS_LEVEL
            with profiled(phase):
                self.levels.append(_Capsules(level, routing.squashed.u, adjacency, batch, training))
        self.classes = self.levels[-1].routing.squashed.u


class _Primary:
    """Primary capsules: squash(k ReLU(x̂ (γ W) + β W + e)) with factors k of the dropout, 0 or its scale."""

    def __init__(
        self, network: FusedNetwork, batch: FusedBatch, dropout: HashedDropout | None, training: bool
    ) -> None:
        F, width = network.num_replicas, network.weights[0].size(-1)
        self.network, self.num_rows = network, batch.num_rows
        scales, thresholds = _dropout_numbers(dropout, F)  # of the numbers that are not dropped
        self.hats = _normalise(batch.x, network.norms, training, scaled=False)[0]
        z = network.weights[0].new_empty(sum(batch.num_rows), width)
        if dropout is not None:
            hashes = hash_rows(dropout.keys, max(batch.num_rows), width).numpy().reshape(F, -1)
        parts = zip(
            _split(z, batch.num_rows), self.hats, network.norms, network.weights, network.biases, strict=True
        )
        for f, (rows, hat, norm, weight, bias) in enumerate(parts):
            shift = torch.addmv(bias, weight.mT, norm.bias)
            folded = norm.weight.unsqueeze(-1) * weight
            torch.addmm(shift, hat, folded, beta=scales[f], alpha=scales[f], out=rows).relu_()
            if dropout is not None:
                kept: Array = rows.numpy()
                kept *= (hashes[f, : kept.size] >= thresholds[f]).reshape(kept.shape)
        self.kept: Array = z.numpy()
        self.factor = (
            scales[0] if len(set(scales)) == 1 else np.repeat(scales, batch.num_rows).astype(self.kept.dtype)
        )
        self.squashed = _squash_with_derivative(self.kept)

    def backward(self, grad: Array) -> list[Tensor]:
        # Where a is 0, the number is dropped or the ReLU is 0.
        da = torch.from_numpy(_squash_backward(self.kept, self.squashed, grad, self.factor))
        dz = torch.ops.aten.threshold_backward(da, torch.from_numpy(self.kept), 0)
        network = self.network
        grads = []
        for dz_f, hat, norm, weight in zip(
            _split(dz, self.num_rows), self.hats, network.norms, network.weights, strict=True
        ):
            dbias = dz_f.sum(0)
            dfolded = hat.mT @ dz_f
            dweight = torch.addr(dfolded * norm.weight.unsqueeze(-1), norm.bias, dbias)
            grads.append(((dfolded * weight).sum(-1), weight @ dbias, dweight, dbias))
        return [_stack(each) for each in zip(*grads, strict=True)]


def _dropout_numbers(dropout: HashedDropout | None, F: int) -> tuple[list[float], list[int]]:
    """Factor of the numbers that are kept, and the hash from which on they are, of each replica."""
    if dropout is None:
        return [1.0] * F, [0] * F
    scale, threshold = dropout.scale, dropout.threshold
    if isinstance(scale, Tensor) and isinstance(threshold, Tensor):
        return scale.reshape(-1).tolist(), threshold.reshape(-1).tolist()
    return [float(scale)] * F, [int(threshold)] * F


class _Nodes:
    """The level over nodes: normalisation and hop of the tiles, then routing."""

    def __init__(self, level: FusedLevel, u: Tensor, batch: FusedBatch, training: bool) -> None:
        self.level, self.batch = level, batch
        matrices, d = batch.matrices, u.size(-1)
        sizes = batch.sizes.reshape(-1).astype(u.numpy().dtype)
        with profiled("hop"):
            self.inputs = _split(u, batch.num_rows)
            hats, self.statistics = _normalise(self.inputs, level.norms, training)
            X = _join(hats).index_select(0, batch.to_tile).view(-1, matrices.tiles.height, d)
            h = torch.bmm(matrices.hop, X)
            mean: Array | None = None
            if level.residual:
                counts = np.maximum(sizes, 1) if level.divisor is None else np.full_like(sizes, level.divisor)
                self.share = 1 / counts
                mean = torch.bmm(matrices.filled, X).view(-1, d).numpy()
                mean *= self.share[:, None]
        with profiled("routing"):
            self.routing = _Routing(level, h, matrices.filled, sizes, mean)

    def backward(self, grad: Array) -> tuple[Array, list[Tensor]]:
        """Gradients in the rows of the input capsules, and of the parameters."""
        dh, dmean, dweight, dbias = self.routing.backward(grad)
        hop = self.batch.matrices.hop
        if self.level.residual:  # holes get a gradient too, and are left out below
            dmean *= self.share[:, None]
            dX = torch.baddbmm(torch.from_numpy(dmean).unsqueeze(1), hop, dh)
        else:
            dX = torch.bmm(hop, dh)
        rows = _split(dX.view(-1, dX.size(-1)).index_select(0, self.batch.to_row), self.batch.num_rows)
        du, dscale, dshift = _normalise_backward(rows, self.inputs, self.level.norms, self.statistics)
        return _join(du).numpy(), [dscale, dshift, dweight, dbias]


class _Capsules:
    """A level over capsules, ``[F·J, B, d]``, and their coarse graphs."""

    def __init__(
        self, level: FusedLevel, u: Array, adjacency: Tensor, batch: FusedBatch, training: bool
    ) -> None:
        self.level, self.batch, F = level, batch, len(level.norms)
        self.inputs = self._split(torch.from_numpy(u))
        hats, self.statistics = _normalise(self.inputs, level.norms, training)
        X = self._join(hats)
        self.hop = _hop_matrices(adjacency)
        h = torch.bmm(self.hop, _swap(X, F))
        mean = _by_replica(X.numpy(), F).mean(1).reshape(-1, X.size(-1)) if level.residual else None
        sizes = np.full(adjacency.size(0), adjacency.size(-1), dtype=u.dtype)
        self.routing = _Routing(level, h, None, sizes, mean)

    def backward(self, grad: Array) -> tuple[Array, list[Tensor]]:
        dh, dmean, dweight, dbias = self.routing.backward(grad)
        if self.level.residual:
            dmean *= 1 / self.hop.size(-1)
            dX = torch.baddbmm(torch.from_numpy(dmean).unsqueeze(1), self.hop.mT, dh)
        else:
            dX = torch.bmm(self.hop.mT, dh)
        rows = self._split(_swap(dX, len(self.level.norms)))
        du, dscale, dshift = _normalise_backward(rows, self.inputs, self.level.norms, self.statistics)
        return self._join(du).numpy(), [dscale, dshift, dweight, dbias]

    def _split(self, u: Tensor) -> Sequence[Tensor]:
        """The capsules of each replica as rows ``[J·B_f, d]``, without padding graphs."""
        F, d = len(self.level.norms), u.size(-1)
        if not self.batch.is_padded:
            return _split(u.reshape(-1, d), [u.size(0) // F * u.size(1)] * F)
        replicas = u.view(F, -1, *u.shape[1:])
        counts = self.batch.num_graphs
        return [one[:, :count].reshape(-1, d) for one, count in zip(replicas, counts, strict=True)]

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        """The inverse of :meth:`_split`, zero at padding graphs."""
        F, B, d = len(parts), self.batch.sizes.shape[1], parts[0].size(-1)
        if not self.batch.is_padded:
            return _join(parts).view(-1, B, d)
        counts = self.batch.num_graphs
        joined = parts[0].new_zeros(F, parts[0].size(0) // counts[0], B, d)
        for one, part, count in zip(joined, parts, counts, strict=True):
            one[:, :count] = part.view(-1, count, d)
        return joined.view(-1, B, d)


class _Routing:
    """Routing of input capsules ``h [F·B, n, d]``, zero in holes, as in :mod:`graphcaps.ops.routing.detached`.

    Biases are added beside the products, so that the weights are not copied.

    Args:
        level (FusedLevel): Weights and number of iterations.
        h (Tensor): Propagated input capsules, ``[F·B, n, d]``.
        filled (Tensor, optional): 0 in holes and 1 elsewhere, ``[F·B, 1, n]``. (default: no holes)
        sizes (array): Number of input capsules of each graph, ``[F·B]``.
        residual (array, optional): Added before the last squash, ``[F·B, d']``.
    """

    def __init__(
        self, level: FusedLevel, h: Tensor, filled: Tensor | None, sizes: Array, residual: Array | None
    ) -> None:
        self.F = F = len(level.norms)
        J, d = level.weight.size(0) // F, h.size(-1)
        self.weight = W = level.weight
        bias: Array = level.bias.numpy()[:, None]
        Wt, Ht = W.mT, h.mT
        G, m = h.sum(1).div_(J), (sizes / J).reshape(F, -1)
        if F == 1:
            G = G.expand(J, -1, -1)
        else:
            G, m = G.view(F, -1, d).repeat_interleave(J, 0), m.repeat(J, 0)  # [F·J, B, d] and [F·J, B]
        T = tau = c = None
        for _ in range(level.iterations - 1):
            s = torch.baddbmm(torch.from_numpy(m[..., None] * bias), G, W).numpy()
            u = _squash(s)
            products, agreement = torch.from_numpy(u), np.einsum("jbe,jxe->jbx", u, bias)  # [F·J, B, 1]
            if T is None or tau is None:
                T, tau = torch.bmm(products, Wt), agreement
            else:
                T.baddbmm_(products, Wt)
                tau += agreement
            b = torch.baddbmm(_swap(torch.from_numpy(tau), F), _swap(T, F), Ht)
            c = b.softmax(1)  # [F·B, J, n]
            G = _swap(torch.bmm(c, h), F)  # [F·J, B, d]
            m = (c.sum(-1) if filled is None else torch.bmm(c, filled.mT).squeeze(-1)).numpy()
            m = _by_replica(m, F).swapaxes(1, 2).reshape(F * J, -1)
        self.s = torch.baddbmm(torch.from_numpy(m[..., None] * bias), G, W).numpy()
        if residual is not None:
            added = _by_replica(self.s, F)
            added += residual.reshape(F, 1, -1, self.s.shape[-1])
        self.squashed = _squash_with_derivative(self.s)
        self.G, self.m, self.c, self.n = G, m, c, h.size(1)

    def coarsen(self, adjacency: Tensor) -> Tensor:
        """CᵀAC, at most 1 and 0 on the diagonal, ``[F·B, J, J]``; A is 0 in holes."""
        J = self.weight.size(0) // self.F
        c = adjacency.new_full((adjacency.size(0), J, self.n), 1 / J) if self.c is None else self.c
        coarse = torch.bmm(torch.bmm(c, adjacency), c.mT).clamp_max_(1)
        coarse.numpy().reshape(-1, J * J)[:, :: J + 1] = 0
        return coarse

    def backward(self, grad: Array) -> tuple[Tensor, Array, Tensor, Tensor]:
        """From the gradient in the output capsules ``[F·J, B, d']``: those in h, the residual ``[F·B, d']``, W, e."""
        F, W = self.F, self.weight
        g = _squash_backward(self.s, self.squashed, grad)
        products = torch.from_numpy(g)
        dG = _swap(torch.bmm(products, W.mT), F)  # [F·B, J, d]
        if self.c is None:
            dh = (dG.sum(1, keepdim=True) / dG.size(1)).expand(-1, self.n, -1)
        else:
            dh = torch.bmm(self.c.mT, dG)
        dbias = np.einsum("jb,jbe->je", self.m, g)
        dresidual = _by_replica(g, F).sum(1).reshape(-1, g.shape[-1])
        return dh, dresidual, torch.bmm(self.G.mT, products), torch.from_numpy(dbias)


class _Margin:
    """Margin loss of the lengths of class capsules ``[F·O, B, d]``."""

    def __init__(
        self, network: FusedNetwork, batch: FusedBatch, classes: Array, y: Tensor, options: LossOptions
    ) -> None:
        F, B = batch.sizes.shape
        self.classes = classes
        labels: Array = y.numpy().reshape(F, 1, B)
        self.true: Array = labels == np.arange(len(classes) // F)[:, None]  # [F, O, B]
        self.scores: Array = np.sqrt(_dots(classes, classes))
        sign = np.where(self.true, -1, 1).astype(classes.dtype)
        bound = np.where(self.true, network.upper, -network.lower)
        excess = (_by_replica(self.scores, F) * sign + bound).clip(min=0)
        weighted = excess * np.where(self.true, 1, network.absent_weight)
        if options.class_weight is not None or options.graph_weight is not None:
            ones = torch.ones(y.shape, dtype=network.weights[0].dtype)
            weights = weight_graphs(ones, y, options.class_weight, options.graph_weight)
            weighted *= weights.numpy().reshape(F, 1, B)
        if batch.is_padded:
            weighted *= labels >= 0
        num_graphs = np.array(batch.num_graphs)
        self.loss: Array = (weighted * excess).reshape(F, -1).sum(1) / num_graphs
        self.slope: Array = (weighted * sign * (2 / num_graphs)[:, None, None]).reshape(self.scores.shape)

    def backward(self) -> Array:
        """The gradient in the class capsules."""
        lengths = np.where(self.scores == 0, 1, self.scores)  # where a length is 0, the capsule is too
        return self.classes * (self.slope / lengths)[..., None].astype(self.classes.dtype)


class _Decoder:
    """Reconstruction of the adjacency from primary capsules and the capsule of the class."""

    def __init__(
        self,
        parameters: tuple[tuple[Tensor, Tensor], ...],
        classes: Array,
        true: Array,
        nodes: Tensor,
        batch: FusedBatch,
    ) -> None:
        F, B = batch.sizes.shape
        self.batch, matrices = batch, batch.matrices
        self.true = true[..., None]
        self.weights = [weight for weight, _ in parameters]
        masked = (_by_replica(classes, F) * self.true).swapaxes(1, 2).reshape(F, B, -1)
        self.masked = torch.from_numpy(masked).unbind()
        codes = [
            torch.addmm(bias, one, weight)
            for one, (weight, bias) in zip(self.masked, parameters, strict=True)
        ]
        self.code = _join(codes).relu_()
        t = matrices.tiles.height
        self.Z = nodes.index_select(0, batch.to_tile).view(F * B, t, -1).add_(self.code.unsqueeze(1))
        self.S = torch.bmm(self.Z, self.Z.mT)
        # The sign is 0 on the diagonal and in holes, where the value becomes that of P = 0.
        P = self.S.clamp(RELEASED.low, RELEASED.high)
        value = torch.addcmul(matrices.absent, P, matrices.sign, value=-1)
        self.value = value.add_(matrices.pairs, alpha=RELEASED.epsilon)
        self.share: Array = 1 / np.maximum((batch.sizes**2).sum(1), 1)
        self.loss: Array = self.value.log().view(F, -1).sum(1).numpy() * -self.share

    def backward(self, weight: float | Array) -> tuple[Array, Array, list[Tensor]]:
        """Gradients of the loss times a weight in the rows of the primary capsules, in the class capsules
        ``[F·O, B, d]``, and in the parameters."""
        Z, (F, num_classes, B, _) = self.Z, self.true.shape
        g = torch.ops.aten.hardtanh_backward(
            self.batch.matrices.sign / self.value, self.S, *open_interval(RELEASED, Z.dtype)
        )
        for replica, scale in zip(_split(g, [B] * F), (2 * weight * self.share).tolist(), strict=True):
            replica.mul_(scale)
        dZ = torch.bmm(g, Z)
        dcode = torch.ops.aten.threshold_backward(dZ.sum(1), self.code, 0)
        rows = dZ.view(-1, Z.size(-1)).index_select(0, self.batch.to_row)
        codes = _split(dcode, [B] * F)
        dmasked = _join([code @ weight.mT for code, weight in zip(codes, self.weights, strict=True)])
        dclasses = dmasked.numpy().reshape(F, B, num_classes, -1).swapaxes(1, 2) * self.true
        dweight = _stack([masked.mT @ code for masked, code in zip(self.masked, codes, strict=True)])
        return (
            rows.numpy(),
            dclasses.reshape(F * num_classes, B, -1),
            [dweight, dcode.view(F, B, -1).sum(1)],
        )


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


def _squash_backward(z: Array, squashed: _Squashed, grad: Array, scale: float | Array = 1.0) -> Array:
    """The gradient in z times a number, or one number per row."""
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


def _by_replica(array: Array, F: int) -> Array:
    """A view of ``[F·M, …]`` as ``[F, M, …]``."""
    return array.reshape(F, -1, *array.shape[1:])


def _swap(x: Tensor, F: int) -> Tensor:
    """``[F·M, N, d]`` to ``[F·N, M, d]``: the transposes of all replicas; a view for one."""
    if F == 1:
        return x.transpose(0, 1)
    N, d = x.shape[1:]
    return x.view(F, -1, N, d).transpose(1, 2).reshape(F * N, -1, d)


def _split(rows: Tensor, counts: list[int]) -> Sequence[Tensor]:
    """The rows of each replica."""
    return (rows,) if len(counts) == 1 else rows.split(counts)


def _join(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all replicas in one tensor."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _stack(parts: Sequence[Tensor]) -> Tensor:
    """The gradient of a parameter from those of all replicas; of one replica without the leading axis."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts))


def _normalise(
    parts: Sequence[Tensor], norms: Sequence[Norm], training: bool, *, scaled: bool = True
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
    """torch's batch normalisation of the rows ``[N, C]`` of each replica, with γ and β or without: the results, and
    mean and 1 / σ."""
    results, statistics = [], []
    for x, norm in zip(parts, norms, strict=True):
        weight, bias = (norm.weight, norm.bias) if scaled else (None, None)
        hat, mean, rstd = torch.native_batch_norm(
            x, weight, bias, norm.mean, norm.var, training, norm.momentum, norm.epsilon
        )
        results.append(hat)
        statistics.append((mean, rstd))
    return results, statistics


def _normalise_backward(
    grads: Sequence[Tensor],
    parts: Sequence[Tensor],
    norms: Sequence[Norm],
    statistics: Sequence[tuple[Tensor, Tensor]],
) -> tuple[Sequence[Tensor], Tensor, Tensor]:
    """Gradients in the rows of each replica, in γ and in β."""
    results = [
        torch.ops.aten.native_batch_norm_backward(
            grad, x, norm.weight, None, None, mean, rstd, True, norm.epsilon, [True, True, True]
        )
        for grad, x, norm, (mean, rstd) in zip(grads, parts, norms, statistics, strict=True)
    ]
    dx, dscale, dshift = zip(*results, strict=True)
    return dx, _stack(dscale), _stack(dshift)
