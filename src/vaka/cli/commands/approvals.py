"""``vaka approvals``: list, resolve and answer pending approvals and questions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import current_user, find_session, with_runtime
from vaka.cli.kit.errors import FAILED, Quit, UsageError, describe_error
from vaka.cli.kit.render import (
    as_printable,
    author_of,
    format_age,
    print_json,
    print_table,
    scope_text,
    shorten,
    typed_command,
)
from vaka.cli.turn.approval_view import describe_decision
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
from vaka.core.types.ids import DecisionId
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import Grant
from vaka.runtime.resolve_approval import MAX_SEARCHED_SESSIONS, SETTLING_TYPES, decision_source, is_expired
from vaka.runtime.runtime import Runtime

ResolveOutcome: TypeAlias = "tuple[Event, bool] | VakaError | str"
"""The settling event and whether this command wrote it, an error, or a message that is not an error."""

_HISTORY_COLUMNS = ("ID", "SESSION", "AGE", "STATUS", "BY", "WHEN", "WHERE", "FOLDER", "RULE", "WHAT")
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
    """List, decide and answer what waits for a person."""


@approvals.command(
    "list",
    epilog=options.format_examples(
        "vaka approvals list", "vaka approvals list --session demo --json", "vaka approvals list --all"
    ),
)
@click.option("--session", metavar="ID", help="Only approvals of this session.")
@click.option("--all", "everything", is_flag=True, help="Also settled ones: by whom, when, where, with which rule.")
@options.json_option
@options.store_options
def list_(session: str | None, everything: bool, **flags: Any) -> None:
    """List open approvals and questions, the oldest first."""

    async def work(runtime: Runtime) -> list[dict[str, Any]]:
        if everything:
            return await _add_folders(runtime, await decision_history(runtime, session))
        found = [describe_decision(row) for row in await runtime.decisions(session)]
        # A call of a client's tool waits for a program, not for a person.
        return await _add_folders(runtime, [each for each in found if each["kind"] != "result"])

    decisions = with_runtime(flags, work)
    if flags["as_json"]:
        print_json({"decisions": decisions})
    elif everything:
        print_table(_HISTORY_COLUMNS, [_history_row(row) for row in decisions])
    else:
        rows = [
            (d["id"], d["kind"], d["session_id"], format_age(d["asked"]), d["folder"] or "", shorten(d["summary"]))
            for d in decisions
        ]
        print_table(("ID", "KIND", "SESSION", "AGE", "FOLDER", "WHAT"), rows)


async def _add_folders(runtime: Runtime, decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the folder of its session to each decision; ``None`` if the session is not bound to one."""
    folders: dict[str, str | None] = {}
    for id in {decision["session_id"] for decision in decisions}:
        info = await runtime.store.sessions.find(id)
        folders[id] = (info.folder or None) if info is not None else None
    return [decision | {"folder": folders[decision["session_id"]]} for decision in decisions]


