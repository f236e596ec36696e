"""Weights of graphs in the losses of a training (scikit-learn's ``sample_weight``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["batch_weights", "check_sample_weight", "normalise_weights"]


def check_sample_weight(
    owner: str, sample_weight: Sequence[float] | np.ndarray | Tensor | None, num_graphs: int
) -> Tensor | None:
    """The weights of the graphs of a store as float64 ``[G]``; ``None`` if all graphs have the same weight.

    Args:
        owner (str): Owner that messages name.
        sample_weight (array, optional): Weight of each graph.
        num_graphs (int): Number of graphs G.

    Raises:
        ShapeError: If there is not one weight per graph.
        ArgumentError: If a weight is not a positive, finite number.
    """
    if sample_weight is None:
        return None
    values = sample_weight.cpu().numpy() if isinstance(sample_weight, Tensor) else np.asarray(sample_weight)
    if values.shape != (num_graphs,):
        expected = f"have one weight per graph, [{num_graphs}]"
        raise ShapeError(owner, "sample_weight", expected, list(values.shape))
    if values.dtype.kind not in "biuf":
        raise ArgumentError(owner, "sample_weight", "hold numbers", str(values.dtype))
    values = values.astype(np.float64)
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if len(wrong):
        fix = "Leave out graphs that should not count."
        raise ArgumentError(owner, "sample_weight", "hold positive, finite numbers", wrong[0].item(), fix)
    return None if (values == values[0]).all() else torch.from_numpy(values)


def normalise_weights(weight: Tensor, graphs: Sequence[Tensor]) -> Tensor:
    r"""Scales weights to a mean of 1 over the graphs of each replica.

    .. math:: w'_{fg} = n_f\, w_g \Big/ \sum_{h \in G_f} w_h

    The mean over :math:`G_f` of the weighted losses is then the weighted mean of the losses: integer weights give the
    loss of a set in which each graph is repeated as often, and a common factor of all weights has no effect.

    Args:
        weight (Tensor): Weight of each graph, ``[G]``.
        graphs (list): Indices of the graphs of each replica; may be empty.

    Returns:
        Tensor: float32 ``[F, G]``, on the host.
    """
    weight = weight.double()
    means = [weight[indices].mean() if indices.numel() else torch.ones(()) for indices in graphs]
    return (weight / torch.stack([mean.double() for mean in means]).unsqueeze(-1)).float()


def batch_weights(weights: Tensor, graphs: Tensor) -> Tensor:
    """The weights of the graphs of a batch, ``[F, B]``.

    Args:
        weights (Tensor): Result of :func:`normalise_weights`, on the device of the batch, ``[F, G]``.
        graphs (Tensor): Indices of the graphs, −1 for padding, ``[F, B]``.
    """
    return weights.gather(-1, graphs.clamp_min(0).long().to(weights.device))
