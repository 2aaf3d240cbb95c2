"""Rules as people write them, ``Tool`` or ``Tool(pattern)``, and the layers of settings they stand in."""

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.policy.matching import DomainPattern, matches_prefix, matches_wildcards
from vaka.policy.paths import PathAnchors, PathPattern, RuleKind
from vaka.policy.tool_targets import (
    BUILTIN_TOOLS,
    EDIT_TOOLS,
    FOREIGN_TOOLS,
    READ_TOOLS,
    argument_values_of,
    builtin_name_of,
    targets_of,
)

MatchKind: TypeAlias = Literal["tool", "command", "path", "domain", "words", "field"]
"""What a rule looks at: only which tool, a command, a path, a host, the main argument as words, another argument."""

KINDS: tuple[RuleKind, ...] = ("deny", "ask", "allow")
"""The first kind that has a rule for a call decides."""

_RULE_TEXT = re.compile(r"([^\s(),]+)(?:\((.*)\))?", re.DOTALL)
_ARGUMENT_PATTERN = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(.*)", re.DOTALL)


class UnsupportedRule(ValueError):
    """A rule that others understand, but that allows nothing here: it is left out with a note."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """What one file of settings, or one group of flags, says about permissions."""

    name: str
    """``user``, ``project``, ``local``, ``settings``, ``flag``, ``managed`` or a word of one's own."""
    origin: str = ""
    """The file, or what else said so."""
    folder: str = ""
    """Where ``/x`` in a path rule begins; without it at the working directory."""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str = ""
    directories: tuple[str, ...] = ()
    """Folders that count as working directories, too."""
    no_bypass: bool = False
    """The mode ``bypassPermissions`` is not to be had."""
    exclusive: bool = False
    """The allow rules of other layers do not count."""
    project: bool = False
    """It came with the folder, so it may never choose ``bypassPermissions``."""
    trusted: bool = True
    """Nobody vouches for a layer that is not: it can only tighten."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, read."""

    text: str
    kind: RuleKind
    layer: str
    origin: str
    tools: tuple[str, ...]
    """Names of the tools it speaks of; one may have ``*`` in it."""
    match_kind: MatchKind = "tool"
    pattern: str = ""
    """What stands between the parentheses."""
    field: str = ""
    path: PathPattern | None = None
    domain: DomainPattern | None = None
    answers: frozenset[str] = frozenset()
    """The rules that asked and were answered with this one: they do not ask about what it allows."""

    def names_tool(self, tool: str) -> bool:
        """Return whether the rule's tool is this one, or one of a server it names."""
        return any(_matches_tool_name(name, tool) for name in self.tools)

    def matches_words(self, words: Iterable[str]) -> bool:
        """Return whether the main argument of a call, such as the name of an agent, is meant.

        Of several, each one to allow, any to tighten.
        """
        fit = [
            matches_prefix(self.pattern, text.removeprefix("/")) or matches_prefix(self.pattern, text) for text in words
        ]
        return bool(fit) and (all(fit) if self.kind == "allow" else any(fit))

    def matches_argument(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Return whether the argument it names is meant: every item of a list to allow, any to tighten."""
        fit = [matches_wildcards(self.pattern, value) for value in argument_values_of(arguments, self.field, schema)]
        return bool(fit) and (all(fit) if self.kind == "allow" else any(fit))

    def applies_to_access(self, tool: str, *, edits: bool) -> bool:
        """Return whether a path rule is about reading, or about changing, a file with this tool (or any, ``""``).

        What may be edited may be read, and what must not be read must not be edited.
        """
        if "Read" in self.tools:
            return not edits or self.kind != "allow"
        if "Edit" in self.tools:
            return edits or self.kind == "allow"
        return self.names_tool(tool) if tool else edits and any(name in EDIT_TOOLS for name in self.tools)


def read_rule(text: str, kind: RuleKind, layer: Layer, anchors: PathAnchors) -> Rule:
    """Return a rule as it is meant. Raises ``ValueError`` saying what is wrong with it."""
    match = _RULE_TEXT.fullmatch(text.strip())
    if match is None or (match[2] is not None and not match[2].strip()):
        raise ValueError("expected Tool or Tool(pattern), such as Bash(npm run test:*) or Read(./.env)")
    name, pattern = match[1], match[2]
    if re.search(r"[/\\]|^\.", name):
        raise ValueError(f"a rule begins with a tool; for a path write Read({name}) or Edit({name})")
    if kind == "allow":
        _check_allow_name(name)
    rule = Rule(text=text.strip(), kind=kind, layer=layer.name, origin=layer.origin, tools=_tool_names_of(name))
    if pattern is None:
        return rule
    return _apply_pattern(rule, builtin_name_of(name), pattern, anchors)


def read_rules(layers: Iterable[Layer], cwd: str, home: str) -> tuple[list[Rule], list[str]]:
    """Return the rules in force and notes on those that are not.

    Raises ``ConfigError``, or for flags ``InvalidInput``, when a rule makes no sense. Only an allow rule that came with
    a folder is left out instead: without it less is allowed.
    """
    layers = list(layers)
    only = next((layer.name for layer in layers if layer.exclusive), "")
    rules: list[Rule] = []
    notes: list[str] = []
    for layer in layers:
        place = PathAnchors(cwd=cwd, home=home, folder=os.path.normpath(layer.folder or cwd))
        for kind in KINDS:
            for text in getattr(layer, kind):
                note = _ignored_reason(kind, layer, only)
                try:
                    rule = read_rule(text, kind, layer, place)
                except ValueError as error:
                    if kind != "allow" or not (layer.project or _may_be_skipped(error, layer)):
                        raise _rule_error(text, kind, layer, str(error)) from error
                    note = str(error)
                else:
                    note = note or _no_effect_reason(rule)
                    notes += _typo_notes(rule)
                    if not note:
                        rules.append(rule)
                if note:
                    notes.append(f"{_describe_layer(layer)}: {kind} rule {text!r} does not count: {note}")
    return rules, notes


def _may_be_skipped(error: ValueError, layer: Layer) -> bool:
    """Return whether an allow rule of somebody's own file is no reason to stop: it was written for another program."""
    return isinstance(error, UnsupportedRule) and layer.name != "flag"


def _describe_layer(layer: Layer) -> str:
    return f"{layer.origin} ({layer.name})" if layer.origin else layer.name


def _rule_error(text: str, kind: RuleKind, layer: Layer, reason: str) -> Exception:
    message = f"{_describe_layer(layer)}: {kind} rule {text!r}: {reason}"
    return InvalidInput(message) if layer.name == "flag" else ConfigError(message)


def _ignored_reason(kind: RuleKind, layer: Layer, exclusive_layer: str) -> str:
    if kind != "allow":
        return ""
    if not layer.trusted:
        return "this folder is not trusted; --trust counts it"
    return f"only the {exclusive_layer} settings may allow" if exclusive_layer and layer.name != exclusive_layer else ""


def _no_effect_reason(rule: Rule) -> str:
    """Paths are allowed by ``Read`` and ``Edit`` alone; the other tools follow them."""
    if rule.kind != "allow" or rule.match_kind != "path" or {"Read", "Edit"} & {*rule.tools}:
        return ""
    return f"write {'Edit' if rule.tools[-1] in EDIT_TOOLS else 'Read'}({rule.pattern})"


def _typo_notes(rule: Rule) -> list[str]:
    name = rule.tools[0]
    near = get_close_matches(name, BUILTIN_TOOLS, n=1, cutoff=0.8)
    if len(rule.tools) > 1 or name in BUILTIN_TOOLS or name in FOREIGN_TOOLS or not near or "*" in name:
        return []
    return [f"{rule.origin or rule.layer}: rule {rule.text!r} names no built-in tool; did you mean {near[0]!r}?"]


def _tool_names_of(name: str) -> tuple[str, ...]:
    if name in ("Task", "Agent"):
        return ("Task", "Agent")
    return tuple(dict.fromkeys((name, builtin_name_of(name))))


def _check_allow_name(name: str) -> None:
    """Allowing by ``*`` is for the tools of one server, named in full."""
    before, star, _ = name.partition("*")
    if star and not (before.startswith("mcp__") and before.find("__", 6) > 0):
        raise UnsupportedRule("'*' in the name of a tool may only follow 'mcp__server__' where something is allowed")


def _matches_tool_name(name: str, tool: str) -> bool:
    if "*" in name:
        return matches_wildcards(name, tool)
    return name == tool or (name.startswith("mcp__") and "__" not in name[5:] and tool.startswith(f"{name}__"))


def _apply_pattern(rule: Rule, tool: str, pattern: str, anchors: PathAnchors) -> Rule:
    """Return a rule that looks at what a call works on."""
    about = targets_of(tool).target_kind
    field = _ARGUMENT_PATTERN.fullmatch(pattern)
    if (pattern.strip() == "*" and about in ("command", "url", "none")) or (tool == "Bash" and pattern.strip() == "**"):
        return rule
    if about == "url" and field is not None and field[1] == "domain":
        return _replace_fields(rule, match_kind="domain", pattern=pattern, domain=DomainPattern(field[2].strip()))
    if field is not None and _is_argument_pattern(tool, field[1], field[2]):
        return _replace_fields(rule, match_kind="field", field=field[1], pattern=field[2].strip())
    if tool in READ_TOOLS or tool in EDIT_TOOLS:
        return _replace_fields(
            rule, match_kind="path", pattern=pattern, path=PathPattern(pattern.strip(), rule.kind, anchors)
        )
    if about == "command":
        return _replace_fields(rule, match_kind="command", pattern=pattern)
    if about == "words":
        return _replace_fields(rule, match_kind="words", pattern=pattern.strip())
    if about == "url":
        raise UnsupportedRule(f"expected a host, such as {tool}(domain:example.com)")
    raise ValueError(f"expected one of the tool's arguments, such as {tool}(name:value)")


def _is_argument_pattern(tool: str, name: str, value: str) -> bool:
    """Return whether a colon parts an argument from its value: ``Bash(npm:*)`` and ``Skill(pdf:*)`` have none."""
    if tool in BUILTIN_TOOLS:
        return name in BUILTIN_TOOLS[tool].other_arguments and (
            value != "*" or BUILTIN_TOOLS[tool].target_kind not in ("command", "words")
        )
    return True


def _replace_fields(rule: Rule, **changes: Any) -> Rule:
    return msgspec.structs.replace(rule, **changes)
