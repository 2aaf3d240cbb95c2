"""Skills, commands, agents and plugins of the ``.claude`` folders: found by their files, bodies read on use."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from vaka.config.claude_settings import CLAUDE_FOLDER, find_project_folder
from vaka.config.documents import parse_json
from vaka.config.frontmatter import MAX_FILE_BYTES, MarkdownFile, read_head, read_markdown, read_text
from vaka.config.settings import ConfigContext
from vaka.core.types.errors import ConfigError

MAX_DESCRIPTION = 1024
"""Characters of a description; a longer one is cut and reported."""
MAX_DEPTH = 8
"""How deep folders of commands and agents are searched."""
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_PLUGIN_FILE = Path(".claude-plugin", "plugin.json")

Source = Literal["user", "project", "plugin", "embedded"]
C = TypeVar("C", bound="Component")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """What skills, commands and agents have in common."""

    name: str
    description: str = ""
    path: Path
    source: Source = "project"
    plugin: str = ""
    variables: Mapping[str, str] = {}
    """Values of ``${NAME}`` in its text, such as ``CLAUDE_PLUGIN_ROOT``."""
    model: str = ""
    hooks: Any = None
    problems: tuple[str, ...] = ()

    def read_body(self) -> str:
        """Return the text below the head as it is now, with its variables replaced. Raises ``ConfigError``."""
        try:
            body = read_markdown(self.path).body
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return expand_variables(body, self.variables)


class Skill(Component, frozen=True, kw_only=True):
    """A folder with ``SKILL.md`` and files that it refers to."""

    allowed_tools: tuple[str, ...] = ()
    user_invocable: bool = True
    model_invocable: bool = True
    """Whether the model can see and use it."""

    @property
    def folder(self) -> Path:
        return self.path.parent


class CommandFile(Component, frozen=True, kw_only=True):
    """A prompt that a user or the model calls by ``/name``."""

    argument_hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    model_invocable: bool = True


class AgentFile(Component, frozen=True, kw_only=True):
    """An agent that works for another one; its body is the system prompt."""

    tools: tuple[str, ...] | None = None
    """The names of its tools; ``None`` for those of the agent that calls it."""
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str = ""
    skills: tuple[str, ...] = ()
    max_turns: int | None = None


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with ``.claude-plugin/plugin.json``."""

    name: str
    root: Path
    manifest: Mapping[str, Any] = {}
    problems: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        return {"CLAUDE_PLUGIN_ROOT": str(self.root)}

    def documents(self, key: str, default: str) -> Iterator[tuple[Path, object]]:
        """Yield the documents of a part such as ``hooks``: its default file, and what the manifest has of it."""
        named: object = self.manifest.get(key)
        if isinstance(named, dict):
            yield self.root / _PLUGIN_FILE, cast("dict[str, Any]", named)
        files = [default, *_texts(self.manifest.get(key))]
        for path in dict.fromkeys(self.root / file for file in files):
            if path.is_file():
                yield path, parse_json(read_text(path, MAX_FILE_BYTES), str(path))


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, in order of precedence: of several with one name the first is used."""

    skills: tuple[Skill, ...] = ()
    commands: tuple[CommandFile, ...] = ()
    agents: tuple[AgentFile, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()

    def find_skill(self, name: str) -> Skill | None:
        return _find(self.skills, name)

    def find_command(self, name: str) -> CommandFile | None:
        return _find(self.commands, name)

    def find_agent(self, name: str) -> AgentFile | None:
        return _find(self.agents, name)


def load_components(folders: Iterable[tuple[Source, Path]], plugins: Iterable[Plugin] = ()) -> Components:
    """Return the components of ``.claude`` folders, the strongest first, then those of plugins.

    What cannot be read well is kept with a problem, and what cannot be read at all is reported.
    """
    finder, known = _Finder(), tuple(plugins)
    for source, folder in folders:
        finder.search(folder, source)
    for plugin in known:
        finder.search_plugin(plugin)
    problems = [problem for plugin in known for problem in plugin.problems]
    return Components(
        skills=tuple(finder.skills), commands=tuple(finder.commands), agents=tuple(finder.agents), plugins=known,
        problems=(*problems, *finder.problems),
    )  # fmt: skip


def components_in_force(context: ConfigContext, plugin_dirs: Iterable[Path] = ()) -> Components:
    """Return the components of the project, of the user, and of the plugins of both and in ``plugin_dirs``."""
    root = find_project_folder(context.cwd, context.home)
    folders: list[tuple[Source, Path]] = [("project", root / CLAUDE_FOLDER)] if root is not None else []
    folders.append(("user", context.home / CLAUDE_FOLDER))
    plugins = find_plugins([*plugin_dirs, *(folder / "plugins" for _, folder in folders)])
    return load_components(folders, plugins)


def find_plugins(folders: Iterable[Path]) -> list[Plugin]:
    """Return the plugins in folders: a folder may be a plugin itself, or contain plugins."""
    roots = [root for folder in folders for root in (folder, *_list_folder(folder)) if (root / _PLUGIN_FILE).is_file()]
    return [_read_plugin(root) for root in dict.fromkeys(roots)]


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` of the known variables."""
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text


