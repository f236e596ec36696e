"""Rules for the rows of a table of molecules: missing labels and sets, several fragments and repeated molecules.

===========================  ================================================================================
row                          rule
===========================  ================================================================================
without a label              refused with its line; ``bad="skip"`` leaves it out; a prediction needs no label
without a set (train, …)     the same; any other word in the split column is refused with its line
with several fragments       kept as it is, and counted; ``fragments="largest"`` keeps the largest fragment
with a molecule again        kept, and counted; ``duplicates`` leaves rows out (:data:`DuplicatePolicy`)
===========================  ================================================================================

Two rows have the same molecule if their canonical SMILES are equal, after the rule for fragments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from graphcaps.data.class_names import class_name, is_missing_label
from graphcaps.data.readers.graph_metadata import SkippedRow
from graphcaps.data.readers.text_tables import Table
from graphcaps.data.splits.folds import set_of
from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "DuplicatePolicy",
    "FragmentPolicy",
    "LabelledRows",
    "RepeatedMolecules",
    "RowIds",
    "SetRows",
    "UnlabelledPolicy",
    "check_policy",
    "describe_copies_across",
    "describe_copies_in_folds",
    "describe_fragments",
    "describe_parents",
    "find_repeated",
    "largest_fragment",
    "read_ids",
    "read_labels",
    "read_sets",
    "select_duplicates",
]

FragmentPolicy = Literal["all", "largest"]
"""Molecules of several fragments, such as salts: all fragments, or the one with the most heavy atoms."""
DuplicatePolicy = Literal["keep", "drop-contradicting", "first"]
"""Rows with the same molecule: all are kept; those of molecules with different labels are left out; or only the first
row of each molecule is kept."""
UnlabelledPolicy = Literal["refuse", "skip", "keep"]
"""Rows without a label: an error, left out, or read without a label, for prediction."""


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a table, by their labels.

    Args:
        rows (tuple): Indices of the rows to read, ascending.
        names (tuple): Class name of each of these rows; "" for a row without a label.
        skipped (tuple): Rows that are left out because they have no label.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...]
    skipped: tuple[SkippedRow, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every row to read has a label."""
        return all(self.names)

    def without(self, rows: Collection[int]) -> LabelledRows:
        """The same without some rows."""
        kept = [(row, name) for row, name in zip(self.rows, self.names, strict=True) if row not in rows]
        return replace(self, rows=tuple(row for row, _ in kept), names=tuple(name for _, name in kept))


@dataclass(frozen=True)
class SetRows:
    """Sets of the rows of a table, from its split column.

    Args:
        names (tuple): Entry of each row, as written.
        skipped (dict): Rows that are left out because they have none, by their index.
    """

    names: tuple[str, ...]
    skipped: dict[int, SkippedRow]


@dataclass(frozen=True)
class RepeatedMolecules:
    """Counts of molecules that are in more than one row.

    Args:
        molecules (int): Number of such molecules.
        further_rows (int): Number of their rows beyond the first of each.
        contradicting (int): Number of those molecules whose rows have different labels.
        contradicting_rows (int): Number of rows of these.
    """

    molecules: int = 0
    further_rows: int = 0
    contradicting: int = 0
    contradicting_rows: int = 0

    def describe(self, policy: DuplicatePolicy, *, has_options: bool = True) -> str:
        """A sentence on the molecules and what was done; "" if no molecule is repeated.

        Args:
            policy (str): What was done with them.
            has_options (bool): Whether the options that leave rows out are named. (default: ``True``)
        """
        if not self.molecules:
            return ""
        rows = f"{self.further_rows:,} further row{'' if self.further_rows == 1 else 's'}"
        one = self.molecules == 1
        start = f"{self.molecules:,} molecule{' is' if one else 's are'} in more than one row ({rows})"
        which = "" if one else f"{self.contradicting:,} of them "
        different = f", {which}with different labels" if self.contradicting else ""
        if policy == "first":
            return f"{start}{different}; the first row of each was kept."
        if policy == "drop-contradicting":
            left_out = f"the {self.contradicting_rows:,} rows of these were left out"
            return (
                f"{start}{different or ', none with different labels'}{'; ' + left_out if different else ''}."
            )
        if not has_options:
            return f"{start}{different}; all rows are kept."
        options = "--duplicates first keeps one row of each"
        if self.contradicting:
            options += ", --duplicates drop-contradicting leaves those out"
        return f"{start}{different}; all rows are kept. {options}."


