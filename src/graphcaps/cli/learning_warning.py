"""The warning of ``train`` and ``evaluate`` that a model has hardly learned."""

from __future__ import annotations

__all__ = ["learning_warning"]

_MIN_GAIN = 0.05  # training accuracy must exceed the share of the largest class by this much


def learning_warning(subject: str, accuracy: float, largest: float, advice: str = "") -> str:
    """A warning if predicting the largest class would be about as accurate on training graphs, else "".

    Args:
        subject (str): Whose training accuracy it is, at the start of a sentence, such as "The model".
        accuracy (float): Training accuracy, from 0 to 1.
        largest (float): Share of the largest class among the training graphs.
        advice (str): What to do, a sentence. (default: none)
    """
    # With a largest class of 97 % no gain of 5 % is possible: half of the remaining share is enough.
    if largest == 1 or accuracy > min(largest + _MIN_GAIN, (1 + largest) / 2):
        return ""
    sentence = (
        f"{subject} hardly learned: its training accuracy is {100 * accuracy:.1f} %, and the largest class has "
        f"{100 * largest:.1f} % of the graphs."
    )
    return f"{sentence} {advice}" if advice else sentence
