"""The critical-difference picture: well-formed, every model named once, bars only where models do not differ."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from graphcaps.comparison.comparison import ModelRanks
from graphcaps.comparison.rank_diagram import rank_diagram

SVG = "{http://www.w3.org/2000/svg}"


def draw(difference: float, ranks: tuple[float, ...] = (1.2, 1.9, 3.0, 4.4)) -> ElementTree.Element:
    models = tuple(f"m<{number}>" for number in range(len(ranks)))
    return ElementTree.fromstring(rank_diagram(ModelRanks(models, ranks, ("A", "B"), difference, 0.01)))


@pytest.mark.parametrize(("difference", "bars"), [(0.5, 0), (1.0, 1), (2.0, 2), (9.0, 1)])
def test_models_are_named_and_joined_by_bars(difference: float, bars: int) -> None:
    picture = draw(difference)
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert sum(text.startswith("m<") for text in texts) == 4
    assert f"critical difference {difference:.2f}" in texts
    assert len([line for line in picture.iter(f"{SVG}line") if line.get("stroke-width") == "4"]) == bars


def test_the_best_rank_is_on_the_left_and_all_is_inside() -> None:
    picture = draw(2.0)
    width, height = map(float, (picture.get("viewBox") or "").split()[2:])
    first, *_, last = picture.iter(f"{SVG}polyline")
    left, right = (float((line.get("points") or "").split(",")[0]) for line in (first, last))
    assert left < right
    for line in picture.iter(f"{SVG}line"):
        assert all(0 <= float(line.get(name) or -1) <= width for name in ("x1", "x2"))
        assert all(0 <= float(line.get(name) or -1) <= height for name in ("y1", "y2"))


def test_bars_that_would_touch_are_on_different_levels() -> None:
    picture = draw(1.05, (1.0, 2.0, 2.1, 3.1))
    bars = [line for line in picture.iter(f"{SVG}line") if line.get("stroke-width") == "4"]
    assert len({line.get("y1") for line in bars}) == len(bars) > 1
