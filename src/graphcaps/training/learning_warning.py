"""The warning that a model has hardly learned, of ``train``, ``evaluate`` and ``HGCNClassifier.fit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcaps.training.single_training import SingleTraining

__all__ = ["LearningWarning", "learning_threshold", "learning_warning", "training_warning"]

_MIN_GAIN = 0.05  # training accuracy must exceed the share of the largest class by this much
_STANDARD_ERRORS = 2  # and by this many standard errors of that share


class LearningWarning(UserWarning):
    """Predicting the largest class would be about as accurate on the training graphs as the model."""


def learning_threshold(largest: float, graphs: int) -> float:
    r"""Training accuracy above which a model has learned.

    .. math:: m + \min\big(\max(0.05,\, 2 \sqrt{m (1 - m) / n}),\, (1 - m) / 2\big)

    with the share m of the largest class among n training graphs. Two standard errors are the gain that chance alone
    explains in few graphs. Half of the remaining share is always enough: with a largest class of 97 % no gain of 5 % is
    possible.

    Args:
        largest (float): Share of the largest class among the training graphs.
        graphs (int): Number of training graphs.
    """
    gain = max(_MIN_GAIN, _STANDARD_ERRORS * _standard_error(largest, graphs))
    return largest + min(gain, (1 - largest) / 2)


def learning_warning(
    subject: str, accuracy: float, largest: float, graphs: int, advice: str = "", *, measured: str = ""
) -> str:
    """A warning if predicting the largest class would be about as accurate on training graphs, else "".

    Args:
        subject (str): Whose training accuracy it is, at the start of a sentence, such as "The model has".
        accuracy (float): Training accuracy, from 0 to 1.
        largest (float): Share of the largest class among the training graphs.
        graphs (int): Number of training graphs.
        advice (str): What to do, a sentence. (default: none)
        measured (str): How the training accuracy was measured. (default: with the trained model)
    """
    threshold = learning_threshold(largest, graphs)
    if largest == 1 or accuracy > threshold:
        return ""
    error = 100 * _standard_error(largest, graphs)
    how = f" ({measured})" if measured else ""
    sentence = (
        f"{subject} hardly learned: its training accuracy{how} is {100 * accuracy:.1f} %, and the largest class has "
        f"{100 * largest:.1f} % of {graphs:,} graphs (standard error {error:.1f} %); a model that has learned is above "
        f"{100 * threshold:.1f} %."
    )
    return f"{sentence} {advice}" if advice else sentence


def training_warning(training: SingleTraining, info: Mapping[str, Any], *, epochs: str, patience: str) -> str:
    """A warning if predicting the largest class would be about as accurate as a trained model, else "".

    With weights of classes or graphs a model may be less accurate than that although it has learned, so there is no
    warning.

    Args:
        training (SingleTraining): The training.
        info (mapping): Its result, as ``FittedModel.training`` has it.
        epochs, patience (str): How the user trains for more epochs, and without early stopping.
    """
    if (
        "class_weight" in training.fingerprint
        or training.sample_weight is not None
        or training.source.y is None
    ):
        return ""
    counts = training.source.y.cpu()[training.holdout.train.cpu()].bincount()
    graphs, accuracy = int(counts.sum()), float(info["train_accuracy"])
    largest = float(counts.max()) / graphs
    stopped_early = info.get("epochs_run", info["epochs"]) < info["epochs"]
    advice = f"Train longer ({patience if stopped_early else epochs})." if training.has_epochs else ""
    return learning_warning("The model has", accuracy, largest, graphs, advice)


def _standard_error(share: float, graphs: int) -> float:
    return float((share * (1 - share) / graphs) ** 0.5)
