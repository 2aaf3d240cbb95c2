"""Plugins: folders with a manifest, marketplaces that list such folders, and what Claude Code has installed."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import parse_tolerant_json
from vaka.core.types.errors import ConfigError
from vaka.project.frontmatter import MAX_FILE_BYTES, read_text

MAX_MANIFEST_BYTES = 4 * MAX_FILE_BYTES
PLUGIN_FILE = Path(".claude-plugin", "plugin.json")
MARKETPLACE_FILE = Path(".claude-plugin", "marketplace.json")
INSTALLED_FILE = "installed_plugins.json"
_REMOTE = re.compile(r"\w+:|git@")
COMPONENT_KEYS = ("skills", "commands", "agents")
"""Keys of a manifest, and names of the default folders, of what a plugin brings for agents."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with commands, agents, skills, hooks or servers."""

    name: str
    root: Path
    manifest: Mapping[str, Any] = {}
    marketplace: str = ""
    """The name of the marketplace that lists it."""
    named_only: tuple[str, ...] = ()
    """Keys whose default folders do not count, since its marketplace lists each part."""
    problems: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        return {"CLAUDE_PLUGIN_ROOT": str(self.root)}

    def parts(self, key: str) -> list[Path]:
        """Return the folders and files of its skills, commands or agents: the default folder and the named ones."""
        root = os.path.normpath(self.root)
        named = [Path(os.path.normpath(self.root / name)) for name in _texts(self.manifest.get(key))]
        default = [] if key in self.named_only else [self.root / key]
        if key == "skills" and default and not default[0].is_dir() and (self.root / "SKILL.md").is_file():
            default = [self.root]  # the plugin is one skill
        return [*default, *(path for path in named if path.is_relative_to(root))]


def find_plugins(folders: Iterable[Path], problems: list[str] | None = None) -> list[Plugin]:
    """Return the plugins in folders: a folder may be a plugin, a marketplace, or contain plugins.

    Entries of a marketplace that are not in its folder are reported in ``problems``.
    """
    notes = problems if problems is not None else []
    found: dict[tuple[str, str], Plugin] = {}
    for folder in folders:
        for plugin in _find_in_folder(Path(os.path.abspath(folder)), notes):  # noqa: PTH100  # without resolving links
            found.setdefault((plugin.name, os.path.realpath(plugin.root)), plugin)
    return list(found.values())


def installed_plugins(folder: Path, project: Path | None, problems: list[str]) -> list[Plugin]:
    """Return the plugins that Claude Code has installed in ``folder`` for the user or for the project."""
    path = folder / INSTALLED_FILE
    if not path.is_file():
        return []
    document = _read_table(path, problems)
    plugins: list[Plugin] = []
    for name, value in _as_table(document.get("plugins")).items():
        entries = cast("list[object]", value) if isinstance(value, list) else [value]
        for entry in map(_as_table, entries):
            where, owner = entry.get("installPath"), entry.get("projectPath")
            if not isinstance(where, str) or (owner is not None and str(owner) != str(project)):
                continue
            root = folder / where
            if root.is_dir():
                title, _, marketplace = name.partition("@")
                plugins.append(_read_plugin(root, name=title, marketplace=marketplace))
            else:
                problems.append(f"{path}: plugins.{name}: there is no folder {root}; install the plugin again")
    return plugins


def _find_in_folder(folder: Path, problems: list[str]) -> Iterator[Plugin]:
    is_marketplace, is_plugin = (folder / MARKETPLACE_FILE).is_file(), (folder / PLUGIN_FILE).is_file()
    if is_marketplace:
        yield from _read_marketplace(folder, problems)
    if is_plugin and not is_marketplace:
        yield _read_plugin(folder)
    children = (
        [] if is_marketplace or is_plugin else [path.parents[1] for path in sorted(folder.glob(f"*/{PLUGIN_FILE}"))]
    )
    yield from map(_read_plugin, children)
    if not (is_marketplace or is_plugin or children) and _has_parts(folder):
        yield Plugin(name=folder.resolve().name, root=folder)


