"""The palette: colours that all readers can tell apart, readable text, one source for pictures and pages."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import graphcaps
from graphcaps.explanation.palette import (
    AGAINST,
    CATEGORICAL,
    DARK_AGAINST,
    DARK_FOR,
    FOR,
    WHITE,
    capsule_colour,
    palette_css,
    palette_script,
    score_colour,
    text_colour,
)

# Simulation of dichromatic vision in linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1).
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(colour: str, vision: str) -> np.ndarray:
    """CIELAB coordinates of a colour as seen with a kind of vision."""
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear(colour), 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, two: str) -> float:
    """Contrast ratio of WCAG."""
    low, high = sorted(float(linear(colour) @ TO_XYZ[1]) for colour in (one, two))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_for_and_against_are_far_apart_in_every_vision(vision: str) -> None:
    for one, two in ((FOR, AGAINST), (DARK_FOR, DARK_AGAINST)):
        assert np.linalg.norm(lab(one, vision) - lab(two, vision)) > 80


@pytest.mark.parametrize("vision", VISION)
def test_ten_capsules_can_be_told_apart_in_every_vision(vision: str) -> None:
    """A difference of 2.3 is just noticeable. Ten is the default number of capsules; 4 and 10 differed by 5."""
    for one, two in combinations(CATEGORICAL[:10], 2):
        assert np.linalg.norm(lab(one, vision) - lab(two, vision)) > 12, (one, two)
    assert len(set(CATEGORICAL)) == 16


@pytest.mark.parametrize("vision", VISION)
def test_no_capsule_looks_like_for_or_against(vision: str) -> None:
    """Before, capsules 1 and 6 had the colours of the two sides."""
    for colour in CATEGORICAL:
        for side in (FOR, AGAINST):
            assert np.linalg.norm(lab(colour, vision) - lab(side, vision)) > 20, (colour, side)


def test_graphics_and_text_have_enough_contrast() -> None:
    assert min(contrast(FOR, WHITE), contrast(AGAINST, WHITE)) > 3  # WCAG 1.4.11, on a light page
    assert min(contrast(DARK_FOR, "#1A1E23"), contrast(DARK_AGAINST, "#1A1E23")) > 3
    for colour in CATEGORICAL:
        assert contrast(colour, text_colour(colour)) > 4.5  # WCAG 1.4.3


def test_colours_of_scores_and_capsules() -> None:
    assert (score_colour(1), score_colour(-1), score_colour(0)) == (FOR, AGAINST, WHITE)
    assert capsule_colour(16) == capsule_colour(0) == CATEGORICAL[0]
    assert capsule_colour(-1) == WHITE


def test_page_gets_its_colours_from_the_palette() -> None:
    assert f"--for: {FOR}" in palette_css()
    assert f"--against: {DARK_AGAINST}" in palette_css()
    assert all(colour in palette_script() for colour in CATEGORICAL)


def test_no_other_file_defines_a_colour_for_or_against_a_class() -> None:
    folder = Path(graphcaps.__file__).parent
    files = [*folder.rglob("*.js"), *folder.rglob("*.css"), *(folder / "explanation").rglob("*.py")]
    assert len(files) > 30
    for path in files:
        if path.name == "palette.py":
            continue
        text = path.read_text("utf-8")
        assert not re.search(r"--(for|against):", text), path
        for colour in (FOR, AGAINST, *CATEGORICAL[:7]):
            assert colour.lower() not in text.lower(), (path, colour)
