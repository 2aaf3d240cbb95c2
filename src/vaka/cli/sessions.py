"""``vaka sessions``: the logs."""

import sys
import time
from contextlib import aclosing
from typing import Any, get_args

import click
import msgspec

from vaka.cli import options
from vaka.cli.conversation import split_place
from vaka.cli.errors import UsageError
from vaka.cli.render import Transcript, compact, printable, short
from vaka.cli.report import print_json
from vaka.cli.rewind import rewind
from vaka.cli.start import found, with_runtime
from vaka.cli.table import age, print_table
from vaka.cli.verify import verify
from vaka.core.ports.store import Page, Query, Retention, SessionInfo, Status
from vaka.core.session.cursor import Cursor
from vaka.core.session.log import stamp
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.runtime.runtime import Runtime
from vaka.runtime.stats import ModelStats, SessionStats

_BLOBS = 86400
"""Seconds a blob nobody names is kept: a writer may be about to name it."""


@click.group()
def sessions() -> None:
    """List, show, export, fork, rewind, check and remove sessions."""


sessions.add_command(verify)
sessions.add_command(rewind)


@sessions.command("list", epilog=options.examples("vaka sessions list --status waiting", "vaka sessions list --json"))
@click.option("--status", type=click.Choice(get_args(Status)), help="Only sessions in this state.")
@click.option("--agent", default="", help="Only sessions of this agent.")
@click.option("--text", default="", help="Only sessions whose title has this in it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Go on after a page: its `next`.")
@options.json_option
@options.store_options
def list_(**given: Any) -> None:
    """List sessions, the last changed first."""
    query = Query(**{name: given[name] for name in ("status", "agent", "text", "limit", "after")})
    page: Page = with_runtime(given, lambda runtime: runtime.store.sessions.list(query))
    if given["as_json"]:
        print_json({"sessions": [shown(info) for info in page.sessions], "next": page.next or None})
        return
    rows = [(i.id, _state(i), i.agent, age(i.updated), str(i.head), short(i.title, 80)) for i in page.sessions]
    print_table(("ID", "STATUS", "AGENT", "AGE", "EVENTS", "TITLE"), rows)
    if page.next:
        click.echo(f"more: vaka sessions list --after {page.next}", err=True)


@sessions.command(
    epilog=options.examples(
        "vaka sessions show demo", "vaka sessions show demo --events --follow", "vaka sessions show demo --usage"
    )
)
@click.argument("session", metavar="ID")
@click.option("--usage", is_flag=True, help="What it has used instead: calls, tokens and money, model by model.")
@click.option("--events", is_flag=True, help="Every event on a line of its own.")
@click.option("--follow", "-f", is_flag=True, help="Go on as it happens, in whichever process, until Ctrl-C.")
@click.option("--after", metavar="SEQ", help="Begin after this event.")
@options.json_option
@options.store_options
def show(session: str, **given: Any) -> None:
    """Show a session as a conversation."""
    if given["usage"]:
        print_usage(with_runtime(given, lambda runtime: runtime.stats(session)), as_json=given["as_json"])
        return
    write = _writer(given)

    async def work(runtime: Runtime) -> None:
        info = await found(runtime, session)
        after, store = Cursor.parse(given["after"]), runtime.store
        chosen = (
            runtime.follow(info.id, after=after) if given["follow"] else store.events.read(info.id, after=after.seq)
        )
        async with aclosing(chosen) as events:
            async for event in events:
                write(event)

    with_runtime(given, work)


@sessions.command(
    epilog=options.examples("vaka sessions export demo > demo.jsonl", "vaka sessions export demo --format md")
)
@click.argument("session", metavar="ID")
@click.option(
    "--format",
    type=click.Choice(["jsonl", "json", "md"]),
    default="jsonl",
    show_default=True,
    help="jsonl: the stored bytes, line by line.",
)
@options.store_options
def export(session: str, format: str, **given: Any) -> None:
    """Write a whole session to stdout."""
    shape = _Shape(format)

    async def work(runtime: Runtime) -> None:
        info = await found(runtime, session)
        shape.write(shape.before)
        async with aclosing(runtime.store.events.read(info.id)) as events:
            async for event in events:
                shape.add(event)
        shape.write(shape.after)

    with_runtime(given, work)
    sys.stdout.buffer.flush()


