"""``vaka approvals``: list, resolve and answer pending approvals and questions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

import click
import msgspec

from vaka.cli import options
from vaka.cli.bootstrap import find_session as find_session
from vaka.cli.bootstrap import with_runtime
from vaka.cli.errors import FAILED, Quit, UsageError, describe_error
from vaka.cli.render import as_printable, format_age, print_json, print_table, scope_text, shorten
from vaka.cli.turn.approval_prompt import current_user, describe_decision
from vaka.core.ports.store import PendingDecision, SessionQuery
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import (
    APPROVAL_SCOPES,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    QuestionAnswered,
    key_of,
)
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import Grant
from vaka.runtime.resolve_approval import decision_source, is_expired
from vaka.runtime.runtime import Runtime

ResolveOutcome: TypeAlias = "tuple[Event, bool] | VakaError | str"
"""The event that counts and whether it is ours, why there is none, or what went with another one."""

_SESSION_SCAN_LIMIT = 200
"""Sessions, the last changed first, in which a decision that is no longer open is looked for."""

_SETTLING_TYPES = (ApprovalResolved, ApprovalExpired, QuestionAnswered)
_HISTORY_COLUMNS = ("ID", "SESSION", "AGE", "STATUS", "BY", "WHEN", "WHERE", "RULE", "WHAT")
_UNDECIDED: dict[str, Any] = {
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
    epilog=options.format_examples(
        "vaka approvals list", "vaka approvals list --session demo --json", "vaka approvals list --all"
    ),
)
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--all", "everything", is_flag=True, help="Also what was decided: by whom, when, where, with which rule.")
@options.json_option
@options.store_options
def list_(session: str | None, everything: bool, **flags: Any) -> None:
    """List open approvals and questions, the oldest first."""
    if everything:
        found = with_runtime(flags, lambda runtime: decision_history(runtime, session))
    else:
        found = [describe_decision(row) for row in with_runtime(flags, lambda runtime: runtime.decisions(session))]
    if flags["as_json"]:
        print_json({"decisions": found})
    elif everything:
        print_table(
            ("ID", "SESSION", "AGE", "STATUS", "BY", "WHEN", "WHERE", "RULE", "WHAT"),
            [_history_row(row) for row in found],
        )
    else:
        rows = [(d["id"], d["kind"], d["session_id"], format_age(d["asked"]), shorten(d["summary"])) for d in found]
        print_table(("ID", "KIND", "SESSION", "AGE", "WHAT"), rows)


def _history_row(row: dict[str, Any]) -> tuple[str, ...]:
    status = row["status"] if row.get("scope") in (None, "once") else f"{row['status']} ({row['scope']})"
    return (
        row["id"], row["session_id"], format_age(row["asked"]), status, row["by"] or "", row["decided"] or "",
        row["source"] or "", shorten(", ".join(row["rules"])), shorten(row["summary"]),
    )  # fmt: skip


@approvals.command(
    epilog=options.format_examples(
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
    "--scope", type=click.Choice(APPROVAL_SCOPES), default="once", show_default=True,
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
@click.option("--by", default=current_user, help="Who decides; you, by default.")
@options.store_options
def resolve(approvals: tuple[str, ...], decision: str | None, edit: str | None, **flags: Any) -> None:
    """Decide on calls. The first decision counts: when there was one already, it is named and the exit code is 1."""
    _check_flags(approvals, decision, edit, flags)
    said: dict[str, Any] = {name: replace_surrogates(flags[name]) for name in ("message", "scope", "by")} | {
        "ttl": flags["ttl"]
    }
    said |= {"edit": None if edit is None else _parse_object(edit), "rule": "\n".join(flags["rule"])}

    async def work(runtime: Runtime) -> list[ResolveOutcome]:
        ids = list(dict.fromkeys(approvals or [row.id for row in await _pending_approvals(runtime, flags["session"])]))
        before = {row.id for row in await runtime.decisions()}
        found = [await _try_resolve(runtime, id, str(decision), said, only_one=len(ids) == 1) for id in ids]
        return [
            _explain_missing(id, outcome, found) if id in before else outcome
            for id, outcome in zip(ids, found, strict=True)
        ]

    outcomes = with_runtime(flags, work)
    if not outcomes:
        click.echo(f"nothing waits in session {as_printable(flags['session'])}", err=True)
    _print_outcomes(*outcomes)


def _check_flags(approvals: tuple[str, ...], decision: str | None, edit: str | None, flags: dict[str, Any]) -> None:
    if decision is None:
        raise UsageError("say --approve or --reject")
    if flags["everything"] != bool(flags["session"]) or flags["everything"] == bool(approvals):
        raise UsageError("name approvals by their ids, or all of a session with --all --session ID")
    if decision == "reject" and (edit is not None or flags["scope"] != "once" or flags["rule"]):
        raise UsageError("--edit, --scope and --rule go with --approve")
    if flags["rule"] and flags["scope"] == "once":
        raise UsageError("--rule needs a --scope to be kept for: session, project or user")
    if flags["ttl"] is not None and flags["scope"] != "session":
        raise UsageError("--ttl goes with --scope session")
    if edit is not None and len(approvals) != 1:
        raise UsageError("--edit is for one approval")


async def _pending_approvals(runtime: Runtime, session: str) -> list[PendingDecision]:
    """Return the approvals that wait in a session; questions have answers of their own."""
    await find_session(runtime, session)
    return [row for row in await runtime.decisions(session) if isinstance(row.event.data, ApprovalRequested)]


async def _try_resolve(
    runtime: Runtime, id: str, decision: str, answer_fields: dict[str, Any], *, only_one: bool
) -> ResolveOutcome:
    """Decide on one approval; of several, one that cannot be decided so does not keep the others from it."""
    try:
        return await _resolve_one(runtime, id, decision, answer_fields)
    except (NotFound, InvalidInput, ConfigError) as error:
        if only_one:
            raise
        return error


def _explain_missing(id: str, outcome: ResolveOutcome, outcomes: list[ResolveOutcome]) -> ResolveOutcome:
    """Return what came of one of several: a no without a reason ends the turn, and what else waited in it is gone."""
    plain = [
        body
        for body in map(_own_resolution, outcomes)
        if body is not None and body.decision == "reject" and not body.message
    ]
    return f"{id} is no longer asked: the turn has ended" if isinstance(outcome, NotFound) and plain else outcome


def _own_resolution(outcome: ResolveOutcome) -> ApprovalResolved | None:
    body = outcome[0].data if isinstance(outcome, tuple) and outcome[1] else None
    return body if isinstance(body, ApprovalResolved) else None


async def _resolve_one(runtime: Runtime, id: str, decision: str, answer_fields: dict[str, Any]) -> tuple[Event, bool]:
    """Decide on one approval; return the event that counts, and whether it is ours."""
    for row in await runtime.decisions():
        body = row.event.data
        if row.id == id and isinstance(body, ApprovalRequested) and is_expired(runtime.env.clock, body):
            raise InvalidInput(f"{id} has expired at {body.expires}: nobody decided in time, so it is a no")
    try:
        event = await runtime.resolve(id, decision, **answer_fields)  # type: ignore[arg-type]  # one of the two flags
    except NotFound as error:
        event = await _find_settlement(runtime, id, error)
        return event, _is_covered(event, decision, answer_fields)
    body = event.data
    meant = {name: answer_fields[name] for name in ("message", "scope", "by", "edit")} | {"decision": decision}
    return event, isinstance(body, ApprovalResolved) and all(getattr(body, k) == v for k, v in meant.items())


def _is_covered(event: Event, decision: str, answer_fields: dict[str, Any]) -> bool:
    """Return whether an approval was settled by the rule that was just kept with another one of several."""
    body = event.data
    return (
        isinstance(body, ApprovalResolved) and answer_fields["scope"] != "once" and body.source == decision_source()
        and (body.decision, body.by) == (decision, answer_fields["by"])
    )  # fmt: skip


@approvals.command(
    epilog=options.format_examples(
        "vaka approvals answer qst_1 blue", 'vaka approvals answer qst_1 \'{"outcome": "happened", "result": 3}\''
    )
)
@click.argument("question", metavar="ID")
@click.argument("answer", metavar="JSON|TEXT")
@click.option("--by", default=current_user, help="Who answers; you, by default.")
@options.store_options
def answer(question: str, answer: str, by: str, **flags: Any) -> None:
    """Answer a question, in JSON or in words. The first answer counts."""
    value = _parse_answer(answer)

    async def work(runtime: Runtime) -> tuple[Event, bool]:
        try:
            event = await runtime.answer(question, value, by=replace_surrogates(by))
        except NotFound as error:
            return await _find_settlement(runtime, question, error), False
        body = event.data
        return event, isinstance(body, QuestionAnswered) and (body.answer, body.by) == (value, replace_surrogates(by))

    _print_outcomes(with_runtime(flags, work))


async def _find_settlement(runtime: Runtime, decision: str, error: NotFound) -> Event:
    """Return the event that settled a decision which is no longer open, or raise ``error``."""
    async for event in _session_events(runtime, None):
        if isinstance(event.data, _SETTLING_TYPES) and key_of(event.data) == decision:
            return event
    raise error


async def decision_history(runtime: Runtime, session: str | None) -> list[dict[str, Any]]:
    """Return what people were asked and what they said, as the logs have it, the oldest first."""
    rows: dict[str, dict[str, Any]] = {}
    async for event in _session_events(runtime, session):
        for pending in find_asked_decisions(event.session, [event]):
            rows[pending.id] = describe_decision(pending) | {"status": "waiting"} | _UNDECIDED
        row = rows.get(key_of(event.data)) if isinstance(event.data, _SETTLING_TYPES) else None
        if row is not None and row["status"] == "waiting":
            row |= _settlement_fields(event)
        if find_settled_decisions([event])[1]:
            for row in rows.values():
                if row["session_id"] == event.session and row["status"] == "waiting":
                    row |= {"status": "dropped", "decided": event.ts}
    return sorted(rows.values(), key=lambda row: row["asked"])


def _settlement_fields(event: Event) -> dict[str, Any]:
    body = event.data
    facts = {"status": _settlement_status(event), "by": getattr(body, "by", "") or None, "decided": event.ts}
    if isinstance(body, ApprovalResolved):
        facts |= {"source": body.source or None, "scope": body.scope, "rules": list(Grant(rule=body.rule).rules)}
        facts |= {"until": body.until or None}
        facts |= {"answer": body.message or None, "edit": body.edit}
    elif isinstance(body, QuestionAnswered):
        facts |= {"answer": body.answer}
    return facts


async def _session_events(runtime: Runtime, session: str | None) -> AsyncGenerator[Event]:
    """Yield the events of a session, or of the sessions that changed last."""
    if session is not None:
        ids = [(await find_session(runtime, session)).id]
    else:
        ids = [
            info.id for info in (await runtime.store.sessions.list(SessionQuery(limit=_SESSION_SCAN_LIMIT))).sessions
        ]
    for id in ids:
        async with aclosing(runtime.store.events.read(id)) as events:
            async for event in events:
                yield event


def _print_outcomes(*outcomes: ResolveOutcome) -> None:
    failed = False
    for outcome in outcomes:
        if isinstance(outcome, str):
            click.echo(outcome, err=True)
            continue
        if isinstance(outcome, VakaError):
            failed = True
            click.echo(f"error: {describe_error(outcome).message}", err=True)
            continue
        event, ours = outcome
        what, by = _settlement_status(event), getattr(event.data, "by", "") or "somebody"
        if ours:
            kept = getattr(event.data, "rule", "").replace("\n", ", ")
            what += f" for the {scope_text(event.data)}: {as_printable(kept, lines=False)}" if kept else ""
            click.echo(
                f"{what}; if no run is waiting for it: vaka run --session {as_printable(event.session)} --resume",
                err=True,
            )
        else:
            failed = True
            click.echo(
                f"error: already {what} by {as_printable(by, lines=False)} at {event.ts}; nothing was changed", err=True
            )
    if failed:
        raise Quit(FAILED)


def _settlement_status(event: Event) -> str:
    body = event.data
    if isinstance(body, ApprovalResolved):
        return "approved" if body.decision == "approve" else "rejected"
    return "expired" if isinstance(body, ApprovalExpired) else "answered"


def _parse_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"--edit is not a JSON object: {error}") from error


def _parse_answer(text: str) -> Any:
    text = replace_surrogates(text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
