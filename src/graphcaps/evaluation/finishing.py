"""What a trained model gets before it leaves: calibrated probabilities, and a profile of its graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.calibration import calibrate_shares
from graphcaps.evaluation.metrics import class_metrics
from graphcaps.fitted import FittedModel
from graphcaps.probability import CalibrationMethod, probabilities
from graphcaps.unlike import TrainingProfile

__all__ = ["balanced_weights", "finish", "start_from"]

_FIGURES = ("log_loss", "brier", "ece")


def finish(
    fitted: FittedModel, store: GraphStore, validation: Tensor, method: CalibrationMethod | None
) -> FittedModel:
    """The model with a profile of its graphs and, where there are validation graphs, a calibration by them.

    The validation graphs have also chosen the epoch, so that the figures of them that stand in ``training``
    are a little too good.

    Args:
        fitted (FittedModel): A model as it was trained.
        store (GraphStore): All its graphs, with classes.
        validation (Tensor): Graphs that it did not learn from.
        method (str, optional): As in :func:`graphcaps.evaluation.calibration.calibrate`; ``None`` leaves
            probabilities as they are.
    """
    fitted = replace(fitted, profile=TrainingProfile.of(store))
    if not validation.numel():
        return fitted
    assert store.y is not None
    shares = probabilities(fitted._scores(store[validation]), fitted.scores_are)
    y = store.y[validation].cpu().numpy()
    if not np.isfinite(shares).all():
        return fitted
    before = class_metrics(y, shares)
    after = before
    if method is not None:
        found = calibrate_shares(shares, y, method)
        after = class_metrics(y, found.apply(shares))
        figures: dict[str, Any] = {"before": before, "after": after}
        short = {when: {name: known[name] for name in _FIGURES} for when, known in figures.items()}
        fitted = replace(fitted, calibration=replace(found, figures=short))
    return replace(fitted, training=fitted.training | {"validation_metrics": after})


def start_from(whole: nn.Module, start: FittedModel, class_names: tuple[str, ...]) -> None:
    """Gives a model with one replica the weights of a trained one.

    Raises:
        ArgumentError: If the two differ in classes or sizes.
    """
    if class_names != start.class_names:
        got = f"{', '.join(class_names)}, not {', '.join(start.class_names)}"
        raise ArgumentError("train", "start", "have the classes of the graphs", got)
    own = {name: value.unsqueeze(0) for name, value in start.model.state_dict().items()}
    wanted = whole.state_dict()
    for name, value in wanted.items():
        if name not in own or own[name].shape != value.shape:
            raise ArgumentError("train", "start", "be a model of the same sizes", f"another '{name}'")
    whole.load_state_dict({name: own[name].to(value.device) for name, value in wanted.items()})


def balanced_weights(y: Tensor, num_classes: int) -> Tensor:
    """n / (O n_o): weights that give all O classes the same say, and a graph 1 on average, ``[O]``."""
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    return (y.numel() / (num_classes * counts.clamp_min(1))).float()
