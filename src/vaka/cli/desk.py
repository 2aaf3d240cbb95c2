"""Asking the person at the terminal what a session wants to know. Another terminal may answer first."""

import asyncio
import getpass
import os
import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import click
import msgspec

from vaka.cli.errors import told
from vaka.cli.render import call_text, printable
from vaka.cli.report import how_to_decide
from vaka.core.ports.store import Pending
from vaka.core.session.index import asked, settled
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAsked
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.runtime.runtime import Runtime

if sys.platform != "win32":
    import termios

CHOICES = "[y] once · [s] this session · [n] no · [e] edit the arguments > "


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
            "expires": body.expires or None,
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
        self._came(())

    def _went(self, event: Event) -> None:
        done, everything = settled([event])
        gone = list(self._open) if everything else done
        for id in gone:
            self._open.pop(id, None)
            if self._asking is not None and self._asking[0] == id and not self._asking[1].done():
                self._asking[1].cancel()
                click.echo(f"\n{id}: {_decided(event)}", err=True)

    async def _ask(self, pending: Pending) -> None:
        body = pending.event.data
        try:
            if isinstance(body, ApprovalRequested):
                await self._approval(pending.id, body)
            elif isinstance(body, QuestionAsked):
                await self.runtime.answer(pending.id, await _answer(body), by=person())
        except NotFound:
            click.echo(f"{pending.id}: somebody else was first", err=True)
        finally:
            self._open.pop(pending.id, None)

    async def _approval(self, id: DecisionId, body: ApprovalRequested) -> None:
        click.echo(_shown(body), err=True)
        said = await _decision(body)
        event = await self.runtime.resolve(id, said.pop("decision"), **said, by=person())
        first = event.data
        if isinstance(first, ApprovalResolved) and first.by != person():
            click.echo(f"{id}: {_decided(event)}", err=True)


def _shown(body: ApprovalRequested) -> str:
    """Return the real call, whole, and why a person is asked."""
    arguments = printable(msgspec.json.format(msgspec.json.encode(body.call.arguments), indent=2).decode())
    lines = [click.style(f"Approve {body.call.name}?", bold=True), arguments]
    lines += [printable(text) for text in (body.message, body.reason and f"Why: {body.reason}") if text]
    return "\n".join(lines)


async def _decision(body: ApprovalRequested) -> dict[str, Any]:
    while True:
        line = await ask_line(CHOICES)
        said, _, rest = (line if line is not None else "n").strip().partition(" ")
        match said.lower():
            case "y":
                return {"decision": "approve"}
            case "s":
                return {"decision": "approve", "scope": "session"}
            case "n":
                message = rest or (await ask_line("Why not (told to the model; Enter for nothing) > ") or "").strip()
                return {"decision": "reject", "message": message}
            case "e":
                edit = _arguments(rest or await ask_line("Arguments as JSON > ") or "")
                if edit is not None:
                    return {"decision": "approve", "edit": edit}
            case _:
                click.echo("Answer y, s, n or e.", err=True)


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
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
    by = getattr(body, "by", "") or "somebody"
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
