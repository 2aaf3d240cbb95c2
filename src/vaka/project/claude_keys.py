"""Every key of ``.claude`` settings: its type, what it does here, and whether a project may set it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.config.documents import JsonPath, type_name, value_at
from vaka.core.types.keywords import find_near_names

KeyKind: TypeAlias = Literal[
    "text", "flag", "count", "positive", "port", "texts", "variables", "object", "any", "disable"
]

ProjectUse: TypeAlias = Literal["yes", "trusted", "never"]
"""Whether the value of a project counts: always, in a trusted folder, or never, since only a user may set it."""


class ClaudeKey(msgspec.Struct, frozen=True):
    """One key; a dot separates the names of nested objects."""

    name: str
    kind: KeyKind
    effect: str = ""
    """Its effect in vaka; ``""`` if it has none."""
    project: ProjectUse = "yes"
    instead: str = ""
    """Of a key without effect: why, or what to use."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))


def _without_effect(instead: str, kind: KeyKind, *names: str) -> tuple[ClaudeKey, ...]:
    return tuple(ClaudeKey(name, kind, instead=instead) for name in names)


_KEYS = (
    ClaudeKey("permissions.allow", "texts", "calls that run without an approval", "trusted"),
    ClaudeKey("permissions.ask", "texts", "calls that a person must approve"),
    ClaudeKey("permissions.deny", "texts", "calls that are refused"),
    ClaudeKey("permissions.additionalDirectories", "texts", "further folders for tools", "trusted"),
    ClaudeKey("permissions.defaultMode", "text", "the decision for other calls; a project cannot bypass"),
    ClaudeKey("permissions.disableBypassPermissionsMode", "disable", "switches `bypassPermissions` off"),
    ClaudeKey("disallowedTools", "texts", "calls that are refused, as `permissions.deny`"),
    ClaudeKey("allowManagedPermissionRulesOnly", "flag", "only managed settings may allow", "never"),
    ClaudeKey("model", "text", "the model, unless vaka's own settings name one"),
    ClaudeKey("env", "variables", "environment variables for commands", "trusted"),
    ClaudeKey("outputStyle", "text", "the output style at the end of the system prompt"),
    ClaudeKey("statusLine", "object", "a command that prints the status line of the chat; no templates", "trusted"),
    ClaudeKey("claudeMdExcludes", "texts", "memory files that are not read"),
    ClaudeKey("autoCompactEnabled", "flag", "`false`: contexts are never compacted by themselves", "trusted"),
    ClaudeKey("hooks", "object", "commands at fixed points", "trusted"),
    ClaudeKey("disableAllHooks", "flag", "switches off all hooks but the managed ones", "trusted"),
    ClaudeKey("enabledPlugins", "object", "switches plugins on or off, by `name@marketplace`"),
    ClaudeKey("allowManagedHooksOnly", "flag", "switches off all hooks but the managed ones", "never"),
    ClaudeKey("sandbox.enabled", "flag", "`false` switches the sandbox of commands off", "never"),
    ClaudeKey("sandbox.failIfUnavailable", "flag", 'without a sandbox vaka does not start: `sandbox = "on"`'),
    ClaudeKey(
        "sandbox.allowUnsandboxedCommands",
        "flag",
        "`false`: no command runs without the sandbox, not even with an approval",
    ),
    ClaudeKey("sandbox.network.allowedDomains", "texts", "hosts that commands may reach", "trusted"),
    ClaudeKey("sandbox.mcp", "flag", "MCP servers run in the sandbox; a project can only switch it on"),
    ClaudeKey("sandbox.hooks", "flag", "hooks run in the sandbox; a project can only switch it on"),
    ClaudeKey("mcp.servers", "object", "servers with tools", "trusted"),
    ClaudeKey("mcpServers", "object", "servers with tools", "trusted"),
    ClaudeKey("enableAllProjectMcpServers", "flag", "approves the servers of `.mcp.json`", "never"),
    ClaudeKey("enabledMcpjsonServers", "texts", "servers of `.mcp.json` that are approved", "trusted"),
    ClaudeKey("disabledMcpjsonServers", "texts", "servers of `.mcp.json` that are not started"),
    ClaudeKey("allowedMcpServers", "any", "the only servers that may be started", "never"),
    ClaudeKey("deniedMcpServers", "any", "servers that are never started"),
    *_without_effect("rules for allowed tools are in `permissions.allow`", "any", "allowedTools"),
    *_without_effect("the mode `auto` is `default` here", "any", "permissions.disableAutoMode", "autoMode"),
    *_without_effect("rules have one dialect", "any", "permissions.dialect"),
    *_without_effect("commands in the sandbox follow the same rules", "flag", "sandbox.autoAllowBashIfSandboxed"),
    *_without_effect(
        "an allow rule such as `Bash(unsandboxed:docker:*)` lets commands run without the sandbox",
        "texts",
        "sandbox.excludedCommands",
    ),
    *_without_effect(
        "the sandbox has no such exception",
        "flag",
        "sandbox.enableWeakerNestedSandbox",
        "sandbox.network.allowLocalBinding",
        "sandbox.network.allowAllUnixSockets",
        "sandbox.network.allowManagedDomainsOnly",
    ),
    *_without_effect("the sandbox has no such exception", "any", "sandbox.filesystem", "sandbox.ignoreViolations"),
    *_without_effect("the sandbox has no such exception", "texts", "sandbox.network.allowUnixSockets"),
    *_without_effect(
        "the proxy of the sandbox selects its port",
        "port",
        "sandbox.network.httpProxyPort",
        "sandbox.network.socksProxyPort",
    ),
    *_without_effect(
        "the limits of outputs are fixed", "positive", "bashOutput.syncThresholdBytes", "bashOutput.asyncThresholdBytes"
    ),
    *_without_effect("the setting `max_result_tokens` limits results", "positive", "toolOutput.defaultThresholdBytes"),
    *_without_effect("the setting `max_result_tokens` limits results", "object", "toolOutput.perToolThresholdBytes"),
    *_without_effect("Grep and Glob have an argument for it", "flag", "respectGitignore"),
    *_without_effect("`vaka sessions gc --older-than 30d` removes old sessions", "count", "cleanupPeriodDays"),
    *_without_effect(
        "vaka adds nothing to commits", "any", "includeCoAuthoredBy", "attribution", "includeGitInstructions"
    ),
    *_without_effect(
        "keys come from `vaka login` or the environment",
        "any",
        "apiKeyHelper",
        "otelHeadersHelper",
        "awsAuthRefresh",
        "awsCredentialExport",
        "gcpAuthRefresh",
        "forceLoginMethod",
        "forceLoginOrgUUID",
    ),
    *_without_effect(
        "plugins are those in the folders `plugins`",
        "any",
        "pluginConfigs",
        "blockedMarketplaces",
        "extraKnownMarketplaces",
        "strictKnownMarketplaces",
        "skippedMarketplaces",
        "skippedPlugins",
    ),
    *_without_effect(
        "models and their options are in vaka's settings",
        "any",
        "availableModels",
        "modelOverrides",
        "effortLevel",
        "alwaysThinkingEnabled",
        "fastMode",
        "advisorModel",
        "maxThinkingTokens",
    ),
    *_without_effect(
        "it is about another program",
        "any",
        "$schema",
        "agent",
        "allowManagedMcpServersOnly",
        "allowedHttpHookUrls",
        "autoMemoryDirectory",
        "autoMemoryEnabled",
        "autoScrollEnabled",
        "autoUpdates",
        "autoUpdatesChannel",
        "channelsEnabled",
        "companyAnnouncements",
        "defaultShell",
        "disableAutoMode",
        "editorMode",
        "fastModePerSessionOptIn",
        "feedbackSurveyRate",
        "feedbackSurveyState",
        "fileSuggestion",
        "httpHookAllowedEnvVars",
        "keybindings",
        "language",
        "minimumVersion",
        "plansDirectory",
        "preferredNotifChannel",
        "prefersReducedMotion",
        "promptSuggestionEnabled",
        "showThinkingSummaries",
        "showTurnDuration",
        "skipAutoPermissionPrompt",
        "skipDangerousModePermissionPrompt",
        "skipWebFetchPreflight",
        "spinnerTipsEnabled",
        "spinnerTipsOverride",
        "spinnerVerbs",
        "subagentStatusLine",
        "syntaxHighlightingDisabled",
        "teammateMode",
        "terminalProgressBarEnabled",
        "terminalTitleFromRename",
        "theme",
        "tui",
        "useAutoModeDuringPlan",
        "verbose",
        "voice",
        "voiceEnabled",
        "worktree",
    ),
)