def _history_row(row: dict[str, Any]) -> tuple[str, ...]:
    status = row["status"] if row.get("scope") in (None, "once") else f"{row['status']} ({row['scope']})"
    return (
        row["id"],
        row["session_id"],
        format_age(row["asked"]),
        status,
        row["by"] or "",
        row["decided"] or "",
        row["source"] or "",
        row["folder"] or "",
        shorten(", ".join(row["rules"])),
        shorten(row["summary"]),
    )


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
@click.option("--all", "everything", is_flag=True, help="All open ones of the session named with --session.")
@click.option("--session", metavar="ID", help="With --all: the session.")
@click.option("--approve", "decision", flag_value="approve", help="Let the call run.")
@click.option("--reject", "decision", flag_value="reject", help="Refuse it.")
@click.option(
    "--message",
    default="",
    help="With --reject: the reason for the model. Without it the turn ends, unless a child agent made the call.",
)
@click.option("--edit", metavar="JSON", help="With --approve: run it with these arguments instead.")
@click.option(
    "--scope",
    type=click.Choice(APPROVAL_SCOPES),
    default="once",
    show_default=True,
    help="Approve this call, or all calls the rule matches: in this session, in this project, or always.",
)
@click.option(
    "--rule",
    multiple=True,
    metavar="RULE",
    help="With a longer scope: store this rule, not the suggested one; may be repeated.",
)
@click.option(
    "--ttl",
    type=options.Duration(),
    metavar="TIME",
    help="With --scope session: for how long, such as 90 or 1h; by default for the rest of it.",
)
@click.option("--by", default=current_user, help="Who decides; you, by default.")
@options.store_options
def resolve(approvals: tuple[str, ...], decision: str | None, edit: str | None, **flags: Any) -> None:
    """Approve or reject calls. The first decision counts: a later one prints it and exits with 1."""
    _check_flags(approvals, decision, edit, flags)
    fields: dict[str, Any] = {name: replace_surrogates(flags[name]) for name in ("message", "scope", "by")}
    fields |= {"ttl": flags["ttl"], "rule": "\n".join(flags["rule"])}
    fields |= {"edit": None if edit is None else _parse_object(edit)}

    async def work(runtime: Runtime) -> list[ResolveOutcome]:
        ids = list(dict.fromkeys(approvals or [row.id for row in await _pending_approvals(runtime, flags["session"])]))
        before = {row.id for row in await runtime.decisions()}
        outcomes: list[ResolveOutcome] = []
        for id in ids:
            try:
                outcomes.append(await _resolve_one(runtime, id, str(decision), fields))
            except (NotFound, InvalidInput, ConfigError) as error:
                if len(ids) == 1:
                    raise
                outcomes.append(error)  # the others are still resolved
        return _explain_missing(ids, outcomes, before)

    outcomes = with_runtime(flags, work)
    if not outcomes:
        click.echo(f"nothing waits in session {as_printable(flags['session'])}", err=True)
    _print_outcomes(flags["store"] or "", *outcomes)


def _check_flags(approvals: tuple[str, ...], decision: str | None, edit: str | None, flags: dict[str, Any]) -> None:
    if decision is None:
        raise UsageError("add --approve or --reject")
    if flags["everything"] != bool(flags["session"]) or flags["everything"] == bool(approvals):
        raise UsageError("name approvals by their ids, or all of a session with --all --session ID")
    if decision == "reject" and (edit is not None or flags["scope"] != "once" or flags["rule"]):
        raise UsageError("--edit, --scope and --rule go with --approve")
    if flags["rule"] and flags["scope"] == "once":
        raise UsageError("--rule needs --scope session, project or user")
    if flags["ttl"] is not None and flags["scope"] != "session":
        raise UsageError("--ttl goes with --scope session")
    if edit is not None and len(approvals) != 1:
        raise UsageError("--edit is for one approval")


async def _pending_approvals(runtime: Runtime, session: str) -> list[PendingDecision]:
    """Return the open approvals of a session, without its questions."""
    await find_session(runtime, session)
    return [row for row in await runtime.decisions(session) if isinstance(row.event.data, ApprovalRequested)]


def _explain_missing(ids: list[str], outcomes: list[ResolveOutcome], before: set[DecisionId]) -> list[ResolveOutcome]:
    """Replace ``NotFound`` where a rejection without a reason has ended the turn and withdrawn its other approvals."""
    if not any(_ends_turn(outcome) for outcome in outcomes):
        return outcomes
    return [
        f"{id} is no longer asked: the turn has ended" if isinstance(outcome, NotFound) and id in before else outcome
        for id, outcome in zip(ids, outcomes, strict=True)
    ]


def _ends_turn(outcome: ResolveOutcome) -> bool:
    body = outcome[0].data if isinstance(outcome, tuple) and outcome[1] else None
    return isinstance(body, ApprovalResolved) and body.decision == "reject" and not body.message


