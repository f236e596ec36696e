"""A command that ``torchrun`` starts in several processes: who prints, who handles signals, and who reads files."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps.cli import interrupts
from graphcaps.cli.output import mute_notes
from graphcaps.errors import UsageError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.store import GraphStore
    from graphcaps.training.ranks import Ranks

__all__ = [
    "check_verb",
    "claim_message",
    "end_rank",
    "ignore_interrupts",
    "join_ranks",
    "leave_ranks",
    "read_once",
]

_VERB = "train"  # the only one that several processes run together
_ranks: Ranks | None = None  # of this process, once it is connected


def check_verb(verb: str | None) -> None:
    """Rejects a verb that several processes would run independently, each writing the same files.

    Raises:
        UsageError: If ``torchrun`` has started several processes.
    """
    if verb != _VERB and _is_launched() and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError(f"torchrun starts graphcaps {_VERB} only; start graphcaps {verb} without it.")


def join_ranks(device: str) -> Ranks | None:
    """Connects the processes that ``torchrun`` has started; ``None`` if there is one.

    All but the first are silent from then on, and leave Ctrl-C to it: they end when it does. SIGTERM ends them at once;
    ``torchrun`` also sends it when one of the processes has failed.
    """
    global _ranks
    if not _is_launched():
        return None
    if os.environ.get("RANK") != "0":
        mute_notes()
        warnings.simplefilter("ignore")
        interrupts.leave_interrupts()
    from graphcaps.training.ranks import connect_ranks

    _ranks = connect_ranks(device)
    return _ranks


def leave_ranks() -> None:
    """Ends the communication of a command that has succeeded."""
    global _ranks
    if _ranks is not None:
        _ranks.close()
        _ranks = None


def end_rank(code: int) -> None:
    """Ends one of several processes that has failed; returns in a single process, and in one that has succeeded.

    Python would destroy the connections to the other processes, which usually fail at the same time. Where one of them
    is gone already, torch aborts the process then, and the exit code is lost.
    """
    if _ranks is not None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # nobody reads it
                stream.flush()
        os._exit(code)


def claim_message() -> bool:
    """Whether this process prints an error: always a single one; of several, the first that fails."""
    if _ranks is not None:
        return _ranks.claim_message()
    return not _is_launched() or os.environ.get("RANK") == "0"


def ignore_interrupts() -> None:
    """Lets the first of several processes write its files after a signal; ``torchrun`` sends it the signal again."""
    if _ranks is not None:
        interrupts.ignore_interrupts()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _ranks.claim_message()  # the others end for this reason


def read_once(
    ranks: Ranks | None,
    source: str,
    root: Path | None,
    read: Callable[[], tuple[LoadedDataset, tuple[Split, ...]]],
) -> tuple[LoadedDataset, tuple[Split, ...]]:
    """The data set and its splits. Of several processes the first reads them, and all map the graphs from its files.

    Long lists of molecules are parsed by all processes, shard by shard.

    Args:
        ranks (Ranks, optional): The processes; ``None`` for one.
        source, root: The data set, whose files all processes must see alike.
        read (callable): Reads the data set.

    Raises:
        UsageError: If the files that processes see differ.
    """
    if ranks is None:
        return read()
    from graphcaps.cli.rank_parser import RankParser, help_parsing
    from graphcaps.data.datasets.loading import LoadedDataset, source_digest
    from graphcaps.data.readers.parsed_molecules import parse_long_lists_with
    from graphcaps.training.shared_store import check_same_data, share_store

    check_same_data(ranks, source_digest(source, root))
    if not ranks.is_first:
        help_parsing(ranks)
        splits: tuple[Split, ...] = ranks.gather(())[0]
        store = share_store(ranks, _never)
        return LoadedDataset(store, None, False), splits
    parser = RankParser(ranks)
    with parse_long_lists_with(parser):
        loaded, splits = read()
    parser.finish()
    ranks.gather(splits)
    graphs = [loaded.store]
    loaded = replace(
        loaded, store=loaded.store[:0]
    )  # the graphs that were read are released once they are written
    return replace(loaded, store=share_store(ranks, graphs.pop)), splits


def _never() -> GraphStore:
    raise AssertionError("the first process makes the store")


def _is_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ
