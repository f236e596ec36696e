"""Figures of predictions, as rows of a summary."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["metric_rows"]

_WORDS = {
    "balanced_accuracy": ("balanced accuracy", 100, " %"),
    "roc_auc": ("ROC-AUC", 1, ""),
    "pr_auc": ("PR-AUC", 1, ""),
    "mcc": ("Matthews' correlation", 1, ""),
    "brier": ("Brier score", 1, ""),
    "log_loss": ("log loss", 1, ""),
}


def metric_rows(metrics: Mapping[str, float | None] | None) -> list[tuple[str, str]]:
    """A row for each figure that is known, beside the accuracy, which stands on its own."""
    found = []
    for name, (words, scale, unit) in _WORDS.items():
        value = (metrics or {}).get(name)
        if value is not None:
            found.append((words, f"{value * scale:.2f}{unit}" if unit else f"{value:.3f}"))
    return found
