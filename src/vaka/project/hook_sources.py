"""The hooks of settings files, of plugins, and of the heads of skills, commands and agents, after all switches."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import parse_tolerant_json, read_errors
from vaka.config.hook_definition import Hook, ParsedHooks, parse_hooks
from vaka.config.settings import MANAGED, ConfigContext, SettingsFile
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Content, Text, ToolCall, ToolResult
from vaka.project.claude_settings import hooks_are_disabled, is_of_project, read_settings_text
from vaka.project.components import Component, Components, components_in_force, plugins_in_force
from vaka.project.content import ProjectContent

NOT_TRUSTED = "the folder is not trusted"
SWITCHED_OFF = "settings switch hooks off"
PLUGIN_HOOKS = "hooks/hooks.json"
ACTIVE_KEY = "hooks.active"
"""The session value that lists the components with hooks that the running turn uses: turn, path and component."""
_COMMAND_NAME = re.compile(r"\s*/([\w:.-]+)(?:\s.*)?", re.DOTALL)


def hooks_of_files(files: Sequence[SettingsFile]) -> ParsedHooks:
    """Return the hooks of all settings files, the weakest first, and what is wrong or was ignored.

    A project that is not trusted runs no hooks. Hooks that do not run are returned with the reason.
    """
    managed_only = hooks_are_disabled(files)
    hooks: list[Hook] = []
    notes: list[str] = []
    for file in files:
        if "hooks" not in file.document:
            continue
        managed = file.layer == MANAGED
        parsed = parse_hooks({"hooks": file.document["hooks"]}, origin=str(file.path), managed=managed)
        if managed_only and not managed:
            parsed = _disable(parsed, SWITCHED_OFF, f"{file.path}: its hooks are switched off by settings")
        elif not file.trusted:
            parsed = _disable(parsed, NOT_TRUSTED, _not_trusted(file.path))
        hooks += parsed.hooks
        notes += parsed.problems
    return ParsedHooks(tuple(hooks), tuple(notes))


def hooks_in_force(
    context: ConfigContext,
    files: Sequence[SettingsFile],
    *,
    trusted: bool,
    plugin_dirs: Iterable[Path] = (),
    with_heads: bool = False,
) -> ParsedHooks:
    """Return the hooks of settings files, then the hooks of plugins, with errors and ignored settings.

    ``with_heads`` adds the hooks in the heads of skills, commands and agents, which hold only while these are in use.
    """
    parsed = [hooks_of_files(files)]
    if with_heads:
        components = components_in_force(context, plugin_dirs, files, trusted=trusted)
    else:
        components = Components(plugins=tuple(plugins_in_force(context, plugin_dirs, files, [])))
    found = ComponentHooks(components, context.cwd, context.home, trusted=trusted)
    others = [found.read_plugins(), *([found.read_heads()] if with_heads else [])]
    if hooks_are_disabled(files):
        count = sum(len(one.hooks) for one in others)
        note = f"{count} hooks of plugins, skills, commands and agents are switched off by settings"
        others = [_disable(one, SWITCHED_OFF, note) for one in others if one.hooks]
    parsed += others
    return ParsedHooks(
        tuple(hook for one in parsed for hook in one.hooks), tuple(note for one in parsed for note in one.problems)
    )


class ComponentHooks:
    """The hooks that plugins, skills, commands and agents define."""

    def __init__(self, components: Components, cwd: Path, home: Path, *, trusted: bool) -> None:
        """Hooks of the project around ``cwd`` run only if it is ``trusted``; hooks in ``home`` are the user's."""
        self._components, self._trusted = components, trusted
        self._cwd, self._home = cwd, home

    def read_plugins(self) -> ParsedHooks:
        """Return the hooks of plugins, which hold always."""
        hooks: list[Hook] = []
        notes: list[str] = []
        for plugin in self._components.plugins:
            for path, document in _read_plugin(plugin.root, plugin.manifest.get("hooks"), notes):
                parsed = parse_hooks(document, origin=str(path), variables=plugin.variables)
                if not self._may_run(plugin.root):
                    parsed = _disable(parsed, NOT_TRUSTED, _not_trusted(path))
                hooks += parsed.hooks
                notes += parsed.problems
        return ParsedHooks(tuple(hooks), tuple(notes))

    def read_heads(self) -> ParsedHooks:
        """Return the hooks in the heads of skills, commands and agents, each of which holds while that is in use."""
        found = [self.read_head(kind, component) for kind, component in self._list_components() if component.hooks]
        return ParsedHooks(
            tuple(hook for parsed in found for hook in parsed.hooks),
            tuple(problem for parsed in found for problem in parsed.problems),
        )

    def find(self, key: str) -> tuple[Hook, ...]:
        """Return the hooks of a component such as ``skill deploy``."""
        kind, _, name = key.partition(" ")
        component = self._find_component(kind, name)
        if component is None or not component.hooks:
            return ()
        return tuple(hook for hook in self.read_head(kind, component).hooks if not hook.disabled)

    def read_head(self, kind: str, component: Component) -> ParsedHooks:
        """Return the hooks in the head of one component."""
        variables = {**component.variables, "CLAUDE_SKILL_DIR": str(component.path.parent)}
        name = f"{kind} {component.name}"
        parsed = parse_hooks(
            {"hooks": component.hooks},
            origin=str(component.path),
            component=name,
            variables=variables if kind == "skill" else component.variables,
        )
        if not self._may_run(component.path):
            return _disable(parsed, NOT_TRUSTED, _not_trusted(component.path))
        return parsed

    def _find_component(self, kind: str, name: str) -> Component | None:
        if kind == "agent":
            return next((agent for agent in self._components.agents if agent.name == name), None)
        return self._components.find_skill(name) if kind == "skill" else self._components.find_command(name)

    def _list_components(self) -> Iterator[tuple[str, Component]]:
        yield from (("skill", component) for component in self._components.skills)
        yield from (("command", component) for component in self._components.commands)
        yield from (("agent", component) for component in self._components.agents)

    def _may_run(self, path: Path) -> bool:
        return self._trusted or not is_of_project(path, self._cwd, self._home)


