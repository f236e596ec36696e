"""The systems that HGCN is compared with, one file each, one registry."""

from graphcaps.models.gin import GIN

__all__ = ["GIN"]
