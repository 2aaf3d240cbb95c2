"""Skills, commands, agents and plugins of the ``.claude`` folders: found by their files, bodies read on use."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from vaka.config.settings import CLAUDE_FOLDER, ConfigContext, SettingsFile
from vaka.core.types.errors import ConfigError
from vaka.matching.sensitive_paths import holds_secrets
from vaka.project.file_scope import DOCUMENT_NAMES, ComponentWalk, FileScope
from vaka.project.frontmatter import MAX_CACHED_HEADS, MarkdownFile, read_body, read_head
from vaka.project.plugins import Plugin, find_plugins, installed_plugins

MAX_DESCRIPTION = 1024
"""Characters of the description of a skill; a longer one is cut and reported."""
MAX_LONG_DESCRIPTION = 16 * 1024
"""Characters of the description of a command or an agent, which often has examples."""
EFFORTS = ("low", "medium", "high", "max")
"""The values of ``effort`` of an agent."""
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")

_COMMAND_NAME = re.compile(r"[\w:.-]+")
_EVERY_TOOL = frozenset(("*", "all", "All"))

Source = Literal["user", "project", "plugin", "embedded"]
C = TypeVar("C", bound="Component")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of skills, commands and agents."""

    name: str
    description: str = ""
    path: Path
    source: Source = "project"
    plugin: str = ""
    variables: Mapping[str, str] = {}
    """Values of ``${NAME}`` in its text, such as ``CLAUDE_PLUGIN_ROOT``."""
    embedded: Any = None
    """The file of a package that it is in, in place of ``path``."""
    model: str = ""
    hooks: Any = None
    problems: tuple[str, ...] = ()

    def read_body(self) -> str:
        """Return the text below the head as it is now, with its variables replaced. Raises ``ConfigError``."""
        if self.embedded is None and holds_secrets(os.path.realpath(self.path)):  # a link by now
            raise ConfigError(f"{self.path}: leads to a file that may hold secrets")
        try:
            body = read_body(self.path) if self.embedded is None else self.embedded.read_body()
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
    """The names of its tools; ``None``: the tools of the calling agent."""
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str = ""
    skills: tuple[str, ...] = ()
    max_turns: int | None = None
    mcp_servers: tuple[str, ...] | None = None
    """The MCP servers whose tools it may use; ``None``: the servers of the calling agent."""
    effort: str = ""
    """How much its model reasons; empty for the default."""


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """The found components, in order of precedence: if several have one name, the first is used."""

    skills: tuple[Skill, ...] = ()
    commands: tuple[CommandFile, ...] = ()
    agents: tuple[AgentFile, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()

    def followed_by(self, others: "Components") -> "Components":
        """Return these, and then others."""
        if others == Components():
            return self
        return msgspec.structs.replace(
            self,
            skills=(*self.skills, *others.skills),
            commands=(*self.commands, *others.commands),
            agents=(*self.agents, *others.agents),
        )

    def find_skill(self, name: str) -> Skill | None:
        return _find(self.skills, name)

    def find_command(self, name: str) -> CommandFile | None:
        return _find(self.commands, name)

    def find_agent(self, name: str) -> AgentFile | None:
        return _find(self.agents, name)


def load_components(
    folders: Iterable[tuple[Source, Path]], plugins: Iterable[Plugin] = (), scope: FileScope | None = None
) -> Components:
    """Return the components of ``.claude`` folders, the strongest first, then the components of plugins.

    What cannot be read well is kept with a problem, and what cannot be read at all is reported. ``scope`` says where
    links of a project may lead.
    """
    finder, known = _Finder(scope), tuple(plugins)
    for source, folder in folders:
        finder.search(folder, source)
    for plugin in known:
        finder.search_plugin(plugin)
    problems = [problem for plugin in known for problem in plugin.problems]
    return Components(
        skills=tuple(finder.skills),
        commands=tuple(finder.commands),
        agents=tuple(finder.agents),
        plugins=known,
        problems=(*problems, *finder.problems),
    )


def components_in_force(
    context: ConfigContext,
    plugin_dirs: Iterable[Path] = (),
    files: Iterable[SettingsFile] = (),
    *,
    trusted: bool = True,
) -> Components:
    """Return the components of the project, of the user, and of the plugins of both and in ``plugin_dirs``.

    ``files`` are the settings files in force, which can switch plugins off.
    """
    home, projects = context.home / CLAUDE_FOLDER, project_folders(context)
    folders: list[tuple[Source, Path]] = [*(("project", folder) for folder in projects), ("user", home)]
    problems: list[str] = []
    active = plugins_in_force(context, plugin_dirs, files, problems)
    scope = FileScope.of([context.repository, context.cwd], user=home, trusted=trusted)
    found = load_components(folders, active, scope)
    missing = [
        f"{agent.path}: skills: there is no skill {name!r}"
        for agent in found.agents
        for name in agent.skills
        if found.find_skill(name) is None
    ]
    return msgspec.structs.replace(found, problems=(*problems, *found.problems, *missing))


def plugins_in_force(
    context: ConfigContext, plugin_dirs: Iterable[Path], files: Iterable[SettingsFile], problems: list[str]
) -> list[Plugin]:
    """Return the plugins in ``plugin_dirs``, of the project and of the user that no settings file switches off."""
    home = context.home / CLAUDE_FOLDER
    plugins = find_plugins(
        [*plugin_dirs, *(folder / "plugins" for folder in (*project_folders(context), home))], problems
    )
    plugins += installed_plugins(home / "plugins", context.project_folder, problems)
    switches = _plugin_switches(files)
    return [plugin for plugin in plugins if _is_switched_on(plugin, switches)]


def project_folders(context: ConfigContext) -> list[Path]:
    """Return the ``.claude`` folders of the project, the nearest first: those up to the root of the repository."""
    root = context.repository
    parents = [folder for folder in (context.cwd, *context.cwd.parents) if folder.is_relative_to(root)]
    found = [folder / CLAUDE_FOLDER for folder in parents if folder != context.home]
    return [folder for folder in found if folder.is_dir()]


def _plugin_switches(files: Iterable[SettingsFile]) -> dict[str, bool]:
    """Return the switches of plugins in trusted files, by ``name@marketplace``; stronger files win."""
    switches: dict[str, bool] = {}
    for file in (file for file in files if file.trusted):
        table: object = file.document.get("enabledPlugins")
        for name, on in cast("dict[str, Any]", table).items() if isinstance(table, dict) else ():
            switches[str(name)] = on is not False
    return switches


def _is_switched_on(plugin: Plugin, switches: Mapping[str, bool]) -> bool:
    for name, on in switches.items():
        title, _, marketplace = name.partition("@")
        if title == plugin.name and plugin.marketplace in ("", marketplace):
            return on
    return True


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` of the known variables."""
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text


class _Finder:
    """Collects the components of several folders."""

    def __init__(self, scope: FileScope | None) -> None:
        self.skills: list[Skill] = []
        self.commands: list[CommandFile] = []
        self.agents: list[AgentFile] = []
        self.problems: list[str] = []
        self._scope = scope

    def search(self, folder: Path, source: Source) -> None:
        """Search the default folders of a ``.claude`` folder."""
        scope = self._scope if source == "project" else None
        if scope is not None and (problem := scope.find_problem(folder, folder=True)):
            self.problems.append(f"{folder}: {problem}")
            return
        self._search([folder / "skills"], [folder / "commands"], [folder / "agents"], scope, {"source": source})

    def search_plugin(self, plugin: Plugin) -> None:
        """Search a plugin: its default folders, and the folders that its manifest names."""
        more = {"source": "plugin", "plugin": plugin.name, "variables": plugin.variables}
        in_project = self._scope is not None and not self._scope.find_problem(plugin.root, folder=True)
        scope = self._scope if in_project else None
        self._search(plugin.parts("skills"), plugin.parts("commands"), plugin.parts("agents"), scope, more)

    def _search(
        self,
        skills: list[Path],
        commands: list[Path],
        agents: list[Path],
        scope: FileScope | None,
        more: dict[str, Any],
    ) -> None:
        """Add what folders contain. Names are unique there; between folders the first one counts."""
        walk = ComponentWalk(scope, self.problems)
        found_skills = [
            _make_once("skill", make_skill, path, head, more)
            for _, path in walk.unique(skills, walk.find_skills)
            if (head := self._read(path)) is not None and (head.has_head or _is_skill_file(path))
        ]
        self.skills += _rename_repeated(found_skills, lambda skill: _folder_name(skill.path))
        self.commands += [
            _make_once(str(root), partial(make_command, root), path, head, more)
            for root, path in walk.unique(commands, walk.find_markdown)
            if (head := self._read(path)) is not None
        ]
        found_agents = [
            _make_once("agent", make_agent, path, head, more)
            for _, path in walk.unique(agents, walk.find_markdown)
            if (head := self._read(path)) is not None and self._is_agent(path, head)
        ]
        self.agents += _rename_repeated(found_agents, lambda agent: agent.path.stem)

    def _is_agent(self, path: Path, head: MarkdownFile) -> bool:
        is_agent = head.has_head or path.stem.upper() not in DOCUMENT_NAMES
        if not is_agent:
            self.problems.append(f"{path}:1: it has no head with name and description, so it is not an agent")
        return is_agent

    def _read(self, path: Path) -> MarkdownFile | None:
        try:
            return read_head(path)
        except OSError as error:
            self.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return None


_made: dict[tuple[str, Path, str, str], tuple[MarkdownFile, Component]] = {}
"""The component of each file, by its kind, path, plugin and source, with the head that it was made of."""


def _make_once(
    kind: str,
    make: "Callable[[Path, MarkdownFile, dict[str, Any]], C]",
    path: Path,
    head: MarkdownFile,
    more: dict[str, Any],
) -> C:
    """Return the component of a file; the same one as long as its head is the same.

    The kind of a command is the folder in which it was searched, since that is part of its name.
    """
    key = (kind, path, str(more.get("plugin", "")), str(more["source"]))
    known = _made.get(key)
    if known is not None and known[0] is head:
        return cast("C", known[1])
    if len(_made) >= MAX_CACHED_HEADS:
        _made.clear()
    made = make(path, head, more)
    _made[key] = head, made
    return made


def _rename_repeated(items: list[C], other_name: Callable[[C], str]) -> list[C]:
    """Rename components of one folder that have the same name: each gets the name of its file or folder."""
    taken: dict[str, C] = {}
    renamed: list[C] = []
    for item in items:
        first = taken.get(item.name)
        if first is not None:
            name = _qualify_name(other_name(item), {"plugin": item.plugin})
            problem = f"{item.path}:1: the name {item.name!r} is also the name of {first.path}; "
            used = f"{name!r} is used" if name not in taken else "it is not used"
            name = name if name not in taken else item.name
            item = msgspec.structs.replace(item, name=name, problems=(*item.problems, problem + used))
        taken.setdefault(item.name, item)
        renamed.append(item)
    return renamed


def make_skill(path: Path, head: MarkdownFile, more: dict[str, Any]) -> Skill:
    folder = _folder_name(path)
    name = head.text("name")
    problems = list(head.problems)
    if not _is_skill_file(path):
        problems.append((1, f"a skill is a folder; move the file to {path.stem}/SKILL.md"))
    elif path.name != "SKILL.md":
        problems.append((1, f"the file is named {path.name}; rename it to SKILL.md"))
    if not head.has_head:
        problems.append((1, "it has no head with name and description"))
    if name and not _SLUG.fullmatch(name):
        wrong = f"the name {name!r} is not made of a-z, 0-9 and -; the folder's name is used"
        problems.append((head.line_of("name"), wrong))
    elif name and name != folder:
        problems.append((head.line_of("name"), f"the name {name!r} differs from the name of its folder, {folder!r}"))
    used = name if _SLUG.fullmatch(name) else re.sub(r"[^\w.-]+", "-", folder)
    return Skill(
        name=_qualify_name(used, more),
        path=path,
        allowed_tools=_read_tools(head, more, "allowed-tools", "tools") or (),
        description=_description(head, problems, MAX_DESCRIPTION),
        model=head.text("model"),
        hooks=head.find("hooks"),
        user_invocable=head.flag("user-invocable") is not False,
        model_invocable=not head.flag("disable-model-invocation"),
        problems=_with_path(path, problems),
        **more,
    )


def _is_skill_file(path: Path) -> bool:
    return path.name.lower() == "skill.md"


def _folder_name(path: Path) -> str:
    """Return the name of the folder of a skill; for a skill that is only a file, the name without the suffix."""
    return path.parent.name if _is_skill_file(path) else path.stem


def make_command(root: Path, path: Path, head: MarkdownFile, more: dict[str, Any]) -> CommandFile:
    problems = list(head.problems)
    parts = (path.stem,) if root == path else path.relative_to(root).with_suffix("").parts
    name = ":".join(parts)
    if not _COMMAND_NAME.fullmatch(name):
        name = re.sub(r"[^\w:.-]+", "-", name)
        problems.append((1, f"the file's name has characters that a command cannot have; it is called as /{name}"))
    return CommandFile(
        name=_qualify_name(name, more),
        path=path,
        argument_hint=head.source("argument-hint"),
        description=_description(head, problems, MAX_LONG_DESCRIPTION, needed=False),
        allowed_tools=_read_tools(head, more, "allowed-tools") or (),
        model=head.text("model"),
        problems=_with_path(path, problems),
        hooks=head.find("hooks"),
        model_invocable=not (head.flag("disable-model-invocation") or head.flag("hide-from-slash-command-tool")),
        **more,
    )


def make_agent(path: Path, head: MarkdownFile, more: dict[str, Any]) -> AgentFile:
    problems, name = list(head.problems), head.text("name")
    if name and not re.fullmatch(r"[\w.-]+", name):
        slug = re.sub(r"[^\w.-]+", "-", name.lower()).strip("-")
        problems.append(
            (
                head.line_of("name"),
                f"the name {name!r} has characters other than letters, digits and -; {slug!r} is used",
            )
        )
        name = slug
    tools, turns = _read_tools(head, more, "tools", "allowed-tools"), head.text("maxTurns")
    if turns and not turns.isdecimal():
        problems.append((head.line_of("maxTurns"), f"maxTurns {turns!r} is not a number"))
    return AgentFile(
        name=_qualify_name(name or path.stem, more),
        path=path,
        description=_description(head, problems, MAX_LONG_DESCRIPTION),
        tools=None if tools is None or _EVERY_TOOL.intersection(tools) else tools,
        model=head.text("model"),
        disallowed_tools=_read_tools(head, more, "disallowedTools") or (),
        permission_mode=head.text("permissionMode"),
        skills=head.names("skills") or (),
        hooks=head.find("hooks"),
        max_turns=int(turns) if turns.isdecimal() and int(turns) > 0 else None,
        mcp_servers=_read_servers(head, problems),
        effort=_read_effort(head, problems),
        problems=_with_path(path, problems),
        **more,
    )


def _read_servers(head: MarkdownFile, problems: list[tuple[int, str]]) -> tuple[str, ...] | None:
    """Return the names of MCP servers; definitions in their place are reported."""
    value = head.find("mcpServers")
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if any(isinstance(item, dict) for item in items):
        wrong = "mcpServers: definitions have no effect here; define the servers in .mcp.json and list their names"
        problems.append((head.line_of("mcpServers"), wrong))
        return tuple(item.strip() for item in items if isinstance(item, str)) or None
    return head.names("mcpServers", spaces=False)


def _read_effort(head: MarkdownFile, problems: list[tuple[int, str]]) -> str:
    effort = head.text("effort").lower()
    if effort and effort not in EFFORTS:
        problems.append((head.line_of("effort"), f"effort {effort!r} is not one of {', '.join(EFFORTS)}"))
    return effort if effort in EFFORTS else ""


def slash_commands(context: ConfigContext, plugin_dirs: Sequence[Path] = ()) -> dict[str, str]:
    """Return the commands and skills that a user can call by ``/name``, with their descriptions."""
    found = components_in_force(context, plugin_dirs)
    skills = [skill for skill in found.skills if skill.user_invocable]
    return {item.name: item.description for item in reversed((*found.commands, *skills))}


def _read_tools(head: MarkdownFile, more: Mapping[str, Any], *names: str) -> tuple[str, ...] | None:
    """Return the names and rules of tools, with the variables of a plugin replaced."""
    tools = head.names(*names)
    return None if tools is None else tuple(expand_variables(tool, more.get("variables") or {}) for tool in tools)


def _description(head: MarkdownFile, problems: list[tuple[int, str]], limit: int, *, needed: bool = True) -> str:
    """Return the description, by default the first line of the body."""
    text = head.text("description")
    if not text:
        if needed:
            problems.append((1, "it has no description; the first line of its text is used"))
        lines = (line.strip("# \t") for line in head.body.splitlines())
        text = next((line for line in lines if line.strip("-=*_` ")), "")
    if len(text) > limit:
        wrong = f"the description has {len(text)} characters; the first {limit} are used"
        problems.append((head.line_of("description"), wrong))
    return text[:limit]


def _qualify_name(name: str, more: Mapping[str, Any]) -> str:
    plugin = more.get("plugin")
    return f"{plugin}:{name}" if plugin else name


def _with_path(path: Path, problems: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(f"{path}:{line}: {problem}" for line, problem in problems)


def _find(components: Iterable[C], name: str) -> C | None:
    """Return the first component with a name; the names of a plugin and of folders may be left out if one is meant."""
    found = [component for component in components if component.name == name]
    short = [component for component in components if component.name.endswith(f":{name}")] if not found else []
    if len({component.name for component in short}) > 1:
        short = []
    return next(iter([*found, *short]), None)