class ComponentUse(Middleware):
    """Notes which skills, commands and agents with hooks a turn uses, in the log, so that a resumed turn knows them.

    The hooks of a skill or command hold from its use to the end of the turn, for the agent that uses it and for the
    children of that agent. The hooks of an agent hold as long as it runs.
    """

    inherited = ("before_agent", "after_tool")
    admits_steering = True

    def __init__(self, load: Callable[[], ComponentHooks]) -> None:
        self._load = load

    @property
    def name(self) -> str:
        return "component hooks"

    @property
    def events(self) -> frozenset[str]:
        """The events of all hooks that components define now."""
        return frozenset(hook.event for hook in self._load().read_heads().hooks if not hook.disabled)

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Note the agent, or the command or skill that the prompt names."""
        if turn.path:
            self._note(turn, f"agent {turn.agent}")
        elif content and isinstance(content[0], Text) and (match := _COMMAND_NAME.fullmatch(content[0].text)):
            self._note(turn, f"command {match[1]}", f"skill {match[1]}")
        return content

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Note the skill or command that a call has used."""
        if call.name in ("Skill", "SlashCommand") and not result.failed:  # only these two use components
            given = str(call.arguments.get("skill") or call.arguments.get("command") or "")
            name = given.strip().removeprefix("/").partition(" ")[0]
            self._note(turn, f"{'skill' if call.name == 'Skill' else 'command'} {name}")
        return result

    def active_hooks(self, turn: Turn) -> list[tuple[Hook, bool]]:
        """Return the hooks that hold for an agent, and whether it is the agent itself that uses their component."""
        entries, hooks = _active_entries(turn), self._load()
        return [
            (hook, tuple(path) == turn.path)
            for _, path, key in entries
            if tuple(path) == turn.path[: len(path)]
            for hook in hooks.find(key)
        ]

    def _note(self, turn: Turn, *keys: str) -> None:
        entries, hooks = _active_entries(turn), self._load()
        key = next((key for key in keys if hooks.find(key)), None)
        entry = [turn.id, list(turn.path), key]
        if key is not None and entry not in entries:
            turn.log.defer(turn.scope, StateChanged(key=ACTIVE_KEY, value=[*entries, entry]))


def _active_entries(turn: Turn) -> list[Any]:
    known = cast("list[Any]", turn.get_state(ACTIVE_KEY) or [])
    return [entry for entry in known if entry[0] == turn.id]


def component_use_of(content: Callable[[], ProjectContent]) -> ComponentUse:
    """Return the middleware that notes the components in use, of the content as it was loaded last."""
    last: list[tuple[ProjectContent, ComponentHooks]] = []

    def load() -> ComponentHooks:
        now = content()
        if not last or last[0][0] is not now:
            last[:] = [(now, ComponentHooks(now.components, now.root, Path.home(), trusted=now.scope.trusted))]
        return last[0][1]

    return ComponentUse(load)


def _read_plugin(root: Path, named: object, notes: list[str]) -> Iterator[tuple[Path, object]]:
    """Yield the documents with the hooks of a plugin: its file, and the files and tables that its manifest names."""
    items = cast("list[object]", named if isinstance(named, list) else [named])
    yield from ((root / ".claude-plugin" / "plugin.json", item) for item in items if isinstance(item, dict))
    names = [PLUGIN_HOOKS, *(os.path.normpath(item) for item in items if isinstance(item, str))]
    for name in dict.fromkeys(names):
        path = root / name
        if os.path.isabs(name) or name.startswith(".."):  # noqa: PTH117  # a text
            notes.append(f"{root}: its plugin.json names {name}, which leads out of the plugin, so it is not read")
            continue
        if not path.is_file():
            notes += [] if name == PLUGIN_HOOKS else [f"{root}: its plugin.json names {name}, which is not a file"]
            continue
        try:
            with read_errors(path):
                document, problem = parse_tolerant_json(read_settings_text(path), str(path))
        except ConfigError as error:
            notes.append(str(error))
            continue
        notes += [problem] if problem else []
        yield path, document


def _disable(parsed: ParsedHooks, reason: str, note: str) -> ParsedHooks:
    """Return hooks that are listed and never run, and why instead of what is wrong with them."""
    hooks = [msgspec.structs.replace(hook, disabled=hook.disabled or reason) for hook in parsed.hooks]
    return ParsedHooks(tuple(hooks), (note,))


def _not_trusted(path: Path) -> str:
    return f"{path}: its hooks do not run, since the folder is not trusted (`vaka trust`)"
