"""The command line: one small file per verb, joined in :mod:`graphcaps.cli.main`."""

__all__: list[str] = []
