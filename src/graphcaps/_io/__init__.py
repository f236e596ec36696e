"""Input and output shared by all packages: atomic writes, checked files, user folders, provenance, optional imports."""
