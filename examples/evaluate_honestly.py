"""One model, one data set, and four figures for it: which of them to believe.

python examples/evaluate_honestly.py
"""

from __future__ import annotations

import argparse

import graphcaps
from graphcaps.presets import load_preset


def main() -> None:
    parser = argparse.ArgumentParser(description="Cross-validate HGCN on the embedded data set.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--level", default="planted-parts-medium", help="a level of the embedded data set")
    given = parser.parse_args()
    config = load_preset("planted-parts").with_training(epochs=given.epochs)
    ledger = graphcaps.cross_validate(graphcaps.load_dataset(given.level), config, protocol="both")
    print(ledger)
    print("To be expected of new graphs: held-out. The others were chosen on the test folds.")


if __name__ == "__main__":
    main()