class _Finder:
    """Collects the components of several folders."""

    def __init__(self) -> None:
        self.skills: list[Skill] = []
        self.commands: list[CommandFile] = []
        self.agents: list[AgentFile] = []
        self.problems: list[str] = []

    def search(self, folder: Path, source: Source, **more: Any) -> None:
        """Search the default folders of a ``.claude`` folder or a plugin."""
        self._add_skills(folder / "skills", source, **more)
        self._add_commands(folder / "commands", source, **more)
        self._add_agents(folder / "agents", source, **more)

    def search_plugin(self, plugin: Plugin) -> None:
        """Search a plugin: its default folders, and those that its manifest names."""
        more: dict[str, Any] = {"plugin": plugin.name, "variables": plugin.variables}
        self.search(plugin.root, "plugin", **more)
        adders = {"skills": self._add_skills, "commands": self._add_commands, "agents": self._add_agents}
        for key, add in adders.items():
            for name in _texts(plugin.manifest.get(key)):
                path = plugin.root / name
                if path.resolve() != (plugin.root / key).resolve():
                    add(path, "plugin", **more)

    def _add_skills(self, folder: Path, source: Source, **more: Any) -> None:
        folders = [folder] if (folder / "SKILL.md").is_file() else _list_folder(folder)
        for path in (child / "SKILL.md" for child in folders):
            head = self._read(path) if path.is_file() else None
            if head is not None:
                self.skills.append(_make_skill(path, head, {"source": source, **more}))

    def _add_commands(self, folder: Path, source: Source, **more: Any) -> None:
        for path in _find_markdown(folder):
            head = self._read(path)
            if head is not None:
                self.commands.append(_make_command(folder, path, head, {"source": source, **more}))

    def _add_agents(self, folder: Path, source: Source, **more: Any) -> None:
        for path in _find_markdown(folder):
            head = self._read(path)
            if head is not None:
                self.agents.append(_make_agent(path, head, {"source": source, **more}))

    def _read(self, path: Path) -> MarkdownFile | None:
        try:
            return read_head(path)
        except OSError as error:
            self.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return None


def _make_skill(path: Path, head: MarkdownFile, more: dict[str, Any]) -> Skill:
    folder, name, problems = path.parent.name, head.text("name"), list(head.problems)
    if not head.has_head:
        problems.append("it has no head with name and description")
    if name and not _SLUG.fullmatch(name):
        problems.append(f"the name {name!r} is not made of a-z, 0-9 and -; the folder's name is used")
    elif name and name != folder:
        problems.append(f"the name {name!r} is not that of its folder")
    used = name if _SLUG.fullmatch(name) else folder
    return Skill(
        name=_qualify_name(used, more), path=path,
        allowed_tools=head.names("allowed-tools") or head.names("tools") or (),
        description=_description(head, problems), model=head.text("model"), hooks=head.fields.get("hooks"),
        user_invocable=head.fields.get("user-invocable") not in (False, "false"),
        model_invocable=not head.flag("disable-model-invocation"), problems=_with_path(path, problems), **more,
    )  # fmt: skip


