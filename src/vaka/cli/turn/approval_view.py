"""Render a call that needs approval: the full command or diff, with control and invisible characters escaped."""

import difflib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

import click
import msgspec

from vaka.cli.render import as_printable
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.tool import PROTECTED_LAYER
from vaka.policy.tool_targets import builtin_name_of, targets_of

MAX_DIFF_BYTES = 1024 * 1024
"""The largest file that is compared with its new content."""

_LAYER_RISKS = {
    PROTECTED_LAYER: "high: it changes what runs later, or what is allowed",
    "guard": "high: it may destroy a lot",
    "syntax": "unknown: its effect cannot be determined beforehand",
}
_EFFECT_RISKS = {
    "read": "low: it only reads",
    "idempotent": "it changes something; doing it twice is like doing it once",
    "resume": "it continues by itself, and each of its steps is judged",
}
_DEFAULT_RISK = "it may change something, and cannot be undone here"

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\ufffc\U000e0100-\U000e01ef]"
    "|(?<![\u0080-\U0010ffff])\ufe0f"
)
"""Characters that Unicode counts as printable but terminals draw as nothing."""


def runs_commands(tool: str) -> bool:
    """Return whether a tool runs commands, which a sandbox can confine."""
    return targets_of(builtin_name_of(tool)).target_kind == "command"


def render_approval(body: ApprovalRequested, *, count: str = "", sandbox: str = "") -> str:
    """Return a call for approval: each of its lines follows a bar, so that none can imitate the prompt itself."""
    lines = [click.style(f"Approve {_escape_invisible(body.call.name, lines=False)}?", bold=True) + count]
    facts = [f"agent {body.agent}" if body.agent else "", f"risk {risk_of(body)}", sandbox and f"sandbox {sandbox}"]
    lines.append("  " + _escape_invisible(" · ".join(fact for fact in facts if fact), lines=False))
    lines += [f"  in {_escape_invisible(body.folder, lines=False)}"] if body.folder else []
    lines += [f"  │ {line}" for line in _call_lines(body)]
    if body.message:
        lines.append(f"  {_escape_invisible(body.message, lines=False)}")
    if body.reason:
        lines.append(f"  Why: {_escape_invisible(body.reason, lines=False)}")
    return "\n".join(lines)


def render_rules(rules: Iterable[str]) -> str:
    """Return the rules that a longer scope would store, one per line."""
    return "\n".join(f"  Rule: {_escape_invisible(rule, lines=False)}" for rule in rules)


def risk_of(body: ApprovalRequested) -> str:
    """Return the risk of a call in a few words."""
    return _LAYER_RISKS.get(body.layer) or _EFFECT_RISKS.get(body.effect, _DEFAULT_RISK)


def _escape_invisible(text: str, *, lines: bool = True) -> str:
    """Return a text with control and invisible characters escaped."""
    shown = as_printable(text, lines=lines)
    return shown if shown.isascii() else _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], shown)


def _call_lines(body: ApprovalRequested) -> Iterator[str]:
    arguments: dict[str, Any] = dict(body.call.arguments)
    tool, about = builtin_name_of(body.call.name), targets_of(builtin_name_of(body.call.name)).target_kind
    command = arguments.get("command")
    if about == "command" and isinstance(command, str):
        del arguments["command"]
        yield from _escaped_lines(command)
    elif about == "edit" and (changes := _change_lines(tool, arguments, body.cwd)) is not None:
        yield from changes
        return
    elif about != "command":
        yield from _escaped_lines(_pretty_json(arguments))
        return
    for name, value in arguments.items():
        yield from _escaped_lines(f"{name}: {value if isinstance(value, str) else _pretty_json(value)}")


def _change_lines(tool: str, arguments: Mapping[str, Any], cwd: str) -> list[str] | None:
    """Return the change of a file as a diff, ``None`` when the arguments do not determine it."""
    paths = [arguments[name] for name in targets_of(tool).main_arguments if isinstance(arguments.get(name), str)]
    if not paths:
        return None
    path: str = paths[0]
    pairs: list[tuple[str, str]]
    note = ""
    if tool == "Write" and isinstance(arguments.get("content"), str):
        before, note = _read_current(os.path.join(cwd, path))  # noqa: PTH118  # Path would normalize it
        pairs = [(before, arguments["content"])]
    elif tool == "Edit" and _is_edit(arguments):
        pairs = [(arguments["old_string"], arguments["new_string"])]
        note = "everywhere in it" if arguments.get("replace_all") else ""
    elif tool == "MultiEdit" and isinstance(arguments.get("edits"), list):
        edits = cast("list[Any]", arguments["edits"])
        if not all(isinstance(edit, dict) and _is_edit(cast("dict[str, Any]", edit)) for edit in edits):
            return None
        pairs = [(edit["old_string"], edit["new_string"]) for edit in edits]
    else:
        return None
    lines = [*_escaped_lines(f"{path}{f' ({note})' if note else ''}")]
    return lines + [line for before, after in pairs for line in _diff_lines(before, after)]


def _is_edit(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments.get("old_string"), str) and isinstance(arguments.get("new_string"), str)


def _diff_lines(before: str, after: str) -> Iterator[str]:
    """Yield a unified diff with two lines of context, without its file headers."""
    diff = difflib.unified_diff(before.split("\n") if before else [], after.split("\n"), lineterm="", n=2)
    for line in islice(diff, 2, None):
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield click.style(_escape_invisible(line, lines=False), fg=colour)


def _read_current(path: str) -> tuple[str, str]:
    """Return the present text of a file, and a note when it cannot be compared."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return "", "a new file"
    except (OSError, ValueError):
        return "", "the present file cannot be read"
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_DIFF_BYTES:
            return "", "the present file is too large to compare, or not a regular file"
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_DIFF_BYTES)
    finally:
        os.close(descriptor)
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return "", "the present file is not text"


def _escaped_lines(text: str) -> list[str]:
    return _escape_invisible(text).split("\n")


def _pretty_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
