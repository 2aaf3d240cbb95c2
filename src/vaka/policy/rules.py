"""Rules, written ``Tool`` or ``Tool(pattern)``, and the settings layers that contain them."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.keywords import find_near_names
from vaka.core.types.tool import Layer as Layer
from vaka.core.types.tool import Mode, ToolSpec
from vaka.matching.globs import matches_wildcards
from vaka.matching.hosts import DomainPattern, HostPattern, parse_host_rule
from vaka.matching.mcp_names import cut_name_of
from vaka.policy.decision import DecisionKind, PermissionDecision, is_stricter, parse_mode
from vaka.policy.paths import PathAnchors, PathPattern, absolute_path
from vaka.policy.tool_targets import (
    BUILTIN_TOOLS,
    EDIT_TOOLS,
    FOREIGN_TOOLS,
    READ_TOOLS,
    argument_values_of,
    builtin_name_of,
    targets_of,
)

MatchKind: TypeAlias = Literal["tool", "command", "path", "domain", "host", "words", "field"]
"""What a rule matches: the tool alone, a command, a path, the host of a URL, a host that commands reach, the main
argument as text, another argument."""

KINDS: tuple[DecisionKind, ...] = ("deny", "ask", "allow")
"""The first kind with a rule that matches a call decides."""

_UNTRUSTED = "this folder is not trusted; --trust counts it"

_UNSANDBOXED = "unsandboxed:"
"""Before a command in a rule: the rule is about that command without the sandbox."""
_RULE_TEXT = re.compile(r"([^\s(),]+)(?:\((.*)\))?", re.DOTALL)
_ARGUMENT_PATTERN = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(.*)", re.DOTALL)


class UnsupportedRule(ValueError):
    """A rule for other programs that allows nothing here: it is ignored with a note."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed rule."""

    text: str
    kind: DecisionKind
    layer: str
    origin: str
    tools: tuple[str, ...]
    """The names of its tools; one may contain ``*``."""
    match_kind: MatchKind = "tool"
    pattern: str = ""
    """The text between the parentheses."""
    field: str = ""
    path: PathPattern | None = None
    domain: DomainPattern | None = None
    host: HostPattern | None = None
    """The hosts that commands may reach, must not reach, or are asked about."""
    unsandboxed: bool = False
    """Whether it is about commands that run without the sandbox; an allow rule without it is not about those."""
    answers: frozenset[str] = frozenset()
    """The ask rules that this grant answers: they do not ask about calls that it allows."""

    def names_tool(self, tool: str) -> bool:
        """Return whether the rule names this tool, or its MCP server."""
        return any(_matches_tool_name(name, tool) for name in self.tools)

    def matches_words(self, words: Iterable[str]) -> bool:
        """Return whether the rule matches the main argument of a call: all of several to allow, any to restrict."""
        fit = [
            _matches_prefix(self.pattern, text.removeprefix("/")) or _matches_prefix(self.pattern, text)
            for text in words
        ]
        return bool(fit) and (all(fit) if self.kind == "allow" else any(fit))

    def matches_argument(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Return whether the rule matches its argument: every item of a list to allow, any to restrict."""
        fit = [matches_wildcards(self.pattern, value) for value in argument_values_of(arguments, self.field, schema)]
        return bool(fit) and (all(fit) if self.kind == "allow" else any(fit))

    def applies_to_access(self, tool: str, *, edits: bool) -> bool:
        """Return whether a path rule applies to reading, or editing, with this tool (``""``: any tool).

        Allowing edits allows reads, and denying reads denies edits.
        """
        if "Read" in self.tools:
            return not edits or self.kind != "allow"
        if "Edit" in self.tools:
            return edits or self.kind == "allow"
        return self.names_tool(tool) if tool else edits and any(name in EDIT_TOOLS for name in self.tools)

    def covers_tool(self, spec: ToolSpec) -> bool:
        """Return whether the rule is about a tool. An alias of a built-in tool evades no rule that restricts."""
        return self.names_tool(spec.name) or (self.kind != "allow" and self.names_tool(builtin_name_of(spec.name)))

    def matches_call(self, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str) -> bool:
        """Return whether a rule that matches neither a path nor a command matches a call of its tool."""
        if self.match_kind == "tool":
            return True
        if self.match_kind == "field":
            return self.matches_argument(arguments, spec.parameters if self.kind != "allow" else {})
        if self.match_kind == "words":
            return self.matches_words(words)
        return self.domain is not None and bool(host) and self.domain.covers(host)

    def restricts_target(self, spec: ToolSpec) -> bool:
        """Return whether the rule may deny a call of the tool, or ask about it, because of what the call names."""
        is_about_targets = self.kind != "allow" and self.match_kind in ("path", "domain", "command", "host")
        return is_about_targets and (self.covers_tool(spec) or self.path is not None)


def read_rule(text: str, kind: DecisionKind, layer: Layer, anchors: PathAnchors) -> Rule:
    """Parse a rule. Raises ``ValueError`` with the problem."""
    match = _RULE_TEXT.fullmatch(text.strip())
    if match is None or (match[2] is not None and not match[2].strip()):
        raise ValueError("expected Tool or Tool(pattern), such as Bash(npm run test:*) or Read(./.env)")
    name, pattern = match[1], match[2]
    if re.search(r"[/\\]|^\.", name):
        raise ValueError(f"a rule begins with a tool; for a path write Read({name}) or Edit({name})")
    if kind == "allow":
        _check_allow_name(name)
    origin = layer.locate(f"{kind} {text}")
    rule = Rule(text=text.strip(), kind=kind, layer=layer.name, origin=origin, tools=_tool_names_of(name, kind))
    if pattern is None:
        return rule
    return _apply_pattern(rule, builtin_name_of(name), pattern, anchors)


def read_rules(layers: Iterable[Layer], cwd: str, home: str) -> tuple[list[Rule], list[str]]:
    """Return the rules in force, and notes on the ignored ones.

    Raises ``ConfigError``, or for flags ``InvalidInput``, for an invalid rule. An invalid allow rule of a project, or
    one of a file that was written for another program, is ignored instead: without it less is allowed.
    """
    layers = list(layers)
    only = next((layer.name for layer in layers if layer.exclusive), "")
    rules: list[Rule] = []
    notes: list[str] = []
    for layer in layers:
        anchors = PathAnchors(cwd=cwd, home=home, folder=os.path.normpath(layer.folder or cwd))
        for kind in KINDS:
            for text in getattr(layer, kind):
                note = _ignored_reason(kind, layer, only)
                try:
                    rule = read_rule(text, kind, layer, anchors)
                except ValueError as error:
                    foreign = isinstance(error, UnsupportedRule) and layer.name != "flag"
                    if kind != "allow" or not (layer.project or foreign):
                        message = f"{_describe_layer(layer, f'{kind} {text}')}: {kind} rule {text!r}: {error}"
                        raise (InvalidInput if layer.name == "flag" else ConfigError)(message) from error
                    note = str(error)
                else:
                    note = note or _no_effect_reason(rule)
                    notes += _typo_notes(rule)
                    if not note:
                        rules.append(rule)
                if note:
                    where = _describe_layer(layer, f"{kind} {text}")
                    notes.append(f"{where}: {kind} rule {text!r} does not count: {note}")
    return rules, notes


def resolve_mode(layers: Iterable[Layer], notes: list[str]) -> Mode:
    """Return the mode of the strongest layer that may set one, and add notes on ignored modes.

    Raises ``ConfigError``, or for flags ``InvalidInput``, for an unknown mode.
    """
    mode: Mode = "default"
    layers = list(layers)
    for layer in layers:
        if not layer.mode:
            continue
        where = f"{layer.locate('mode') or layer.name}: defaultMode {layer.mode!r}"
        wanted = _parse_layer_mode(layer, where)
        if wanted == "bypassPermissions" and layer.project:
            notes.append(f"{where} does not count: only user or managed settings may set it")
        elif not layer.trusted and wanted != mode and not is_stricter(wanted, mode):
            notes.append(f"{where} does not count: {_UNTRUSTED}")
        else:
            mode = wanted
    if mode == "bypassPermissions" and any(layer.no_bypass for layer in layers):
        notes.append("the mode bypassPermissions is switched off by the settings; the mode is default")
        return "default"
    return mode


def _parse_layer_mode(layer: Layer, where: str) -> Mode:
    try:
        return parse_mode(layer.mode)
    except InvalidInput as error:
        if layer.name == "flag":
            raise
        raise ConfigError(f"{where}: {error}") from error


def resolve_directories(layers: Iterable[Layer], cwd: str, home: str, notes: list[str]) -> list[str]:
    """Return the working directories, and add notes on ignored ones."""
    folders = [cwd]
    for layer in layers:
        for folder in layer.directories:
            if layer.trusted:
                folders.append(os.path.normpath(absolute_path(folder, cwd, home)))
            else:
                where = layer.locate(f"additionalDirectories {folder}") or layer.name
                notes.append(f"{where}: additionalDirectories {folder!r} does not count: {_UNTRUSTED}")
    return list(dict.fromkeys(folders))


def _describe_layer(layer: Layer, key: str) -> str:
    return f"{layer.locate(key)} ({layer.name})" if layer.origin else layer.name


def _ignored_reason(kind: DecisionKind, layer: Layer, exclusive_layer: str) -> str:
    if kind != "allow":
        return ""
    if not layer.trusted:
        return _UNTRUSTED
    return f"only the {exclusive_layer} settings may allow" if exclusive_layer and layer.name != exclusive_layer else ""


def _no_effect_reason(rule: Rule) -> str:
    """Only ``Read`` and ``Edit`` rules allow paths; the other file tools follow them."""
    if rule.kind != "allow" or rule.match_kind != "path" or {"Read", "Edit"} & {*rule.tools}:
        return ""
    return f"write {'Edit' if rule.tools[-1] in EDIT_TOOLS else 'Read'}({rule.pattern})"


def _typo_notes(rule: Rule) -> list[str]:
    where = f"{rule.origin or rule.layer}: rule {rule.text!r}"
    if rule.pattern.startswith(("regex:", "regexp:")):
        return [f"{where} has no regular expression: it is compared as it is, and * stands for any text"]
    near = find_near_tool(rule.tools[0]) if len(rule.tools) == 1 else ""
    return [f"{where} names no built-in tool; did you mean {near!r}?"] if near else []


def find_near_tool(name: str) -> str:
    """Return the built-in tool that a name may be a typing error of, ``""`` if there is none."""
    if name in BUILTIN_TOOLS or name in FOREIGN_TOOLS or "*" in name:
        return ""
    same = builtin_name_of(name.lower())
    return same if same in BUILTIN_TOOLS else next(iter(find_near_names(name, BUILTIN_TOOLS, n=1, cutoff=0.7)), "")


def _tool_names_of(name: str, kind: DecisionKind) -> tuple[str, ...]:
    if name in ("Task", "Agent"):
        return ("Task", "Agent")
    cut = cut_name_of(name, exact=kind == "allow")
    return tuple(dict.fromkeys((name, builtin_name_of(name), *([cut] if cut else []))))


def _check_allow_name(name: str) -> None:
    """An allow rule may use ``*`` only for the tools of one MCP server."""
    before, star, _ = name.partition("*")
    if star and not (before.startswith("mcp__") and before.find("__", 6) > 0):
        raise UnsupportedRule("'*' in the tool name of an allow rule may only follow 'mcp__server__'")


def _matches_tool_name(name: str, tool: str) -> bool:
    """Return whether a rule's name means a tool; the name of an MCP server's tool may lack ``mcp__``."""
    if not name.startswith("mcp__") and "__" in name and tool.startswith("mcp__"):
        name = f"mcp__{name}"
    if "*" in name:
        return matches_wildcards(name, tool)
    return name == tool or (name.startswith("mcp__") and "__" not in name[5:] and tool.startswith(f"{name}__"))


def _apply_pattern(rule: Rule, tool: str, pattern: str, anchors: PathAnchors) -> Rule:
    """Return the rule with its pattern parsed for the target of the tool."""
    target = targets_of(tool).target_kind
    if target == "command" and pattern.startswith(_UNSANDBOXED):
        rule = msgspec.structs.replace(rule, unsandboxed=True)
        pattern = pattern.removeprefix(_UNSANDBOXED).strip() or "*"
    field = _ARGUMENT_PATTERN.fullmatch(pattern)
    every = pattern.strip() == "*" and target in ("command", "url", "none")
    if every or (target == "command" and pattern.strip() == "**"):
        return rule
    if target == "command" and field is not None and field[1] == "domain":
        return _apply_host(rule, pattern, field[2].strip())
    if target == "url" and field is not None and field[1] == "domain":
        domain = DomainPattern(field[2].strip())
        return msgspec.structs.replace(rule, match_kind="domain", pattern=pattern, domain=domain)
    if field is not None and _is_argument_pattern(tool, field[1], field[2]):
        return msgspec.structs.replace(rule, match_kind="field", field=field[1], pattern=field[2].strip())
    if tool in READ_TOOLS or tool in EDIT_TOOLS:
        path = PathPattern(pattern.strip(), rule.kind, anchors)
        return msgspec.structs.replace(rule, match_kind="path", pattern=pattern, path=path)
    if target == "command":
        return msgspec.structs.replace(rule, match_kind="command", pattern=pattern)
    if target == "words":
        return msgspec.structs.replace(rule, match_kind="words", pattern=pattern.strip())
    if target == "url":
        raise UnsupportedRule(f"expected a host, such as {tool}(domain:example.com)")
    near = find_near_tool(tool)
    hint = f"; or did you mean {near}({pattern})?" if near else ""
    raise ValueError(f"expected one of the tool's arguments, such as {tool}(name:value){hint}")


def _apply_host(rule: Rule, pattern: str, host: str) -> Rule:
    found = parse_host_rule(host)
    if rule.unsandboxed:
        raise ValueError("a command without the sandbox reaches every host; write the command, as in unsandboxed:make")
    if rule.kind == "allow" and not (found.name or found.network):
        raise ValueError("it allows every host to commands; write the hosts, as in Bash(domain:example.com)")
    return msgspec.structs.replace(rule, match_kind="host", pattern=pattern, host=found)


def _is_argument_pattern(tool: str, name: str, value: str) -> bool:
    """Return whether a colon separates an argument from its value: not in ``Bash(npm:*)`` and ``Skill(pdf:*)``."""
    known = BUILTIN_TOOLS.get(tool)
    if known is None:
        return True
    return name in known.other_arguments and (value != "*" or known.target_kind not in ("command", "words"))


def _matches_prefix(pattern: str, text: str) -> bool:
    """Return whether ``text`` matches, where a final ``" *"`` or ``":*"`` means "with or without more words"."""
    bare = pattern[:-2] if pattern.endswith((" *", ":*")) else None
    if bare is None or "*" in bare:
        return matches_wildcards(pattern, text)
    return text == bare or text.startswith(f"{bare} ")


def decide_by_rules(rules: list[Rule], what: str) -> PermissionDecision:
    """Return the decision of rules of one kind; an approval must answer each of them."""
    rule = rules[0]
    does = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.kind]
    reason = f"the rule {rule.text} {does} {what}"
    texts = tuple(sorted({rule.text for rule in rules}))
    return PermissionDecision(
        decision=rule.kind, rule=rule.text, layer=rule.layer, reason=reason, subject=" & ".join(texts), asks=texts
    )