def _make_command(root: Path, path: Path, head: MarkdownFile, more: dict[str, Any]) -> CommandFile:
    problems = list(head.problems)
    if root.is_file():
        parts: tuple[str, ...] = (path.stem,)
    else:
        parts = path.relative_to(root).with_suffix("").parts
    return CommandFile(
        name=_qualify_name(":".join(parts), more), path=path, argument_hint=head.text("argument-hint"),
        description=_description(head, problems, needed=False), allowed_tools=head.names("allowed-tools") or (),
        model=head.text("model"), problems=_with_path(path, problems), hooks=head.fields.get("hooks"),
        model_invocable=not (head.flag("disable-model-invocation") or head.flag("hide-from-slash-command-tool")),
        **more,
    )  # fmt: skip


def _make_agent(path: Path, head: MarkdownFile, more: dict[str, Any]) -> AgentFile:
    problems, name = list(head.problems), head.text("name")
    if name and not re.fullmatch(r"[\w.-]+", name):
        problems.append(f"the name {name!r} has characters other than letters, digits and -; the file's name is used")
        name = ""
    tools, turns = head.names("tools"), head.text("maxTurns")
    if turns and not turns.isdecimal():
        problems.append(f"maxTurns {turns!r} is not a number")
    return AgentFile(
        name=_qualify_name(name or path.stem, more), path=path, description=_description(head, problems),
        tools=None if tools is None or "*" in tools else tools, model=head.text("model"),
        disallowed_tools=head.names("disallowedTools") or (), permission_mode=head.text("permissionMode"),
        skills=head.names("skills") or (), hooks=head.fields.get("hooks"), problems=_with_path(path, problems),
        max_turns=int(turns) if turns.isdecimal() and int(turns) > 0 else None, **more,
    )  # fmt: skip


def _description(head: MarkdownFile, problems: list[str], *, needed: bool = True) -> str:
    """Return the description, by default the first line of the body."""
    text = head.text("description")
    if not text:
        if needed:
            problems.append("it has no description")
        lines = (line.strip("# \t") for line in head.body.splitlines())
        text = next((line for line in lines if line), "")
    if len(text) > MAX_DESCRIPTION:
        problems.append(f"the description has {len(text)} characters; the first {MAX_DESCRIPTION} are used")
    return text[:MAX_DESCRIPTION]


def _qualify_name(name: str, more: Mapping[str, Any]) -> str:
    plugin = more.get("plugin")
    return f"{plugin}:{name}" if plugin else name


def _with_path(path: Path, problems: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{path}: {problem}" for problem in problems)


def _read_plugin(root: Path) -> Plugin:
    path = root / _PLUGIN_FILE
    try:
        value = parse_json(read_text(path, MAX_FILE_BYTES), str(path))
    except (ConfigError, OSError) as error:
        return Plugin(name=root.name, root=root, problems=(str(error),))
    if not isinstance(value, dict):
        return Plugin(name=root.name, root=root, problems=(f"{path}: expected an object",))
    manifest = cast("dict[str, Any]", value)
    name = manifest.get("name")
    return Plugin(name=name if isinstance(name, str) and name else root.name, root=root, manifest=manifest)


def _find_markdown(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the Markdown files of a folder and its folders, in order; a link that leads back is not followed."""
    if folder.is_file() and folder.suffix == ".md":
        yield folder
        return
    for path in _list_folder(folder):
        if path.is_dir():
            if depth < MAX_DEPTH and not (path.is_symlink() and folder.resolve().is_relative_to(path.resolve())):
                yield from _find_markdown(path, depth + 1)
        elif path.suffix.lower() == ".md" and not path.name.startswith("."):
            yield path


def _list_folder(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]  # noqa: PTH208  # half the time of iterdir
    except OSError:
        return []


def _texts(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _find(components: Iterable[C], name: str) -> C | None:
    """Return the first component with a name; the name of a plugin may be left out."""
    found = [component for component in components if component.name == name]
    short = [component for component in components if component.plugin and component.name.endswith(f":{name}")]
    return next(iter([*found, *short]), None)
