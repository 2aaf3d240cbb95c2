"""``vaka sessions``: list, show, export, fork, rewind, compact, move, verify, delete and garbage-collect sessions."""

import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from vaka.cli.commands.session_compact import compact
from vaka.cli.commands.session_erase import erase
from vaka.cli.commands.session_stats import stats
from vaka.cli.commands.session_verify import verify
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, load_flag_settings, transcript_folder, with_runtime
from vaka.cli.kit.errors import FAILED, Quit, UsageError
from vaka.cli.kit.render import (
    Transcript,
    as_printable,
    compact_json,
    count_things,
    format_age,
    print_json,
    print_table,
    shorten,
)
from vaka.cli.kit.sessions import describe_session, owner_option
from vaka.cli.turn.session_record import (
    enter_folder,
    find_record,
    is_of_project,
    project_query,
    resolve_session_ref,
)
from vaka.config.settings import trust_root_of
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.store import THREAD_STATES, Retention, SessionInfo, SessionPage, SessionStatus
from vaka.core.types.errors import Busy, FileChanged
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, Cursor, SessionId
from vaka.core.types.progress import SubagentStarted
from vaka.feature import find_features
from vaka.runtime.runtime import Runtime
from vaka.runtime.session_edits import delete_session

if TYPE_CHECKING:
    from vaka.runtime.file_rewind import FileRewind
    from vaka.threads.thread import DeletedMessages

_BLOB_GRACE_SECONDS = 86400
"""Seconds that an unreferenced blob is kept: a writer may be about to reference it."""


@click.group()
def sessions() -> None:
    """Create, list, show, search, export, fork, rewind, move, check, erase and remove sessions."""


for _command in (stats, compact, verify, erase):
    sessions.add_command(_command)
for _feature in find_features():
    if _feature.load_session_commands is not None:
        for _command in _feature.load(_feature.load_session_commands):
            sessions.add_command(_command)


@sessions.command(
    epilog=options.format_examples(
        "vaka sessions rewind demo 12",
        "vaka sessions rewind demo@before-refactoring",
        "vaka sessions rewind demo@12 --files --dry-run",
        "vaka sessions rewind demo@12 --files",
    )
)
@click.argument("session", metavar="ID[@SEQ|@LABEL]")
@click.argument("place", metavar="[SEQ|LABEL]", default="")
@click.option(
    "--interrupt", is_flag=True, help="Stop a running turn first; without it a busy session is not changed (75)."
)
@click.option("--files", is_flag=True, help="Also put back the files that file tools and commands have changed since.")
@click.option("--force", is_flag=True, help="With --files: also overwrite files that others have changed since.")
@click.option("--dry-run", is_flag=True, help="With --files: only print what would be done.")
@options.json_option
@options.store_options
def rewind(session: str, place: str, **flags: Any) -> None:
    """Continue from an earlier event or checkpoint. Later events stay readable.

    --files restores what was changed while snapshots were on. It names each file that it cannot restore, for example
    because git ignores it.
    """
    files = flags["files"]
    if (flags["force"] or flags["dry_run"]) and not files:
        raise UsageError("--force and --dry-run need --files")

    if files:
        flags = _enter_session_folder(session, flags)

    async def work(runtime: Runtime) -> "tuple[str, Event | None, FileRewind | None]":
        id, to = (session, place) if place else await resolve_session_ref(runtime.store, session)
        if not to:
            raise UsageError("expected an event or a checkpoint: ID@12, or ID LABEL")
        file_rewind = await runtime.preview_rewind(id, to, force=flags["force"]) if files else None
        if flags["dry_run"]:
            return id, None, file_rewind
        with _name_flags(interrupt=flags["interrupt"]):
            event = await runtime.rewind(id, to, interrupt=flags["interrupt"], files=files, force=flags["force"])
        return id, event, file_rewind

    id, event, file_rewind = with_runtime(flags, work)
    target = getattr(event.data, "to", place) if event is not None else None
    if flags["as_json"]:
        fields = {"session_id": id, "to": target, "event": event.id if event is not None else None}
        print_json(fields | ({"files": msgspec.to_builtins(file_rewind)} if file_rewind is not None else {}))
        return
    if file_rewind is not None:
        _print_file_changes(file_rewind, done=event is not None)
    if event is not None:
        click.echo(f"{as_printable(id)} continues from {target}; recorded as event {event.id}", err=True)


