"""Catalogue of the eleven data sets of the paper and the embedded data sets.

Two checksums are listed. ``collection_sha256`` is that of the zip in the TU collection, as public programs that pin
their downloads record it; a download must match it. ``measured_sha256`` is that of the zip which the results of this
project were measured with; it holds the same graphs in the same order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from graphcaps._io.close_names import close_names

__all__ = ["CATALOGUE", "CatalogueEntry", "find_entry", "similar_names"]

Kind = Literal["molecules", "proteins", "social", "generated"]


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set of the catalogue.

    Args:
        name (str): Name, as in the TU collection.
        title (str): Meaning of a graph and of its class.
        kind (str): ``"molecules"``, ``"proteins"``, ``"social"`` or ``"generated"``.
        graphs (int): Number of graphs.
        classes (int): Number of classes.
        nodes (str): Labels and attributes of the nodes.
        collection_sha256 (str, optional): Checksum of the zip in the TU collection, if it is known.
        measured_sha256 (str, optional): Checksum of the zip that the results were measured with.
        level (str, optional): Difficulty level of ``planted-parts``; ``None`` for others.
        extra (str, optional): Extra that is needed to generate the data set, such as ``"chem"``.
    """

    name: str
    title: str
    kind: Kind
    graphs: int
    classes: int
    nodes: str
    collection_sha256: str | None = None
    measured_sha256: str | None = None
    level: Literal["easy", "medium", "hard"] | None = None
    extra: str | None = None

    @property
    def embedded(self) -> bool:
        """Whether the package generates the data set, so that no file is needed."""
        return self.kind == "generated"


_PLANTED = "planted motifs on a scaffold; which motifs are connected"
_ATOMS = "7 labels"

