"""A program of several ranks for tests, started by ``python -m torch.distributed.run``; its argument is the case.

Ranks train with gloo in float64. The first writes its results to the folder that is the second argument.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import GraphcapsError
from graphcaps.models.builder import model_factory
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.training.final_training import FinalTraining
from graphcaps.training.graph_shards import divide_graphs
from graphcaps.training.ranks import Ranks, connect_ranks
from graphcaps.training.shared_store import share_store
from tests.small_models import HGCN_SMALL, labelled

MODELS: dict[str, dict[str, Any]] = {
    "hgcn": HGCN_SMALL | {"dropout": 0.3},
    "gin": {"hidden": 8, "num_layers": 2, "dropout": 0.3},
}
EPOCHS = 3


def run_config(model: str, epochs: int = EPOCHS) -> RunConfig:
    return RunConfig(
        dataset="labelled",
        model=model,
        model_arguments=MODELS[model],
        features=FeatureConfig(degree_onehot=4, propagation=1),
        # The last batch has one of 16 graphs: a rank has none of it.
        training=TrainConfig(epochs=epochs, batch_size=5, learning_rate=0.01),
    )


def make_trainer(model: str, ranks: Ranks | None) -> Trainer:
    """A float64 training with class weights, of one process or of one rank."""
    store, config = labelled(), run_config(model)
    recipe = FeatureRecipe.from_config(config.features).fit(store)
    factory = model_factory(config, recipe.num_columns, store.num_classes)
    train, validation = torch.arange(16), torch.arange(16, 23)
    replicas = [Replica(train, validation, torch.empty(0, dtype=torch.long))]
    shard = None
    if ranks is not None:
        store = share_store(ranks, labelled)
        shard = divide_graphs(store, [train, validation], ranks)
        store = store[shard.owned]
    encoded = encode_graphs(store, recipe, dtype=torch.float64)
    return Trainer(
        stack_replicas(factory, replicas, torch.float64),
        encoded.store,
        encoded.x,
        replicas,
        config.training,
        class_weight=torch.tensor([0.5, 2.0, 1.0]),
        shard=shard,
    )


def main(case: str, folder: Path) -> None:
    ranks = connect_ranks("cpu")
    assert ranks is not None
    if case == "train":
        for model in MODELS:
            trainer = make_trainer(model, ranks)
            events = list(trainer.run())
            held = ranks.gather((len(trainer.store), events[-1].validation_loss))
            assert len({str(loss) for _, loss in held}) == 1
            if ranks.is_first:
                torch.save(trainer.state(), folder / f"{model}.pt")
                summary = {"graphs": [count for count, _ in held], "loss": events[-1].train_loss}
                (folder / f"{model}.json").write_text(json.dumps(summary))
    elif case == "other graphs":
        store = labelled()
        FinalTraining(store if ranks.is_first else store[1:], run_config("gin"), device="cpu", ranks=ranks)
    elif case == "killed":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the first rank only after a while
        training = FinalTraining(labelled(), run_config("gin", 1000), device="cpu", ranks=ranks)
        for event in training.run():
            if event.epoch == 2 and not ranks.is_first:
                os._exit(9)
    ranks.close()


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except GraphcapsError as error:
        print(f"rank {os.environ['RANK']}: {error}", file=sys.stderr)
        sys.exit(2)
