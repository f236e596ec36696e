"""Which parts a decision was made from: the hierarchy found, and pictures of it."""

from graphcaps.explanation.drawings import draw_parts
from graphcaps.explanation.hierarchy import NodeParts, node_parts

__all__ = ["NodeParts", "draw_parts", "node_parts"]
