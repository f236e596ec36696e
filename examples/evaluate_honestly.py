"""Cross-validates HGCN and compares held-out accuracy with accuracies selected on the test folds.

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
    arguments = parser.parse_args()
    config = load_preset("planted-parts").with_training(epochs=arguments.epochs)
    ledger = graphcaps.cross_validate(graphcaps.load_dataset(arguments.level), config, protocol="both")
    print(ledger)
    print("Expect the held-out accuracy on new graphs; the others were selected on the test folds.")


if __name__ == "__main__":
    main()