CLAUDE_KEYS: dict[str, ClaudeKey] = {key.name: key for key in _KEYS}
"""Every key by its name; docs/guides/claude-folder.md lists them."""

_OBJECTS = {".".join(key.path[:size]) for key in _KEYS for size in range(1, len(key.path))}
"""Names of the objects that hold keys."""


class SettingProblem(msgspec.Struct, frozen=True):
    """Something wrong with a settings document."""

    path: JsonPath
    message: str
    is_error: bool = True
    """Whether the value is wrong; else the key is only unknown, or has no effect."""
    matters: bool = True
    """Whether every command notes it, not only a validation: the key has an effect, or may be a typing error."""


def check_document(document: Mapping[str, Any]) -> list[SettingProblem]:
    """Return every problem of a settings document."""
    found = [*_check_object(document, ()), *_check_status_line(document.get("statusLine"))]
    if document.get("allowedTools"):
        message = "allowedTools does not count; write permissions.allow"
        found.append(SettingProblem(("allowedTools",), message, is_error=False))
    return found


def keys_without_effect(document: Mapping[str, Any]) -> Iterator[tuple[ClaudeKey, Any]]:
    """Yield the keys of a document that are known but do nothing here."""
    for key in _KEYS:
        if not key.effect and (value := value_at(document, key.path)) is not None:
            yield key, value


