"""Names that are similar to a mistyped one."""

from __future__ import annotations

import pytest

from graphcaps._io.close_names import close_names
from graphcaps.models import model_names

NAMES = ("PTC_MR", "MUTAG", "molecules", "paper", "best-molecules")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("MUTAGG", ("MUTAG",)),
        ("mutag", ("MUTAG",)),
        ("ptc", ("PTC_MR",)),
        ("papr", ("paper",)),
        ("molecule", ("molecules", "best-molecules")),
        ("nope", ()),
        ("ok.csv", ()),
        ("pt", ()),
        ("", ()),
    ],
)
def test_only_what_is_really_similar(name: str, near: tuple[str, ...]) -> None:
    assert close_names(name, NAMES) == near
    assert close_names(name, NAMES, 1) == near[:1]


def test_no_model_is_similar_to_a_word_of_other_letters() -> None:
    assert close_names("foo", model_names()) == ()
    assert close_names("hgnc", model_names())[0] == "hgcn"
