"""The critical-difference picture of Demšar (JMLR 7, 2006), as SVG: mean ranks on an axis, bars join equal models."""

from __future__ import annotations

from html import escape

from graphcaps.comparison.comparison import ModelRanks

__all__ = ["rank_diagram"]

_WIDTH, _MARGIN, _TOP, _ROW, _BAR, _GAP = 860.0, 210.0, 74.0, 21.0, 9.0, 16.0
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def rank_diagram(ranks: ModelRanks) -> str:
    """The picture; text and lines have the colour of the text around it.

    The best rank is on the left. A thick bar joins models whose mean ranks differ by less than the critical difference,
    which is drawn above the axis.

    Args:
        ranks (ModelRanks): Two or more models.
    """
    k = len(ranks.models)
    bars = _levels(ranks)
    below = _TOP + 14 + _BAR * (max((level for *_, level in bars), default=-1) + 1)
    half = (k + 1) // 2
    height = below + _ROW * max(half, k - half) + 14

    def x(rank: float) -> float:
        return _MARGIN + (rank - 1) / (k - 1) * (_WIDTH - 2 * _MARGIN)

    shapes = [_line(x(1), _TOP, x(k), _TOP, 1.5)]
    for tick in range(1, k + 1):
        shapes.append(_line(x(tick), _TOP - 6, x(tick), _TOP, 1.2))
        if k <= 16 or tick % 2:
            shapes.append(_text(x(tick), _TOP - 11, f"{tick}", "middle"))
    # The length of the critical difference, cut if it is longer than the axis.
    length = min(ranks.critical_difference, k - 1.0)
    shapes.append(_line(x(1), 22, x(1 + length), 22, 2))
    shapes += [_line(at, 17, at, 27, 2) for at in (x(1), x(1 + length))]
    shapes.append(_text(x(1), 12, f"critical difference {ranks.critical_difference:.2f}", "start"))
    for position, (model, rank) in enumerate(zip(ranks.models, ranks.ranks, strict=True)):
        on_left = position < half
        y = below + _ROW * ((position if on_left else k - 1 - position) + 0.5)
        end = _MARGIN - 12 if on_left else _WIDTH - _MARGIN + 12
        shapes.append(
            f'<polyline points="{x(rank):.1f},{_TOP:.1f} {x(rank):.1f},{y:.1f} {end:.1f},{y:.1f}" fill="none" '
            'stroke="currentColor" stroke-width="1" stroke-opacity="0.55"/>'
        )
        name = f"{model} ({rank:.2f})"
        shapes.append(_text(end + (-6 if on_left else 6), y + 4, name, "end" if on_left else "start"))
    for first, last, level in bars:
        y = _TOP + 8 + _BAR * level
        low, high = x(ranks.ranks[first]) - 4, x(ranks.ranks[last]) + 4
        shapes.append(_line(low, y, high, y, 4))
    title = f"Mean ranks of {k} models over {len(ranks.datasets)} data sets"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" '
        f'font-family="{_FONT}" font-size="13" fill="currentColor"><title>{escape(title)}</title>'
        + "".join(shapes)
        + "</svg>\n"
    )


def _levels(ranks: ModelRanks) -> list[tuple[int, int, int]]:
    """First and last model of each bar, and its level: bars that overlap or touch are on different levels."""
    gap = _GAP * (len(ranks.models) - 1) / (_WIDTH - 2 * _MARGIN)  # in ranks
    placed: list[tuple[int, int, int]] = []
    for first, last in ranks.groups():
        taken = {level for _, end, level in placed if ranks.ranks[end] + gap > ranks.ranks[first]}
        level = next(each for each in range(len(placed) + 1) if each not in taken)
        placed.append((first, last, level))
    return placed


def _line(x1: float, y1: float, x2: float, y2: float, width: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f'stroke-width="{width:g}" stroke-linecap="round"/>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