def check_policy(owner: str, name: str, value: object, policies: object) -> None:
    """Rejects a value that is not one of the policies of a ``Literal``."""
    allowed = get_args(policies)
    if value not in allowed:
        raise ArgumentError(owner, name, f"be {' or '.join(map(repr, allowed))}", repr(value))


# ---------------------------------------------------------------------- labels
def read_labels(table: Table, column: str, policy: UnlabelledPolicy) -> LabelledRows:
    """Reads a column of class labels, and applies the rule for missing ones.

    Args:
        table (Table): The table.
        column (str): Name of the column.
        policy (str): ``"refuse"``, ``"skip"`` or ``"keep"``.

    Raises:
        DataError: If there is no such column; with ``"refuse"``, at the first row without a label; if no row has one.
    """
    entries = table.column(column)
    missing = [row for row, entry in enumerate(entries) if is_missing_label(entry)]
    if missing and policy == "refuse":
        entry, line = entries[missing[0]], table.lines[missing[0]]
        more = f" ({len(missing):,} such rows)" if len(missing) > 1 else ""
        found = (f"'{entry}'" if entry else "an empty entry") + more
        fix = "Add the label, or leave such rows out with bad='skip'."
        raise DataError(table.where, f"a label in column '{column}'", found, line=line, fix=fix)
    if len(missing) == len(entries) and policy == "skip":
        raise DataError(table.where, f"a label in column '{column}'", "none in any row")
    without = set(missing)
    rows = [row for row in range(len(entries)) if policy == "keep" or row not in without]
    names = ["" if row in without else class_name(entries[row]) for row in rows]
    reason = f"it has no label in column '{column}'"
    skipped = [
        SkippedRow(table.lines[row], entries[row], reason, "label") for row in missing if policy == "skip"
    ]
    return LabelledRows(tuple(rows), tuple(names), tuple(skipped))


# ---------------------------------------------------------------------- sets
def read_sets(table: Table, column: str, policy: UnlabelledPolicy) -> SetRows:
    """Reads a split column, and applies the rule for missing entries.

    Args:
        table (Table): The table.
        column (str): Name of the column.
        policy (str): ``"skip"`` leaves rows without an entry out.

    Raises:
        DataError: If there is no such column; at the first entry that names no set; at the first empty entry unless
            ``policy`` is ``"skip"``; if no row has an entry.
    """
    entries, expected = table.column(column), f"train, valid or test in column '{column}'"
    missing = {row: entry for row, entry in enumerate(entries) if is_missing_label(entry)}
    for row, entry in enumerate(entries):
        if row not in missing and set_of(entry) is None:
            raise DataError(table.where, expected, f"'{entry}'", line=table.lines[row])
    if len(missing) == len(entries):
        raise DataError(table.where, expected, "none in any row")
    if missing and policy != "skip":
        more = f" ({len(missing):,} such rows)" if len(missing) > 1 else ""
        fix = "Add the set, or leave such rows out with bad='skip'."
        raise DataError(
            table.where, expected, f"an empty entry{more}", line=table.lines[min(missing)], fix=fix
        )
    reason = f"it has no set in column '{column}'"
    skipped = {row: SkippedRow(table.lines[row], entries[row], reason, "split") for row in missing}
    return SetRows(entries, skipped)


# ---------------------------------------------------------------------- ids
@dataclass(frozen=True)
class RowIds:
    """Names of the rows of a table.

    Args:
        names (tuple): Name of each row.
        from_column (bool): Whether the names are entries of a column rather than lines.
        note (str): A sentence on rows without an entry of their own; "" if each has one.
    """

    names: tuple[str, ...]
    from_column: bool
    note: str = ""


