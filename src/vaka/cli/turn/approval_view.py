"""The text of an open approval: the whole call, as a command or a diff, with invisible characters escaped."""

import difflib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import click
import msgspec

from vaka.cli.display.call_summary import NO_DECLARED_TRAITS, TraitsByName, summary_of, traits_of
from vaka.cli.kit.render import as_printable, call_text, shorten
from vaka.cli.strings import mark_translatable, translate
from vaka.core.ports.sandbox import Sandbox
from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.decision_text import text_of_decision
from vaka.core.types.tool import Grant
from vaka.core.types.traits import ToolTraits
from vaka.policy.command_access import leaves_sandbox

MAX_DIFF_BYTES = 1024 * 1024
"""The largest file that is compared with its new content."""
_REPLACE_ALL = "replace_all"
"""The argument of an edit that replaces every occurrence."""

_SANDBOX_EFFECTS = {
    "write": mark_translatable("writes only to the workspace"),
    "read": mark_translatable("secret files are hidden"),
    "network": mark_translatable("only allowed hosts"),
}
"""The effect of each limit on a command."""

_INVISIBLE = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\ufffc\U000e0100-\U000e01ef]"
    "|(?<![\u0080-\U0010ffff])\ufe0f"
)
"""A pattern of characters that Unicode counts as printable but terminals draw as nothing."""


def describe_decision(pending: PendingDecision) -> dict[str, Any]:
    body = pending.event.data
    facts: dict[str, Any] = {"id": pending.id, "session_id": pending.session, "asked": pending.event.ts}
    if isinstance(body, ApprovalRequested):
        return {
            **facts,
            "kind": "approval",
            "summary": call_text(body.call),
            "tool": body.call.name,
            "call": body.call.id,
            "arguments": body.call.arguments,
            "reason": body.reason,
            "rule": body.rule,
            "message": body.message,
            "expires": body.expires or None,
            "agent": body.agent,
            "risk": text_of_decision(body, traits=traits_of(body.call)).risk,
            "scopes": list(body.allowed_scopes),
            "grant": list(Grant(rule=body.grant).rules),
            "lasts": body.lasts,
        }
    assert isinstance(body, QuestionAsked)  # noqa: S101  # a decision is an approval or a question
    return {
        **facts,
        "kind": body.kind,
        "summary": body.text,
        "options": list(body.options),
        "call": body.call,
        "expires": body.expires or None,
    }


def render_approval(
    body: ApprovalRequested, *, count: str = "", sandbox: str = "", declared: TraitsByName = NO_DECLARED_TRAITS
) -> str:
    """Return a call for approval: each of its lines follows a bar, so that none can imitate the prompt itself.

    ``declared`` has the traits of tools that are not built in.
    """
    text = text_of_decision(body, traits=traits_of(body.call), translate=translate)
    facts = [*text.facts, sandbox and translate("sandbox {sandbox}", sandbox=sandbox)]
    lines = [click.style(_escape_invisible(text.title, lines=False), bold=True) + count]
    above = [" · ".join(fact for fact in facts if fact), text.folder]
    lines += [f"  {_escape_invisible(line, lines=False)}" for line in above if line]
    lines += [f"  │ {line}" for line in _call_lines(body, traits_of(body.call, declared))]
    lines += [f"  {_escape_invisible(line, lines=False)}" for line in text.details]
    return "\n".join(lines)


def summarize_call(body: ApprovalRequested, width: int, declared: TraitsByName = NO_DECLARED_TRAITS) -> str:
    """Return the call of an approval in one line."""
    return _escape_invisible(f"{body.call.name} {shorten(summary_of(body.call, declared), width)}", lines=False)


def describe_sandbox(body: ApprovalRequested, sandbox: Sandbox | None) -> str:
    """Return what the sandbox would do with a command, ``""`` for other calls."""
    if not traits_of(body.call).command:  # the sandbox does not know of commands that other tools run
        return ""
    if sandbox is None or not sandbox.enforces or leaves_sandbox(body.call.arguments):
        return translate("none: it would run with all your permissions")
    effects = [translate(text) for limit, text in _SANDBOX_EFFECTS.items() if limit in sandbox.enforces]
    return f"{sandbox.name}: {', '.join(effects)}" if effects else sandbox.name


def render_rules(rules: Iterable[str]) -> str:
    """Return the rules that a longer scope would store, one per line."""
    return "\n".join("  " + translate("Rule: {rule}", rule=_escape_invisible(rule, lines=False)) for rule in rules)


