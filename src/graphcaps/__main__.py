"""``python -m graphcaps`` is the command line, also from a source tree without installation."""

from graphcaps.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