def read_ids(table: Table, column: str | None = None) -> RowIds:
    """Names of the rows: entries of a column, or their lines.

    Args:
        table (Table): The table.
        column (str, optional): Column with the names; a row without one is named by its line, such as ``"line 7"``.
            (default: the column ``id`` if its entries are complete and distinct, otherwise the line of the row)

    Raises:
        DataError: If there is no such column.
    """
    lines = tuple(map(str, table.lines))
    if column is None and table.find_column("id") is None:
        return RowIds(lines, from_column=False)
    entries = table.column(column or "id")
    problem = _describe_ids(entries, column or "id")
    if column is None:
        if not problem:
            return RowIds(entries, from_column=True)
        note = f"{problem}; rows are named by their line instead. --id id names them by that column all the same."
        return RowIds(lines, from_column=False, note=note)
    names = tuple(entry or f"line {line}" for entry, line in zip(entries, lines, strict=True))
    ending = "" if all(entries) else "; a row without one is named by its line"
    return RowIds(names, from_column=True, note=problem and f"{problem}{ending}.")


def _describe_ids(names: Sequence[str], column: str) -> str:
    """Which rows have no entry of their own in a column of ids, without a full stop; "" if each has one."""
    counts = Counter(filter(None, names))
    repeated = [name for name, count in counts.items() if count > 1]
    clauses = []
    if repeated:
        rows = sum(counts[name] for name in repeated)
        share = f"share an entry of column {column!r} with another (first: {repeated[0]!r})"
        clauses.append(f"{rows:,} of {len(names):,} rows {share}")
    if empty := sum(not name for name in names):
        verb = "has" if empty == 1 else "have"
        clauses.append(f"{empty:,} of {len(names):,} rows {verb} no entry in column {column!r}")
    return "; ".join(clauses)


# ---------------------------------------------------------------------- fragments
def describe_fragments(
    count: int, total: int, policy: FragmentPolicy, option: str = "--fragments largest"
) -> str:
    """A sentence on molecules of several fragments; "" if there are none.

    Args:
        count (int): Number of molecules with several fragments.
        total (int): Number of molecules.
        policy (str): What was done with them.
        option (str): What keeps the largest fragment. (default: the option of the command line)
    """
    if not count:
        return ""
    verb = "has" if count == 1 else "have"
    start = f"{count:,} of {total:,} molecules {verb} several fragments (salts, mixtures)"
    if policy == "largest":
        return f"{start}; the largest of each was kept."
    return f"{start}; {option} keeps the largest of each."


_ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[BCNOPSFIbcnops]")
_HYDROGEN = re.compile(r"\[\d*H[+-]?\]")


def largest_fragment(smiles: str) -> str:
    """The fragment that ``fragments="largest"`` keeps of a canonical SMILES: the one with the most heavy atoms."""
    heavy = {
        part: sum(not _HYDROGEN.fullmatch(atom) for atom in _ATOM.findall(part)) for part in smiles.split(".")
    }
    return min(heavy, key=lambda part: (-heavy[part], part))


def describe_parents(smiles: Sequence[str], labels: Sequence[object] | None) -> str:
    """A sentence on salts and mixtures whose largest fragment other rows have with another label; "" if none.

    Args:
        smiles (sequence): Canonical SMILES of each row, with all fragments.
        labels (sequence, optional): Label of each row.
    """
    if labels is None:
        return ""
    classes: dict[str, set[object]] = {}
    parents = [largest_fragment(text) if "." in text else text for text in smiles]
    for parent, label in zip(parents, labels, strict=True):
        classes.setdefault(parent, set()).add(label)
    count = sum(
        "." in text and len(classes[parent]) > 1 for text, parent in zip(smiles, parents, strict=True)
    )
    if not count:
        return ""
    rows = "1 row of several fragments" if count == 1 else f"{count:,} rows of several fragments"
    return (
        f"{rows} (salts, mixtures): other rows have the same largest fragment with another label. "
        "--fragments largest makes copies of them, and --duplicates drop-contradicting leaves these out."
    )


