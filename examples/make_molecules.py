"""Writes examples/molecules.csv: 500 small molecules, each an alcohol or an ether.

    python examples/make_molecules.py

Both are made of the same pieces around one oxygen: in an ether it joins two carbons (C–O–C), in an alcohol it ends a
branch (C–O–H). The forms come in pairs with the same atoms and as many rings, so that counting atoms does not help:
the class is how they are joined. RDKit checks every molecule and its class. Needs the extra chem.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

from rdkit import Chem

# Pieces that bind by their last atom, and pieces that bind by their first. No two differ in their bonds alone: the
# published model does not see bonds, and such molecules would be copies of each other.
LEFT = [
    *("C", "CC", "CCC", "CCCC", "CC(C)C", "CC(C)(C)C", "C1CCCC1", "c1ccccc1", "Cc1ccccc1"),
    *("NCC", "ClCC", "BrCC", "FC(F)(F)C"),
]
RIGHT = [
    *("C", "CC", "CCC", "CCCC", "CC(C)C", "CC(C)(C)C", "C1CCCC1", "c1ccccc1", "c1ccc(C)cc1"),
    *("CCN", "CCCl", "CCBr", "CC(F)(F)F"),
]
FORMS = {
    "alcohol": ["{l}C(O){r}", "{l}CC(O){r}", "{l}C(O)C{r}"],
    "ether": ["{l}CO{r}", "{l}CCO{r}", "{l}OCC{r}"],
}
PATTERNS = {"alcohol": Chem.MolFromSmarts("[#6][OX2H]"), "ether": Chem.MolFromSmarts("[#6][OX2][#6]")}


def molecules(number: int = 500, seed: int = 0) -> list[tuple[str, str]]:
    """Different molecules as SMILES, each with its class; as many of one class as of the other."""
    draw, found = random.Random(seed), []
    for kind, forms in FORMS.items():
        texts = [form.format(l=left, r=right) for form in forms for left in LEFT for right in RIGHT]
        draw.shuffle(texts)
        different: dict[str, str] = {}
        for text in texts:
            molecule = Chem.MolFromSmiles(text)
            held = [name for name, pattern in PATTERNS.items() if molecule.HasSubstructMatch(pattern)]
            if held != [kind]:
                raise SystemExit(f"{text} was meant to be an {kind} and holds {held}.")
            different.setdefault(Chem.MolToSmiles(molecule), text)
        found += [(text, kind) for text in list(different.values())[: number // 2]]
    draw.shuffle(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Write 500 small molecules, each an alcohol or an ether.")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("molecules.csv"))
    path = parser.parse_args().out
    rows = molecules()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "smiles", "kind"])
        writer.writerows([f"M{number:03}", *row] for number, row in enumerate(rows, 1))
    print(f"{path}: {len(rows)} molecules")


if __name__ == "__main__":
    main()
