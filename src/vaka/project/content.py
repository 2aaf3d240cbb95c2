"""Content of a project and a user for agents: memory files, rules, an output style, skills, commands and agents."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from vaka.config.settings import CLAUDE_FOLDER, ConfigContext, SettingsFile
from vaka.core.types.keywords import UnevaluatedSignature
from vaka.project.claude_settings import load_settings_files, managed_folders
from vaka.project.components import Components, components_in_force, project_folders
from vaka.project.embedded import EmbeddedContent, load_embedded
from vaka.project.file_scope import FileScope
from vaka.project.memory_files import (
    MemoryReader,
    MemoryText,
    has_nested_memory,
    load_output_style,
    load_rules,
    memory_folders,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class ProjectContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content as it was loaded, and what is wrong with it."""

    root: Path
    """The folder of the project."""
    components: Components = Components()
    memory: tuple[MemoryText, ...] = ()
    rules: tuple[MemoryText, ...] = ()
    style: MemoryText | None = None
    excludes: tuple[str, ...] = ()
    """Patterns of memory files that are not read."""
    scope: FileScope = FileScope(folders=())
    """The files that memory may come from."""
    has_file_texts: bool = False
    """Whether there are texts that only work on some files needs: rules with patterns, or nested memory files."""
    problems: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The part of the system prompt: memory, rules without patterns, and the output style."""
        parts = [f"# Memory: {memory.path}\n\n{memory.text}" for memory in self.memory]
        always = [rule.text for rule in self.rules if not rule.patterns]
        if always:
            parts.append("# Project rules\n\n" + "\n\n".join(always))
        if self.style is not None and self.style.text:
            parts.append(f"# Output style: {self.style.name}\n\n{self.style.text}")
        return "\n\n".join(parts)

    def texts_for(self, path: Path, known: Iterable[str] = ()) -> list[MemoryText]:
        """Return the rules and nested memory files for work on a file, without the known ones.

        Nested memory files are in folders between the project and the file.
        """
        path = Path(os.path.normpath(path))
        try:
            relative = path.relative_to(self.root)
        except ValueError:
            return []
        seen = {*known, *(str(memory.path) for memory in self.memory)}
        rules = [rule for rule in self.rules if rule.patterns and rule.applies_to(str(path))]
        given = [*(memory.path for memory in self.memory), *map(Path, known)]
        reader = MemoryReader(excludes=self.excludes, scope=self.scope, known=given)
        folders = [self.root.joinpath(*relative.parts[:count]) for count in range(1, len(relative.parts))]
        inside = [folder for folder in folders if not self.scope.find_problem(folder, folder=True)]
        nested = [memory for folder in inside for memory in reader.load_folder(folder)]
        return [text for text in (*nested, *rules) if str(text.path) not in seen]


class ProjectSource(msgspec.Struct, frozen=True, kw_only=True, metaclass=UnevaluatedSignature):
    """Where the content of a project comes from."""

    trusted: bool = True
    """Whether its files may allow things: the tools that a command or skill lists as allowed."""
    hooks: bool = True
    """Whether the hooks in the heads of its skills, commands and agents run while those are in use."""
    plugin_dirs: tuple[str, ...] = ()
    overlay: "Traversable | str | None" = None
    """A folder or ``importlib.resources.files(PACKAGE)``: content of an application for which files on disk are read
    instead, one by one, where there are some."""
    settings_file: str = ""
    """One more settings file, or JSON."""
    settings: bool = False
    """Whether permissions, hooks and variables of the settings files count, too; they are read again when they change.
    The rules and hooks of the options are added to them."""
    overrides: Mapping[str, Any] | None = None
    """Settings that are stronger than all files but the administrator's."""

    def load(self, folder: str, known: ProjectContent | None = None) -> ProjectContent:
        """Return the content for a working folder. Raises ``ConfigError`` for settings that cannot be read.

        ``known`` is the content as it was loaded before.
        """
        context = ConfigContext(cwd=Path(folder or ".").absolute(), home=Path.home(), environ=os.environ)
        plugin_dirs = [Path(folder) for folder in self.plugin_dirs]
        return load_project_content(
            context,
            self.load_files(context),
            plugin_dirs,
            trusted=self.trusted,
            known=known,
            overlay=self._load_overlay(),
        )

    def load_files(self, context: ConfigContext) -> list[SettingsFile]:
        """Return the settings in force, the weakest (of the overlay) first. Raises ``ConfigError``."""
        files = load_settings_files(context, settings=self.settings_file, trust=self.trusted, overrides=self.overrides)
        own = self._load_overlay().settings
        return files if own is None else [msgspec.structs.replace(own, folder=str(context.cwd)), *files]

    def _load_overlay(self) -> EmbeddedContent:
        tree = Path(self.overlay).absolute() if isinstance(self.overlay, str) else self.overlay
        return EmbeddedContent() if tree is None else load_embedded(cast("Any", tree))


def load_project_content(
    context: ConfigContext,
    files: Sequence[SettingsFile] = (),
    plugin_dirs: Iterable[Path] = (),
    *,
    trusted: bool = True,
    known: ProjectContent | None = None,
    overlay: EmbeddedContent | None = None,
) -> ProjectContent:
    """Return the content that holds for the working folder; ``files`` are the settings files in force.

    What ``overlay`` has counts where there is no such file in the project. ``known`` was loaded before; the folders
    below the working folder are not searched for memory files again.
    """
    home, projects = context.home / CLAUDE_FOLDER, project_folders(context)
    root = projects[0].parent if projects else context.cwd
    components = components_in_force(context, plugin_dirs, files, trusted=trusted)
    overlay = (overlay or EmbeddedContent()).below(projects)
    components = components.followed_by(overlay.components)
    problems = [*overlay.problems, *components.problems]
    named = [file.document.get("claudeMdExcludes") for file in files if file.trusted]
    excludes = [text for value in named for text in _texts(value)]
    style_name = next((str(name) for file in reversed(files) if (name := file.document.get("outputStyle"))), "")
    scope = FileScope.of([root, context.repository, context.cwd], user=home, trusted=trusted)
    reader = MemoryReader(excludes=excludes, scope=scope, own=(*managed_folders(), home))
    own = [reader.load(folder / "CLAUDE.md") for folder in (*managed_folders(), home)]
    memory = [text for text in own if text is not None]
    of_project = [text for folder in memory_folders(context.cwd) for text in reader.load_folder(folder)]
    if overlay.memory is not None and not any(text.path.name == overlay.memory.path.name for text in of_project):
        memory.append(overlay.memory)
    memory += of_project
    rules = load_rules([home / "rules"], problems, project=root)
    rules += [msgspec.structs.replace(rule, folder=str(root)) for rule in overlay.rules]
    rules += load_rules([folder / "rules" for folder in reversed(projects)], problems, scope)
    plugin_styles = [plugin.root / "output-styles" for plugin in components.plugins]
    styles = [*(folder / "output-styles" for folder in (*projects, home)), *plugin_styles]
    embedded = [style for style in overlay.styles if style.name.lower() == style_name.lower()]
    missing: list[str] = []
    style = load_output_style(style_name, styles, missing, scope) if style_name else None
    style = style or next(iter(embedded), None)
    problems += missing if style is None else []
    return ProjectContent(
        has_file_texts=known.has_file_texts
        if known is not None
        else any(rule.patterns for rule in rules) or has_nested_memory(context.cwd),
        root=context.cwd,
        components=components,
        memory=tuple(memory),
        rules=tuple(rules),
        scope=scope,
        excludes=tuple(excludes),
        style=style,
        problems=(*problems, *reader.problems),
    )


def _texts(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
