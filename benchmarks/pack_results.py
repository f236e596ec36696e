"""Packs the records of result folders into archives.

    python -m benchmarks.pack_results results/*/

In each folder with records, ``*.record.json`` files move into ``records.zip`` and ``summary.csv`` is written again.
Packing the same records twice gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphcaps.evaluation import ResultsStore


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        print(f"{folder}: {ResultsStore(folder).pack()} records")


if __name__ == "__main__":
    main()
