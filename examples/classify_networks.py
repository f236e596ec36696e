"""Cross-validates the classifier with scikit-learn on two kinds of networkx graphs.

python examples/classify_networks.py
"""

from __future__ import annotations

import argparse
import random

import networkx as nx
from sklearn.model_selection import StratifiedKFold, cross_val_score

import graphcaps


def networks(number: int = 200, seed: int = 0) -> tuple[list[nx.Graph], list[str]]:
    """Equal numbers of networks with hubs (Barabási–Albert) and local networks (Watts–Strogatz), and their classes."""
    rng = random.Random(seed)
    graphs, kinds = [], []
    for index in range(number):
        size = rng.randint(20, 40)
        if index % 2:
            graphs.append(nx.barabasi_albert_graph(size, 2, seed=seed + index))
            kinds.append("hubs")
        else:
            graphs.append(nx.connected_watts_strogatz_graph(size, 4, 0.1, seed=seed + index))
            kinds.append("local")
    return graphs, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify networks with hubs and local networks.")
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    graphs, kinds = networks()
    model = graphcaps.HGCNClassifier(epochs=arguments.epochs, learning_rate=0.003, random_state=0)
    scores = cross_val_score(model, graphs, kinds, cv=StratifiedKFold(3, shuffle=True, random_state=0))
    print(f"held-out accuracy: {scores.mean():.1%} (folds: {scores.round(3)})")


if __name__ == "__main__":
    main()
