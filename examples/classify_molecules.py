"""Trains on a table of SMILES, predicts new molecules and explains one. Needs the extra chem.

python examples/classify_molecules.py --out molecules
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import graphcaps

TABLE = Path(__file__).with_name("molecules.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on a table of molecules, predict, and explain one.")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("molecules"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    store = graphcaps.load_dataset(TABLE, smiles="smiles", label="kind")
    train, test = store[:400], store[400:]
    model = graphcaps.HGCNClassifier(epochs=arguments.epochs, learning_rate=0.003, random_state=0).fit(train)
    print(f"accuracy on {len(test)} held-out molecules: {model.score(test):.1%}")
    model.save(arguments.out / "kinds.safetensors")

    new = ["CCCC(O)CC", "CCCOCC", "OC1CCCCC1", "COc1ccccc1"]
    with (arguments.out / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "kind", *(f"probability of {name}" for name in model.classes_)])
        writer.writerows(zip(new, model.predict(new), *model.predict_proba(new).T.round(3), strict=True))

    model.explain(new[1]).draw(arguments.out / "explained.svg")
    print(f"written: {arguments.out}/kinds.safetensors, predictions.csv, explained.svg")


if __name__ == "__main__":
    main()