_ENTRIES = (
    CatalogueEntry(
        "MUTAG",
        "nitroaromatic compounds; mutagenic or not",
        "molecules",
        188,
        2,
        "7 labels",
        "c419bdc853c367d2d83da4973c45100954ae15e10f5ae2cddde6ca431f8207f6",
        "f96414c496c15c203c28b81d33bf4448d6aa673066eeffb73516a1bded086fbd",
    ),
    CatalogueEntry(
        "PTC_MR",
        "compounds given to male rats; carcinogenic or not",
        "molecules",
        344,
        2,
        "18 labels",
        "5699a6d9f1bc5b3d71495f09ef50de53fa3e6bb24ead1150da678500229f5237",
        "6ed5a49bcb1251a702c3faebc043eda16a1a68aab907c1706a517b42ffe916e8",
    ),
    CatalogueEntry(
        "ENZYMES",
        "protein structures; one of six enzyme classes",
        "proteins",
        600,
        6,
        "3 labels, 18 attributes",
        "13d832eb6ffa084192daf6e5750250028a18437ee692c38d29a10cd60e18aaf4",
        "c1fdd31cabea00d12b216557e114ae939aff88e4a4a77968dcfe187a90a5ab49",
    ),
    CatalogueEntry(
        "PROTEINS",
        "protein structures; enzyme or not",
        "proteins",
        1113,
        2,
        "3 labels, 1 attribute",
        None,
        "1cbb2d537d593186b9cf54df78fa5bc1dba61f7d5e74c57f64dcfdaea46b7ae3",
    ),
    CatalogueEntry(
        "NCI1",
        "compounds; active against lung cancer cells or not",
        "molecules",
        4110,
        2,
        "37 labels",
        "10e1458f3bd9224f14e6d7627e74dcfd13e48d376d73935e7bd2900590ef1d82",
        "cf848c84d6d83b3d4530f74dd9c544fbde27ec70824f85cead1ca5ca8d050877",
    ),
    CatalogueEntry(
        "NCI109",
        "compounds; active against ovarian cancer cells or not",
        "molecules",
        4127,
        2,
        "38 labels",
        "96e521a294e3e9c088540e9e9caccf55e4ca6e97cf468d68445814467956abaf",
        "eaae3ed0e6b0389ab34667526fe12210aadd2f6a58fd36ce639ea83fd4a2ba81",
    ),
    CatalogueEntry(
        "DD",
        "protein structures by amino acid; enzyme or not",
        "proteins",
        1178,
        2,
        "82 labels",
        "d033d7aeb1a48c4b2b47cf0390e7fc9671de70d98c8df5b11e458d2ec5515cd2",
        "fa9f72f70dd7a98a77db858776badaf22ca0cb3839596ab842c592ae0d5789ad",
    ),
    CatalogueEntry(
        "COLLAB",
        "collaborations of a researcher; one of three fields of physics",
        "social",
        5000,
        3,
        "none",
        "cb5b772bc4f3a4690d0601378a3fc993b092aeafd63e2b0f2330137dda1cdcc6",
        "f765bc0566fd8a494d578f04080f8d71e2f9f5ebaa1e2955327b478300b61736",
    ),
    CatalogueEntry(
        "IMDB-BINARY",
        "co-actors of an actor; one of two genres",
        "social",
        1000,
        2,
        "none",
        "b291ec8b26d85c70faa2ba0a2433e1f407ed2ef5d0fc072d36b9a95e49a1bb27",
        "65d384075b8d4335d41b655c09f9a651dc08b1f791e271e1154c37725edc7b72",
    ),
    CatalogueEntry(
        "IMDB-MULTI",
        "co-actors of an actor; one of three genres",
        "social",
        1500,
        3,
        "none",
        "a4a302149ebf4c76fa1f0fb108baff89fcbf9d35de306b18f27a8419b9a1a690",
        "d2a7fa8501ae6b108195d9b694c1787105ca994a9c603ad43c7f149b89b85c63",
    ),
    CatalogueEntry(
        "REDDIT-BINARY",
        "replies between users of a thread; discussion or questions",
        "social",
        2000,
        2,
        "none",
        "982dc64ddade42a6365ba9c93f5080d0b9d315df0df492b57fd9fbb7e40dbe16",
        "cadfcc915e3b7f26de3818e611da528cc49614199bac19efb19df037b814117f",
    ),
    CatalogueEntry("planted-parts", _PLANTED, "generated", 360, 3, "none", level="easy"),
    CatalogueEntry("planted-parts-easy", _PLANTED, "generated", 360, 3, "none", level="easy"),
    CatalogueEntry("planted-parts-medium", _PLANTED, "generated", 360, 3, "none", level="medium"),
    CatalogueEntry("planted-parts-hard", _PLANTED, "generated", 360, 3, "none", level="hard"),
    CatalogueEntry("ba-2motifs", "random trees; with a house or a cycle", "generated", 1000, 2, "none"),
    CatalogueEntry(
        "ba-multishapes",
        "random trees with houses, wheels and grids; two different ones or not",
        "generated",
        1000,
        2,
        "none",
    ),
    CatalogueEntry(
        "benzene", "molecules; with a benzene ring or not", "generated", 4000, 2, _ATOMS, extra="chem"
    ),
    CatalogueEntry(
        "fluoride-carbonyl",
        "molecules; with a fluoride and a carbonyl group or not",
        "generated",
        4000,
        2,
        _ATOMS,
        extra="chem",
    ),
    CatalogueEntry(
        "nitro-or-amine",
        "molecules; with a nitro group or a primary amine, or not",
        "generated",
        4000,
        2,
        _ATOMS,
        extra="chem",
    ),
)

CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}
"""Entries by name."""


def find_entry(name: str) -> CatalogueEntry | None:
    """The entry of a name, ignoring case and punctuation ("mutag", "imdb_binary", "D&D"), or ``None``."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    folded = _fold(name)
    return next((entry for entry in _ENTRIES if _fold(entry.name) == folded), None)


def similar_names(name: str, count: int = 3) -> tuple[str, ...]:
    """Up to ``count`` names of the catalogue that are similar to ``name``, most similar first."""
    names = {_fold(entry.name): entry.name for entry in _ENTRIES}
    return tuple(names[folded] for folded in close_names(_fold(name), names, count))


def _fold(name: str) -> str:
    """The lower-case letters and digits of a name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
