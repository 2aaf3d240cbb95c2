"""The rules that a yes for longer than once keeps: what means just this call, and no more than a person was shown."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.types.tool import Grant, ToolSpec
from vaka.policy.matching import host_of
from vaka.policy.paths import ANY_CHILD, PathAnchors, PathSegments, exact_path_pattern
from vaka.policy.rules import Layer, Rule, read_rule
from vaka.policy.tool_targets import ToolTargets, builtin_name_of, list_search_folders, read_targets, targets_of

SESSION_LAYER = "session"
"""The layer of what people have allowed in a session."""

_UNQUOTED_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./~^#-]+")
"""Words that mean themselves in a rule, as in bash."""
_MCP_SERVER_NAME = re.compile(r"mcp__(?:(?!__).)*")
"""A name that as a rule would mean every tool of a server."""
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|irb|php|lua|luajit|node|nodejs|deno|bun|tclsh|R|ghci|guile|osascript)[0-9.]*"
    r"|(?:ba|da|z|k|mk|a|fi|c|tc)?sh"
)
"""Programs that run what they are fed, unless they are told what to run."""
_RUNS_STDIN = re.compile(r"xargs|parallel|at|batch|crontab|patch|ed|ex")
"""Programs that always do what they are fed."""


def rules_of_grants(grants: Iterable[Grant], cwd: str, home: str) -> list[Rule]:
    """Return what people have allowed as rules; a text that is none allows nothing."""
    layer, place = Layer(name=SESSION_LAYER), PathAnchors(cwd=cwd, home=home, folder=cwd)
    found: list[Rule] = []
    for grant in grants:
        for text in grant.rules:
            try:
                rule = read_rule(text, "allow", layer, place)
            except ValueError:
                continue
            found.append(msgspec.structs.replace(rule, answers=frozenset(grant.answers)))
    return found


def build_narrow_rules(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    find_names: Callable[..., list[PathSegments]],
    selected: Sequence[bool] = (),
) -> list[str]:
    """Return rules that mean just this call; where its arguments cannot be told in a rule, the name of the tool.

    ``names`` finds every name of a file. ``asking`` says which parts of a command are meant, all without it. Whether
    the rules do what they are for is for the caller to try.
    """
    tool = targets_of(builtin_name_of(spec.name))
    try:
        rules = _rules_for_call(spec, tool, arguments, find_names, selected)
    except ValueError:
        return []
    return list(dict.fromkeys(rules)) if all(rule.isprintable() for rule in rules) else []


def _rules_for_call(
    spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any], find_names: Callable[..., list[PathSegments]],
    selected: Sequence[bool],
) -> list[str]:  # fmt: skip
    if tool.target_kind == "command":
        return _command_rules(spec, read_targets(tool, arguments), find_names, selected)
    if tool.target_kind in ("read", "edit", "search"):
        whole = tool.target_kind == "search"
        paths = (
            list(list_search_folders(builtin_name_of(spec.name), arguments)) if whole else read_targets(tool, arguments)
        )
        found = [name for path in paths for name in find_names(path, children=whole)]
        return [exact_path_rule(name, edits=tool.target_kind == "edit") for name in found]
    words = read_targets(tool, arguments)
    if tool.target_kind == "url":
        return [f"{spec.name}(domain:{host_of(words[0])})"] if len(words) == 1 else []
    if tool.target_kind == "words" and words:
        return [f"{spec.name}({words[0]})"] if "*" not in words[0] else []
    return [spec.name] if "*" not in spec.name and not _MCP_SERVER_NAME.fullmatch(spec.name) else []


def _command_rules(
    spec: ToolSpec, commands: list[str], find_names: Callable[..., list[PathSegments]], selected: Sequence[bool]
) -> list[str]:
    from vaka.policy.command_policy import redirection_targets_of, select_commands  # noqa: PLC0415  # a grammar that most programs never need

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
    """Return whether what a command does is told by its input: its words, fed otherwise, would mean anything."""
    name = (values[0] or "").rpartition("/")[2] if values else ""
    alone = all((value or "-").startswith("-") for value in values[1:])
    return _RUNS_STDIN.fullmatch(name) is not None or (alone and _INTERPRETER.fullmatch(name) is not None)


def _quote_rule_word(value: str | None) -> str:
    """Return a word as a rule says it. Raises ``ValueError`` for one that only bash will know."""
    if not value:
        raise ValueError("expected a word that is known")
    if _UNQUOTED_WORD.fullmatch(value):
        return value
    if not set("*\\'") & set(value):
        return f"'{value}'"
    return re.sub(r"([^A-Za-z0-9_@%+=:,./~^#-])", r"\\\1", value)


def format_path(path: PathSegments) -> str:
    """Return a path as people write it."""
    return os.sep + os.sep.join(path[:-1] if path and path[-1] == ANY_CHILD else path)  # noqa: PTH118  # text, not a file


def exact_path_rule(path: PathSegments, *, edits: bool) -> str:
    """Return the rule that means exactly this file, or this folder."""
    return f"{'Edit' if edits else 'Read'}({exact_path_pattern(format_path(path))})"
