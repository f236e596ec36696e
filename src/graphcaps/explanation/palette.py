"""The colours of all pictures and pages: one meaning each, safe for colour-blind readers.

Orange is for a class and blue is against it, everywhere. These two, of Okabe and Ito (*Color Universal Design*, 2008),
differ most in every kind of colour vision. Capsules, and other things that are numbered, take the colours of
:data:`CATEGORICAL` in order: greens, yellow, pinks and grey, none of which looks like orange or blue with normal or
dichromatic vision. Pictures number capsules as well, so no meaning depends on colour alone.
"""

from __future__ import annotations

import json

import numpy as np

__all__ = [
    "AGAINST",
    "CATEGORICAL",
    "DARK_AGAINST",
    "DARK_FOR",
    "FOR",
    "WHITE",
    "capsule_colour",
    "palette_css",
    "palette_script",
    "score_colour",
    "text_colour",
]

FOR, AGAINST = "#D55E00", "#0072B2"
"""Colours of scores and contributions for a class, and against it, on a light background."""
DARK_FOR, DARK_AGAINST = "#F0944D", "#5AA9F5"
"""The same two hues on a dark background."""
WHITE = "#FFFFFF"
"""Colour of a score of zero, and of nodes without a capsule."""
CATEGORICAL = (
    "#009E73", "#F0E442", "#AA3377", "#8DD3C7", "#1B6E4A", "#C9A0DC", "#A6D854", "#CC79A7",
    "#4D4D4D", "#BBBB77", "#F8F2A1", "#D599BB", "#C6E9E3", "#8DB7A5", "#E4D0EE", "#D3ECAA",
)  # fmt: skip
"""Colours of capsules: ten that all readers can tell apart from each other and from the two above, as many as a model
has by default, then lighter variants of the same hues."""

_DARK_TEXT, _LIGHT_TEXT = "#111111", "#FFFFFF"
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
_TEXT_THRESHOLD = 0.19  # luminance above which dark text has the higher contrast


def capsule_colour(number: int) -> str:
    """Colour of a capsule, white for a negative number; colours repeat after sixteen, so drawings add numbers."""
    return CATEGORICAL[number % len(CATEGORICAL)] if number >= 0 else WHITE


def score_colour(score: float) -> str:
    """Colour of a normalised score, from −1 to 1: orange for the class, white at zero, blue against the class."""
    end = FOR if score > 0 else AGAINST
    weight = min(abs(float(score)), 1.0)
    channels = (255 + weight * (int(end[at : at + 2], 16) - 255) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel):02X}" for channel in channels)


def text_colour(background: str) -> str:
    """Dark or light text, whichever has the higher contrast on a background."""
    channels = np.array([int(background[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return _DARK_TEXT if linear @ _LUMINANCE > _TEXT_THRESHOLD else _LIGHT_TEXT


def palette_css() -> str:
    """The variables ``--for`` and ``--against`` of a page, in light and dark mode."""
    light = f":root {{ --for: {FOR}; --against: {AGAINST}; }}"
    dark = f":root {{ --for: {DARK_FOR}; --against: {DARK_AGAINST}; }}"
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def palette_script() -> str:
    """The colours of capsules for the scripts of a page, with the colour of text on each."""
    inks = [text_colour(colour) for colour in CATEGORICAL]
    return f"const COLOURS = {json.dumps(CATEGORICAL)};\nconst INKS = {json.dumps(inks)};\n"