@contextmanager
def _name_flags(*, interrupt: bool) -> Generator[None]:
    """Let errors of a rewind name the flag that changes their outcome."""
    try:
        yield
    except Busy as error:
        raise Busy(str(error) if interrupt else f"{error}; add --interrupt to stop its turn") from error
    except FileChanged as error:
        raise FileChanged(f"{error}; nothing was taken back; --force overwrites these files") from error


def _enter_session_folder(session: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Change to the folder of a session, so that paths mean its files; return the flags as they apply there."""
    settings = load_flag_settings(flags)
    record = find_record(settings, session)
    return flags if record is None else enter_folder(record, flags, settings)


def _print_file_changes(file_rewind: "FileRewind", *, done: bool) -> None:
    verbs = ("restored", "removed") if done else ("would restore", "would remove")
    for verb, paths in zip(verbs, (file_rewind.restored, file_rewind.removed), strict=True):
        for path in paths:
            note = "  (changed since)" if path in file_rewind.changed else ""
            click.echo(f"{verb} {as_printable(path, lines=False)}{note}")
    if not (file_rewind.restored or file_rewind.removed):
        click.echo("there is no file to restore", err=True)
    if file_rewind.changed and not done:
        click.echo("files that have changed since are only overwritten with --force", err=True)
    for path in file_rewind.unclear:
        why = "not restored without --force, changed while a command ran in the background"
        click.echo(f"{why}: {as_printable(path, lines=False)}", err=True)
    for path in file_rewind.lost:
        click.echo(f"not restored, there is no copy: {as_printable(path, lines=False)}", err=True)
    if file_rewind.unnamed:
        click.echo(f"not restored, there is no copy: {file_rewind.unnamed} more files", err=True)
    if file_rewind.commands:
        reasons = "".join(f"\n  {as_printable(reason, lines=False)}" for reason in file_rewind.reasons)
        one = "1 command is not recorded; what it changed stays"
        many = f"{file_rewind.commands} commands are not recorded; what they changed stays"
        click.echo(f"{one if file_rewind.commands == 1 else many}{reasons}", err=True)
    if file_rewind.ran:
        click.echo("commands ran: what they changed outside of the working folders is not known", err=True)


@sessions.command(
    "list",
    epilog=options.format_examples(
        "vaka sessions list --status waiting", "vaka sessions list --all --owner kim", "vaka sessions list --json"
    ),
)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of all projects, not only of this one.")
@click.option("--status", type=click.Choice(get_args(SessionStatus)), help="Only sessions whose turn is in this state.")
@click.option("--state", type=click.Choice(THREAD_STATES), default=None, help="Only sessions in this state.")
@click.option("--agent", default="", help="Only sessions of this agent.")
@click.option("--text", default="", help="Only sessions whose title has this in it.")
@click.option("--owner", default="", help="Only sessions of this owner.")
@click.option("--tag", default="", help="Only sessions with this tag.")
@options.metadata_option("Only sessions with this metadata; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next`.")
@options.json_option
@options.store_options
def list_(**flags: Any) -> None:
    """List the sessions of this project, the last changed first; sessions without a folder are of every project."""
    project = None if flags["everywhere"] else trust_root_of(Path.cwd())
    page = with_runtime(flags, lambda runtime: _list_sessions(runtime, project, flags))
    if flags["as_json"]:
        print_json({"sessions": [describe_session(info) for info in page.sessions], "next": page.next or None})
        return
    columns = ("ID", "STATUS", "AGENT", "AGE", "EVENTS", *(("FOLDER",) if project is None else ()), "TITLE")
    rows: list[tuple[str, ...]] = []
    for info in page.sessions:
        folder = (info.folder,) if project is None else ()
        title = shorten(info.title, 80)
        rows.append((info.id, _status_text(info), info.agent, format_age(info.updated), str(info.head), *folder, title))
    print_table(columns, rows)
    if page.next:
        everywhere = "--all " if project is None else ""
        click.echo(f"more: vaka sessions list {everywhere}--after {page.next}", err=True)
    elif project is not None and not rows:
        click.echo(f"no session belongs to {as_printable(str(project))}; --all lists the others", err=True)


async def _list_sessions(runtime: Runtime, project: Path | None, flags: dict[str, Any]) -> SessionPage:
    """Return a page of the sessions of a project, ``None`` for all."""
    filters = {name: flags[name] for name in ("status", "agent", "text", "owner", "tag", "metadata")}
    filters["state"] = flags["state"] or ""
    found: list[SessionInfo] = []
    after = flags["after"]
    while True:
        query = project_query(project, limit=flags["limit"] - len(found), after=after, **filters)
        page = await runtime.store.sessions.list(query)
        found += [info for info in page.sessions if is_of_project(info, project)]
        after = page.next
        if not after or len(found) == flags["limit"]:
            return SessionPage(sessions=tuple(found), next=after)


@sessions.command(epilog=options.format_examples("vaka sessions move demo", "vaka sessions move demo ../renamed"))
@click.argument("session", metavar="ID")
@click.argument(
    "folder", metavar="[FOLDER]", default=".", type=click.Path(exists=True, file_okay=False, resolve_path=True)
)
@options.json_option
@options.store_options
def move(session: str, folder: str, **flags: Any) -> None:
    """Bind a session to another folder, by default this one: its tools work there from now on.

    Grants for the session end, and approvals that were given for the old folder are asked for again.
    """

    async def work(runtime: Runtime) -> Event:
        return await runtime.move((await find_session(runtime, session)).id, folder)

    event = with_runtime(flags, work)
    if flags["as_json"]:
        print_json({"session_id": session, "folder": folder, "event": event.id})
    else:
        click.echo(f"{as_printable(session)} belongs to {as_printable(folder)} now", err=True)


@sessions.command(
    epilog=options.format_examples("vaka sessions show demo", "vaka sessions show demo --events --follow")
)
@click.argument("session", metavar="ID")
@click.option("--agent", metavar="AGENT", help="Only what this child agent did, such as agent-1.")
@click.option("--events", is_flag=True, help="Every event on a line of its own.")
@click.option("--follow", "-f", is_flag=True, help="Follow live, in whichever process it runs, until Ctrl-C.")
@click.option("--after", metavar="SEQ", help="Begin after this event.")
@options.json_option
@options.store_options
def show(session: str, **flags: Any) -> None:
    """Show a session as a conversation."""
    write = _event_printer(flags)

    async def work(runtime: Runtime) -> None:
        info = await find_session(runtime, session)
        after, read = Cursor.parse(flags["after"]), runtime.store.events.read
        selected = runtime.follow(info.id, after=after) if flags["follow"] else read(info.id, after=after.seq)
        async with aclosing(selected) as events:
            async for event in events:
                write(event)

    with_runtime(flags, work)


@sessions.command(
    epilog=options.format_examples(
        "vaka sessions export demo > demo.jsonl",
        "vaka sessions export demo --format md",
        "vaka sessions export demo --format messages > messages.jsonl",
    )
)
@click.argument("session", metavar="ID")
@click.option(
    "--format",
    type=click.Choice(["jsonl", "json", "md", "messages"]),
    default="jsonl",
    show_default=True,
    help="jsonl: the stored bytes, line by line; messages: the conversation as JSON lines that import reads.",
)
@owner_option
@options.store_options
def export(session: str, format: str, owner: str | None, **flags: Any) -> None:
    """Write a whole session, or its messages, to stdout."""
    output = sys.stdout.buffer

    async def work(runtime: Runtime) -> None:
        info = await find_session(runtime, session, owner=owner)
        pieces = runtime.threads.export(info.id) if format == "messages" else _export_log(runtime, info.id, format)
        async with aclosing(pieces):
            async for piece in pieces:
                output.write(piece)

    with_runtime(flags, work)
    output.flush()


async def _export_log(runtime: Runtime, session: SessionId, format: str) -> AsyncGenerator[bytes]:
    transcript = Transcript(markdown=True)
    start, separator, end = (b"[\n", b",\n", b"\n]\n") if format == "json" else (b"", b"\n", b"\n")
    before = start
    async with aclosing(runtime.store.events.read(session)) as events:
        async for event in events:
            data = transcript.render_event(event).encode() if format == "md" else event.stored
            if data:
                yield before + data
                before = separator
    if before == separator:
        yield end


@sessions.command(
    epilog=options.format_examples("vaka sessions fork demo@12", "vaka sessions fork demo --id attempt-2")
)
@click.argument("place", metavar="ID[@SEQ]")
@click.option("--id", "made", default="", help="The new session's id.")
@options.json_option
@options.store_options
def fork(place: str, made: str, **flags: Any) -> None:
    """Copy a session, up to an event if one is named, and print the copy's id."""

    async def work(runtime: Runtime) -> SessionId:
        origin, at = await resolve_session_ref(runtime.store, place)
        return await runtime.fork(origin, at=at, id=made)

    new = with_runtime(flags, work)
    click.echo(compact_json({"session_id": new}) if flags["as_json"] else new)


@sessions.command(epilog=options.format_examples("vaka sessions gc --older-than 30d --dry-run", "vaka sessions gc"))
@click.option(
    "--older-than", type=options.Duration(), help="Also idle and closed sessions unchanged for so long, such as 30d."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@options.json_option
@options.store_options
def gc(older_than: float | None, dry_run: bool, **flags: Any) -> None:
    """Remove large texts without a reference, expired values, and with --older-than old sessions.

    Unfinished work always stays. The files that were recorded for commands are removed too, for folders that are gone
    or in which no command ran for 30 days.
    """
    now = time.time()
    idle_before = "" if older_than is None else format_timestamp(now - older_than)
    blobs_before = format_timestamp(now - _BLOB_GRACE_SECONDS)
    retention = Retention(
        idle_before=idle_before, blobs_before=blobs_before, expired_before=format_timestamp(now), dry_run=dry_run
    )
    removed = with_runtime(flags, lambda runtime: runtime.store.gc(retention))
    from vaka.runtime.command_records import records_folder, remove_unused_records

    folders = remove_unused_records(records_folder(), dry_run=dry_run)
    if flags["as_json"]:
        print_json({**msgspec.to_builtins(removed), "folders": folders, "dry_run": dry_run})
        return
    for id in removed.sessions:
        click.echo(as_printable(id))
    verb = "would remove" if dry_run else "removed"
    counts = f"{len(removed.sessions)} sessions, {removed.blobs} blobs, {removed.values} values, {removed.bytes} bytes"
    click.echo(f"{verb} {counts}" + (f", the records of {folders} folders" if folders else ""), err=True)


@sessions.command(
    epilog=options.format_examples(
        "vaka sessions delete demo --yes", "vaka sessions delete demo --message mail-17 --message mail-18 --yes"
    )
)
@click.argument("session", metavar="ID")
@click.option("--message", "messages", metavar="ID", multiple=True, help="Only this message; may be repeated.")
@owner_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.store_options
def delete(session: str, messages: tuple[str, ...], owner: str | None, yes: bool, **flags: Any) -> None:
    """Delete a session and everything it holds, or messages of it. Exit code 1 when a message is not there."""
    what = f"{len(messages)} messages of session" if messages else "session"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("deleting cannot be undone; add --yes to do it without a terminal")
        click.confirm(f"Delete {what} {as_printable(session)} for good?", abort=True, err=True)
    if messages:
        _delete_messages(session, messages, owner, flags)
        return

    async def work(runtime: Runtime) -> None:
        await delete_session(runtime.store, (await find_session(runtime, session, owner=owner)).id)

    with_runtime(flags, work)
    from vaka.hooks.transcript import Transcripts

    Transcripts(str(transcript_folder()), "").delete(SessionId(session))
    click.echo(f"deleted {as_printable(session)}", err=True)


def _delete_messages(session: str, ids: tuple[str, ...], owner: str | None, flags: dict[str, Any]) -> None:
    """Delete messages of a session; exit with 1 when one is not there."""

    async def work(runtime: Runtime) -> "DeletedMessages":
        info = await find_session(runtime, session, owner=owner)
        return await runtime.threads.delete_messages(info.id, ids)

    deleted = with_runtime(flags, work)
    click.echo(f"deleted {count_things(deleted.affected_count, 'message')} of {as_printable(session)}", err=True)
    if not deleted.success:
        click.echo(as_printable(deleted.error_message or ""), err=True)
        raise Quit(FAILED)


def _status_text(info: SessionInfo) -> str:
    if info.live:
        return f"{info.status}*"
    if info.erased:
        return "erased"
    if info.status == "idle" and info.state != "active":
        return info.state
    return "unfinished" if info.status == "running" else info.status


def _is_of_agent(event: Event, agent: AgentPath) -> bool:
    """Return whether an event is of a child agent, or starts it; every event is of the root agent."""
    body = event.data
    is_start = isinstance(body, SubagentStarted) and (*event.path, body.child) == agent
    return is_start or event.path[: len(agent)] == agent


def _event_printer(flags: dict[str, Any]) -> Any:
    """Return the function that prints one event: as JSON, as a line, or as a conversation."""
    agent = tuple((flags.get("agent") or "").split("/")) if flags.get("agent") else ()
    transcript = Transcript(agent=agent)

    def print_event(event: Event) -> None:
        if not event.seq or not _is_of_agent(event, agent):
            return
        if flags["as_json"]:
            click.echo(event.stored)
        elif flags["events"]:
            body = shorten(compact_json(msgspec.to_builtins(event.data)), 160)
            click.echo(f"{event.id}  {event.ts}  {'/'.join(event.path) or '-'}  {event.type}  {body}")
        elif text := transcript.render_event(event):
            click.echo(text)

    return print_event
