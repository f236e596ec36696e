"""Molecules that all ranks of a training read together, each some shards of the list.

A rank parses one shard after the other, at most :data:`SHARD` molecules, and writes their arrays to temporary files.
The first rank joins the files and maps the result. No rank holds the graphs of more than one shard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from graphcaps.chemistry.rdkit_pool import close_rdkit, count_from
from graphcaps.data.mapped_store import MappedStore, join_mapped, write_mapped
from graphcaps.data.readers.parsed_molecules import ParsedMolecules, SmilesList, parse_here
from graphcaps.training.ranks import Ranks

__all__ = ["SHARD", "RankParser", "help_parsing"]

SHARD = 25_000
"""Most molecules that a rank parses at a time."""


@dataclass(frozen=True)
class _Task:
    """What the first rank asks of all: a list of SMILES, and the folder for the shards."""

    listed: SmilesList
    folder: Path


@dataclass(frozen=True)
class _Shard:
    """A shard in files, with its number, the canonical SMILES, and the rest of :class:`ParsedMolecules`."""

    number: int
    mapped: MappedStore
    smiles: tuple[str, ...]
    problems: dict[int, str]
    fragmented: int
    from_cache: bool


@dataclass(frozen=True)
class RankParser:
    """The parser of the first rank, while the others call :func:`help_parsing`.

    Args:
        ranks (Ranks): The processes of the training.
    """

    ranks: Ranks

    def __call__(self, listed: SmilesList) -> ParsedMolecules:
        """As :func:`graphcaps.data.readers.parsed_molecules.parse_here`; the arrays of the store are mapped."""
        with TemporaryDirectory(prefix="graphcaps-", ignore_cleanup_errors=True) as folder:
            task = _Task(listed, Path(folder))
            self.ranks.gather(task)
            shards = _parse_shards(self.ranks, task)
            store = join_mapped([shard.mapped for shard in shards], Path(folder)).open()
        problems = {index: problem for shard in shards for index, problem in shard.problems.items()}
        return ParsedMolecules(
            replace(store, smiles=tuple(text for shard in shards for text in shard.smiles)),
            problems,
            sum(shard.fragmented for shard in shards),
            all(shard.from_cache for shard in shards),
        )

    def finish(self) -> None:
        """Tells the other ranks that no further list comes."""
        self.ranks.gather(None)


def help_parsing(ranks: Ranks) -> None:
    """Parses shards of all lists that the first rank reads, until it calls :meth:`RankParser.finish`."""
    while (task := ranks.gather(None)[0]) is not None:
        _parse_shards(ranks, task)
        close_rdkit()


def _parse_shards(ranks: Ranks, task: _Task) -> list[_Shard]:
    """Parses the shards of this rank, and returns those of all ranks in order."""
    total = len(task.listed.smiles)
    size = min(SHARD, math.ceil(total / ranks.size))
    starts = list(enumerate(range(0, total, size)))[ranks.rank :: ranks.size]
    own = sum(min(size, total - start) for _, start in starts)
    parsed: list[_Shard] = []
    before = 0
    for number, start in starts:
        part = task.listed.smiles[start : start + size]
        with count_from(before, own):
            molecules = parse_here(replace(task.listed, smiles=part))
        before += len(part)
        folder = task.folder / f"shard{number}"
        folder.mkdir()
        assert molecules.store.smiles is not None
        parsed.append(
            _Shard(
                number,
                write_mapped(molecules.store, folder),
                molecules.store.smiles,
                {start + index: problem for index, problem in molecules.problems.items()},
                molecules.fragmented,
                molecules.from_cache,
            )
        )
        del molecules
    every = [shard for shards in ranks.gather(parsed) for shard in shards]
    return sorted(every, key=lambda shard: shard.number) if ranks.is_first else []
