"""``docs/reproduction.md`` and its picture, computed from ``results/reproduction`` and ``results/paper``."""
