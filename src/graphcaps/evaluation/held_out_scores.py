"""Held-out class scores of every graph, for measuring calibration.

Records hold only the number of correct predictions per fold and epoch. Here the weights of each fold's selected
epoch are kept, and every graph is scored by models that were not trained on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.cross_validation import FOLDS_SEED
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import class_prior, prior_scores
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.registry import ScoreKind
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import WINDOW, PatienceTracker
from graphcaps.training.replicas import TRUNK_KEY, Replica, pick_replica, stack_replicas
from graphcaps.training.streaming import move_to_device
from graphcaps.training.trainer import EpochEnd, Trainer

__all__ = ["BestReplicaWeights", "HeldOutScores", "held_out_scores"]


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


class BestReplicaWeights:
    """Keeps each replica's weights at its epoch of lowest smoothed validation loss.

    The rule is that of :class:`graphcaps.training.early_stopping.BestWeights`, applied to each replica.

    Args:
        model (Module): Leading axis F; without a trunk.
        epochs (int): Length of the training.
        patience (int, optional): Epochs without progress after which a replica stops changing.
    """

    def __init__(self, model: nn.Module, epochs: int, patience: int | None = None) -> None:
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if any(TRUNK_KEY in name for name in self.weights):
            raise ArgumentError("held_out_scores", "config", "name a model without a trunk", "one with")
        self.first, self.patience = min(WINDOW, epochs), patience
        num_replicas = len(next(iter(self.weights.values())))
        self.loss = np.full(num_replicas, np.inf)
        self.epochs = np.zeros(num_replicas, dtype=np.int64)
        self._recent: list[list[float]] = []
        self._progress = PatienceTracker((num_replicas,))
        self._done = np.zeros(num_replicas, dtype=bool)

    def update(self, model: nn.Module, event: EpochEnd) -> None:
        """Takes the epoch that just ended; a replica whose patience has run out keeps its weights."""
        self._recent = [*self._recent, event.validation_loss][-WINDOW:]
        if event.epoch < self.first:
            return
        loss = np.mean(self._recent, axis=0)
        better = (loss < self.loss) & ~self._done
        if better.any():
            rows = torch.from_numpy(np.flatnonzero(better))
            for name, value in model.state_dict().items():
                indices = rows.to(value.device)
                self.weights[name][indices] = value.detach()[indices]
            self.loss, self.epochs = (
                np.where(better, loss, self.loss),
                np.where(better, event.epoch, self.epochs),
            )
        self._progress.update(event.epoch, loss)
        if self.patience is not None:
            self._done |= self._progress.exhausted(event.epoch, self.patience)

    @property
    def done(self) -> bool:
        """Whether the patience of all replicas has run out."""
        return bool(self._done.all())


def held_out_scores(
    store: GraphStore,
    config: RunConfig,
    *,
    folds: int = 10,
    seed: int = 0,
    patience: int | None = None,
    device: str = "auto",
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
        patience (int, optional): See :class:`BestReplicaWeights`.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        on_epoch (callable, optional): Called with the event of every epoch.
    """
    if store.y is None:
        raise ArgumentError("held_out_scores", "store", "have a class for every graph", "none")
    config = resolve_config(config, store)
    torch_device = choose_device(device, "held_out_scores")
    stratified = stratified_folds(store.y, folds, FOLDS_SEED, class_names=store.class_names)
    splits = [stratified.held_out(fold) for fold in range(folds)]
    replicas = [
        Replica(split.train, _indices(split.validation), split.test, seed=seed, fold=fold)
        for fold, split in enumerate(splits)
    ]
    recipe = FeatureRecipe(**recipe_arguments(config.features))  # type: ignore[arg-type]
    encoded = encode_graphs(store, recipe, max_nodes=config.features.max_nodes)
    make = model_factory(config, encoded.x.size(-1), store.num_classes)
    model = stack_replicas(make, replicas).to(torch_device)
    trainer = Trainer(
        model, *move_to_device(encoded.store, encoded.x, torch_device), replicas, config.training
    )
    best = BestReplicaWeights(model, config.training.epochs, patience)
    for event in trainer.run():
        best.update(model, event)
        if on_epoch is not None:
            on_epoch(event)
        if best.done:
            break
    model.load_state_dict(best.weights)
    scores_of: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in ("test", "validation"):
        scores = np.full((len(store), store.num_classes), np.nan)
        fold_of = np.zeros(len(store), dtype=np.int64)
        for fold, split in enumerate(splits):
            graphs = _indices(getattr(split, name))
            single = pick_replica(model, make, fold)
            fitted = FittedModel(single, config, encoded.recipe, store.class_names).to(torch_device)
            part = store[graphs]
            rows = fitted.scores(part).double()
            prior = class_prior(store.y.cpu()[split.train], store.num_classes)
            rows[part.empty_graphs] = prior_scores(prior, fitted.score_kind)
            scores[graphs.numpy()] = rows.numpy()
            fold_of[graphs.numpy()] = fold
        scores_of[name] = scores, fold_of
    test_scores, test_fold = scores_of["test"]
    validation_scores, validation_fold = scores_of["validation"]
    return HeldOutScores(
        test_scores,
        validation_scores,
        store.y.cpu().numpy(),
        test_fold,
        validation_fold,
        best.epochs,
        model.scores,
    )


def _indices(graphs: Tensor | None) -> Tensor:
    assert graphs is not None
    return graphs
