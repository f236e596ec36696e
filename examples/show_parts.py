"""Explains a model on graphs with known parts: agreement scores, drawings and an HTML report.

python examples/show_parts.py --out parts
"""

from __future__ import annotations

import argparse
from pathlib import Path

import graphcaps
from graphcaps.explanation import evaluate_explanations
from graphcaps.explanation.report import write_report


def main() -> None:
    parser = argparse.ArgumentParser(description="Explain a model of the embedded data set.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("parts"))
    arguments = parser.parse_args()
    store = graphcaps.load_dataset("planted-parts")
    train, test = store[:300], store[300:]
    model = graphcaps.HGCNClassifier(
        num_capsules=8,
        capsule_dim=64,
        dropout=0.0,
        learning_rate=0.003,
        epochs=arguments.epochs,
        random_state=0,
    ).fit(train)
    print(f"accuracy on {len(test)} held-out graphs: {model.score(test):.1%}")

    scores = evaluate_explanations(model.model_, test, methods=("capsules", "kmeans-features"))["methods"]
    for method, row in scores.items():
        print(f"agreement with the planted parts, {method}: {row['nmi']:.2f}")

    explanations = model.explain(test)
    page = write_report(arguments.out, model.model_, test, explanations, title="planted parts")
    explanations[0].draw(arguments.out / "parts.svg")
    explanations[0].draw(arguments.out / "flow.svg", kind="flow")
    print(f"written: {page}; parts.svg and flow.svg beside it")


if __name__ == "__main__":
    main()