def _has_parts(folder: Path) -> bool:
    """Return whether a folder without a manifest is a plugin."""
    files = (folder / "hooks" / "hooks.json", folder / ".mcp.json", folder / "SKILL.md")
    return any((folder / key).is_dir() for key in COMPONENT_KEYS) or any(file.is_file() for file in files)


def _read_marketplace(folder: Path, problems: list[str]) -> Iterator[Plugin]:
    """Yield the plugins that a marketplace lists and that are in its folder, and the folder itself if it is one."""
    path = folder / MARKETPLACE_FILE
    document = _read_table(path, problems)
    base = folder / str(_as_table(document.get("metadata")).get("pluginRoot") or "")
    items: object = document.get("plugins")
    elsewhere: list[str] = []
    missing: list[str] = []
    roots: set[str] = set()
    for number, item in enumerate(cast("list[object]", items) if isinstance(items, list) else []):
        entry = _as_table(item)
        source, name = entry.get("source"), str(entry.get("name") or "")
        if not isinstance(source, str) or _REMOTE.match(source):
            elsewhere.append(name or f"plugins[{number}]")
            continue
        root = folder / source if source.startswith(".") else base / source
        roots.add(os.path.realpath(root))
        if not root.is_dir() or not Path(os.path.realpath(root)).is_relative_to(os.path.realpath(folder)):
            missing.append(f"plugins[{number}] {source!r}")
        else:
            yield _read_plugin(root, name=name, entry=entry, marketplace=str(document.get("name") or ""))
    if (folder / PLUGIN_FILE).is_file() and os.path.realpath(folder) not in roots:
        yield _read_plugin(folder)
    for names, wrong in ((missing, "their source is not a folder here"), (elsewhere, "they are not in this folder")):
        if names:
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            problems.append(f"{path}: {len(names)} plugins are left out, since {wrong}: {shown}")


def _read_plugin(
    root: Path, *, name: str = "", entry: Mapping[str, Any] | None = None, marketplace: str = ""
) -> Plugin:
    """Return a plugin; what the entry of its marketplace says is added to its manifest."""
    path = root / PLUGIN_FILE
    problems = list[str]()
    entry = entry or {}
    has_manifest = path.is_file()
    manifest = _read_table(path, problems) if has_manifest else {}
    merged = {**entry, **manifest}
    for key in COMPONENT_KEYS:
        texts = list(dict.fromkeys([*_texts(manifest.get(key)), *_texts(entry.get(key))]))
        merged |= {key: texts} if texts else {}
    problems += [f"{path}: {problem}" for problem in _find_problems(root, merged)]
    title = name or str(manifest.get("name") or "") or root.resolve().name
    named_only = () if has_manifest else tuple(key for key in COMPONENT_KEYS if _texts(entry.get(key)))
    return Plugin(
        name=title,
        root=root,
        manifest=merged,
        marketplace=marketplace,
        named_only=named_only,
        problems=tuple(problems),
    )


def _find_problems(root: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the parts that a manifest names."""
    for key in COMPONENT_KEYS:
        for text in _texts(manifest.get(key)):
            part = Path(os.path.normpath(root / text))
            if not part.is_relative_to(os.path.normpath(root)):
                yield f"{key}: {text!r} leads out of the plugin, so it is not read"
            elif not part.exists():
                yield f"{key}: there is no file or folder {text!r}"


def _read_table(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return a document; report a document that cannot be read and return ``{}``."""
    try:
        document, problem = _read_document(path)
    except ConfigError as error:
        problems.append(str(error))
        return {}
    problems += [problem] if problem else []
    if not isinstance(document, dict):
        problems.append(f"{path}: expected an object")
        return {}
    return cast("dict[str, Any]", document)


def _read_document(path: Path) -> tuple[object, str]:
    try:
        return parse_tolerant_json(read_text(path, MAX_MANIFEST_BYTES), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item.strip()]
