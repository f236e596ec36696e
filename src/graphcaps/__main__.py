"""The program ``graphcaps``, also ``python -m graphcaps`` from a source tree without installation."""

from graphcaps.cli.interrupts import exit_on_interrupt, ignore_interrupts

__all__ = ["main"]


def main() -> None:
    """Runs the command line; Ctrl-C ends it with one line and exit code 130, SIGTERM with 143, also during imports."""
    exit_on_interrupt()
    from graphcaps.cli.main import main as run

    try:
        run()
    finally:
        ignore_interrupts()


if __name__ == "__main__":
    main()
