"""``--split``: a part for each graph, from a column, a file, or the scaffolds of molecules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphcaps.cli.data_options import open_own
from graphcaps.cli.output import option

if TYPE_CHECKING:
    from graphcaps.data.datasets import LoadedDataset
    from graphcaps.data.splits import Split

__all__ = ["SplitBy", "open_with_split"]

SplitBy = Annotated[
    str | None,
    option("--split", metavar="COLUMN", help="Says train, valid or test; or a FILE.csv, or scaffold."),
]


def open_with_split(
    source: str, root: Path | None, hints: dict[str, Any], split: str | None, owner: str = "train"
) -> tuple[LoadedDataset, Split | None]:
    """Reads a data set with classes, and the parts that ``--split`` names.

    Raises:
        GraphcapsError: If there are no classes or no such parts, or no graph to learn from or to test on.
    """
    from graphcaps.cli.need_classes import need_classes
    from graphcaps.data.grouping import find_split, split_column

    column = split_column(split)
    loaded = open_own(source, root, hints if column is None else hints | {"split": column})
    need_classes(owner, loaded)
    return loaded, None if split is None else find_split(split, loaded.store, loaded.rows)
