"""Copies of the tree of vaka with fewer features, or with more."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import vaka

PACKAGE = Path(vaka.__file__).parent
LIBRARY_TURN = Path(__file__).parent / "programs" / "use_tree.py"


def list_feature_folders() -> list[str]:
    """Return the folders of vaka that are features."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/feature.py"))


def copy_tree(target: Path, *, without: Collection[str] = (), more: Mapping[str, Path] | None = None) -> Path:
    """Make a package ``vaka`` of links to ours, so that nothing is compiled again; return the folder to import from."""
    package = target / "vaka"
    package.mkdir(parents=True)
    parts = {path.name: path for path in PACKAGE.iterdir() if path.name not in without} | dict(more or {})
    for name, path in parts.items():
        if name != "__pycache__":
            (package / name).symlink_to(path)
    return target


def environ_of(tree: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment in which ``import vaka`` finds a copy, and nothing is measured: the copy is not kept."""
    kept = {name: value for name, value in env.items() if not name.startswith("COVERAGE_PROCESS_")}
    return {**kept, "PYTHONPATH": str(tree)}
