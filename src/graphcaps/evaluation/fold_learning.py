"""The warning that a model has hardly learned, for the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence

from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.ledger import Ledger
from graphcaps.training.learning_warning import learning_threshold, learning_warning

__all__ = ["fold_learning_warning"]


def fold_learning_warning(
    ledger: Ledger, validations: Sequence[CrossValidation], model: str = "the model"
) -> str:
    """The warning of ``train``, for the mean training accuracy of all folds and seeds in their last epoch; else "".

    It is compared with the largest class of the training parts. A network's training accuracy is measured with dropout:
    there is no warning if the accuracy on validation graphs, without dropout, is above their threshold.

    Args:
        ledger (Ledger): The results.
        validations (sequence): The cross-validation of each division into folds.
        model (str): Name of the model in the sentence. (default: "the model")
    """
    y = validations[0].store.y
    assert y is not None
    training, held_out, shares = [], [], []
    for record in ledger.records:
        validation = validations[record.key.division]
        curves, last = record.curves, record.curves.fold_epochs - 1
        training += [float(fold[epoch]) for fold, epoch in zip(curves.train_accuracy, last, strict=True)]
        held_out += [float(fold[epoch]) for fold, epoch in zip(curves.validation_accuracy, last, strict=True)]
        part_of = validation.folds.held_out if record.key.protocol == "held-out" else validation.folds.paper
        counts = [y[part_of(fold).train.to(y.device)].bincount() for fold in range(curves.num_folds)]
        shares += [float(count.max() / count.sum()) for count in counts]
    curves, largest = ledger.records[0].curves, sum(shares) / len(shares)
    subject, accuracy = f"{ledger.dataset}: {model} has", sum(training) / len(training)
    graphs, judges = round(float(curves.train_graphs.mean())), int(curves.validation_graphs.sum())
    if validations[0].is_classical:
        return learning_warning(subject, accuracy, largest, graphs)
    if judges and sum(held_out) / len(held_out) > learning_threshold(largest, judges):
        return ""
    advice = "Train longer (--epochs)."
    return learning_warning(subject, accuracy, largest, graphs, advice, measured="with dropout")
