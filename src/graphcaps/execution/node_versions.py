"""Versions of what the results of a node depend on, and the sentence about a node whose versions differ.

:func:`node_report` is sent to the nodes by value, so that it also runs where graphcaps is missing or another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["describe_difference", "node_report"]

_TITLES = {"source": "source code of graphcaps"}


def node_report() -> Callable[[bool], dict[str, Any]]:
    """A function of whether to look for a GPU, defined inside this one so that it is pickled by value.

    Its result has the name of the ``host``, the ``versions`` by name, with a digest of the source code of graphcaps,
    and the ``gpu_memory`` of the first GPU in bytes, 0 without one.
    """

    def report(with_gpu: bool) -> dict[str, Any]:
        import hashlib
        import importlib.util
        import platform
        from importlib import metadata
        from pathlib import Path

        versions = {"python": platform.python_version()}
        for name in ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn"):
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = "none"
        found = importlib.util.find_spec("graphcaps")
        if found is None or found.origin is None:
            versions |= {"graphcaps": "none", "source": "none"}
        else:
            package = Path(found.origin).parent
            text = (package / "__init__.py").read_text("utf-8")
            lines = [line for line in text.splitlines() if line.startswith("__version__")]
            versions["graphcaps"] = lines[0].partition("=")[2].strip().strip("\"'") if lines else "unknown"
            digest = hashlib.sha256()
            for path in sorted(package.rglob("*.py")):
                digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
            versions["source"] = digest.hexdigest()[:12]
        memory = 0
        if with_gpu and versions["torch"] != "none":
            import torch

            if torch.cuda.is_available():
                memory = int(torch.cuda.get_device_properties(0).total_memory)
        return {"host": platform.node(), "versions": versions, "gpu_memory": memory}

    return report


def describe_difference(host: str, found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """One sentence about a node with other versions; "" if they are equal.

    Args:
        host (str): Name of the node.
        found (dict): Versions of the node.
        expected (dict): Versions here.
    """
    names = [name for name in expected if found.get(name) != expected[name]]
    if "graphcaps" in names or "source" not in names:
        names = [name for name in names if name != "source"]
    if not names:
        return ""
    listed = [f"{_TITLES.get(name, name)} {found.get(name)} (here {expected[name]})" for name in names]
    return (
        f"The node {host} has {', '.join(listed)}; results would depend on the node. Install the same versions on all "
        "nodes."
    )
