"""Scores of every graph by a model that did not learn from it: what calibration is measured on.

Records keep how many graphs of a fold were right at each epoch. Here the weights of the epoch that counts are
kept instead, fold by fold, and asked for the scores of each graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import WINDOW, PatienceTracker
from graphcaps.training.replicas import TRUNK_KEY, Replica, pick_replica, stack_replicas
from graphcaps.training.streaming import move_to_device
from graphcaps.training.trainer import EpochEnd, Trainer

__all__ = ["BestReplicas", "HeldOutScores", "held_out_scores"]


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """What ten models, or as many as there are folds, say about graphs that they did not learn from.

    Args:
        scores (ndarray): Of each graph, by the model of the fold in which it is tested, ``[G, O]``.
        validation_scores (ndarray): By the model of the fold in which it chooses the epoch, ``[G, O]``.
        y (ndarray): Index of each graph's class, ``[G]``.
        fold, validation_fold (ndarray): Those folds, ``[G]``.
        epochs (ndarray): Epoch kept in each fold, counted from 1, ``[F]``.
        scores_are (str): ``"lengths"`` or ``"logits"``.
    """

    scores: np.ndarray
    validation_scores: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    validation_fold: np.ndarray
    epochs: np.ndarray
    scores_are: str


class BestReplicas:
    """The weights of the epoch that counts, of each replica of one training.

    The rule is that of :class:`graphcaps.training.early_stopping.BestWeights`, replica by replica.

    Args:
        model (Module): Leading axis F; without a trunk.
        epochs (int): Length of the training.
        patience (int, optional): Epochs without progress after which a replica is done.
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

    def see(self, model: nn.Module, event: EpochEnd) -> None:
        """Looks at the epoch that just ended; a replica whose patience has run out keeps what it has."""
        self._recent = [*self._recent, event.validation_loss][-WINDOW:]
        if event.epoch < self.first:
            return
        loss = np.mean(self._recent, axis=0)
        better = (loss < self.loss) & ~self._done
        if better.any():
            rows = torch.from_numpy(np.flatnonzero(better))
            for name, value in model.state_dict().items():
                chosen = rows.to(value.device)
                self.weights[name][chosen] = value.detach()[chosen]
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
    """Trains a model per fold, all together, and scores the graphs that each did not learn from.

    Folds are those of :func:`graphcaps.cross_validate`: a model learns from all folds but two, chooses its epoch
    on one and is tested on the other.

    Args:
        store (GraphStore): Graphs with classes.
        config (RunConfig): Model, input columns and training.
        folds (int): Number of folds. (default: 10)
        seed (int): Of weights, order and dropout. (default: 0)
        patience (int, optional): As in :class:`BestReplicas`.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        on_epoch (callable, optional): Is handed every event.
    """
    if store.y is None:
        raise ArgumentError("held_out_scores", "store", "have a class for every graph", "none")
    config = resolve_config(config, store)
    where = choose_device(device, "held_out_scores")
    split = stratified_folds(store.y, folds, FOLDS_SEED, class_names=store.class_names)
    parts = [split.held_out(fold) for fold in range(folds)]
    replicas = [
        Replica(part.train, _known(part.validation), part.test, seed=seed, fold=fold)
        for fold, part in enumerate(parts)
    ]
    recipe = FeatureRecipe(**recipe_arguments(config.features))  # type: ignore[arg-type]
    ready = encode_graphs(store, recipe, max_nodes=config.features.max_nodes)
    make = model_factory(config, ready.x.size(-1), store.num_classes)
    model = stack_replicas(make, replicas).to(where)
    trainer = Trainer(model, *move_to_device(ready.store, ready.x, where), replicas, config.training)
    best = BestReplicas(model, config.training.epochs, patience)
    for event in trainer.run():
        best.see(model, event)
        if on_epoch is not None:
            on_epoch(event)
        if best.done:
            break
    model.load_state_dict(best.weights)
    found: dict[str, Any] = {}
    for name in ("test", "validation"):
        scores = np.full((len(store), store.num_classes), np.nan)
        of_fold = np.zeros(len(store), dtype=np.int64)
        for fold, part in enumerate(parts):
            graphs = _known(getattr(part, name))
            single = pick_replica(model, make, fold)
            fitted = FittedModel(single, config, ready.recipe, store.class_names).to(where)
            scores[graphs.numpy()] = fitted._scores(store[graphs]).double().numpy()
            of_fold[graphs.numpy()] = fold
        found[name] = scores, of_fold
    are = str(getattr(model, "scores_are", "logits"))
    (test, fold_of), (chosen, chose) = found["test"], found["validation"]
    return HeldOutScores(test, chosen, store.y.cpu().numpy(), fold_of, chose, best.epochs, are)


def _known(graphs: Tensor | None) -> Tensor:
    assert graphs is not None
    return graphs
