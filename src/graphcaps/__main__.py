"""The program ``graphcaps``, also ``python -m graphcaps`` from a source tree without installation."""

import sys

from graphcaps.cli.interrupts import defer_interrupts

__all__ = ["main"]


def main() -> None:
    """Runs the command line; Ctrl-C ends it with one line and exit code 130, also while it is imported."""
    try:
        defer_interrupts()
        from graphcaps.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
