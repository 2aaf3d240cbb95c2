"""Hooks as settings files, plugins, frontmatter and code define them, and which of them an event matches."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from vaka.core.types.keywords import find_near_names
from vaka.matching.globs import matches_wildcards
from vaka.matching.mcp_names import cut_name_of

EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "ContextCompacted",
    "PostCompact",
    "Notification",
    "TokenUsage",
    "ModelSelected",
    "MCPToolsChanged",
)
"""The events at which hooks run."""

OTHER_EVENTS = frozenset(
    (
        "ConfigChange",
        "CwdChanged",
        "Elicitation",
        "ElicitationResult",
        "FileChanged",
        "InstructionsLoaded",
        "MessageDisplay",
        "PermissionDenied",
        "PostToolBatch",
        "Setup",
        "StopFailure",
        "TaskCompleted",
        "TaskCreated",
        "TeammateIdle",
        "UserPromptExpansion",
        "WorktreeCreate",
        "WorktreeRemove",
    )
)
"""Events of Claude Code that do not happen in vaka; their hooks are listed and never run."""

MATCHER_FIELDS: Mapping[str, str] = {
    "PreToolUse": "tool_name",
    "PostToolUse": "tool_name",
    "PostToolUseFailure": "tool_name",
    "PermissionRequest": "tool_name",
    "SessionStart": "source",
    "SessionEnd": "reason",
    "Notification": "notification_type",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
    **dict.fromkeys(("PreCompact", "ContextCompacted", "PostCompact"), "trigger"),
}
"""The field of the payload that a matcher is compared with; the matcher of any other event is ignored."""

DEFAULT_TIMEOUTS = {"command": 600.0, "prompt": 30.0, "agent": 60.0}
SESSION_END_SECONDS = 60.0
"""The default timeout of ``SessionEnd``: a process that ends waits for these hooks."""
HookKind = Literal["command", "prompt", "agent"]
_KNOWN_KEYS = frozenset(
    (
        "type",
        "command",
        "prompt",
        "timeout",
        "async",
        "asyncRewake",
        "rewakeMessage",
        "once",
        "statusMessage",
        "if",
        "model",
        "name",
        "env",
        "args",
        "shell",
        "description",
        "rewakeSummary",
    )
)


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook: what runs, at which event, and for what."""

    event: str
    matcher: str = ""
    """A name or a regular expression that must match whole; empty for everything."""
    kind: HookKind = "command"
    command: str = ""
    prompt: str = ""
    """The question to a model, for the kinds ``prompt`` and ``agent``."""
    model: str = ""
    timeout: float | None = None
    """Seconds; default: the timeout of its kind."""
    once: bool = False
    """It runs at most once in a session."""
    detached: bool = False
    """Nothing waits for it and it decides nothing (``async``)."""
    condition: str = ""
    """A permission rule that the tool call must match (``if``)."""
    status_message: str = ""
    name: str = ""
    env: Mapping[str, str] = {}
    origin: str = ""
    """The file that defines it; ``""`` for code."""
    component: str = ""
    """The skill, command or agent whose head defines it, such as ``skill deploy``; it runs while that is in use."""
    managed: bool = False
    """It is of the administrator's settings, so that a failure may refuse what it guards."""
    disabled: str = ""
    """Why it never runs; it is only listed."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The fields that distinguish it from other hooks."""
        return (self.event, self.matcher, self.kind, self.text, self.condition, self.origin, self.component)

    @property
    def text(self) -> str:
        """Its command, URL or prompt."""
        return self.command if self.kind == "command" else self.prompt

    @property
    def seconds(self) -> float:
        """The time limit."""
        most = SESSION_END_SECONDS if self.event == "SessionEnd" else float("inf")
        return self.timeout or min(DEFAULT_TIMEOUTS[self.kind], most)

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Return whether it runs for the payload of its event."""
        if self.disabled:
            return False
        field = MATCHER_FIELDS.get(self.event)
        if field is None or self.matcher in ("", "*"):
            return True
        value = str(payload.get(field, ""))
        return re.fullmatch(self.matcher, value) is not None or (field == "tool_name" and self._names_cut_tool(value))

    def _names_cut_tool(self, tool: str) -> bool:
        """Return whether the matcher has the whole name of an MCP tool whose name is too long, and cut."""
        if not tool.startswith("mcp__"):
            return False
        names = [name for name in self.matcher.split("|") if re.fullmatch(r"mcp__[\w-]+__[\w-]+", name)]
        return any(matches_wildcards(cut_name_of(name, exact=False), tool) for name in names)


class ParsedHooks(msgspec.Struct, frozen=True):
    """The hooks of a document, and what is wrong with it."""

    hooks: tuple[Hook, ...]
    problems: tuple[str, ...] = ()


def parse_hooks(
    document: object,
    *,
    origin: str = "",
    variables: Mapping[str, str] | None = None,
    managed: bool = False,
    component: str = "",
) -> ParsedHooks:
    """Return the hooks of ``{"hooks": {Event: …}}`` or of the inner table; what cannot be read becomes a problem.

    Accepted are lists of ``{matcher, hooks: […]}``, of hooks without a matcher, the older ``{matcher: command}``, and
    a list of hooks that name their ``event``. A hook that cannot run is returned with the reason.
    ``variables`` are the values of ``${NAME}`` in commands, such as ``CLAUDE_PLUGIN_ROOT``; commands also get them in
    their environment.
    """
    problems: list[str] = []
    table = _as_table(document)
    if table is not None and isinstance(table.get("hooks"), dict):
        table = _as_table(table["hooks"])
    elif table is not None and isinstance(table.get("hooks"), list):
        table = _group_by_event(cast("list[object]", table["hooks"]))
    elif table is not None and "hooks" in table:
        table = None
    if table is None:
        return ParsedHooks((), (f"{origin}: hooks: expected an object",) if document else ())
    common = {"origin": origin, "managed": managed, "component": component}
    reader = _Reader(origin, dict(variables or {}), common, problems)
    found = [hook for event, groups in table.items() for hook in reader.read_event(str(event), groups)]
    return ParsedHooks(tuple(found), tuple(problems))


class _Reader:
    """Reads the hooks of one document."""

    def __init__(self, origin: str, variables: dict[str, str], common: dict[str, Any], problems: list[str]) -> None:
        self._origin = origin
        self._variables = variables
        self._problems = problems
        self._common = common
        """Fields that all its hooks have."""

    def read_event(self, event: str, groups: object) -> Iterator[Hook]:
        """Yield the hooks of one event."""
        if event == "description" or event.startswith(("$", "_", "//")):
            return
        if event not in EVENTS:
            near = find_near_names(event, EVENTS, n=1) if event not in OTHER_EVENTS else ()
            hint = f"; did you mean {near[0]}?" if near else ""
            self._report(f"hooks.{event}", f"is not an event of vaka, so its hooks never run{hint}")
        for where, matcher, table in self._list_hooks(f"hooks.{event}", groups):
            try:
                hook = self._read_hook(where, event, matcher, table)
            except ValueError as error:
                self._report(where, str(error))
                continue
            if hook.disabled:
                self._report(where, f"{hook.disabled}; the hook never runs")
            yield hook

    def _list_hooks(self, where: str, groups: object) -> Iterator[tuple[str, str, object]]:
        """Yield each hook with its place and matcher."""
        legacy = _as_table(groups)
        if legacy is not None and "hooks" not in legacy and "command" not in legacy:
            yield from ((f"{where}.{matcher}", matcher, command) for matcher, command in legacy.items() if command)
            return
        items = cast("list[object]", groups) if isinstance(groups, list) else [groups]
        for number, item in enumerate(items):
            place, group = f"{where}[{number}]", _as_table(item)
            if isinstance(item, str):
                yield place, "", item
            elif group is None:
                self._report(place, "expected an object with matcher and hooks")
            elif "hooks" not in group:
                yield place, _read_matcher(group.get("matcher")), group
            else:
                inner: object = group["hooks"]
                for index, hook in enumerate(cast("list[object]", inner) if isinstance(inner, list) else [inner]):
                    yield f"{place}.hooks[{index}]", _read_matcher(group.get("matcher")), hook

    def _read_hook(self, where: str, event: str, matcher: str, value: object) -> Hook:
        """Return a hook. Raises ``ValueError`` for what is not a hook."""
        table = {"command": value} if isinstance(value, str) else _as_table(value)
        if table is None:
            raise ValueError("expected an object with type and command")
        for key in sorted(set(table) - _KNOWN_KEYS - {"matcher", "event", "url", "headers"}):
            self._report(where, f"{key!r} is not known and has no effect")
        kind = _as_text(table.get("type")) or "command"
        text = _as_text(table.get("command" if kind == "command" else "prompt")).strip()
        disabled = _find_fault(kind, text, matcher if event in MATCHER_FIELDS and matcher != "*" else "")
        if kind not in DEFAULT_TIMEOUTS:
            kind, text = "command", _as_text(table.get("url")) or text
        env = {str(key): self._expand(_as_text(item)) for key, item in (_as_table(table.get("env")) or {}).items()}
        return Hook(
            event=event,
            matcher=matcher,
            kind=cast("HookKind", kind),
            model=_as_text(table.get("model")),
            command=self._read_command(text, table) if kind == "command" else "",
            prompt="" if kind == "command" else text,
            timeout=self._read_timeout(where, table.get("timeout")),
            once=table.get("once") is True,
            detached=table.get("async") is True or table.get("asyncRewake") is True,
            condition=_as_text(table.get("if")),
            status_message=_as_text(table.get("statusMessage")),
            name=_as_text(table.get("name")),
            env={**self._variables, **env},
            disabled=disabled,
            **self._common,
        )

    def _read_timeout(self, where: str, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            self._report(where, f"the timeout {value!r} is not a number of seconds above 0; the default holds")
            return None
        return float(value)

    def _read_command(self, text: str, table: Mapping[str, Any]) -> str:
        """Return a command with its ``args``, each of which is one word, for the shell that ``shell`` names."""
        command, args = self._expand(text), cast("object", table.get("args"))
        if isinstance(args, list):
            words = [command, *(self._expand(_as_text(item)) for item in cast("list[object]", args))]
            command = shlex.join(words)
        return f"exec bash -c {shlex.quote(command)}" if table.get("shell") == "bash" else command

    def _expand(self, command: str) -> str:
        """Replace ``${NAME}`` of the known variables, for commands that no shell expands."""
        for name, value in self._variables.items():
            command = command.replace(f"${{{name}}}", value)
        return command

    def _report(self, where: str, problem: str) -> None:
        self._problems.append(f"{self._origin or 'hooks'}: {where}: {problem}")


def _group_by_event(items: list[object]) -> dict[str, Any]:
    """Return hooks that name their event in a field as a table by event."""
    table: dict[str, list[object]] = {}
    for item in items:
        table.setdefault(_as_text((_as_table(item) or {}).get("event")), []).append(item)
    return table


def _find_fault(kind: str, text: str, matcher: str) -> str:
    """Return why a hook cannot run, ``""`` if it can."""
    if kind not in DEFAULT_TIMEOUTS:
        return f"the type {kind!r} is not supported; expected {', '.join(DEFAULT_TIMEOUTS)}"
    if not text:
        return f"has no {'command' if kind == 'command' else 'prompt'}"
    try:
        re.compile(matcher)
    except re.error as error:
        return f"the matcher {matcher!r} is not a regular expression: {error}"
    return ""


def select_hooks(
    hooks: Iterable[Hook], event: str, payload: Mapping[str, Any], may_run: Callable[[Hook], bool] = lambda _: True
) -> list[Hook]:
    """Return the hooks that run at an event, in their order, each command once; of equal ones the administrator's."""
    selected: dict[object, Hook] = {}
    for hook in hooks:
        if hook.event == event and hook.matches(payload) and may_run(hook):
            key = (hook.kind, hook.text, hook.model, tuple(sorted(hook.env.items())))
            if key not in selected or (hook.managed and not selected[key].managed):
                selected[key] = hook
    return list(selected.values())


def _read_matcher(value: object) -> str:
    """Return a matcher; a list of names and ``{"tool_name": …}`` are read too."""
    table = _as_table(value)
    if table is not None:
        value = table.get("tool_name", table.get("tools"))
    return "|".join(map(_as_text, cast("list[object]", value))) if isinstance(value, list) else _as_text(value)


def _as_table(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
