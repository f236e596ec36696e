"""Trains HGCN in a loop of one's own, with torch-geometric's data loader, and explains one graph.

python examples/own_training_loop.py --out loop.safetensors
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import networkx as nx
import torch
from torch import nn
from torch_geometric.loader import DataLoader

import graphcaps
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data import FeatureRecipe, GraphStore, from_networkx, to_pyg
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn import HGCN

OPTIONS = {"capsule_dim": 32, "num_capsules": (6,), "dropout": 0.1}


def make_store(number: int = 200, seed: int = 0) -> GraphStore:
    """Networks with hubs (Barabási–Albert) and local ones (Watts–Strogatz)."""
    draw = random.Random(seed)
    graphs = []
    for index in range(number):
        size, kind = draw.randint(20, 40), ("hubs", "local")[index % 2]
        graph = (
            nx.barabasi_albert_graph(size, 2, seed=index)
            if kind == "hubs"
            else nx.connected_watts_strogatz_graph(size, 4, 0.1, seed=index)
        )
        graph.graph["y"] = kind
        graphs.append(graph)
    return from_networkx(graphs)


def train_epoch(model: HGCN, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """One pass over the graphs; gives the mean loss."""
    model.train()
    total = 0.0
    for batch in loader:
        optimizer.zero_grad()
        # With y the output has the reconstruction loss of the true class.
        output = model(batch.x, batch.edge_index, batch.batch, y=batch.y)
        loss = model.loss(output, batch.y).total
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += float(loss.detach()) * batch.num_graphs
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy(model: HGCN, loader: DataLoader) -> float:
    """Share of graphs whose longest class capsule is that of their class."""
    model.eval()
    correct = 0
    for batch in loader:
        scores = model(batch.x, batch.edge_index, batch.batch).class_scores  # [B, classes]
        correct += int((scores.argmax(-1) == batch.y).sum())
    return correct / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train HGCN in an own loop.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("loop.safetensors"))
    arguments = parser.parse_args()
    torch.manual_seed(0)

    store = make_store()
    order = torch.randperm(len(store))
    train, validation, test = (store[part.sort().values] for part in order.split([120, 40, 40]))
    recipe = FeatureRecipe(degree_onehot=20, propagation=2).fit(train)
    loaders = {
        name: DataLoader(to_pyg(graphs, recipe=recipe), batch_size=16, shuffle=name == "train")
        for name, graphs in (("train", train), ("validation", validation), ("test", test))
    }

    model = HGCN(recipe.num_columns, store.num_classes, **OPTIONS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    best, state = -1.0, model.state_dict()
    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(model, loaders["train"], optimizer)
        found = accuracy(model, loaders["validation"])
        if found >= best:  # of equal epochs the last, which is trained longest
            best, state = found, {name: value.clone() for name, value in model.state_dict().items()}
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, validation accuracy {found:.1%}")
    model.load_state_dict(state)
    print(f"test accuracy: {accuracy(model, loaders['test']):.1%}")

    config = RunConfig(
        dataset="networks",
        model_arguments=dict(OPTIONS),
        features=FeatureConfig(degree_onehot=20, propagation=2),
        training=TrainConfig(epochs=arguments.epochs, batch_size=16, learning_rate=0.003),
        source="own loop",
    )
    fitted = FittedModel(model, config, recipe, store.class_names)
    fitted.save(arguments.out)
    again = graphcaps.load(arguments.out)
    explanation = again.explain(test[0])
    strongest = int(explanation.node_scores.argmax())
    print(f"{again.predict(test[0])[0]}: node {strongest} contributes most")


if __name__ == "__main__":
    main()