@sessions.command(epilog=options.examples("vaka sessions fork demo@12", "vaka sessions fork demo --id attempt-2"))
@click.argument("place", metavar="ID[@SEQ]")
@click.option("--id", "made", default="", help="The new session's id.")
@options.json_option
@options.store_options
def fork(place: str, made: str, **given: Any) -> None:
    """Copy a session, up to an event if one is named, and print the copy's id."""

    async def work(runtime: Runtime) -> SessionId:
        origin, at = await split_place(runtime, place)
        return await runtime.fork(origin, at=at, id=made)

    new = with_runtime(given, work)
    click.echo(compact({"session_id": new}) if given["as_json"] else new)


@sessions.command(epilog=options.examples("vaka sessions gc --older-than 30d --dry-run", "vaka sessions gc"))
@click.option(
    "--older-than", type=options.Duration(), help="Also idle and closed sessions unchanged for so long, such as 30d."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.json_option
@options.store_options
def gc(older_than: float | None, dry_run: bool, **given: Any) -> None:
    """Remove large texts nobody names any more, and with --older-than old sessions. Unfinished work always stays."""
    now = time.time()
    retention = Retention(
        idle_before="" if older_than is None else stamp(now - older_than),
        blobs_before=stamp(now - _BLOBS),
        dry_run=dry_run,
    )
    removed = with_runtime(given, lambda runtime: runtime.store.gc(retention))
    if given["as_json"]:
        print_json({**msgspec.to_builtins(removed), "dry_run": dry_run})
        return
    for id in removed.sessions:
        click.echo(printable(id))
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{verb} {len(removed.sessions)} sessions, {removed.blobs} blobs, {removed.bytes} bytes", err=True)


@sessions.command(epilog=options.examples("vaka sessions delete demo --yes"))
@click.argument("session", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.store_options
def delete(session: str, yes: bool, **given: Any) -> None:
    """Forget a session and everything it holds."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("deleting cannot be undone; add --yes to do it without a terminal")
        click.confirm(f"Delete session {printable(session)} for good?", abort=True, err=True)
    with_runtime(given, lambda runtime: runtime.store.sessions.delete(SessionId(session)))
    click.echo(f"deleted {printable(session)}", err=True)


def print_usage(stats: SessionStats, *, as_json: bool) -> None:
    """Print what sessions have used, with a line for each model and one for all."""
    if as_json:
        print_json(stats)
        return
    total = ModelStats(usage=stats.usage, request_count=stats.request_count)
    rows = [
        (
            name, str(one.request_count), str(one.usage.input), str(one.usage.cache_read), str(one.usage.cache_write),
            str(one.usage.output), str(one.usage.reasoning), f"{one.usage.cost:.6f}".rstrip("0").rstrip("."),
        )
        for name, one in (*stats.by_model.items(), ("all", total))
    ]  # fmt: skip
    print_table(("MODEL", "CALLS", "INPUT", "CACHED", "CACHE WRITTEN", "OUTPUT", "REASONING", "US$"), rows)


def shown(info: SessionInfo) -> dict[str, Any]:
    """Return a session's row as data, every field named."""
    return {**msgspec.structs.asdict(info), "status": info.status}


def _state(info: SessionInfo) -> str:
    if info.live:
        return f"{info.status}*"
    return "unfinished" if info.status == "running" else info.status


def _writer(given: dict[str, Any]) -> Any:
    """Return what prints one event in the way that was asked for."""
    transcript = Transcript()

    def write(event: Event) -> None:
        if not event.seq:
            return
        if given["as_json"]:
            click.echo(event.stored)
        elif given["events"]:
            click.echo(f"{event.id}  {event.ts}  {'/'.join(event.path) or '-'}  {event.type}  {_body(event)}")
        elif text := transcript.text(event):
            click.echo(text)

    return write


def _body(event: Event) -> str:
    return short(compact(msgspec.to_builtins(event.data)), 160)


class _Shape:
    """How an export looks: what comes before, between and after the events."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.before, self.after = (b"[\n", b"\n]\n") if format == "json" else (b"", b"")
        self._transcript = Transcript(markdown=True)
        self._first = True

    def add(self, event: Event) -> None:
        """Write one event."""
        if self.format == "jsonl":
            self.write(event.stored + b"\n")
        elif self.format == "json":
            self.write(event.stored if self._first else b",\n" + event.stored)
        elif text := self._transcript.text(event):
            self.write(f"{text}\n".encode())
        self._first = False

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        sys.stdout.buffer.write(data)
