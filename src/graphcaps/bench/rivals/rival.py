"""What the bench asks of a program that is timed beside ours."""

from __future__ import annotations

from abc import ABC, abstractmethod

from graphcaps.errors import GraphcapsError

__all__ = ["Rival", "RivalError"]


class RivalError(GraphcapsError):
    """A rival that does not compute what it should, and so is not timed."""


class Rival(ABC):
    """A program that trains one fold, an epoch at a time, and proves first that it does so rightly.

    ``epoch`` refuses to run before ``check`` passed: no number is published without its proof. It ends with
    a number that the host read from the device, so a clock around it needs no other synchronisation.
    """

    name: str
    checked: bool = False

    def check(self) -> None:
        """Proves the program right; training goes on afterwards as if nothing had happened.

        Raises:
            RivalError: If it is not.
        """
        self.checked = False
        self._check()
        self.checked = True

    def epoch(self) -> float:
        """One training pass and one test pass; the share of test graphs that were classified rightly."""
        if not self.checked:
            raise RivalError(f"{self.name}: an epoch is run only after check() passed.")
        return self._epoch()

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _epoch(self) -> float: ...
