"""Prompt the user at the terminal for pending approvals and questions; another process may answer first.

A call is shown in full, as a command or a diff, with control and invisible characters escaped.
"""

import asyncio
import difflib
import json
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli.bootstrap import current_user
from vaka.cli.errors import describe_error
from vaka.cli.render import as_printable, author_of, call_text
from vaka.cli.turn.report import decision_hint
from vaka.config.claude_settings import settings_file_for_scope
from vaka.config.setting_keys import parse_seconds
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, ApprovalScope, QuestionAsked
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.tool import PROTECTED_LAYER, Grant
from vaka.policy.tool_targets import builtin_name_of, targets_of
from vaka.runtime.resolve_approval import check_rule
from vaka.runtime.runtime import Runtime

if sys.platform != "win32":
    import termios

_APPROVE_CHOICES: tuple[tuple[str, str, ApprovalScope], ...] = (
    ("y", "once", "once"), ("s", "session", "session"), ("p", "project", "project"), ("u", "always", "user"),
)  # fmt: skip
"""The key to type, its label, and the scope of the approval."""


def describe_decision(pending: PendingDecision) -> dict[str, Any]:
    body = pending.event.data
    facts: dict[str, Any] = {"id": pending.id, "session_id": pending.session, "asked": pending.event.ts}
    if isinstance(body, ApprovalRequested):
        return {
            **facts, "kind": "approval", "summary": call_text(body.call), "tool": body.call.name, "call": body.call.id,
            "arguments": body.call.arguments, "reason": body.reason, "rule": body.rule, "message": body.message,
            "expires": body.expires or None, "agent": body.agent, "risk": risk_of(body),
            "scopes": list(body.allowed_scopes), "grant": list(Grant(rule=body.grant).rules), "lasts": body.lasts,
        }  # fmt: skip
    assert isinstance(body, QuestionAsked)  # noqa: S101  # a decision is an approval or a question
    return {
        **facts, "kind": body.kind, "summary": body.text, "options": list(body.options), "call": body.call,
        "expires": body.expires or None,
    }  # fmt: skip


