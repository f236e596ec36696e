"""Held-out class scores of every graph, for measuring calibration.

Records hold only the number of correct predictions per fold and epoch. Here the weights of each fold's selected
epoch are kept, and every graph is scored by models that were not trained on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation.divisions import FOLDS_SEED
from graphcaps.evaluation.replica_groups import plan_groups, train_group
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import class_prior, prior_scores
from graphcaps.registry import ScoreKind
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import check_patience
from graphcaps.training.fingerprint import data_digest
from graphcaps.training.holdout import check_nodes
from graphcaps.training.memory import explain_out_of_memory
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import replica_model
from graphcaps.training.training_inputs import prepare_inputs

__all__ = ["HeldOutScores", "held_out_scores"]


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Class scores of graphs by models that were not trained on them, one model per fold.

    Args:
        scores (ndarray): Scores of each graph by the model that has it in its test set, ``[G, O]``; of a graph without
            nodes those of the class prior of the training folds.
        validation_scores (ndarray): Scores by the model that has it in its validation set, ``[G, O]``.
        y (ndarray): Class index of each graph, ``[G]``.
        fold, validation_fold (ndarray): Fold of the model behind each row of the two scores, ``[G]``.
        epochs (ndarray): Selected epoch of each fold, counted from 1, ``[F]``.
        score_kind (str): ``"lengths"``, ``"logits"`` or ``"probabilities"``.
    """

    scores: np.ndarray
    validation_scores: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    validation_fold: np.ndarray
    epochs: np.ndarray
    score_kind: ScoreKind


def held_out_scores(
    store: GraphStore,
    config: RunConfig,
    *,
    folds: int = 10,
    seed: int = 0,
    patience: int | None = None,
    device: str = "auto",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    on_epoch: Callable[[EpochEnd], object] | None = None,
) -> HeldOutScores:
    """Trains one model per fold, all together, and scores the graphs that each was not trained on.

    The folds are those of :func:`graphcaps.cross_validate`: a model is trained on all folds but two, one of which
    is its validation set and the other its test set.

    Args:
        store (GraphStore): Graphs with class labels.
        config (RunConfig): Model, input features and training.
        folds (int): Number of folds. (default: 10)
        seed (int): Seed of weights, batch order and dropout. (default: 0)
        patience (int, optional): A model stops after this many epochs without a decrease of its validation loss by
            0.0005. (default: never)
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        checkpoint (str or Path, optional): Checkpoint file. It is written while the models are trained and after the
            last epoch, and stays.
        resume (bool): Continue from the checkpoint, if there is one. (default: ``False``)
        on_epoch (callable, optional): Called with the event of every epoch.

    Raises:
        ArgumentError: If an argument is invalid.
        DataError: If the checkpoint is damaged or belongs to another run, or exists and ``resume`` is not set.
    """
    owner = "held_out_scores"
    if store.y is None:
        raise ArgumentError(owner, "store", "have a class for every graph", "none")
    check_patience(owner, patience)
    path = None if checkpoint is None else Path(checkpoint)
    if resume and path is None:
        raise ArgumentError(owner, "resume", "come with a checkpoint file", "none")
    if path is not None and path.exists() and not resume:
        fix = "Pass resume=True to continue that run, or name another file."
        raise DataError(path, "the checkpoint file exists already", fix=fix)
    config = resolve_config(config, store)
    torch_device = choose_device(device, owner)
    stratified = stratified_folds(store.y, folds, FOLDS_SEED, class_names=store.class_names)
    (group,) = plan_groups(stratified, "held-out", [seed])
    for replica in group.replicas:
        check_nodes(store, replica.train, owner, "store")
    with explain_out_of_memory(config, torch_device):
        inputs = prepare_inputs(store, config, torch_device, owner=owner)
    best = train_group(
        group,
        inputs,
        config,
        patience=patience,
        data=data_digest(store),
        checkpoint=path,
        resume=resume,
        keep_end=True,
        keep_best=True,
        on_epoch=on_epoch,
    ).best
    assert best is not None
    shape = (len(store), store.num_classes)
    scores, validation_scores = np.full(shape, np.nan), np.full(shape, np.nan)
    fold_of, validation_fold = np.zeros(len(store), dtype=np.int64), np.zeros(len(store), dtype=np.int64)
    for f, replica in enumerate(group.replicas):
        model = replica_model(best.weights, inputs.factory, f)
        fitted = FittedModel(model, config, inputs.recipe, store.class_names).to(torch_device)
        prior = class_prior(store.y.cpu()[replica.train], store.num_classes)
        parts = ((replica.test, scores, fold_of), (replica.validation, validation_scores, validation_fold))
        for graphs, table, numbers in parts:
            part = store[graphs]
            rows = fitted.scores(part).double()
            rows[part.empty_graphs] = prior_scores(prior, fitted.score_kind)
            table[graphs.numpy()] = rows.numpy()
            numbers[graphs.numpy()] = replica.fold
    return HeldOutScores(
        scores,
        validation_scores,
        store.y.cpu().numpy(),
        fold_of,
        validation_fold,
        best.epochs,
        model.scores,
    )
