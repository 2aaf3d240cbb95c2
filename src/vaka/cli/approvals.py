"""``vaka approvals``: what waits for a person, approvals and questions alike."""

from contextlib import aclosing
from typing import Any

import click
import msgspec

from vaka.cli import options
from vaka.cli.desk import describe, person
from vaka.cli.errors import FAILED, Quit, UsageError
from vaka.cli.render import printable, short
from vaka.cli.report import print_json
from vaka.cli.start import with_runtime
from vaka.cli.table import age, print_table
from vaka.core.ports.store import Query
from vaka.core.types.control import ApprovalExpired, ApprovalResolved, QuestionAnswered, key_of
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.runtime.runtime import Runtime

_LOOK = 200
"""Sessions, the last changed first, in which a decision that is no longer open is looked for."""

_SETTLES = (ApprovalResolved, ApprovalExpired, QuestionAnswered)


@click.group()
def approvals() -> None:
    """What waits for a person: list it, decide it, answer it."""


@approvals.command("list", epilog=options.examples("vaka approvals list", "vaka approvals list --session demo --json"))
@click.option("--session", metavar="ID", help="Only of this session.")
@options.json_option
@options.store_options
def list_(session: str | None, **given: Any) -> None:
    """List open approvals and questions, the oldest first."""
    waiting = [describe(row) for row in with_runtime(given, lambda runtime: runtime.decisions(session))]
    if given["as_json"]:
        print_json({"decisions": waiting})
        return
    rows = [(d["id"], d["kind"], d["session_id"], age(d["asked"]), short(d["summary"])) for d in waiting]
    print_table(("ID", "KIND", "SESSION", "AGE", "WHAT"), rows)


@approvals.command(
    epilog=options.examples(
        "vaka approvals resolve apr_1 --approve",
        "vaka approvals resolve apr_1 --reject --message 'Not on Fridays.'",
        "vaka approvals resolve apr_1 --approve --edit '{\"amount\": 5}'",
    )
)
@click.argument("approval", metavar="ID")
@click.option("--approve", "decision", flag_value="approve", help="Let the call run.")
@click.option("--reject", "decision", flag_value="reject", help="Refuse it.")
@click.option("--message", default="", help="With --reject: why, told to the model.")
@click.option("--edit", metavar="JSON", help="With --approve: run it with these arguments instead.")
@click.option(
    "--scope",
    type=click.Choice(["once", "session"]),
    default="once",
    show_default=True,
    help="For this call, or for later calls of the tool in this session too.",
)
@click.option("--by", default=person, help="Who decides; you, by default.")
@options.store_options
def resolve(approval: str, decision: str | None, edit: str | None, **given: Any) -> None:
    """Decide on a call. The first decision counts: when there was one already, it is named and the exit code is 1."""
    if decision is None:
        raise UsageError("say --approve or --reject")
    if decision == "reject" and (edit is not None or given["scope"] != "once"):
        raise UsageError("--edit and --scope go with --approve")
    said: dict[str, Any] = {name: given[name] for name in ("message", "scope", "by")}
    said["edit"] = None if edit is None else _object(edit)

    async def work(runtime: Runtime) -> tuple[Event, bool]:
        try:
            event = await runtime.resolve(approval, decision, **said)  # type: ignore[arg-type]  # one of the two flags
        except NotFound as error:
            return await _settled(runtime, approval, error), False
        body = event.data
        return event, isinstance(body, ApprovalResolved) and all(getattr(body, k) == v for k, v in said.items())

    _tell(with_runtime(given, work))


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
            event = await runtime.answer(question, value, by=by)
        except NotFound as error:
            return await _settled(runtime, question, error), False
        body = event.data
        return event, isinstance(body, QuestionAnswered) and (body.answer, body.by) == (value, by)

    _tell(with_runtime(given, work))


async def _settled(runtime: Runtime, decision: str, error: NotFound) -> Event:
    """Return the event that settled a decision which is no longer open, or raise ``error``."""
    page = await runtime.store.sessions.list(Query(limit=_LOOK))
    for info in page.sessions:
        async with aclosing(runtime.store.events.read(info.id)) as events:
            async for event in events:
                if isinstance(event.data, _SETTLES) and key_of(event.data) == decision:
                    return event
    raise error


def _tell(outcome: tuple[Event, bool]) -> None:
    event, ours = outcome
    what, by = _what(event), getattr(event.data, "by", "") or "somebody"
    if ours:
        click.echo(
            f"{what}; if no run is waiting for it: vaka run --session {printable(event.session)} --resume", err=True
        )
        return
    click.echo(f"error: already {what} by {printable(by)} at {event.ts}; nothing was changed", err=True)
    raise Quit(FAILED)


def _what(event: Event) -> str:
    body = event.data
    if isinstance(body, ApprovalResolved):
        return "approved" if body.decision == "approve" else "rejected"
    return "expired" if isinstance(body, ApprovalExpired) else "answered"


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(f"--edit is not a JSON object: {error}") from error


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
