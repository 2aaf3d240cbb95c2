"""What a person sees before they decide on a call: the real command or change, whole, and nothing that can pretend."""

import difflib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import click
import msgspec

from vaka.cli.render import printable
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.tool import PROTECTED
from vaka.policy.targets import built_in, known

LARGEST = 1024 * 1024
"""Bytes of a file that is compared with what would be written."""

_RISKS = {
    PROTECTED: "high: it changes what runs later, or what is allowed",
    "guard": "high: it may destroy a lot",
    "syntax": "unknown: what it does cannot be told beforehand",
}
_EFFECTS = {
    "read": "low: it only reads",
    "idempotent": "it changes something; doing it twice is like doing it once",
    "resume": "it goes on by itself, and asks for what it does",
}
_CHANGES = "it may change something, and cannot be undone here"


_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\ufffc\U000e0100-\U000e01ef]"
    "|(?<![\u0080-\U0010ffff])\ufe0f"
)
"""What counts as a letter or a sign and is drawn as nothing."""


def runs_commands(tool: str) -> bool:
    """Return whether a tool runs commands, for which there is a sandbox."""
    return known(built_in(tool)).about == "command"


def shown(body: ApprovalRequested, *, count: str = "", sandbox: str = "") -> str:
    """Return a call as a person must see it: each line of it behind a bar, so that none passes for one of ours."""
    lines = [click.style(f"Approve {_seen(body.call.name, lines=False)}?", bold=True) + count]
    facts = [f"agent {body.agent}" if body.agent else "", f"risk {risk(body)}", sandbox and f"sandbox {sandbox}"]
    lines.append("  " + _seen(" · ".join(fact for fact in facts if fact), lines=False))
    lines += [f"  in {_seen(body.folder, lines=False)}"] if body.folder else []
    lines += [f"  │ {line}" for line in _call(body)]
    if body.message:
        lines.append(f"  {_seen(body.message, lines=False)}")
    if body.reason:
        lines.append(f"  Why: {_seen(body.reason, lines=False)}")
    return "\n".join(lines)


def rule_lines(rules: Iterable[str]) -> str:
    """Return the rules that would be kept, as a person reads them."""
    return "\n".join(f"  Rule: {_seen(rule, lines=False)}" for rule in rules)


def risk(body: ApprovalRequested) -> str:
    """Return in a few words what is at stake."""
    return _RISKS.get(body.layer) or _EFFECTS.get(body.effect, _CHANGES)


def _seen(text: str, *, lines: bool = True) -> str:
    """Return a text in which nothing is hidden."""
    found = printable(text, lines=lines)
    return found if found.isascii() else _BLANK.sub(lambda match: json.dumps(match[0])[1:-1], found)


def _call(body: ApprovalRequested) -> Iterator[str]:
    arguments: dict[str, Any] = dict(body.call.arguments)
    tool, about = built_in(body.call.name), known(built_in(body.call.name)).about
    command = arguments.get("command")
    if about == "command" and isinstance(command, str):
        del arguments["command"]
        yield from _text(command)
    elif about == "edit" and (changes := _changes(tool, arguments, body.cwd)) is not None:
        yield from changes
        return
    elif about != "command":
        yield from _text(_json(arguments))
        return
    for name, value in arguments.items():
        yield from _text(f"{name}: {value if isinstance(value, str) else _json(value)}")


def _changes(tool: str, arguments: Mapping[str, Any], cwd: str) -> list[str] | None:
    """Return what a tool would change in a file as a diff, ``None`` when that cannot be told from its arguments."""
    path = next((arguments[name] for name in known(tool).main if isinstance(arguments.get(name), str)), None)
    if path is None:
        return None
    pairs: list[tuple[str, str]]
    note = ""
    if tool == "Write" and isinstance(arguments.get("content"), str):
        before, note = _before(os.path.join(cwd, path))  # noqa: PTH118  # a text until it is opened
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
    lines = [*_text(f"{path}{f' ({note})' if note else ''}")]
    return lines + [line for before, after in pairs for line in _diff(before, after)]


def _is_edit(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments.get("old_string"), str) and isinstance(arguments.get("new_string"), str)


def _diff(before: str, after: str) -> Iterator[str]:
    """Yield what changes; all that is new is there, and what stays only as far as it shows where."""
    found = difflib.unified_diff(before.split("\n") if before else [], after.split("\n"), lineterm="", n=2)
    for number, line in enumerate(found):
        if number < 2:
            continue  # the names of the files
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield click.style(_seen(line, lines=False), fg=colour)


def _before(path: str) -> tuple[str, str]:
    """Return what is in a file now, and a word on it when that cannot be compared."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return "", "a new file"
    except (OSError, ValueError):
        return "", "what is there now cannot be read"
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            return "", "what is there now is too large to compare, or no plain file"
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(LARGEST)
    finally:
        os.close(descriptor)
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return "", "what is there now is no text"


def _text(text: str) -> list[str]:
    return _seen(text).split("\n")


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
