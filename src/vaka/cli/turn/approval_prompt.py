"""Prompt the user at the terminal for pending approvals and questions; another process may answer first."""

import asyncio
import getpass
import os
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click
import msgspec

from vaka.cli.errors import describe_error
from vaka.cli.render import as_printable, call_text
from vaka.cli.turn.approval_view import render_approval, render_rules, risk_of, runs_commands
from vaka.cli.turn.report import decision_hint
from vaka.config.claude_settings import settings_file_for_scope
from vaka.config.setting_keys import parse_seconds
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, ApprovalScope, QuestionAsked
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.tool import Grant
from vaka.runtime.resolve_approval import check_rule
from vaka.runtime.runtime import Runtime

if sys.platform != "win32":
    import termios

_APPROVE_CHOICES: tuple[tuple[str, str, ApprovalScope], ...] = (
    ("y", "once", "once"), ("s", "session", "session"), ("p", "project", "project"), ("u", "always", "user"),
)  # fmt: skip
"""What is typed, the word beside it, and how long a yes then counts."""


def current_user() -> str:
    """Return the name decisions made here are signed with."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def describe_decision(pending: PendingDecision) -> dict[str, Any]:
    """Return an open decision as data."""
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
            "risk": risk_of(body),
            "scopes": list(body.allowed_scopes),
            "grant": list(Grant(rule=body.grant).rules),
            "lasts": body.lasts,
        }
    assert isinstance(body, QuestionAsked)  # noqa: S101  # nothing else waits for a person
    return {
        **facts, "kind": body.kind, "summary": body.text, "options": list(body.options), "call": body.call,
        "expires": body.expires or None,
    }  # fmt: skip


class ApprovalPrompter:
    """Puts the open decisions of one session before a person, one at a time; with no terminal, says how to decide."""

    def __init__(self, runtime: Runtime, session: SessionId, note: Callable[[str], None], *, terminal: bool) -> None:
        self.runtime, self.session, self.note, self.terminal = runtime, session, note, terminal
        self._pending: dict[DecisionId, PendingDecision] = {}
        self._active_prompt: tuple[DecisionId, asyncio.Task[None]] | None = None
        self._resolving: DecisionId | None = None
        self._prompted_count = 0
        """How many were put before the person since nothing was left."""

    async def follow_decisions(self, after: str) -> None:
        """Work until cancelled."""
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
                self.note(f"waiting: {decision_hint(describe_decision(pending))}")
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
        done, everything = find_settled_decisions([event])
        gone = list(self._pending) if everything else done
        for id in gone:
            self._pending.pop(id, None)
            if id == self._resolving:
                continue  # it is our own answer, which may have more to do
            if self._active_prompt is not None and self._active_prompt[0] == id and not self._active_prompt[1].done():
                self._active_prompt[1].cancel()
                click.echo(f"\n{id}: {_decision_text(event)}", err=True)

    async def _prompt(self, pending: PendingDecision) -> None:
        body = pending.event.data
        try:
            if isinstance(body, ApprovalRequested):
                await self._prompt_approval(pending.id, body, child=bool(pending.event.path))
            elif isinstance(body, QuestionAsked):
                await self.runtime.answer(pending.id, await _ask_question(body), by=current_user())
        except NotFound:
            click.echo(f"{pending.id}: somebody else was first", err=True)
        finally:
            self._pending.pop(pending.id, None)

    async def _prompt_approval(self, id: DecisionId, body: ApprovalRequested, *, child: bool) -> None:
        waiting = await self.runtime.decisions(self.session)
        if id not in {row.id for row in waiting}:
            return  # the answer to another one has covered it
        click.echo(
            render_approval(body, count=self._position_text(len(waiting)), sandbox=self._sandbox_text(body)), err=True
        )
        asking = ApprovalDialog(body, child=child)
        event = None
        while event is None:
            said = await asking.ask_decision()
            self._resolving = id
            try:
                event = await self.runtime.resolve(id, said.pop("decision"), **said, by=current_user())
            except (InvalidInput, ConfigError) as error:
                click.echo(f"error: {describe_error(error).message}", err=True)
            finally:
                self._resolving = None
        first = event.data
        if isinstance(first, ApprovalResolved) and first.by != current_user():
            click.echo(f"{id}: {_decision_text(event)}", err=True)
        elif isinstance(first, ApprovalResolved) and (kept := _saved_rule_note(body, first)):
            click.echo(kept, err=True)

    def _position_text(self, waiting: int) -> str:
        """Say which of several this is; those that came at once count together."""
        self._prompted_count += 1
        of = self._prompted_count - 1 + waiting
        return f" ({self._prompted_count} of {of})" if of > 1 else ""

    def _sandbox_text(self, body: ApprovalRequested) -> str:
        """Say what a command would run in."""
        if not runs_commands(body.call.name):
            return ""
        try:
            sandbox = self.runtime.env.world.sandbox
        except VakaError as error:
            return f"none: {describe_error(error).message}"
        if sandbox is None or not sandbox.enforces:
            return "none: it would run with all your rights"
        return sandbox.name


class ApprovalDialog:
    """One approval before a person, until they have said something that can be meant."""

    def __init__(self, body: ApprovalRequested, *, child: bool = False) -> None:
        self.body = body
        self._reject_hint = "" if child else ", which ends the turn"
        self.rules = Grant(rule=body.grant).rules
        self._scopes_by_key: dict[str, ApprovalScope] = {
            key: scope for key, _, scope in _APPROVE_CHOICES if scope in body.allowed_scopes
        }
        self._allowed_decisions = body.decisions or ("approve", "edit", "reject")

    @property
    def choices(self) -> str:
        """What can be said."""
        found = [f"[{key}] {word}" for key, word, _ in _APPROVE_CHOICES if key in self._scopes_by_key]
        if "approve" not in self._allowed_decisions:
            found = ["[a] edit the arguments"]
        elif self.rules:
            found.append("[e] edit rule")
        return " · ".join([*found, "[n] no, with feedback"])

    async def ask_decision(self) -> dict[str, Any]:
        """Ask until there is an answer, and return it as ``Runtime.resolve`` takes it."""
        if self.rules:
            click.echo(render_rules(self.rules), err=True)
        while True:
            line = await ask_line(f"{self.choices} > ")
            said, _, rest = (line if line is not None else "n").strip().partition(" ")
            found = await self._interpret(said.lower(), rest.strip())
            if found is not None:
                return found

    async def _interpret(self, key: str, rest: str) -> dict[str, Any] | None:
        if key in self._scopes_by_key and "approve" in self._allowed_decisions:
            return self._parse_approval(self._scopes_by_key[key], rest)
        if key == "n":
            why = f"Why not (told to the model; Enter for nothing{self._reject_hint}) > "
            message = rest or (await ask_line(why) or "").strip()
            return {"decision": "reject", "message": message}
        if key == "e" and self.rules:
            await self._edit_rules(rest)
            return None
        if key == "a" and "edit" in self._allowed_decisions:
            edit = _parse_arguments(rest or await ask_line("Arguments as JSON > ") or "")
            return None if edit is None else {"decision": "approve", "edit": edit}
        known = (
            [*self._scopes_by_key, *("e" for _ in self.rules[:1]), "n"]
            if "approve" in self._allowed_decisions
            else ["n"]
        )
        more = ", or a to edit the arguments" if "edit" in self._allowed_decisions else ""
        click.echo(f"Answer {', '.join(known[:-1]) or 'n'}{' or n' if known[:-1] else ''}{more}.", err=True)
        return None

    def _parse_approval(self, scope: ApprovalScope, rest: str) -> dict[str, Any] | None:
        """Read a yes: behind one for the session may stand how long it counts; anything else is no plain yes."""
        rule, ttl = "" if scope == "once" else "\n".join(self.rules), None
        try:
            if rest and scope != "session":
                raise ValueError(f"expected nothing behind it, not {rest!r}")
            ttl = parse_seconds(rest) if rest else None
        except ValueError as error:
            click.echo(f"error: {as_printable(str(error), lines=False)}", err=True)
            return None
        return {"decision": "approve", "scope": scope, "rule": rule, "ttl": ttl}

    async def _edit_rules(self, rest: str) -> None:
        """Let the rules be written otherwise; they must still mean the call."""
        rules = [rest] if rest else [await self._ask_rule(rule) for rule in self.rules]
        rule = "\n".join(rule for rule in rules if rule != "-")
        try:
            check_rule(self.body, rule, self.body.call)
        except (InvalidInput, ConfigError) as error:
            click.echo(f"error: {describe_error(error).message}", err=True)
            return
        self.rules = Grant(rule=rule).rules
        click.echo(render_rules(self.rules), err=True)

    async def _ask_rule(self, rule: str) -> str:
        line = await ask_line(f"Rule, now {as_printable(rule, lines=False)} (Enter keeps it, - drops it) > ")
        return (line or "").strip() or rule


def _saved_rule_note(body: ApprovalRequested, resolution: ApprovalResolved) -> str:
    """Say where a rule was kept."""
    if resolution.scope not in ("project", "user"):
        return ""
    path, _ = settings_file_for_scope(resolution.scope, body.cwd, Path.home())
    trust = "; later runs count it once you trust this folder: vaka trust" if resolution.scope == "project" else ""
    return f"kept in {as_printable(str(path), lines=False)}{trust}"


def _parse_arguments(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        click.echo(f"That is no JSON object: {error}", err=True)
        return None


async def _ask_question(body: QuestionAsked) -> Any:
    lines = [click.style(as_printable(body.text), bold=True)]
    lines += [f"  [{number}] {as_printable(option)}" for number, option in enumerate(body.options, start=1)]
    click.echo("\n".join(lines), err=True)
    while True:
        line = await ask_line("> ")
        if line is None:
            return None
        said = line.strip()
        if said.isdigit() and 0 < int(said) <= len(body.options):
            said = body.options[int(said) - 1]
        if body.kind == "outcome":
            return await _ask_outcome(said)
        if said:
            return said


async def _ask_outcome(outcome: str) -> dict[str, Any]:
    if outcome != "happened":
        return {"outcome": outcome}
    return {"outcome": outcome, "result": (await ask_line("What did it return? > ") or "").strip()}


def _decision_text(event: Event) -> str:
    body = event.data
    by = as_printable(getattr(body, "by", "") or "somebody", lines=False)
    if isinstance(body, ApprovalResolved):
        return f"{'approved' if body.decision == 'approve' else 'refused'} by {by}"
    return f"{event.type} ({by})"


async def ask_line(prompt: str) -> str | None:
    """Ask for one line; ``None`` at the end of input. What was typed before the question does not answer it."""
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
