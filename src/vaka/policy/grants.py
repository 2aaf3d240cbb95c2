"""The rules that a yes for longer than once keeps: what means just this call, and no more than a person was shown."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.types.tool import Grant, ToolSpec
from vaka.policy.domains import host_of
from vaka.policy.paths import INSIDE, Place, Segments, exact
from vaka.policy.rules import Layer, Rule, read_rule
from vaka.policy.targets import Known, built_in, folders, given, known

SESSION = "session"
"""The layer of what people have allowed in a session."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^#-]+")
"""Words that mean themselves in a rule, as in bash."""
_SERVER = re.compile(r"mcp__(?:(?!__).)*")
"""A name that as a rule would mean every tool of a server."""
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|irb|php|lua|luajit|node|nodejs|deno|bun|tclsh|R|ghci|guile|osascript)[0-9.]*"
    r"|(?:ba|da|z|k|mk|a|fi|c|tc)?sh"
)
"""Programs that run what they are fed, unless they are told what to run."""
_FED = re.compile(r"xargs|parallel|at|batch|crontab|patch|ed|ex")
"""Programs that always do what they are fed."""


def session_rules(grants: Iterable[Grant], cwd: str, home: str) -> list[Rule]:
    """Return what people have allowed as rules; a text that is none allows nothing."""
    layer, place = Layer(name=SESSION), Place(cwd=cwd, home=home, folder=cwd)
    found: list[Rule] = []
    for grant in grants:
        for text in grant.rules:
            try:
                rule = read_rule(text, "allow", layer, place)
            except ValueError:
                continue
            found.append(msgspec.structs.replace(rule, answers=frozenset(grant.answers)))
    return found


def narrow(
    spec: ToolSpec, arguments: Mapping[str, Any], names: Callable[..., list[Segments]], asking: Sequence[bool] = ()
) -> list[str]:
    """Return rules that mean just this call; where its arguments cannot be told in a rule, the name of the tool.

    ``names`` finds every name of a file. ``asking`` says which parts of a command are meant, all without it. Whether
    the rules do what they are for is for the caller to try.
    """
    tool = known(built_in(spec.name))
    try:
        rules = _means(spec, tool, arguments, names, asking)
    except ValueError:
        return []
    return list(dict.fromkeys(rules)) if all(rule.isprintable() for rule in rules) else []


def _means(
    spec: ToolSpec, tool: Known, arguments: Mapping[str, Any], names: Callable[..., list[Segments]],
    asking: Sequence[bool],
) -> list[str]:  # fmt: skip
    if tool.about == "command":
        return _commands(spec, given(tool, arguments), names, asking)
    if tool.about in ("read", "edit", "search"):
        whole = tool.about == "search"
        paths = list(folders(built_in(spec.name), arguments)) if whole else given(tool, arguments)
        found = [name for path in paths for name in names(path, whole=whole)]
        return [exactly(name, edits=tool.about == "edit") for name in found]
    words = given(tool, arguments)
    if tool.about == "url":
        return [f"{spec.name}(domain:{host_of(words[0])})"] if len(words) == 1 else []
    if tool.about == "words" and words:
        return [f"{spec.name}({words[0]})"] if "*" not in words[0] else []
    return [spec.name] if "*" not in spec.name and not _SERVER.fullmatch(spec.name) else []


def _commands(
    spec: ToolSpec, commands: list[str], names: Callable[..., list[Segments]], asking: Sequence[bool]
) -> list[str]:
    from vaka.policy.commands import parts_of, written_by  # noqa: PLC0415  # a grammar that most programs never need

    if len(commands) != 1:
        return []
    rules: list[str] = []
    for simple in parts_of(commands[0], asking):
        values = [word.value for word in simple.words]
        if any(_fed([word.value for word in words]) for words in (simple.words, *simple.wrapped)):
            return []
        if simple.words:
            rules.append(f"{spec.name}({' '.join(_word(value) for value in values)})")
        rules += [exactly(name, edits=True) for path in written_by(simple) for name in names(path, whole=False)]
    return rules


def _fed(values: Sequence[str | None]) -> bool:
    """Return whether what a command does is told by its input: its words, fed otherwise, would mean anything."""
    name = (values[0] or "").rpartition("/")[2] if values else ""
    alone = all((value or "-").startswith("-") for value in values[1:])
    return _FED.fullmatch(name) is not None or (alone and _INTERPRETER.fullmatch(name) is not None)


def _word(value: str | None) -> str:
    """Return a word as a rule says it. Raises ``ValueError`` for one that only bash will know."""
    if not value:
        raise ValueError("expected a word that is known")
    if _PLAIN.fullmatch(value):
        return value
    if not set("*\\'") & set(value):
        return f"'{value}'"
    return re.sub(r"([^A-Za-z0-9_@%+=:,./~^#-])", r"\\\1", value)


def shown(path: Segments) -> str:
    """Return a path as people write it."""
    return os.sep + os.sep.join(path[:-1] if path and path[-1] == INSIDE else path)  # noqa: PTH118  # text, not a file


def exactly(path: Segments, *, edits: bool) -> str:
    """Return the rule that means exactly this file, or this folder."""
    return f"{'Edit' if edits else 'Read'}({exact(shown(path))})"
