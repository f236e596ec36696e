"""Data sets by name: the catalogue, downloads, the cache and the embedded data sets."""
