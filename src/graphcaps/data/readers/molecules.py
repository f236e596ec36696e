"""Reads molecules written as SMILES, from a list or a table. Needs the extra ``chem``.

Each SMILES goes through these steps:

1. RDKit parses and sanitises it: valences are checked and aromatic rings are perceived, however they are written.
2. Explicit hydrogens are removed.
3. With ``fragments="largest"``, only the largest of several dot-separated fragments is kept.
4. Atoms are put in the order of the canonical SMILES, so that a molecule gives the same arrays however it is written.
5. A featurizer (:mod:`graphcaps.chemistry.featurizers`) gives the label columns of atoms and bonds.

RDKit runs in processes of its own, with a time and a memory limit for each molecule
(:mod:`graphcaps.chemistry.rdkit_pool`): a molecule that exceeds them is an invalid one, with the reason.

Charges, tautomers and isotopes stay as written. ``store.featurizer`` has the name of the featurizer, and
``store.truth["element"]`` the atomic number of each node, for drawings and messages; no model reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from graphcaps.chemistry.featurizers import DEFAULT_FEATURIZER, Featurizer, find_featurizer
from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.data.convert.graph_arrays import class_indices
from graphcaps.data.readers.graph_metadata import GraphMetadata, SkippedRow, StoreWithMetadata
from graphcaps.data.readers.parsed_molecules import PURPOSE, parse_molecules
from graphcaps.data.readers.row_rules import (
    DuplicatePolicy,
    FragmentPolicy,
    LabelledRows,
    RowIds,
    SetRows,
    UnlabelledPolicy,
    check_policy,
    describe_fragments,
    describe_parents,
    find_repeated,
    read_ids,
    read_labels,
    read_sets,
    select_duplicates,
)
from graphcaps.data.readers.text_tables import Table, open_table
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "MoleculeSet",
    "from_smiles",
    "molecule_smiles",
    "read_molecule_table",
    "read_smiles",
]

_MAX_SHOWN = 80  # characters of a SMILES in a message


@dataclass(frozen=True)
class MoleculeSet:
    """Molecules as a store, and the skipped inputs.

    Args:
        store (GraphStore): One graph per valid SMILES; ``store.smiles`` has the canonical SMILES of each.
        row_indices (tuple): Index of each graph in the input, from 0.
        skipped (tuple): Invalid inputs, with line and reason.
        fragmented (int): Number of molecules that are written with several fragments.
        unreadable (dict): Reason for each graph without nodes that stands for an invalid input, with ``bad="keep"``.
        from_cache (bool): Whether the parsed molecules came from the cache.
    """

    store: GraphStore
    row_indices: tuple[int, ...]
    skipped: tuple[SkippedRow, ...]
    fragmented: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    from_cache: bool = False

    def row_notes(
        self, labels: Sequence[str] | None = None, duplicates: DuplicatePolicy = "keep"
    ) -> tuple[str, ...]:
        """Sentences on molecules of several fragments and on repeated molecules.

        Args:
            labels (sequence, optional): Label of each molecule.
            duplicates (str): What was done with repeated molecules. (default: ``"keep"``)
        """
        fragments, smiles = self.store.fragments or "all", self.store.smiles or ()
        notes = (
            describe_fragments(self.fragmented, len(smiles), fragments),
            describe_parents(smiles, labels) if fragments == "all" else "",
            find_repeated(smiles, labels).describe(duplicates),
        )
        return tuple(filter(None, notes))


def from_smiles(smiles: Sequence[str], y: Sequence[int | str] | None = None, **options: Any) -> GraphStore:
    """Converts a list of SMILES to a store.

    Args:
        smiles (sequence): One SMILES per molecule.
        y (sequence, optional): Class of each molecule.
        options: Further arguments of :func:`read_smiles`.

    Example:
        ``store = from_smiles(["CCO", "c1ccccc1"], ["no", "yes"])``
    """
    return read_smiles(smiles, y, **options).store


def read_smiles(
    smiles: Sequence[str],
    y: Sequence[int | str] | None = None,
    *,
    featurizer: str = DEFAULT_FEATURIZER,
    fragments: FragmentPolicy = "all",
    bad: Literal["refuse", "skip", "keep"] = "refuse",
    class_names: Sequence[str] | None = None,
    name: str = "molecules",
    where: str = "SMILES",
    lines: Sequence[int] | None = None,
    cache: bool = False,
) -> MoleculeSet:
    """Converts a list of SMILES to a store, and lists the skipped inputs.

    Args:
        smiles (sequence): One SMILES per molecule.
        y (sequence, optional): Class of each molecule, text or whole numbers.
        featurizer (str): Name of the featurizer of atoms and bonds, a key of
            :data:`graphcaps.chemistry.featurizers.FEATURIZERS`. (default: ``"standard"``)
        fragments (str): ``"largest"`` keeps the fragment with the most heavy atoms (a salt loses its counter-ion; in a
            tie, the first in order of canonical SMILES), ``"all"`` keeps every fragment. (default: ``"all"``)
        bad (str): ``"refuse"`` raises at the first invalid SMILES, ``"skip"`` leaves it out and lists it in
            ``skipped``, ``"keep"`` puts a graph without nodes in its place and gives the reason in ``unreadable``.
            (default: ``"refuse"``)
        class_names (sequence, optional): Names of the classes, if they are fixed in advance.
        name (str): Name of the store.
        where (str): Name of the source in messages. (default: ``"SMILES"``)
        lines (sequence, optional): Line of each SMILES in its file. (default: 1, 2, …)
        cache (bool): Whether the parsed molecules of a long list are kept in the cache. (default: ``False``)

    Raises:
        DataError: At an invalid SMILES, with its line, the text and the reason.
        MissingExtraError: If RDKit is not installed.
    """
    columns = _check_arguments(smiles, y, featurizer, fragments, bad)
    parsed = parse_molecules(smiles, columns, fragments, name=name, cache=cache)
    problems = parsed.problems
    if bad == "refuse" and problems:
        index = min(problems)
        more = (
            f" ({len(problems):,} of {len(smiles):,} rows hold no valid molecule)"
            if len(problems) > 1
            else ""
        )
        found = f"{_shortened(smiles[index])}: {problems[index]}{more}"
        fix = "Correct the row, or skip such rows with bad='skip'."
        raise DataError(where, "a molecule in SMILES", found, line=_line(index, lines), fix=fix)
    skipped: tuple[SkippedRow, ...] = ()
    unreadable: dict[int, str] = {}
    store, row_indices = parsed.store, [index for index in range(len(smiles)) if index not in problems]
    if bad == "skip":
        skipped = tuple(
            SkippedRow(_line(index, lines), "" if smiles[index] is None else str(smiles[index]), problem)
            for index, problem in problems.items()
        )
    elif problems:
        store, row_indices = parsed.with_empty_graphs(), list(range(len(smiles)))
        for index, problem in problems.items():
            place = "" if lines is None else f"line {lines[index]}: "
            unreadable[index] = f"{place}{_shortened(smiles[index])} is no valid SMILES, {problem}"
    if not row_indices:
        first = f" (line {skipped[0].line}: {skipped[0].reason})" if skipped else ""
        raise DataError(where, "at least one molecule in SMILES", f"none{first}")
    labels = [None if y is None else y[row] for row in row_indices]
    classes, names = class_indices("from_smiles", labels, class_names)
    store = replace(store, y=classes, class_names=names)
    return MoleculeSet(store, tuple(row_indices), skipped, parsed.fragmented, unreadable, parsed.from_cache)


def _line(index: int, lines: Sequence[int] | None) -> int:
    return index + 1 if lines is None else lines[index]


def molecule_smiles(molecules: Sequence[Any]) -> list[str]:
    """The SMILES of RDKit molecules, so that they take the same steps as text; "" for one that cannot be written."""
    binaries = []
    for molecule in molecules:
        try:
            binaries.append(base64.b64encode(molecule.ToBinary()).decode())
        except Exception:  # an edited molecule that was not sanitised; RDKit raises several types
            binaries.append("")
    answers = call_rdkit("smiles", binaries, purpose=PURPOSE)
    return ["" if answer.problem else answer.texts[0] for answer in answers]


def read_molecule_table(
    path: str | Path | Table,
    smiles: str = "smiles",
    label: str | None = None,
    split: str | None = None,
    id: str | None = None,
    *,
    featurizer: str = DEFAULT_FEATURIZER,
    fragments: FragmentPolicy = "all",
    bad: str = "refuse",
    unlabelled: UnlabelledPolicy | None = None,
    duplicates: DuplicatePolicy = "keep",
    class_names: Sequence[str] | None = None,
    cache: bool = False,
) -> StoreWithMetadata:
    """Reads molecules from a CSV or Parquet file with a column of SMILES.

    Args:
        path (str, Path or Table): The file, or the result of :func:`graphcaps.data.readers.text_tables.open_table`.
        smiles (str): Column with the SMILES. (default: ``"smiles"``)
        label (str, optional): Column with the class, text or numbers. Without it there are no classes.
        split (str, optional): Column with the name of the set of each row, see
            :func:`graphcaps.data.splits.folds.split_from_names`; ``bad="skip"`` leaves rows without one out.
        id (str, optional): Column with a name for each row; a row without one is named by its line, such as
            ``"line 7"``. (default: the column ``id`` if its entries are complete and distinct, otherwise the line of
            the row)
        featurizer, fragments, bad, class_names, cache: As in :func:`read_smiles`; ``bad`` also decides on rows without
            a label.
        unlabelled (str, optional): Rows without a label: ``"refuse"`` raises, ``"skip"`` leaves them out, ``"keep"``
            reads them; the store then has no classes if a label is missing, and ``metadata.classes`` has the others.
            (default: ``bad``)
        duplicates (str): Rows with the same molecule: ``"keep"`` keeps all, ``"drop-contradicting"`` leaves out those
            of molecules with different labels, ``"first"`` keeps the first row of each molecule. (default: ``"keep"``)

    Raises:
        DataError: If a column is missing, or at the first row without a valid molecule or without a class.
    """
    table = path if isinstance(path, Table) else open_table(path)
    check_policy("load_dataset", "duplicates", duplicates, DuplicatePolicy)
    texts = table.column(smiles)
    policy = unlabelled or ("skip" if bad == "skip" else "refuse")
    labels = None if label is None else read_labels(table, label, policy)
    sets = None if split is None else read_sets(table, split, policy)
    if sets is not None and labels is not None:
        labels = labels.without(sets.skipped)
    selected = [
        row
        for row in (range(len(texts)) if labels is None else labels.rows)
        if sets is None or row not in sets.skipped
    ]
    ids = read_ids(table, id)
    molecules = read_smiles(
        [texts[row] for row in selected],
        labels.names if labels is not None and labels.is_complete else None,
        featurizer=featurizer,
        fragments=fragments,
        bad=bad,  # type: ignore[arg-type]
        class_names=class_names,
        name=Path(table.where).stem,
        where=table.where,
        lines=[table.lines[row] for row in selected],
        cache=cache,
    )
    read = _select_rows(table, texts, selected, labels, molecules, duplicates, ids, sets)
    if not ids.note:
        return read
    return replace(read, metadata=replace(read.metadata, notes=(ids.note, *read.metadata.notes)))


def _select_rows(
    table: Table,
    texts: Sequence[str],
    selected: Sequence[int],
    labels: LabelledRows | None,
    molecules: MoleculeSet,
    duplicates: DuplicatePolicy,
    ids: RowIds,
    sets: SetRows | None,
) -> StoreWithMetadata:
    """Applies the rule for repeated molecules, and lists the rows that were left out for any reason.

    Rows are numbered in the table (``rows``), among the rows to read (``selected``, ``labels``), and among the valid
    molecules (``kept``).
    """
    classes = None if labels is None else [labels.names[index] for index in molecules.row_indices]
    kept = select_duplicates(molecules.store.smiles or (), classes, duplicates)
    if not kept:
        fix = "Leave out duplicates='drop-contradicting'."
        raise DataError(table.where, "a molecule without contradicting labels", "none", fix=fix)
    store = molecules.store if len(kept) == len(molecules.store) else _without_rows(molecules.store, kept)
    rows = tuple(selected[molecules.row_indices[index]] for index in kept)
    left_out = sorted(set(range(len(texts))) - set(rows))
    without_set = () if sets is None else tuple(sets.skipped.values())
    without_label = () if labels is None else labels.skipped
    reported = {row.line: row for row in (*molecules.skipped, *without_set, *without_label)}
    skipped = []
    for row in left_out:
        repeated = SkippedRow(table.lines[row], texts[row], "its molecule is in another row", "duplicate")
        skipped.append(reported.get(table.lines[row], repeated))
    metadata = GraphMetadata(
        ids=tuple(ids.names[row] for row in rows),
        split=None if sets is None else tuple(sets.names[row] for row in rows),
        skipped=tuple(skipped),
        has_names=ids.from_column,
        row_indices=rows if left_out else None,
        skipped_ids=tuple(ids.names[row] for row in left_out),
        row_notes=() if molecules.unreadable else molecules.row_notes(classes, duplicates),
        unreadable={
            position: molecules.unreadable[index]
            for position, index in enumerate(kept)
            if index in molecules.unreadable
        },
        contradicting=_contradicting(molecules.store, kept) if duplicates == "drop-contradicting" else None,
        classes=None
        if classes is None or labels is None or labels.is_complete
        else tuple(classes[index] for index in kept),
    )
    return StoreWithMetadata(store, metadata, molecules.from_cache)


def _contradicting(store: GraphStore, kept: Sequence[int]) -> GraphStore | None:
    """The graphs of a store that are not kept, without classes; ``None`` if all are."""
    dropped = sorted(set(range(len(store))) - set(kept))
    return replace(store[dropped], y=None, class_names=()) if dropped else None


def _without_rows(store: GraphStore, kept: Sequence[int]) -> GraphStore:
    """The graphs ``kept`` of a store, with the classes that they have."""
    selected = store[kept]
    if selected.y is None:
        return selected
    classes, y = selected.y.unique(return_inverse=True)
    return replace(selected, y=y, class_names=tuple(store.class_names[index] for index in classes.tolist()))


def _check_arguments(
    smiles: Sequence[str], y: Sequence[Any] | None, featurizer: str, fragments: str, bad: str
) -> Featurizer:
    owner = "from_smiles"
    if isinstance(smiles, str):
        raise ArgumentError(owner, "smiles", "be a list of texts", "one text", "Put it in a list.")
    if y is not None and len(y) != len(smiles):
        raise ArgumentError(owner, "y", f"have one class per molecule, {len(smiles)}", len(y))
    choices = {
        "fragments": (fragments, ("all", "largest")),
        "bad": (bad, ("refuse", "skip", "keep")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise ArgumentError(owner, name, f"be {' or '.join(map(repr, allowed))}", repr(value))
    return find_featurizer(featurizer, owner)


def _shortened(text: object) -> str:
    shown = str(text)
    return repr(shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "…")
