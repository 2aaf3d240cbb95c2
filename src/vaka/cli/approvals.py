"""``vaka approvals``: what waits for a person, approvals and questions alike."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

import click
import msgspec

from vaka.cli import options
from vaka.cli.desk import describe, person
from vaka.cli.errors import FAILED, Quit, UsageError, told
from vaka.cli.render import lasting, printable, short
from vaka.cli.report import print_json
from vaka.cli.start import found as find_session
from vaka.cli.start import with_runtime
from vaka.cli.table import age, print_table
from vaka.core.ports.store import Pending, Query
from vaka.core.session.index import asked, settled
from vaka.core.types.content import clean
from vaka.core.types.control import (
    SCOPES,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    QuestionAnswered,
    key_of,
)
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.tool import Grant
from vaka.runtime.resolve import here, late
from vaka.runtime.runtime import Runtime

Outcome: TypeAlias = "tuple[Event, bool] | VakaError | str"
"""The event that counts and whether it is ours, why there is none, or what went with another one."""

_LOOK = 200
"""Sessions, the last changed first, in which a decision that is no longer open is looked for."""

_SETTLES = (ApprovalResolved, ApprovalExpired, QuestionAnswered)
_PAST = ("ID", "SESSION", "AGE", "STATUS", "BY", "WHEN", "WHERE", "RULE", "WHAT")
_NOBODY: dict[str, Any] = {
    "by": None,
    "decided": None,
    "source": None,
    "scope": None,
    "rules": [],
    "until": None,
    "answer": None,
}


@click.group()
def approvals() -> None:
    """What waits for a person: list it, decide it, answer it."""


@approvals.command(
    "list",
    epilog=options.examples(
        "vaka approvals list", "vaka approvals list --session demo --json", "vaka approvals list --all"
    ),
)
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--all", "everything", is_flag=True, help="Also what was decided: by whom, when, where, with which rule.")
@options.json_option
@options.store_options
def list_(session: str | None, everything: bool, **given: Any) -> None:
    """List open approvals and questions, the oldest first."""
    if everything:
        found = with_runtime(given, lambda runtime: history(runtime, session))
    else:
        found = [describe(row) for row in with_runtime(given, lambda runtime: runtime.decisions(session))]
    if given["as_json"]:
        print_json({"decisions": found})
    elif everything:
        print_table(
            ("ID", "SESSION", "AGE", "STATUS", "BY", "WHEN", "WHERE", "RULE", "WHAT"), [_past(row) for row in found]
        )
    else:
        rows = [(d["id"], d["kind"], d["session_id"], age(d["asked"]), short(d["summary"])) for d in found]
        print_table(("ID", "KIND", "SESSION", "AGE", "WHAT"), rows)


def _past(row: dict[str, Any]) -> tuple[str, ...]:
    status = row["status"] if row.get("scope") in (None, "once") else f"{row['status']} ({row['scope']})"
    return (
        row["id"], row["session_id"], age(row["asked"]), status, row["by"] or "", row["decided"] or "",
        row["source"] or "", short(", ".join(row["rules"])), short(row["summary"]),
    )  # fmt: skip


@approvals.command(
    epilog=options.examples(
        "vaka approvals resolve apr_1 --approve",
        "vaka approvals resolve apr_1 apr_2 --reject --message 'Not on Fridays.'",
        "vaka approvals resolve apr_1 --approve --edit '{\"amount\": 5}'",
        "vaka approvals resolve apr_1 --approve --scope project --rule 'Bash(npm run test:*)'",
        "vaka approvals resolve apr_1 --approve --scope session --ttl 1h",
        "vaka approvals resolve --all --session demo --approve",
    )
)
@click.argument("approvals", metavar="ID…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that wait in the session named with --session.")
@click.option("--session", metavar="ID", help="With --all: of which session.")
@click.option("--approve", "decision", flag_value="approve", help="Let the call run.")
@click.option("--reject", "decision", flag_value="reject", help="Refuse it.")
@click.option(
    "--message", default="",
    help="With --reject: why, told to the model. Without it the turn ends, unless a child agent made the call.",
)  # fmt: skip
@click.option("--edit", metavar="JSON", help="With --approve: run it with these arguments instead.")
@click.option(
    "--scope", type=click.Choice(SCOPES), default="once", show_default=True,
    help="For this call; or for all that the rule means: in this session, in this project, or always.",
)  # fmt: skip
@click.option(
    "--rule", multiple=True, metavar="RULE",
    help="With a longer scope: keep this rule, not the one that was shown; may be repeated.",
)  # fmt: skip
@click.option(
    "--ttl", type=options.Duration(), metavar="TIME",
    help="With --scope session: for how long, such as 90 or 1h; otherwise for the rest of it.",
)  # fmt: skip
@click.option("--by", default=person, help="Who decides; you, by default.")
@options.store_options
def resolve(approvals: tuple[str, ...], decision: str | None, edit: str | None, **given: Any) -> None:
    """Decide on calls. The first decision counts: when there was one already, it is named and the exit code is 1."""
    _compatible(approvals, decision, edit, given)
    said: dict[str, Any] = {name: clean(given[name]) for name in ("message", "scope", "by")} | {"ttl": given["ttl"]}
    said |= {"edit": None if edit is None else _object(edit), "rule": "\n".join(given["rule"])}

    async def work(runtime: Runtime) -> list[Outcome]:
        ids = list(dict.fromkeys(approvals or [row.id for row in await _waiting(runtime, given["session"])]))
        before = {row.id for row in await runtime.decisions()}
        found = [await _resolve(runtime, id, str(decision), said, alone=len(ids) == 1) for id in ids]
        return [_went(id, outcome, found) if id in before else outcome for id, outcome in zip(ids, found, strict=True)]

    outcomes = with_runtime(given, work)
    if not outcomes:
        click.echo(f"nothing waits in session {printable(given['session'])}", err=True)
    _tell(*outcomes)


def _compatible(approvals: tuple[str, ...], decision: str | None, edit: str | None, given: dict[str, Any]) -> None:
    if decision is None:
        raise UsageError("say --approve or --reject")
    if given["everything"] != bool(given["session"]) or given["everything"] == bool(approvals):
        raise UsageError("name approvals by their ids, or all of a session with --all --session ID")
    if decision == "reject" and (edit is not None or given["scope"] != "once" or given["rule"]):
        raise UsageError("--edit, --scope and --rule go with --approve")
    if given["rule"] and given["scope"] == "once":
        raise UsageError("--rule needs a --scope to be kept for: session, project or user")
    if given["ttl"] is not None and given["scope"] != "session":
        raise UsageError("--ttl goes with --scope session")
    if edit is not None and len(approvals) != 1:
        raise UsageError("--edit is for one approval")


async def _waiting(runtime: Runtime, session: str) -> list[Pending]:
    """Return the approvals that wait in a session; questions have answers of their own."""
    await find_session(runtime, session)
    return [row for row in await runtime.decisions(session) if isinstance(row.event.data, ApprovalRequested)]


async def _resolve(runtime: Runtime, id: str, decision: str, said: dict[str, Any], *, alone: bool) -> Outcome:
    """Decide on one approval; of several, one that cannot be decided so does not keep the others from it."""
    try:
        return await _decide(runtime, id, decision, said)
    except (NotFound, InvalidInput, ConfigError) as error:
        if alone:
            raise
        return error


def _went(id: str, outcome: Outcome, found: list[Outcome]) -> Outcome:
    """Return what came of one of several: a no without a reason ends the turn, and what else waited in it is gone."""
    plain = [body for body in map(_ours, found) if body is not None and body.decision == "reject" and not body.message]
    return f"{id} is no longer asked: the turn has ended" if isinstance(outcome, NotFound) and plain else outcome


def _ours(outcome: Outcome) -> ApprovalResolved | None:
    body = outcome[0].data if isinstance(outcome, tuple) and outcome[1] else None
    return body if isinstance(body, ApprovalResolved) else None


async def _decide(runtime: Runtime, id: str, decision: str, said: dict[str, Any]) -> tuple[Event, bool]:
    """Decide on one approval; return the event that counts, and whether it is ours."""
    for row in await runtime.decisions():
        body = row.event.data
        if row.id == id and isinstance(body, ApprovalRequested) and late(runtime, body):
            raise InvalidInput(f"{id} has expired at {body.expires}: nobody decided in time, so it is a no")
    try:
        event = await runtime.resolve(id, decision, **said)  # type: ignore[arg-type]  # one of the two flags
    except NotFound as error:
        event = await _settled(runtime, id, error)
        return event, _covered(event, decision, said)
    body = event.data
    meant = {name: said[name] for name in ("message", "scope", "by", "edit")} | {"decision": decision}
    return event, isinstance(body, ApprovalResolved) and all(getattr(body, k) == v for k, v in meant.items())


def _covered(event: Event, decision: str, said: dict[str, Any]) -> bool:
    """Return whether an approval was settled by the rule that was just kept with another one of several."""
    body = event.data
    return (
        isinstance(body, ApprovalResolved) and said["scope"] != "once" and body.source == here()
        and (body.decision, body.by) == (decision, said["by"])
    )  # fmt: skip


@approvals.command(
    epilog=options.examples(
        "vaka approvals answer qst_1 blue", 'vaka approvals answer qst_1 \'{"outcome": "happened", "result": 3}\''
    )
)
@click.argument("question", metavar="ID")
@click.argument("answer", metavar="JSON|TEXT")
@click.option("--by", default=person, help="Who answers; you, by default.")
@options.store_options
def answer(question: str, answer: str, by: str, **given: Any) -> None:
    """Answer a question, in JSON or in words. The first answer counts."""
    value = _value(answer)

    async def work(runtime: Runtime) -> tuple[Event, bool]:
        try:
            event = await runtime.answer(question, value, by=clean(by))
        except NotFound as error:
            return await _settled(runtime, question, error), False
        body = event.data
        return event, isinstance(body, QuestionAnswered) and (body.answer, body.by) == (value, clean(by))

    _tell(with_runtime(given, work))


async def _settled(runtime: Runtime, decision: str, error: NotFound) -> Event:
    """Return the event that settled a decision which is no longer open, or raise ``error``."""
    async for event in _events(runtime, None):
        if isinstance(event.data, _SETTLES) and key_of(event.data) == decision:
            return event
    raise error


async def history(runtime: Runtime, session: str | None) -> list[dict[str, Any]]:
    """Return what people were asked and what they said, as the logs have it, the oldest first."""
    rows: dict[str, dict[str, Any]] = {}
    async for event in _events(runtime, session):
        for pending in asked(event.session, [event]):
            rows[pending.id] = describe(pending) | {"status": "waiting"} | _NOBODY
        row = rows.get(key_of(event.data)) if isinstance(event.data, _SETTLES) else None
        if row is not None and row["status"] == "waiting":
            row |= _said(event)
        if settled([event])[1]:
            for row in rows.values():
                if row["session_id"] == event.session and row["status"] == "waiting":
                    row |= {"status": "dropped", "decided": event.ts}
    return sorted(rows.values(), key=lambda row: row["asked"])


def _said(event: Event) -> dict[str, Any]:
    body = event.data
    facts = {"status": _what(event), "by": getattr(body, "by", "") or None, "decided": event.ts}
    if isinstance(body, ApprovalResolved):
        facts |= {"source": body.source or None, "scope": body.scope, "rules": list(Grant(rule=body.rule).rules)}
        facts |= {"until": body.until or None}
        facts |= {"answer": body.message or None, "edit": body.edit}
    elif isinstance(body, QuestionAnswered):
        facts |= {"answer": body.answer}
    return facts


async def _events(runtime: Runtime, session: str | None) -> AsyncGenerator[Event]:
    """Yield the events of a session, or of the sessions that changed last."""
    if session is not None:
        ids = [(await find_session(runtime, session)).id]
    else:
        ids = [info.id for info in (await runtime.store.sessions.list(Query(limit=_LOOK))).sessions]
    for id in ids:
        async with aclosing(runtime.store.events.read(id)) as events:
            async for event in events:
                yield event


def _tell(*outcomes: Outcome) -> None:
    failed = False
    for outcome in outcomes:
        if isinstance(outcome, str):
            click.echo(outcome, err=True)
            continue
        if isinstance(outcome, VakaError):
            failed = True
            click.echo(f"error: {told(outcome).message}", err=True)
            continue
        event, ours = outcome
        what, by = _what(event), getattr(event.data, "by", "") or "somebody"
        if ours:
            kept = getattr(event.data, "rule", "").replace("\n", ", ")
            what += f" for the {lasting(event.data)}: {printable(kept, lines=False)}" if kept else ""
            click.echo(
                f"{what}; if no run is waiting for it: vaka run --session {printable(event.session)} --resume", err=True
            )
        else:
            failed = True
            click.echo(
                f"error: already {what} by {printable(by, lines=False)} at {event.ts}; nothing was changed", err=True
            )
    if failed:
        raise Quit(FAILED)


def _what(event: Event) -> str:
    body = event.data
    if isinstance(body, ApprovalResolved):
        return "approved" if body.decision == "approve" else "rejected"
    return "expired" if isinstance(body, ApprovalExpired) else "answered"


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"--edit is not a JSON object: {error}") from error


def _value(text: str) -> Any:
    text = clean(text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
