"""Pictures of a search: its history, the importance of options, and parallel coordinates of all trials."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcaps.explanation.graph_drawing import new_figure
from graphcaps.explanation.palette import AGAINST, FOR
from graphcaps.registry import Choices
from graphcaps.search.search_space import Domain, SearchSpace, Value
from graphcaps.search.trial import Trial
from graphcaps.search.tuning import SearchResult

__all__ = ["option_importances", "search_pictures"]

_GREY = "#8A8A8A"
_TREES = 200
_MIN_TRIALS = 8
"""Fewest trials from which importances are estimated."""


def search_pictures(result: SearchResult) -> dict[str, bytes]:
    """The pictures as SVG, by file name; ``importance.svg`` only if there are enough trials.

    Args:
        result (SearchResult): A search with at least one trial that has a loss.
    """
    from matplotlib import rc_context

    draw: dict[str, Callable[[SearchResult], Any]] = {
        "history.svg": _draw_history,
        "parallel.svg": _draw_parallel,
    }
    if option_importances(result) is not None:
        draw["importance.svg"] = _draw_importance
    pictures = {}
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "graphcaps"}
    with rc_context({**settings, "font.family": "sans-serif"}):
        for name, function in draw.items():
            figure = function(result)
            data = io.BytesIO()
            figure.savefig(data, format="svg", metadata={"Date": None})
            pictures[name] = data.getvalue()
    return pictures


def option_importances(result: SearchResult) -> dict[str, float] | None:
    """How much the validation loss depends on each option, as shares that sum to 1, the largest first.

    A forest is fitted to the losses after the first rung, which all trials have, and each option is permuted: its
    importance is the mean increase of the squared error. Options with one value in all trials are left out. ``None`` if
    fewer than eight trials have such a loss, or no option changes it.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    first = result.rungs[0]
    judged = [trial for trial in result.trials if math.isfinite(trial.losses.get(first, math.inf))]
    if len(judged) < _MIN_TRIALS:
        return None
    positions = {
        name: [_position(result.space, name, trial) for trial in judged] for name in result.space.options
    }
    names = [name for name, values in positions.items() if min(values) < max(values)]
    if not names:
        return None
    x = np.array([positions[name] for name in names]).T
    y = np.array([trial.losses[first] for trial in judged])
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=0).fit(x, y)
    increases = permutation_importance(forest, x, y, n_repeats=10, random_state=0).importances_mean
    weights = np.maximum(increases, 0)
    if not weights.sum() > 0:
        return None
    order = np.argsort(-weights, kind="stable")
    return {names[at]: float(weights[at] / weights.sum()) for at in order}


def _draw_history(result: SearchResult) -> Any:
    """Validation losses by trial, and the best finished one so far."""
    figure = new_figure(8, 4.2)
    axes = figure.add_subplot()
    kinds = (
        ("dropped", "dropped at a rung", "x", _GREY),
        ("running", "not finished", "+", _GREY),
        ("finished", "finished", "o", AGAINST),
    )
    for state, label, marker, colour in kinds:
        trials = [trial for trial in result.trials if trial.state == state and math.isfinite(trial.loss)]
        if trials:
            axes.scatter(
                [trial.number for trial in trials], [trial.loss for trial in trials],
                marker=marker, color=colour, s=28, label=label, zorder=3,
            )  # fmt: skip
    finished = [t for t in result.trials if t.state == "finished" and math.isfinite(t.loss)]
    if finished:
        numbers = [trial.number for trial in finished]
        best = np.minimum.accumulate([trial.loss for trial in finished])
        numbers, best = [*numbers, len(result.trials) - 1], np.append(best, best[-1])
        axes.step(numbers, best, where="post", color=FOR, label="best so far", zorder=2)
    axes.set_xlabel("trial")
    axes.set_ylabel(f"validation loss, mean of {result.folds} folds")
    axes.legend(frameon=False, fontsize=9)
    _finish(figure, axes, f"{result.dataset}: history of the search")
    return figure