# ---------------------------------------------------------------------- repeated molecules
def find_repeated(smiles: Sequence[str], labels: Sequence[object] | None = None) -> RepeatedMolecules:
    """Counts the molecules that are in more than one row.

    Args:
        smiles (sequence): Canonical SMILES of each row.
        labels (sequence, optional): Label of each row.
    """
    rows = _rows_by_molecule(smiles)
    repeated = [members for members in rows.values() if len(members) > 1]
    contradicting = [members for members in repeated if _is_contradicting(members, labels)]
    return RepeatedMolecules(
        molecules=len(repeated),
        further_rows=sum(len(members) - 1 for members in repeated),
        contradicting=len(contradicting),
        contradicting_rows=sum(map(len, contradicting)),
    )


def select_duplicates(
    smiles: Sequence[str], labels: Sequence[object] | None, policy: DuplicatePolicy
) -> list[int]:
    """The rows that the rule for repeated molecules keeps, ascending.

    Args:
        smiles (sequence): Canonical SMILES of each row.
        labels (sequence, optional): Label of each row.
        policy (str): As in :data:`DuplicatePolicy`.
    """
    groups = _rows_by_molecule(smiles).values()
    if policy == "first":
        return sorted(members[0] for members in groups)
    if policy == "drop-contradicting":
        return sorted(row for members in groups if not _is_contradicting(members, labels) for row in members)
    return list(range(len(smiles)))


def describe_copies_across(
    smiles: Sequence[str] | None, labels: Sequence[object] | None, parts: Sequence[Sequence[int]]
) -> str:
    """Sentences on molecules that are in several parts of a split, with the way out; "" if there are none.

    Args:
        smiles (sequence, optional): Canonical SMILES of each graph; ``None`` if the graphs are no molecules.
        labels (sequence, optional): Label of each graph.
        parts (sequence): Indices of the graphs of each part.
    """
    if smiles is None:
        return ""
    rows_of: dict[str, list[int]] = {}
    parts_of: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for graph in part:
            rows_of.setdefault(smiles[graph], []).append(graph)
            parts_of.setdefault(smiles[graph], set()).add(number)
    shared = [rows_of[molecule] for molecule, numbers in parts_of.items() if len(numbers) > 1]
    different = sum(_is_contradicting(rows, labels) for rows in shared)
    equal = len(shared) - different
    sentences = []
    if equal:
        sentences.append(
            f"{_are_in_several_parts(equal)} with one label, so that results on validation and test parts are too "
            "good; --duplicates first keeps one row of each."
        )
    if different:
        sentences.append(
            f"{_are_in_several_parts(different)} with different labels, so that a model that has learned a row is "
            "wrong on another; --duplicates drop-contradicting leaves these rows out."
        )
    return " ".join(sentences)


def _are_in_several_parts(count: int) -> str:
    return (
        f"{'1 molecule is' if count == 1 else f'{count:,} molecules are'} in more than one part of the split"
    )


def describe_copies_in_folds(smiles: Sequence[str] | None) -> str:
    """A sentence on molecules whose copies folds may separate, with the way out; "" if there are none.

    Args:
        smiles (sequence, optional): Canonical SMILES of each graph; ``None`` if the graphs are no molecules.
    """
    count = 0 if smiles is None else find_repeated(smiles).molecules
    if not count:
        return ""
    subject = "Copies of 1 molecule" if count == 1 else f"Copies of {count:,} molecules"
    return f"{subject} may be in different folds; --groups copies keeps them in one."


def _rows_by_molecule(smiles: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(smiles):
        rows.setdefault(text, []).append(row)
    return rows


def _is_contradicting(members: Sequence[int], labels: Sequence[object] | None) -> bool:
    return labels is not None and len({labels[row] for row in members}) > 1
