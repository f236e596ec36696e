"""The interface of a baseline: a program that trains one fold, an epoch at a time, after a check."""

from __future__ import annotations

from abc import ABC, abstractmethod

from graphcaps.bench import CheckError

__all__ = ["Baseline"]


class Baseline(ABC):
    """Trains one fold, an epoch at a time.

    ``epoch`` raises an error until ``check`` has passed. It ends by reading a number from the device, so that timing
    it needs no further synchronisation.
    """

    name: str
    checked: bool = False

    def check(self) -> None:
        """Checks that the program computes what it should; the training that follows is not affected.

        Raises:
            CheckError: If it does not.
        """
        self.checked = False
        self._check()
        self.checked = True

    def epoch(self) -> float:
        """Trains and tests once; returns the accuracy on the test graphs."""
        if not self.checked:
            raise CheckError(f"{self.name}: call check() before epoch().")
        return self._epoch()

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _epoch(self) -> float: ...
