"""Asking the person at the terminal what a session wants to know. Another terminal may answer first."""

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

from vaka.cli.errors import told
from vaka.cli.render import call_text, printable
from vaka.cli.report import how_to_decide
from vaka.cli.shown import risk, rule_lines, runs_commands, shown
from vaka.config.keys import seconds
from vaka.core.ports.store import Pending
from vaka.core.session.index import asked, settled
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAsked, Scope
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.tool import Grant
from vaka.runtime.remember import settings_file
from vaka.runtime.resolve import check_rule
from vaka.runtime.runtime import Runtime

if sys.platform != "win32":
    import termios

_YES: tuple[tuple[str, str, Scope], ...] = (
    ("y", "once", "once"), ("s", "session", "session"), ("p", "project", "project"), ("u", "always", "user"),
)  # fmt: skip
"""What is typed, the word beside it, and how long a yes then counts."""


def person() -> str:
    """Return the name decisions made here are signed with."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def describe(pending: Pending) -> dict[str, Any]:
    """Return an open decision as data."""
    body = pending.event.data
    facts: dict[str, Any] = {"id": pending.id, "session_id": pending.session, "asked": pending.event.ts}
    if isinstance(body, ApprovalRequested):
        return {
            **facts, "kind": "approval", "summary": call_text(body.call), "tool": body.call.name, "call": body.call.id,
            "arguments": body.call.arguments, "reason": body.reason, "rule": body.rule, "message": body.message,
            "expires": body.expires or None, "agent": body.agent, "risk": risk(body), "scopes": list(body.lasting),
            "grant": list(Grant(rule=body.grant).rules), "lasts": body.lasts,
        }  # fmt: skip
    assert isinstance(body, QuestionAsked)  # noqa: S101  # nothing else waits for a person
    return {
        **facts, "kind": body.kind, "summary": body.text, "options": list(body.options), "call": body.call,
        "expires": body.expires or None,
    }  # fmt: skip


class Desk:
    """Puts the open decisions of one session before a person, one at a time; with no terminal, says how to decide."""

    def __init__(self, runtime: Runtime, session: SessionId, note: Callable[[str], None], *, terminal: bool) -> None:
        self.runtime, self.session, self.note, self.terminal = runtime, session, note, terminal
        self._open: dict[DecisionId, Pending] = {}
        self._asking: tuple[DecisionId, asyncio.Task[None]] | None = None
        self._saying: DecisionId | None = None
        self._past = 0
        """How many were put before the person since nothing was left."""

    async def attend(self, after: str) -> None:
        """Work until cancelled."""
        try:
            self._came(await self.runtime.decisions(self.session))
            async with aclosing(self.runtime.follow(self.session, after=after)) as events:
                async for event in events:
                    self._went(event)
                    self._came(asked(self.session, [event]))
        finally:
            self._open.clear()
            if self._asking is not None:
                self._asking[1].cancel()

    def _came(self, decisions: Any) -> None:
        for pending in decisions:
            if pending.id in self._open:
                continue
            self._open[pending.id] = pending
            if not self.terminal:
                self.note(f"waiting: {how_to_decide(describe(pending))}")
        if self.terminal and self._asking is None and self._open:
            pending = next(iter(self._open.values()))
            self._asking = pending.id, asyncio.create_task(self._ask(pending))
            self._asking[1].add_done_callback(self._next)

    def _next(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            click.echo(f"error: {told(error).message}", err=True)
        self._asking = None
        self._past = self._past if self._open else 0
        self._came(())

    def _went(self, event: Event) -> None:
        done, everything = settled([event])
        gone = list(self._open) if everything else done
        for id in gone:
            self._open.pop(id, None)
            if id == self._saying:
                continue  # it is our own answer, which may have more to do
            if self._asking is not None and self._asking[0] == id and not self._asking[1].done():
                self._asking[1].cancel()
                click.echo(f"\n{id}: {_decided(event)}", err=True)

    async def _ask(self, pending: Pending) -> None:
        body = pending.event.data
        try:
            if isinstance(body, ApprovalRequested):
                await self._approval(pending.id, body, child=bool(pending.event.path))
            elif isinstance(body, QuestionAsked):
                await self.runtime.answer(pending.id, await _answer(body), by=person())
        except NotFound:
            click.echo(f"{pending.id}: somebody else was first", err=True)
        finally:
            self._open.pop(pending.id, None)

    async def _approval(self, id: DecisionId, body: ApprovalRequested, *, child: bool) -> None:
        waiting = await self.runtime.decisions(self.session)
        if id not in {row.id for row in waiting}:
            return  # the answer to another one has covered it
        click.echo(shown(body, count=self._count(len(waiting)), sandbox=self._sandbox(body)), err=True)
        asking = Asking(body, child=child)
        event = None
        while event is None:
            said = await asking.decision()
            self._saying = id
            try:
                event = await self.runtime.resolve(id, said.pop("decision"), **said, by=person())
            except (InvalidInput, ConfigError) as error:
                click.echo(f"error: {told(error).message}", err=True)
            finally:
                self._saying = None
        first = event.data
        if isinstance(first, ApprovalResolved) and first.by != person():
            click.echo(f"{id}: {_decided(event)}", err=True)
        elif isinstance(first, ApprovalResolved) and (kept := _kept(body, first)):
            click.echo(kept, err=True)

    def _count(self, waiting: int) -> str:
        """Say which of several this is; those that came at once count together."""
        self._past += 1
        of = self._past - 1 + waiting
        return f" ({self._past} of {of})" if of > 1 else ""

    def _sandbox(self, body: ApprovalRequested) -> str:
        """Say what a command would run in."""
        if not runs_commands(body.call.name):
            return ""
        try:
            sandbox = self.runtime.env.world.sandbox
        except VakaError as error:
            return f"none: {told(error).message}"
        if sandbox is None or not sandbox.enforces:
            return "none: it would run with all your rights"
        return sandbox.name


class Asking:
    """One approval before a person, until they have said something that can be meant."""

    def __init__(self, body: ApprovalRequested, *, child: bool = False) -> None:
        self.body = body
        self._silence = "" if child else ", which ends the turn"
        self.rules = Grant(rule=body.grant).rules
        self._lasting: dict[str, Scope] = {key: scope for key, _, scope in _YES if scope in body.lasting}
        self._may = body.decisions or ("approve", "edit", "reject")

    @property
    def choices(self) -> str:
        """What can be said."""
        found = [f"[{key}] {word}" for key, word, _ in _YES if key in self._lasting]
        if "approve" not in self._may:
            found = ["[a] edit the arguments"]
        elif self.rules:
            found.append("[e] edit rule")
        return " · ".join([*found, "[n] no, with feedback"])

    async def decision(self) -> dict[str, Any]:
        """Ask until there is an answer, and return it as ``Runtime.resolve`` takes it."""
        if self.rules:
            click.echo(rule_lines(self.rules), err=True)
        while True:
            line = await ask_line(f"{self.choices} > ")
            said, _, rest = (line if line is not None else "n").strip().partition(" ")
            found = await self._meant(said.lower(), rest.strip())
            if found is not None:
                return found

    async def _meant(self, said: str, rest: str) -> dict[str, Any] | None:
        if said in self._lasting and "approve" in self._may:
            return self._yes(self._lasting[said], rest)
        if said == "n":
            why = f"Why not (told to the model; Enter for nothing{self._silence}) > "
            message = rest or (await ask_line(why) or "").strip()
            return {"decision": "reject", "message": message}
        if said == "e" and self.rules:
            await self._edit_rules(rest)
            return None
        if said == "a" and "edit" in self._may:
            edit = _arguments(rest or await ask_line("Arguments as JSON > ") or "")
            return None if edit is None else {"decision": "approve", "edit": edit}
        known = [*self._lasting, *("e" for _ in self.rules[:1]), "n"] if "approve" in self._may else ["n"]
        more = ", or a to edit the arguments" if "edit" in self._may else ""
        click.echo(f"Answer {', '.join(known[:-1]) or 'n'}{' or n' if known[:-1] else ''}{more}.", err=True)
        return None

    def _yes(self, scope: Scope, rest: str) -> dict[str, Any] | None:
        """Read a yes: behind one for the session may stand how long it counts; anything else is no plain yes."""
        rule, ttl = "" if scope == "once" else "\n".join(self.rules), None
        try:
            if rest and scope != "session":
                raise ValueError(f"expected nothing behind it, not {rest!r}")
            ttl = seconds(rest) if rest else None
        except ValueError as error:
            click.echo(f"error: {printable(str(error), lines=False)}", err=True)
            return None
        return {"decision": "approve", "scope": scope, "rule": rule, "ttl": ttl}

    async def _edit_rules(self, rest: str) -> None:
        """Let the rules be written otherwise; they must still mean the call."""
        rules = [rest] if rest else [await self._edited(rule) for rule in self.rules]
        rule = "\n".join(rule for rule in rules if rule != "-")
        try:
            check_rule(self.body, rule, self.body.call)
        except (InvalidInput, ConfigError) as error:
            click.echo(f"error: {told(error).message}", err=True)
            return
        self.rules = Grant(rule=rule).rules
        click.echo(rule_lines(self.rules), err=True)

    async def _edited(self, rule: str) -> str:
        line = await ask_line(f"Rule, now {printable(rule, lines=False)} (Enter keeps it, - drops it) > ")
        return (line or "").strip() or rule


def _kept(body: ApprovalRequested, said: ApprovalResolved) -> str:
    """Say where a rule was kept."""
    if said.scope not in ("project", "user"):
        return ""
    path, _ = settings_file(said.scope, body.cwd, Path.home())
    trust = "; later runs count it once you trust this folder: vaka trust" if said.scope == "project" else ""
    return f"kept in {printable(str(path), lines=False)}{trust}"


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        click.echo(f"That is no JSON object: {error}", err=True)
        return None


async def _answer(body: QuestionAsked) -> Any:
    lines = [click.style(printable(body.text), bold=True)]
    lines += [f"  [{number}] {printable(option)}" for number, option in enumerate(body.options, start=1)]
    click.echo("\n".join(lines), err=True)
    while True:
        line = await ask_line("> ")
        if line is None:
            return None
        said = line.strip()
        if said.isdigit() and 0 < int(said) <= len(body.options):
            said = body.options[int(said) - 1]
        if body.kind == "outcome":
            return await _outcome(said)
        if said:
            return said


async def _outcome(said: str) -> dict[str, Any]:
    if said != "happened":
        return {"outcome": said}
    return {"outcome": said, "result": (await ask_line("What did it return? > ") or "").strip()}


def _decided(event: Event) -> str:
    body = event.data
    by = printable(getattr(body, "by", "") or "somebody", lines=False)
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

    def read() -> None:
        if not ready.done():
            ready.set_result(os.read(descriptor, 65536))

    loop.add_reader(descriptor, read)
    try:
        line = await ready
    finally:
        loop.remove_reader(descriptor)
    return line.decode("utf-8", "replace") if line else None
