"""What a reader returns beside the graphs: names, split column, skipped rows and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from graphcaps._io.atomic_write import escape_text
from graphcaps.data.store import GraphStore
from graphcaps.errors import warn_user

__all__ = [
    "GraphMetadata",
    "ReadingWarning",
    "SkipKind",
    "SkippedRow",
    "StoreWithMetadata",
    "warn_of_notes",
]

_MAX_LISTED = 10  # lines in a sentence
_QUOTE = "'"
_OPTION = re.compile(r"--([a-z-]+) ('[^']*'|[A-Z]+|[a-z][a-z-]*)")


class ReadingWarning(UserWarning):
    """What a reader left out, changed or found: rows, attributes, directions, salts, contradicting labels."""


SkipKind = Literal["molecule", "label", "split", "duplicate"]
"""Why a row was left out: no valid molecule, no label, no entry in the split column, or repeated molecules."""


@dataclass(frozen=True)
class SkippedRow:
    """A row that was left out: its ``line`` in the file, its ``text``, the ``reason`` and its ``kind``.

    A graph inside a file of networks has line 0 and its name as text.
    """

    line: int
    text: str
    reason: str
    kind: SkipKind = "molecule"


@dataclass(frozen=True)
class GraphMetadata:
    """Metadata of the graphs of a store. Tuples have one entry per graph, in the order of the store.

    Args:
        ids (tuple): Identifier of each graph: an entry of an id column, a file name, or the line of its row.
        split (tuple, optional): Entry of the split column, as written.
        skipped (tuple): Rows that were left out, ascending.
        notes (tuple): Remarks on what was not read, apart from skipped rows, one sentence each.
        has_names (bool): Whether ``ids`` are names rather than line numbers.
        row_indices (tuple, optional): Row of each graph among all rows, from 0; ``None`` if no row was skipped.
        skipped_ids (tuple): Identifier of each row in ``skipped``.
        row_notes (tuple): Remarks on rows that a training should know of, such as repeated molecules.
        classes (tuple, optional): Class name of each graph, "" if it has none, where only some graphs have a label and
            the store has no ``y``.
        unreadable (dict): Reason for each graph without nodes that stands for an invalid molecule (``bad="keep"``).
        contradicting (GraphStore, optional): Molecules with different labels that ``duplicates="drop-contradicting"``
            left out, without classes.
    """

    ids: tuple[str, ...]
    split: tuple[str, ...] | None = None
    skipped: tuple[SkippedRow, ...] = ()
    notes: tuple[str, ...] = ()
    has_names: bool = True
    row_indices: tuple[int, ...] | None = None
    skipped_ids: tuple[str, ...] = ()
    row_notes: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    unreadable: dict[int, str] = field(default_factory=dict)
    contradicting: GraphStore | None = None

    def __post_init__(self) -> None:
        for name in (
            "ids",
            "skipped_ids",
            "notes",
            "row_notes",
        ):  # a file name can have bytes that are not UTF-8
            object.__setattr__(self, name, tuple(map(escape_text, getattr(self, name))))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(map(escape_text, self.classes)))

    @property
    def skipped_notes(self) -> tuple[str, ...]:
        """A sentence each on the rows without a valid molecule, a label or a set, if there are any."""
        kinds: dict[SkipKind, tuple[str, str]] = {
            "molecule": (
                "row holds no valid molecule and was left out",
                "rows hold no valid molecule and were left out",
            ),
            "label": ("row without a label was left out", "rows without a label were left out"),
            "split": (
                "row without an entry in the split column was left out",
                "rows without an entry in the split column were left out",
            ),
        }
        sentences = []
        for kind, (singular, plural) in kinds.items():
            listed = [str(row.line) for row in self.skipped if row.kind == kind and row.line]
            if listed:
                subject = f"1 {singular}: line" if len(listed) == 1 else f"{len(listed):,} {plural}: lines"
                sentences.append(f"{subject} {_listed(listed)}.")
        words: dict[SkipKind, str] = {"label": "a label", "split": "a set in the split attribute"}
        for kind, missing in words.items():  # inside files of networks
            graphs = [f"'{row.text}'" for row in self.skipped if not row.line and row.kind == kind]
            if graphs:
                subject = "1 graph" if len(graphs) == 1 else f"{len(graphs):,} graphs"
                verb = "was" if len(graphs) == 1 else "were"
                sentences.append(f"{subject} without {missing} {verb} left out: {_listed(graphs)}.")
        return tuple(sentences)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """``notes``, sentences on rows that were left out, and ``row_notes``."""
        return (*self.notes, *self.skipped_notes, *self.row_notes)


@dataclass(frozen=True)
class StoreWithMetadata:
    """Graphs read from a user's file, their metadata, and whether parsed molecules came from the cache."""

    store: GraphStore
    metadata: GraphMetadata
    from_cache: bool = False


def _listed(entries: list[str]) -> str:
    return ", ".join(entries[:_MAX_LISTED]) + (", …" if len(entries) > _MAX_LISTED else "")


def warn_of_notes(owner: str, notes: Iterable[str]) -> None:
    """Gives one :class:`ReadingWarning` for each note, with options as Python arguments.

    Args:
        owner (str): Function that the user called; a message begins with it.
        notes (iterable): Sentences, as the command line prints them. Empty ones are left out.
    """
    for note in filter(None, notes):
        warn_user(f"{owner}: {_python_options(note)}", ReadingWarning)


def _python_options(sentence: str) -> str:
    """A sentence with options as Python arguments: ``--fragments largest`` becomes ``fragments='largest'``."""
    return _OPTION.sub(lambda found: f"{found[1].replace('-', '_')}='{found[2].strip(_QUOTE)}'", sentence)