def _draw_importance(result: SearchResult) -> Any:
    """A bar per option."""
    importances = option_importances(result)
    assert importances is not None
    names = list(importances)[::-1]
    figure = new_figure(8, 0.6 + 0.34 * len(names) + 0.7)
    axes = figure.add_subplot()
    bars = axes.barh(names, [100 * importances[name] for name in names], color=AGAINST)
    axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=8)
    axes.set_xlabel(
        f"share of the importance for the validation loss after {result.rungs[0]} epochs, in percent"
    )
    axes.margins(x=0.12)
    _finish(figure, axes, f"{result.dataset}: importance of options")
    return figure


def _draw_parallel(result: SearchResult) -> Any:
    """A line per trial across one axis per option; the darker, the lower the validation loss."""
    from matplotlib import colormaps

    names = list(result.space.options)
    trials = [trial for trial in result.trials if math.isfinite(trial.loss)]
    figure = new_figure(max(8.0, 1.25 * (len(names) + 1)), 5.4)
    axes = figure.add_subplot()
    order = sorted(trials, key=lambda trial: (-trial.epochs, trial.loss))  # the best first
    ranks = {trial.number: at / max(len(order) - 1, 1) for at, trial in enumerate(order)}
    losses = [trial.loss for trial in trials]
    low, high = min(losses), max(losses)
    colours = colormaps["viridis"]
    for trial in reversed(order):
        heights = [_position(result.space, name, trial) for name in names]
        heights.append((trial.loss - low) / (high - low) if high > low else 0.5)
        is_best = trial.number == order[0].number
        axes.plot(
            range(len(heights)), heights,
            color=FOR if is_best else colours(0.15 + 0.8 * ranks[trial.number]),
            linewidth=2.4 if is_best else 1.0, alpha=1.0 if is_best else 0.65, zorder=3 if is_best else 2,
        )  # fmt: skip
    for at, name in enumerate(names):
        axes.axvline(at, color="black", linewidth=0.6, zorder=1)
        for height, text in _ticks(result.space.options[name]):
            axes.annotate(
                text, (at, height), xytext=(3, 0), textcoords="offset points",
                fontsize=7, va="center", zorder=4,
            )  # fmt: skip
    axes.axvline(len(names), color="black", linewidth=0.6, zorder=1)
    for height, loss in ((0.0, low), (1.0, high)):
        axes.annotate(
            f"{loss:.4g}", (len(names), height), xytext=(3, 0), textcoords="offset points", fontsize=7
        )
    labels = [name.partition(".")[2].replace("_", "\n") for name in names]
    axes.set_xticks(range(len(names) + 1), [*labels, "validation\nloss"], fontsize=8)
    axes.set_yticks([])
    axes.set_xlim(-0.15, len(names) + 0.45)
    _finish(figure, axes, f"{result.dataset}: all trials; the best one thick, darker lines have a lower loss")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure


def _finish(figure: Any, axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()


def _position(space: SearchSpace, name: str, trial: Trial) -> float:
    """Where the value of an option lies in its domain, from 0 to 1."""
    return _share(space.options[name], trial.values[name])


def _share(domain: Domain, value: Value) -> float:
    if isinstance(domain, Choices):
        return domain.values.index(value) / max(len(domain.values) - 1, 1)
    assert isinstance(value, int | float)
    if domain.log:
        return math.log(value / domain.low) / math.log(domain.high / domain.low)
    return (value - domain.low) / (domain.high - domain.low)


def _ticks(domain: Domain) -> list[tuple[float, str]]:
    """Heights and texts of an axis: all choices, or both ends of an interval."""
    if isinstance(domain, Choices):
        count = max(len(domain.values) - 1, 1)
        return [
            (at / count, str(list(value)) if isinstance(value, tuple) else str(value))
            for at, value in enumerate(domain.values)
        ]
    return [(0.0, f"{domain.low:g}"), (1.0, f"{domain.high:g}")]
