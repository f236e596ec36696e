"""Models that HGCN is compared with, one file each, and the builder of registered models."""

from graphcaps.models.gin import GIN

__all__ = ["GIN"]
