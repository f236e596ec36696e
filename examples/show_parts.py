"""Which parts a model finds in graphs whose parts are known: figures, pictures and a page to click through.

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
    given = parser.parse_args()
    store = graphcaps.load_dataset("planted-parts")
    train, test = store[:300], store[300:]
    model = graphcaps.HGCNClassifier(
        num_capsules=8, capsule_dim=64, dropout=0.0, learning_rate=0.003, epochs=given.epochs, random_state=0
    ).fit(train)
    print(f"right on {len(test)} graphs that did not train it: {model.score(test):.1%}")

    figures = evaluate_explanations(model.model_, test, methods=("capsules", "kmeans-features"))["methods"]
    for method, row in figures.items():
        print(f"agreement with the planted parts, {method}: {row['nmi']:.2f}")

    found = model.explain(test)
    page = write_report(given.out, model.model_, test, found, title="planted parts")
    found[0].draw(given.out / "parts.svg")
    found[0].draw(given.out / "flow.svg", kind="flow")
    print(f"written: {page}, parts.svg, flow.svg")


if __name__ == "__main__":
    main()