def _escape_invisible(text: str, *, lines: bool = True) -> str:
    """Return a text with control and invisible characters escaped."""
    shown = as_printable(text, lines=lines)
    return shown if shown.isascii() else re.sub(_INVISIBLE, lambda match: json.dumps(match[0])[1:-1], shown)


def _call_lines(body: ApprovalRequested, traits: ToolTraits) -> Iterator[str]:
    arguments: dict[str, Any] = dict(body.call.arguments)
    changed = _change_lines(traits, arguments, body.cwd) if traits.writes else None
    if changed is not None:
        yield from changed
    elif traits.command:
        command = arguments.get(traits.command)
        if isinstance(command, str):
            del arguments[traits.command]
            yield from _escaped_lines(command)
    else:
        yield from _escaped_lines(_pretty_json(arguments))
        return
    for name, value in arguments.items():
        yield from _escaped_lines(f"{name}: {value if isinstance(value, str) else _pretty_json(value)}")


def _change_lines(traits: ToolTraits, arguments: dict[str, Any], cwd: str) -> list[str] | None:
    """Return the change of a file as a diff, ``None`` when the arguments do not determine it.

    Arguments that the diff contains are removed.
    """
    place = next((name for name in traits.paths if isinstance(arguments.get(name), str)), None)
    if place is None:
        return None
    file = os.path.join(cwd, arguments[place])  # noqa: PTH118  # Path would normalize it
    if traits.content and isinstance(arguments.get(traits.content), str):
        before, note = _read_current(file)
        pairs, contained = [(before, arguments[traits.content])], [traits.content]
    else:
        edits = _edits_of(traits, arguments)
        if edits is None:
            return None
        pairs = _edit_pairs(edits, file)
        contained = [traits.replacements] if traits.replacements else [*traits.replacement, _REPLACE_ALL]
        is_everywhere = not traits.replacements and arguments.get(_REPLACE_ALL)
        note = translate("everywhere in it") if is_everywhere else ""
    lines = [*_escaped_lines(f"{arguments[place]}{f' ({note})' if note else ''}")]
    for name in (place, *contained):
        arguments.pop(name, None)
    return lines + [line for before, after in pairs for line in _diff_lines(before, after)]


class _Edit(NamedTuple):
    """A passage of a file and the text that takes its place."""

    old: str
    new: str
    replaces_all: bool


def _edits_of(traits: ToolTraits, arguments: dict[str, Any]) -> list[_Edit] | None:
    """Return the edits that a call makes, ``None`` if its arguments do not have them."""
    if not traits.replacement:
        return None
    old, new = traits.replacement
    given: object = arguments.get(traits.replacements) if traits.replacements else [arguments]
    if not isinstance(given, list):
        return None
    listed = cast("list[object]", given)
    found = [cast("dict[str, Any]", edit) for edit in listed if isinstance(edit, dict)]
    edits = [
        _Edit(edit[old], edit[new], bool(edit.get(_REPLACE_ALL)))
        for edit in found
        if isinstance(edit.get(old), str) and isinstance(edit.get(new), str)
    ]
    return edits if len(edits) == len(listed) else None


def _edit_pairs(edits: list[_Edit], file: str) -> list[tuple[str, str]]:
    """Return the file before and after the edits; where they do not apply to it, each passage and its replacement."""
    before, note = _read_current(file)
    after = before
    for edit in edits if not note else ():
        count = after.count(edit.old) if edit.old else 0
        if count != 1 and not (count and edit.replaces_all):
            break
        after = after.replace(edit.old, edit.new)
    else:
        if not note:
            return [(before, after)]
    return [(edit.old, edit.new) for edit in edits]


def _diff_lines(before: str, after: str) -> Iterator[str]:
    """Yield a unified diff with three lines of context, without its file headers."""
    if after.endswith("\n") and (not before or before.endswith("\n")):
        before, after = before.removesuffix("\n"), after.removesuffix("\n")
    diff = difflib.unified_diff(before.split("\n") if before else [], after.split("\n"), lineterm="", n=3)
    for line in islice(diff, 2, None):
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield click.style(_escape_invisible(line, lines=False), fg=colour)


def _read_current(path: str) -> tuple[str, str]:
    """Return the present text of a file, and a note when it cannot be compared."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return "", translate("a new file")
    except (OSError, ValueError):
        return "", translate("the present file cannot be read")
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_DIFF_BYTES:
            return "", translate("the present file is too large to compare, or not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_DIFF_BYTES)
    finally:
        os.close(descriptor)
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return "", translate("the present file is not text")


def _escaped_lines(text: str) -> list[str]:
    return _escape_invisible(text).split("\n")


def _pretty_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