async def _resolve_one(runtime: Runtime, id: str, decision: str, answer_fields: dict[str, Any]) -> tuple[Event, bool]:
    """Resolve one approval; return the settling event, and whether it is the decision made here."""
    pending = next((row.event.data for row in await runtime.decisions(id=id)), None)
    if isinstance(pending, ApprovalRequested) and is_expired(runtime.env.clock, pending):
        raise InvalidInput(f"{id} expired at {pending.expires} without a decision, so it is rejected")
    event = await runtime.resolve(id, decision, **answer_fields)  # type: ignore[arg-type]  # one of the two flags
    if pending is None:
        return event, _is_covered(event, decision, answer_fields)
    body = event.data
    meant = {name: answer_fields[name] for name in ("message", "scope", "by", "edit")} | {"decision": decision}
    return event, isinstance(body, ApprovalResolved) and all(getattr(body, k) == v for k, v in meant.items())


def _is_covered(event: Event, decision: str, answer_fields: dict[str, Any]) -> bool:
    """Return whether the rule stored with another approval of this command has settled this one."""
    body = event.data
    return (
        isinstance(body, ApprovalResolved)
        and answer_fields["scope"] != "once"
        and body.source == decision_source()
        and (body.decision, body.by) == (decision, answer_fields["by"])
    )


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
    """Answer a question with JSON or text. The first answer counts."""
    value, by = _parse_answer(answer), replace_surrogates(by)

    async def work(runtime: Runtime) -> tuple[Event, bool]:
        is_open = bool(await runtime.decisions(id=question))
        event = await runtime.answer(question, value, by=by)
        body = event.data
        return event, is_open and isinstance(body, QuestionAnswered) and (body.answer, body.by) == (value, by)

    _print_outcomes(flags["store"] or "", with_runtime(flags, work))


async def decision_history(runtime: Runtime, session: str | None) -> list[dict[str, Any]]:
    """Return all approvals and questions of the logs with their settlements, the oldest first."""
    rows: dict[str, dict[str, Any]] = {}
    async for event in _session_events(runtime, session):
        for pending in find_asked_decisions(event.session, [event]):
            rows[pending.id] = describe_decision(pending) | {"status": "waiting"} | _UNDECIDED
        row = rows.get(key_of(event.data)) if isinstance(event.data, SETTLING_TYPES) else None
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
        facts |= {"until": body.until or None, "answer": body.message or None, "edit": body.edit}
    elif isinstance(body, QuestionAnswered):
        facts |= {"answer": body.answer}
    return facts


async def _session_events(runtime: Runtime, session: str | None) -> AsyncGenerator[Event]:
    """Yield the events of a session, or of the sessions that changed last."""
    if session is not None:
        ids = [(await find_session(runtime, session)).id]
    else:
        page = await runtime.store.sessions.list(SessionQuery(limit=MAX_SEARCHED_SESSIONS))
        ids = [info.id for info in page.sessions]
    for id in ids:
        async with aclosing(runtime.store.events.read(id)) as events:
            async for event in events:
                yield event


def _print_outcomes(store: str, *outcomes: ResolveOutcome) -> None:
    failed = False
    for outcome in outcomes:
        if isinstance(outcome, str):
            text = outcome
        elif isinstance(outcome, VakaError):
            failed, text = True, f"error: {describe_error(outcome).message}"
        else:
            failed, text = failed or not outcome[1], _outcome_text(*outcome, store)
        click.echo(text, err=True)
    if failed:
        raise Quit(FAILED)


def _outcome_text(event: Event, ours: bool, store: str) -> str:
    status = _settlement_status(event)
    if not ours:
        return f"error: already {status} by {author_of(event.data)} at {event.ts}; nothing was changed"
    rule = as_printable(getattr(event.data, "rule", "").replace("\n", ", "), lines=False)
    status += f" for the {scope_text(event.data)}: {rule}" if rule else ""
    command = typed_command("run", "--session", event.session, "--resume", store=store)
    return f"{status}; if no run is waiting for it: {command}"


def _settlement_status(event: Event) -> str:
    body = event.data
    if isinstance(body, ApprovalResolved):
        return "approved" if body.decision == "approve" else "rejected"
    return "expired" if isinstance(body, ApprovalExpired) else "answered"


def _parse_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"--edit: expected a JSON object: {error}") from error


def _parse_answer(text: str) -> Any:
    text = replace_surrogates(text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
