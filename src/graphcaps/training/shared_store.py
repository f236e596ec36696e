"""Graphs that all ranks of a training read from the same files, and the check that they read the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphcaps.data.mapped_store import MappedStore, write_mapped
from graphcaps.data.store import GraphStore
from graphcaps.errors import UsageError
from graphcaps.training.fingerprint import describe_differences
from graphcaps.training.ranks import Ranks

__all__ = ["check_same_data", "check_same_run", "share_store"]


def share_store(ranks: Ranks, make: Callable[[], GraphStore]) -> GraphStore:
    """A store that the first rank makes and writes to temporary files, which all ranks map into their memory.

    The files are removed as soon as all ranks have opened them. The first rank keeps the SMILES of molecules; the
    others have none.

    Args:
        ranks (Ranks): The processes of the training.
        make (callable): Returns the store; called by the first rank.
    """
    mapped: MappedStore | None = None
    smiles: tuple[str, ...] | None = None
    with _temporary_folder() if ranks.is_first else nullcontext("") as folder:
        if ranks.is_first:
            store = make()
            smiles, mapped = store.smiles, write_mapped(store, Path(folder))
            del store
        mapped = ranks.gather(mapped)[0]
        assert mapped is not None
        opened = mapped.open()
        ranks.gather(None)  # all ranks have opened the files
    return opened if smiles is None else replace(opened, smiles=smiles)


def _temporary_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="graphcaps-", ignore_cleanup_errors=True)


def check_same_data(ranks: Ranks, digest: str) -> None:
    """Rejects ranks that read different data.

    Args:
        ranks (Ranks): The processes of the training.
        digest (str): Digest of the data that this rank reads.

    Raises:
        UsageError: On all ranks, if digests differ.
    """
    digests = ranks.gather(digest)
    other = next((rank for rank, each in enumerate(digests) if each != digests[0]), None)
    if other is not None:
        raise UsageError(
            f"Process {other} reads other graphs than process 0; all processes that torchrun starts must see the same "
            "files."
        )


def check_same_run(ranks: Ranks, fingerprint: Mapping[str, Any]) -> None:
    """Rejects ranks with different settings or splits.

    Raises:
        UsageError: On all ranks, if fingerprints differ.
    """
    every = ranks.gather(dict(fingerprint))
    for rank, each in enumerate(every):
        if differences := describe_differences(each, every[0]):
            listed = "; ".join(differences).replace("(here", "(process 0:")
            raise UsageError(
                f"Process {rank} trains with other values than process 0: {listed}. Give all processes the same "
                "options."
            )
