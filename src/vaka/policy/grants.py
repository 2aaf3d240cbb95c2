"""Rules for approvals that last: they match the approved call, and nothing more than the person was shown."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.types.tool import Grant, ToolSpec
from vaka.matching.hosts import host_of
from vaka.policy.command_access import leaves_sandbox, requested_hosts_of
from vaka.policy.paths import ANY_CHILD, PathAnchors, PathSegments, exact_path_pattern
from vaka.policy.rules import Layer, Rule, read_rule
from vaka.policy.tool_targets import read_targets, target_paths_of, targets_of

SESSION_LAYER = "session"
"""The layer of rules approved during a session."""

_UNQUOTED_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./~^#-]+")
"""Words that need no quotes in a rule."""
_MCP_SERVER_NAME = re.compile(r"mcp__(?:(?!__).)*")
"""A tool name that, as a rule, would match every tool of an MCP server."""
_NameFinder: TypeAlias = Callable[..., list[PathSegments]]

_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|irb|php|lua|luajit|node|nodejs|deno|bun|tclsh|R|ghci|guile|osascript)[0-9.]*"
    r"|(?:ba|da|z|k|mk|a|fi|c|tc)?sh"
)
"""Programs that run their standard input when no script is given."""
_RUNS_STDIN = re.compile(r"xargs|parallel|at|batch|crontab|patch|ed|ex")
"""Programs that always act on their standard input."""


def rules_of_grants(grants: Iterable[Grant], cwd: str, home: str) -> list[Rule]:
    """Return approved grants as allow rules; a text that is not a rule is ignored."""
    layer, anchors = Layer(name=SESSION_LAYER), PathAnchors(cwd=cwd, home=home, folder=cwd)
    rules: list[Rule] = []
    for grant in grants:
        for text in grant.rules:
            try:
                rule = read_rule(text, "allow", layer, anchors)
            except ValueError:
                continue
            rules.append(msgspec.structs.replace(rule, answers=frozenset(grant.answers)))
    return rules


def build_narrow_rules(
    spec: ToolSpec, arguments: Mapping[str, Any], find_names: _NameFinder, selected: Sequence[bool] = ()
) -> list[str]:
    """Return rules that match just this call, or the name of the tool where a rule cannot express its arguments.

    ``find_names`` finds every name of a file. ``selected`` are the parts of a command that the rules are for, all by
    default. The caller checks that the rules have the wanted effect.
    """
    try:
        rules = _rules_for_call(spec, arguments, find_names, selected)
    except ValueError:
        return []
    return list(dict.fromkeys(rules)) if all(rule.isprintable() for rule in rules) else []


def _rules_for_call(
    spec: ToolSpec, arguments: Mapping[str, Any], find_names: _NameFinder, selected: Sequence[bool]
) -> list[str]:
    tool = targets_of(spec.name)
    words = read_targets(tool, arguments)
    if tool.target_kind == "command":
        rules = _command_rules(spec, words, find_names, selected)
        if leaves_sandbox(arguments):
            rules = [rule.replace(f"{spec.name}(", f"{spec.name}(unsandboxed:", 1) for rule in rules]
        return [*rules, *(f"{spec.name}(domain:{host.text})" for host in requested_hosts_of(arguments))]
    if tool.target_kind in ("read", "edit", "search"):
        paths = target_paths_of(tool, arguments)
        names = [name for path in paths for name in find_names(path, children=tool.target_kind == "search")]
        return [exact_path_rule(name, edits=tool.target_kind == "edit") for name in names]
    if tool.target_kind == "url":
        return [f"{spec.name}(domain:{host_of(words[0])})"] if len(words) == 1 else []
    if tool.target_kind == "words" and words:
        return [f"{spec.name}({words[0]})"] if "*" not in words[0] else []
    return [spec.name] if "*" not in spec.name and not _MCP_SERVER_NAME.fullmatch(spec.name) else []


def _command_rules(spec: ToolSpec, commands: list[str], find_names: _NameFinder, selected: Sequence[bool]) -> list[str]:
    from vaka.policy.bash.judge import redirection_targets_of, select_commands  # noqa: PLC0415  # loads the bash grammar

    if len(commands) != 1:
        return []
    rules: list[str] = []
    for simple in select_commands(commands[0], selected):
        values = [word.value for word in simple.words]
        if any(_runs_its_input([word.value for word in words]) for words in (simple.words, *simple.wrapped_commands)):
            return []
        if simple.words:
            rules.append(f"{spec.name}({' '.join(_quote_rule_word(value) for value in values)})")
        rules += [
            exact_path_rule(name, edits=True)
            for path in redirection_targets_of(simple)
            for name in find_names(path, children=False)
        ]
    return rules


def _runs_its_input(values: Sequence[str | None]) -> bool:
    """Return whether a command runs its standard input: a rule about its words would allow anything."""
    name = (values[0] or "").rpartition("/")[2] if values else ""
    no_script = all((value or "-").startswith("-") for value in values[1:])
    return _RUNS_STDIN.fullmatch(name) is not None or (no_script and _INTERPRETER.fullmatch(name) is not None)


def _quote_rule_word(value: str | None) -> str:
    """Return a word quoted for a rule. Raises ``ValueError`` for a word that is empty or unknown before it runs."""
    if not value:
        raise ValueError("expected a known word")
    if _UNQUOTED_WORD.fullmatch(value):
        return value
    if not set("*\\'") & set(value):
        return f"'{value}'"
    return re.sub(r"([^A-Za-z0-9_@%+=:,./~^#-])", r"\\\1", value)


def format_path(path: PathSegments) -> str:
    return os.sep + os.sep.join(path[:-1] if path and path[-1] == ANY_CHILD else path)  # noqa: PTH118  # text, not a file


def exact_path_rule(path: PathSegments, *, edits: bool) -> str:
    """Return the rule that matches exactly this file or folder."""
    return f"{'Edit' if edits else 'Read'}({exact_path_pattern(format_path(path))})"
