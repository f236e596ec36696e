"""Forests of few trees in place of 500, or 200 for the importance of options in a search."""

from collections.abc import Iterator

import pytest

from graphcaps.models.features_trees import FeaturesTrees
from graphcaps.models.wl_forest import WLForest
from graphcaps.search import search_pictures

TREES = 7


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Lets the forests of this module have a few trees by default."""
    with pytest.MonkeyPatch.context() as patch:
        for model in (WLForest, FeaturesTrees):
            patch.setitem(model.__init__.__kwdefaults__, "trees", TREES)
        patch.setattr(search_pictures, "_TREES", TREES)
        yield
