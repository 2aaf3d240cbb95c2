"""Content that an application ships inside its package: a tree of files below those on disk, which is only read."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vaka.config.settings import CLAUDE_FOLDER, SettingsFile
from vaka.core.types.errors import ConfigError
from vaka.project.claude_settings import parse_document
from vaka.project.components import Component, Components, make_agent, make_command, make_skill
from vaka.project.file_scope import MAX_DEPTH
from vaka.project.frontmatter import MAX_FILE_BYTES, MarkdownFile, parse_markdown
from vaka.project.memory_files import MemoryText

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

EMBEDDED = "embedded:"
"""The first part of the paths of files that are not on disk, such as files of a package in a ZIP file."""


C = TypeVar("C", bound=Component)


class EmbeddedContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a tree. Paths of files in an archive begin with ``embedded:``."""

    components: Components = Components()
    memory: MemoryText | None = None
    rules: tuple[MemoryText, ...] = ()
    styles: tuple[MemoryText, ...] = ()
    settings: SettingsFile | None = None
    names: dict[Path, str] = {}
    """The paths of its files, relative to the ``.claude`` folder."""
    problems: tuple[str, ...] = ()

    def below(self, folders: Iterable[Path]) -> "EmbeddedContent":
        """Return the content without files that are also in one of the ``.claude`` folders."""
        if not self.names:
            return self
        taken = {path for path, name in self.names.items() for folder in folders if (folder / name).exists()}

        def is_left(item: Component | MemoryText) -> bool:
            return item.path not in taken

        found = self.components
        components = Components(
            skills=tuple(filter(is_left, found.skills)),
            commands=tuple(filter(is_left, found.commands)),
            agents=tuple(filter(is_left, found.agents)),
        )
        return msgspec.structs.replace(self, components=components, rules=tuple(filter(is_left, self.rules)))


@lru_cache(maxsize=8)
def load_embedded(tree: "Traversable") -> EmbeddedContent:
    """Return the content of a tree with ``.claude`` and ``CLAUDE.md``, or with the content of ``.claude``.

    Raises ``ConfigError`` for a tree that is not there or settings that cannot be read.
    """
    if not tree.is_dir():
        raise ConfigError(f"the overlay {tree} is not a folder; give a folder, or importlib.resources.files(PACKAGE)")
    inner = tree / CLAUDE_FOLDER
    reader = _Reader(inner if inner.is_dir() else tree)
    own = [reader.find(folder / "CLAUDE.md", "CLAUDE.md") for folder in (tree, inner)]
    memory = next((file for file in own if file is not None), None)
    settings = reader.find(reader.tree / "settings.json", "settings.json")
    return EmbeddedContent(
        components=reader.load_components(),
        memory=MemoryText(path=memory[0], text=memory[1].strip()) if memory is not None else None,
        rules=tuple(reader.load_texts("rules")),
        styles=tuple(reader.load_texts("output-styles")),
        settings=SettingsFile(
            layer="embedded", path=settings[0], document=parse_document(settings[1], str(settings[0])), text=settings[1]
        )
        if settings is not None
        else None,
        names=reader.names,
        problems=tuple(reader.problems),
    )


class EmbeddedFile(msgspec.Struct, frozen=True):
    """A file of a tree and the folder that it is in."""

    folder: Any
    file: Any

    def read_body(self) -> str:
        """Return the text below the head. Raises ``OSError``."""
        return parse_markdown(_decode(self.file)).body

    def list_files(self) -> list[str]:
        """Return the names of the other files of the folder and its subfolders."""
        return [name for name, file in _walk(self.folder) if file.name != self.file.name or "/" in name]

    def read_file(self, name: str) -> str:
        """Return another file of the folder. Raises ``ConfigError`` for a name that is not in the list."""
        found = next((file for known, file in _walk(self.folder) if known == str(PurePosixPath(name))), None)
        if found is None:
            raise ConfigError(f"there is no file {name!r}; there are: {', '.join(self.list_files()) or 'none'}")
        return _decode(found)


class _Reader:
    def __init__(self, tree: "Traversable") -> None:
        self.tree = tree
        self.names: dict[Path, str] = {}
        self.problems: list[str] = []

    def find(self, file: "Traversable", name: str) -> tuple[Path, str] | None:
        """Return the path and text of a file, ``None`` when it is missing or cannot be read."""
        path = file if isinstance(file, Path) else Path(EMBEDDED, name)
        self.names[path] = name
        try:
            return (path, _decode(file)) if file.is_file() else None
        except OSError as error:
            self.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return None

    def load_components(self) -> Components:
        folder = self.tree / "commands"
        root = folder if isinstance(folder, Path) else Path(EMBEDDED, "commands")
        return Components(
            skills=tuple(self._make("skills", make_skill, "SKILL.md")),
            commands=tuple(self._make("commands", partial(make_command, root))),
            agents=tuple(self._make("agents", make_agent)),
        )

    def _make(
        self, kind: str, make: "Callable[[Path, MarkdownFile, dict[str, Any]], C]", file_name: str = ""
    ) -> Iterator[C]:
        for name, file in _markdown(self.tree / kind):
            found = self.find(file, f"{kind}/{name}") if file_name in ("", file.name) else None
            if found is not None:
                folder = self.tree / kind
                for part in name.split("/")[:-1]:
                    folder = folder / part
                more = {"source": "embedded", "embedded": EmbeddedFile(folder, file)}
                yield make(found[0], parse_markdown(found[1]), more)

    def load_texts(self, kind: str) -> Iterator[MemoryText]:
        for name, file in _markdown(self.tree / kind):
            found = self.find(file, f"{kind}/{name}")
            if found is not None:
                parsed = parse_markdown(found[1])
                patterns = parsed.names("paths", "globs", spaces=False) or ()
                title = parsed.text("name") or PurePosixPath(name).stem
                yield MemoryText(path=found[0], text=parsed.body.strip(), patterns=patterns, name=title)


def _markdown(folder: "Traversable") -> "list[tuple[str, Traversable]]":
    return [(name, file) for name, file in _walk(folder) if name.lower().endswith(".md")]


def _walk(folder: "Traversable", prefix: str = "", depth: int = 0) -> "Iterator[tuple[str, Traversable]]":
    """Yield the files below a folder by their names in it, in order."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and depth < MAX_DEPTH and entry.name != "__pycache__":
            yield from _walk(entry, f"{prefix}{entry.name}/", depth + 1)
        elif entry.is_file():
            yield f"{prefix}{entry.name}", entry


def _decode(file: "Traversable") -> str:
    data = file.read_bytes()
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"it has more than {MAX_FILE_BYTES} bytes")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
