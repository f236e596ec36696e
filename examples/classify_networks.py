"""Networks of two kinds, made with networkx, told apart by a scikit-learn classifier.

python examples/classify_networks.py
"""

from __future__ import annotations

import argparse
import random

import networkx as nx
from sklearn.model_selection import StratifiedKFold, cross_val_score

import graphcaps


def networks(number: int = 120, seed: int = 0) -> tuple[list[nx.Graph], list[str]]:
    """As many networks with hubs as networks in which everybody knows their neighbours."""
    draw = random.Random(seed)
    made, kinds = [], []
    for place in range(number):
        size = draw.randint(20, 40)
        if place % 2:
            made.append(nx.barabasi_albert_graph(size, 2, seed=seed + place))
            kinds.append("hubs")
        else:
            made.append(nx.connected_watts_strogatz_graph(size, 4, 0.1, seed=seed + place))
            kinds.append("local")
    return made, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell networks with hubs from local ones.")
    parser.add_argument("--epochs", type=int, default=60)
    given = parser.parse_args()
    graphs, kinds = networks()
    model = graphcaps.HGCNClassifier(epochs=given.epochs, learning_rate=0.003, random_state=0)
    scores = cross_val_score(model, graphs, kinds, cv=StratifiedKFold(3, shuffle=True, random_state=0))
    print(f"right on networks that did not train it: {scores.mean():.1%} (folds: {scores.round(3)})")


if __name__ == "__main__":
    main()