def value_problem(key: ClaudeKey, value: Any) -> str:
    """Return what is wrong with the value of a key, ``""`` if nothing is; ``null`` leaves a key unset."""
    if value is None:
        return ""
    expected = EXPECTED_VALUES[key.kind]
    if not _CHECKS[key.kind](value):
        items = cast("list[object]", value) if key.kind == "texts" and isinstance(value, list) else []
        wrong: object = next((item for item in items if not isinstance(item, str)), cast("object", value))
        if key.kind == "variables" and isinstance(value, dict):
            table = cast("dict[str, object]", value)
            name = next(name for name, item in table.items() if not _is_variable(item))
            return f"expected {expected}, but {name!r} is {type_name(table[name])}"
        return f"expected {expected}, not {type_name(wrong)}"
    return ""


def near_key(name: str) -> str:
    """Return the known key that a name may be a typing error of, ``""`` if there is none."""
    by_lower = {known.lower().replace("_", ""): known for known in (*CLAUDE_KEYS, *_OBJECTS)}
    near = find_near_names(name.lower().replace("_", ""), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else ""


def _check_object(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[SettingProblem]:
    for name, value in table.items():
        path = (*above, name)
        dotted = ".".join(path)
        key = CLAUDE_KEYS.get(dotted)
        if key is not None:
            if problem := value_problem(key, value):
                yield SettingProblem(path, f"{dotted}: {problem}", matters=bool(key.effect))
        elif dotted not in _OBJECTS:
            near = near_key(dotted)
            hint = f"; did you mean {near!r}?" if near else " and has no effect"
            yield SettingProblem(path, f"{dotted} is not known{hint}", is_error=False, matters=bool(near))
        elif isinstance(value, dict):
            yield from _check_object(cast("dict[str, Any]", value), path)
        elif value is not None:
            yield SettingProblem(path, f"{dotted}: expected an object, not {type_name(value)}")


def _check_status_line(value: object) -> Iterator[SettingProblem]:
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    kind = table.get("type")
    if kind in ("command", "template") and not table.get(kind):
        yield SettingProblem(("statusLine", "type"), f"statusLine.{kind}: the type {kind!r} needs it")
    elif table and kind not in ("command", "template"):
        message = f"statusLine.type: expected command or template, not {kind!r}"
        yield SettingProblem(("statusLine", "type"), message)


def _is_variable(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_number(value: object, least: int, most: int | None = None) -> bool:
    right = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return right and (most is None or cast("int", value) <= most)


EXPECTED_VALUES: dict[KeyKind, str] = {
    "text": "a text",
    "flag": "true or false",
    "count": "a whole number of zero or more",
    "positive": "a whole number above zero",
    "port": "a port from 1 to 65535",
    "texts": "a list of texts",
    "variables": "an object with texts",
    "object": "an object",
    "any": "a value",
    "disable": "'disable'",
}
_CHECKS: dict[KeyKind, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "flag": lambda value: isinstance(value, bool),
    "count": lambda value: _is_number(value, 0),
    "positive": lambda value: _is_number(value, 1),
    "port": lambda value: _is_number(value, 1, 65535),
    "texts": lambda value: (
        isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
    ),
    "variables": lambda value: (
        isinstance(value, dict) and all(map(_is_variable, cast("dict[str, object]", value).values()))
    ),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: True,
    "disable": lambda value: value in ("disable", True, False, ""),
}
