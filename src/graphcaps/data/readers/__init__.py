"""Readers and writers of graph data: TU folders and zips, molecules, edge lists and networks."""