class ApprovalPrompter:
    """Prompts for the open decisions of one session, one at a time; without a terminal, prints how to decide them."""

    def __init__(self, runtime: Runtime, session: SessionId, note: Callable[[str], None], *, terminal: bool) -> None:
        self.runtime, self.session, self.note, self.terminal = runtime, session, note, terminal
        self.store = ""
        """The store for the commands that are printed."""
        self._pending: dict[DecisionId, PendingDecision] = {}
        self._active_prompt: tuple[DecisionId, asyncio.Task[None]] | None = None
        self._resolving: DecisionId | None = None
        self._prompted_count = 0
        """Decisions prompted for since the queue was last empty."""

    async def follow_decisions(self, after: str) -> None:
        """Follow the session and prompt until cancelled."""
        try:
            self._add_pending(await self.runtime.decisions(self.session))
            async with aclosing(self.runtime.follow(self.session, after=after)) as events:
                async for event in events:
                    self._remove_settled(event)
                    self._add_pending(find_asked_decisions(self.session, [event]))
        finally:
            self._pending.clear()
            if self._active_prompt is not None:
                self._active_prompt[1].cancel()

    def _add_pending(self, decisions: Any) -> None:
        for pending in decisions:
            if pending.id in self._pending:
                continue
            self._pending[pending.id] = pending
            if not self.terminal:
                self.note(f"waiting: {decision_hint(describe_decision(pending), self.store)}")
        if self.terminal and self._active_prompt is None and self._pending:
            pending = next(iter(self._pending.values()))
            self._active_prompt = pending.id, asyncio.create_task(self._prompt(pending))
            self._active_prompt[1].add_done_callback(self._on_prompt_done)

    def _on_prompt_done(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            click.echo(f"error: {describe_error(error).message}", err=True)
        self._active_prompt = None
        self._prompted_count = self._prompted_count if self._pending else 0
        self._add_pending(())

    def _remove_settled(self, event: Event) -> None:
        settled, everything = find_settled_decisions([event])
        for id in list(self._pending) if everything else settled:
            self._pending.pop(id, None)
            if id == self._resolving:
                continue  # the prompt itself settled it, and may have more to print
            if self._active_prompt is not None and self._active_prompt[0] == id and not self._active_prompt[1].done():
                self._active_prompt[1].cancel()
                click.echo(f"\n{id}: {_decision_text(event)}", err=True)

    async def _prompt(self, pending: PendingDecision) -> None:
        body = pending.event.data
        try:
            if isinstance(body, ApprovalRequested):
                await self._prompt_approval(pending.id, body, child=bool(pending.event.path))
            elif isinstance(body, QuestionAsked):
                answer = await _ask_question(body)
                event = await self.runtime.answer(pending.id, answer, by=current_user())
                if getattr(event.data, "answer", None) != answer:
                    click.echo(f"{pending.id}: {_decision_text(event)}", err=True)
        except NotFound:
            click.echo(f"{pending.id}: already decided elsewhere", err=True)
        finally:
            self._pending.pop(pending.id, None)

    async def _prompt_approval(self, id: DecisionId, body: ApprovalRequested, *, child: bool) -> None:
        waiting = await self.runtime.decisions(self.session)
        if id not in {row.id for row in waiting}:
            return  # the rule of another approval covers it
        count, sandbox = self._position_text(len(waiting)), self._sandbox_text(body)
        click.echo(render_approval(body, count=count, sandbox=sandbox), err=True)
        dialog = ApprovalDialog(body, child=child)
        event = None
        while event is None:
            answer = await dialog.ask_decision()
            assert answer is not None  # noqa: S101  # at stdin every dialog ends with a decision
            self._resolving = id
            try:
                event = await self.runtime.resolve(id, answer.pop("decision"), **answer, by=current_user())
            except (InvalidInput, ConfigError) as error:
                click.echo(f"error: {describe_error(error).message}", err=True)
            finally:
                self._resolving = None
        resolution = event.data
        if isinstance(resolution, ApprovalResolved) and resolution.by != current_user():
            click.echo(f"{id}: {_decision_text(event)}", err=True)
        elif isinstance(resolution, ApprovalResolved) and (note := _saved_rule_note(body, resolution)):
            click.echo(note, err=True)

    def _position_text(self, waiting: int) -> str:
        """Return which of several open approvals this is."""
        self._prompted_count += 1
        total = self._prompted_count - 1 + waiting
        return f" ({self._prompted_count} of {total})" if total > 1 else ""

    def _sandbox_text(self, body: ApprovalRequested) -> str:
        """Return the sandbox that a command would run in, ``""`` for other calls."""
        if targets_of(builtin_name_of(body.call.name)).target_kind != "command":
            return ""
        try:
            sandbox = self.runtime.env.world.sandbox
        except VakaError as error:
            return f"none: {describe_error(error).message}"
        if sandbox is None or not sandbox.enforces:
            return "none: it would run with all your permissions"
        return sandbox.name


def _echo(text: str) -> None:
    click.echo(text, err=True)


class ApprovalDialog:
    """The prompt for one approval, repeated until the answer is valid."""

    def __init__(
        self, body: ApprovalRequested, *, child: bool = False, echo: Callable[[str], None] = _echo,
        ask: "Callable[[str], Awaitable[str | None]] | None" = None,
    ) -> None:  # fmt: skip
        """Show text with ``echo`` and ask for lines with ``ask``, whose ``None`` leaves the approval open.

        Without ``ask`` lines are read from stdin, and its end is a refusal.
        """
        self.body, self._echo, self._ask = body, echo, ask or ask_line
        self._may_leave = ask is not None
        self._reject_hint = "" if child else ", which ends the turn"
        self.rules = Grant(rule=body.grant).rules
        self._scopes_by_key: dict[str, ApprovalScope] = {
            key: scope for key, _, scope in _APPROVE_CHOICES if scope in body.allowed_scopes
        }
        self._allowed_decisions = body.decisions or ("approve", "edit", "reject")

    @property
    def choices(self) -> str:
        """The keys of the prompt with their labels."""
        choices = [f"[{key}] {label}" for key, label, _ in _APPROVE_CHOICES if key in self._scopes_by_key]
        if "approve" not in self._allowed_decisions:
            choices = ["[a] edit the arguments"]
        elif self.rules:
            choices.append("[e] edit rule")
        return " · ".join([*choices, "[n] no, with feedback"])

    @property
    def keys(self) -> str:
        """The keys that answer the prompt."""
        scopes = "".join(self._scopes_by_key) if "approve" in self._allowed_decisions else ""
        return f"{scopes}{'e' if self.rules else ''}{'a' if 'edit' in self._allowed_decisions else ''}n"

    async def ask_decision(self) -> dict[str, Any] | None:
        """Prompt until the answer is valid, and return it as arguments of ``Runtime.resolve``; ``None``: later."""
        if self.rules and not self._may_leave:
            self._echo(render_rules(self.rules))
        while True:
            line = await self._ask(f"{self.choices} > ")
            if line is None and self._may_leave:
                return None
            key, _, rest = (line if line is not None else "n").strip().partition(" ")
            answer = await self._interpret(key.lower(), rest.strip())
            if answer is not None:
                return answer

    async def _interpret(self, key: str, rest: str) -> dict[str, Any] | None:
        if key in self._scopes_by_key and "approve" in self._allowed_decisions:
            return self._parse_approval(self._scopes_by_key[key], rest)
        if key == "n":
            prompt = f"Reason for the model (Enter for none{self._reject_hint}) > "
            return {"decision": "reject", "message": rest or (await self._ask(prompt) or "").strip()}
        if key == "e" and self.rules:
            await self._edit_rules(rest)
            return None
        if key == "a" and "edit" in self._allowed_decisions:
            edit = self._parse_arguments(rest or await self._ask("Arguments as JSON > ") or "")
            return None if edit is None else {"decision": "approve", "edit": edit}
        keys = [*self._scopes_by_key, *("e" for _ in self.rules[:1])] if "approve" in self._allowed_decisions else []
        more = ", or a to edit the arguments" if "edit" in self._allowed_decisions else ""
        self._echo(f"Answer {', '.join(keys)}{' or ' if keys else ''}n{more}.")
        return None

    def _parse_approval(self, scope: ApprovalScope, rest: str) -> dict[str, Any] | None:
        """Parse an approval; only one for the session may be followed by a time span."""
        rule, ttl = "" if scope == "once" else "\n".join(self.rules), None
        try:
            if rest and scope != "session":
                raise ValueError(f"expected nothing after the key, not {rest!r}")
            ttl = parse_seconds(rest) if rest else None
        except ValueError as error:
            self._echo(f"error: {as_printable(str(error), lines=False)}")
            return None
        return {"decision": "approve", "scope": scope, "rule": rule, "ttl": ttl}

    async def _edit_rules(self, rest: str) -> None:
        """Replace the rules; the new ones must match the call."""
        rules = [rest] if rest else [await self._ask_rule(rule) for rule in self.rules]
        rule = "\n".join(rule for rule in rules if rule != "-")
        try:
            check_rule(self.body, rule, self.body.call)
        except (InvalidInput, ConfigError) as error:
            self._echo(f"error: {describe_error(error).message}")
            return
        self.rules = Grant(rule=rule).rules
        self._echo(render_rules(self.rules))

    def _parse_arguments(self, text: str) -> dict[str, Any] | None:
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            self._echo(f"error: expected a JSON object: {error}")
            return None

    async def _ask_rule(self, rule: str) -> str:
        line = await self._ask(f"Rule, now {as_printable(rule, lines=False)} (Enter keeps it, - drops it) > ")
        return (line or "").strip() or rule


def _saved_rule_note(body: ApprovalRequested, resolution: ApprovalResolved) -> str:
    """Return where a rule was stored, ``""`` for scopes without a file."""
    if resolution.scope not in ("project", "user"):
        return ""
    path, _ = settings_file_for_scope(resolution.scope, body.cwd, Path.home())
    trust = "; later runs apply it once you trust this folder: vaka trust" if resolution.scope == "project" else ""
    return f"stored in {as_printable(str(path), lines=False)}{trust}"


async def _ask_question(body: QuestionAsked) -> Any:
    lines = [click.style(as_printable(body.text), bold=True)]
    lines += [f"  [{number}] {as_printable(option)}" for number, option in enumerate(body.options, start=1)]
    click.echo("\n".join(lines), err=True)
    while True:
        line = await ask_line("> ")
        if line is None:
            return None
        answer = line.strip()
        if answer.isdigit() and 0 < int(answer) <= len(body.options):
            answer = body.options[int(answer) - 1]
        if body.kind == "outcome" and answer == "happened":
            return {"outcome": answer, "result": (await ask_line("What did it return? > ") or "").strip()}
        if body.kind == "outcome":
            return {"outcome": answer}
        if answer:
            return answer


def _decision_text(event: Event) -> str:
    body = event.data
    if isinstance(body, ApprovalResolved):
        return f"{'approved' if body.decision == 'approve' else 'refused'} by {author_of(body)}"
    return f"{event.type} ({author_of(body)})"


async def ask_line(prompt: str) -> str | None:
    """Prompt for one line; ``None`` at the end of input. Input typed before the prompt is discarded."""
    descriptor = sys.stdin.fileno()
    if sys.platform == "win32":
        click.echo(prompt, err=True, nl=False)
        return await asyncio.to_thread(sys.stdin.readline) or None
    termios.tcflush(descriptor, termios.TCIFLUSH)
    click.echo(prompt, err=True, nl=False)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bytes] = loop.create_future()

    def on_readable() -> None:
        if not ready.done():
            ready.set_result(os.read(descriptor, 65536))

    loop.add_reader(descriptor, on_readable)
    try:
        line = await ready
    finally:
        loop.remove_reader(descriptor)
    return line.decode("utf-8", "replace") if line else None


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

