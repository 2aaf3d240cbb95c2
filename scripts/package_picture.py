"""Draw the packages of vaka with their imports into docs/design.md: ``python -m scripts.package_picture``.

The layers come from the import contract "The flow" in ``pyproject.toml``. The imports come from the source, with
imports inside functions and for types.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp

from scripts.loop_pictures import PAGE, insert_pictures

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = frozenset(path.parent.name for path in (ROOT / "src" / "vaka").glob("*/__init__.py"))
KITS = ("cli.kit", "server.kit")
"""The parts of ``cli`` and ``server`` that the edges of features import."""
_COLUMN = 12


def read_layers() -> list[list[str]]:
    """Return the packages of each layer, the highest layer first; a package outside the contract is above all."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [flow] = [contract for contract in contracts if contract["name"] == "The flow"]
    layers = [sorted(set(re.findall(r"\w+", layer)) & PACKAGES) for layer in flow["layers"]]
    outside = sorted(PACKAGES.difference(*layers))
    return [layer for layer in [outside, *layers] if layer]


def find_imports() -> dict[str, set[str]]:
    """Return what each package imports of the others."""
    graph = grimp.build_graph("vaka", cache_dir=None)
    found: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for module in graph.modules:
        importer = _package_of(module)
        if importer in PACKAGES:
            for imported in graph.find_modules_directly_imported_by(module):
                target = _package_of(imported)
                if target in PACKAGES and target != importer:
                    found[importer].add(target if importer == "cli" else _part_of(imported))
    return found


def _part_of(module: str) -> str:
    """Return the kit or the package of a module."""
    return next((kit for kit in KITS if f"{module}.".startswith(f"vaka.{kit}.")), _package_of(module))


def _package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def draw_packages() -> str:
    """Return the picture: a line for each package, and a rule between two layers."""
    layers = read_layers()
    return "\n".join(_draw_layers(layers, find_imports()))


def _draw_layers(layers: Sequence[Sequence[str]], imports: dict[str, set[str]]) -> Iterator[str]:
    order = [KITS, *layers]
    for index, layer in enumerate(layers):
        if index:
            yield f"{'─' * _COLUMN}┼{'─' * 48}"
        for package in layer:
            groups = (" ".join(name for name in group if name in imports[package]) for group in order)
            yield f"{package:{_COLUMN}}│ {' · '.join(filter(None, groups))}".rstrip()


if __name__ == "__main__":
    PAGE.write_text(insert_pictures(PAGE.read_text("utf-8"), {"packages": draw_packages}), "utf-8")
