"""Which graph ``graphcaps explain --graph`` means: one by its number, or by its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcaps.cli.data_options import called, own_names
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets import LoadedDataset

__all__ = ["Picked", "pick"]


@dataclass(frozen=True)
class Picked:
    """One graph of a source.

    Args:
        index (int): Its place in the store, from 0.
        number (int): Its number in the source, from 1.
        name (str, optional): Its id, where the source has names.
    """

    index: int
    number: int
    name: str | None

    @property
    def called(self) -> str:
        """How it is named to people."""
        return f"{self.number:,}" if self.name is None else f"{self.number:,} ({self.name})"


def pick(asked: str, loaded: LoadedDataset, *, in_place: bool) -> Picked:
    """Finds a graph by what stands after ``--graph``; a number counts graphs, and may else be an id.

    Args:
        asked (str): A number from 1, or an id.
        loaded (LoadedDataset): Where to look.
        in_place (bool): Whether rows that were left out are counted too, as ``predict`` does.

    Raises:
        ArgumentError: If there is none, or several have that id.
        DataError: If that row is no molecule.
    """
    asked, rows = asked.strip(), loaded.rows
    places, ids = list(range(len(loaded.store))), [] if rows is None else list(rows.ids)
    reasons: dict[int, tuple[int, str]] = {}
    if rows is not None and rows.places is not None and in_place:
        places = list(rows.places)
        total = len(places) + len(rows.skipped)
        gaps = sorted(set(range(total)) - set(places))
        reasons = {
            gap: (row.line, f"{row.text!r}: {row.reason}")
            for gap, row in zip(gaps, rows.skipped, strict=True)
        }
        own, other = iter(ids), iter(rows.skipped_ids)
        ids = [next(other) if place in reasons else next(own) for place in range(total)]
    total = len(places) + len(reasons)
    names = own_names(rows, ids) if ids else None
    place = _place(asked, total, names)
    if place in reasons:
        line, found = reasons[place]
        where = loaded.store.name if loaded.source is None else loaded.source.name
        raise DataError(where, "a molecule in SMILES", found, line=line)
    return Picked(places.index(place), place + 1, None if names is None else names[place])


def _place(asked: str, total: int, names: Sequence[str] | None) -> int:
    """The graph that is meant, from 0."""
    try:
        number: int | None = int(asked)
    except ValueError:
        number = None
    if number is not None and 1 <= number <= total:
        return number - 1
    found = [place for place, name in enumerate(names or ()) if name == asked]
    if len(found) == 1:
        return found[0]
    expected = f"be a number from 1 to {total}"
    got: object = f"'{asked}'" if number is None else number
    if names is not None:
        expected += f" or an id, such as {names[0]}"
    if found:
        expected, got = (
            "name one graph",
            f"'{asked}', the id of {len(found)}, such as {called(found[0], names)}",
        )
    raise ArgumentError("explain", "--graph", expected, got)