_INVISIBLE = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\ufffc\U000e0100-\U000e01ef]"
    "|(?<![\u0080-\U0010ffff])\ufe0f"
)
"""A pattern of characters that Unicode counts as printable but terminals draw as nothing."""


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
    return shown if shown.isascii() else re.sub(_INVISIBLE, lambda match: json.dumps(match[0])[1:-1], shown)


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
    values = (arguments.get(name) for name in targets_of(tool).main_arguments)
    path = next((value for value in values if isinstance(value, str)), None)
    if path is None:
        return None
    if tool == "Write" and isinstance(arguments.get("content"), str):
        before, note = _read_current(os.path.join(cwd, path))  # noqa: PTH118  # Path would normalize it
        pairs = [(before, arguments["content"])]
    else:
        edits: list[Any] | None = {"Edit": [arguments], "MultiEdit": arguments.get("edits")}.get(tool)
        if not isinstance(edits, list) or not all(_is_edit(edit) for edit in edits):
            return None
        pairs = _edit_pairs(cast("list[dict[str, str]]", edits), os.path.join(cwd, path))  # noqa: PTH118  # as above
        note = "everywhere in it" if tool == "Edit" and arguments.get("replace_all") else ""
    lines = [*_escaped_lines(f"{path}{f' ({note})' if note else ''}")]
    return lines + [line for before, after in pairs for line in _diff_lines(before, after)]


def _edit_pairs(edits: list[dict[str, str]], file: str) -> list[tuple[str, str]]:
    """Return the file before and after the edits; where they do not apply to it, each passage and its replacement."""
    before, note = _read_current(file)
    after = before
    for edit in edits if not note else ():
        count = after.count(edit["old_string"]) if edit["old_string"] else 0
        if count != 1 and not (count and edit.get("replace_all")):
            break
        after = after.replace(edit["old_string"], edit["new_string"])
    else:
        if not note:
            return [(before, after)]
    return [(edit["old_string"], edit["new_string"]) for edit in edits]


def _is_edit(edit: Any) -> bool:
    return isinstance(edit, dict) and all(
        isinstance(cast("dict[str, Any]", edit).get(name), str) for name in ("old_string", "new_string")
    )


def _diff_lines(before: str, after: str) -> Iterator[str]:
    """Yield a unified diff with three lines of context, without its file headers."""
    diff = difflib.unified_diff(before.split("\n") if before else [], after.split("\n"), lineterm="", n=3)
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
