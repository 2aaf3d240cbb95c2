"""``vaka threads``: create, list, show, search, change, export, import and erase conversations."""

import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from vaka.cli import options
from vaka.cli.bootstrap import with_runtime
from vaka.cli.errors import BUSY, FAILED, Quit, UsageError
from vaka.cli.render import as_printable, format_age, print_json, print_table, shorten
from vaka.core.ports.messages import MessageFilter, MessagePage, MessageQuery, MessageSearch, SearchHit, SearchPage
from vaka.core.types.errors import NotFound
from vaka.runtime.erase import ErasureReport
from vaka.runtime.runtime import Runtime
from vaka.runtime.thread_stats import ThreadStats
from vaka.text.search import parse_query
from vaka.threads.thread import (
    THREAD_STATES,
    AddedMessage,
    DeletedMessages,
    Thread,
    ThreadPage,
    ThreadPolicy,
    ThreadState,
)

T = TypeVar("T")

_ROLES = ("user", "assistant", "tool")
_OWNER_HELP = "The owner that it must belong to; a thread of another owner is not found."


@click.group()
def threads() -> None:
    """Create, list, show, search, change, export, import and erase conversations."""


def _with_store(flags: dict[str, Any], work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` as ``with_runtime`` does; an error about an unknown thread says how to find the others."""
    try:
        return with_runtime(flags, work)
    except NotFound as error:
        raise NotFound(f"{error}; `vaka threads list` shows the threads of this store") from error


def _parse_pairs(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return ``KEY=VALUE`` texts as metadata; a value that is JSON is used as such."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not key or not separator:
            raise UsageError(f"--metadata {pair!r} must be KEY=VALUE")
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


_metadata_option = click.option(
    "--metadata", "pairs", metavar="KEY=VALUE", multiple=True, help="Only those with this metadata; may be repeated."
)


@threads.command(
    "list", epilog=options.format_examples("vaka threads list --owner kim", "vaka threads list --state paused --json")
)
@click.option("--owner", default="", help="Only threads of this owner.")
@click.option("--agent", default="", help="Only threads of this agent.")
@click.option("--state", type=click.Choice(THREAD_STATES), default=None, help="Only threads in this state.")
@click.option("--text", default="", help="Only threads with this text in the title.")
@_metadata_option
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next_cursor`.")
@options.json_option
@options.store_options
def list_(owner: str, agent: str, state: str | None, pairs: tuple[str, ...], **flags: Any) -> None:
    """List threads of every project, the last changed first."""

    async def work(runtime: Runtime) -> ThreadPage:
        return await runtime.threads.list(
            resource_id=owner,
            agent_id=agent,
            state=state or "",
            metadata=_parse_pairs(pairs),
            text=flags["text"],
            limit=flags["limit"],
            cursor=flags["after"],
        )

    page = _with_store(flags, work)
    if flags["as_json"]:
        print_json({"threads": page.threads, "next_cursor": page.next_cursor or None})
        return
    rows = [
        (each.id, each.state, each.resource_id, each.agent_id, format_age(each.updated_at), shorten(each.title, 80))
        for each in page.threads
    ]
    print_table(("ID", "STATE", "OWNER", "AGENT", "AGE", "TITLE"), rows)
    if page.next_cursor:
        click.echo(f"more: vaka threads list --after {page.next_cursor}", err=True)


@threads.command(
    epilog=options.format_examples(
        "vaka threads show demo",
        "vaka threads show demo --newest --limit 5",
        "vaka threads show demo --role user --json",
    )
)
@click.argument("thread", metavar="ID")
@click.option("--owner", default=None, help=_OWNER_HELP)
@click.option("--role", type=click.Choice(_ROLES), default=None, help="Only messages of this role.")
@click.option(
    "--keyword", "keywords", multiple=True, help="Only messages with this text; of several, with one of them."
)
@click.option(
    "--since", default="", metavar="TIME", help="Only messages from this time on, such as 2026-01-31T12:00:00Z."
)
@click.option("--until", default="", metavar="TIME", help="Only messages up to this time.")
@_metadata_option
@click.option("--newest", is_flag=True, help="The newest message first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next`.")
@options.json_option
@options.store_options
def show(thread: str, owner: str | None, **flags: Any) -> None:
    """Show a thread, how much was said in it, and its messages."""
    selected = MessageFilter(
        role=flags["role"] or "",
        since=flags["since"],
        until=flags["until"],
        keywords=flags["keywords"],
        metadata=_parse_pairs(flags["pairs"]),
    )
    query = MessageQuery(filter=selected, limit=flags["limit"], cursor=flags["after"], reverse=flags["newest"])

    async def work(runtime: Runtime) -> tuple[Thread, ThreadStats, MessagePage]:
        found, stats = runtime.threads.get(thread, resource_id=owner), runtime.threads.stats(thread, resource_id=owner)
        return await found, await stats, await runtime.threads.get_messages(thread, query, resource_id=owner)

    found, stats, page = _with_store(flags, work)
    if flags["as_json"]:
        print_json({"thread": found, "stats": stats, "messages": page.messages, "next": page.next or None})
        return
    click.echo(f"{as_printable(found.id)}  {found.state}  {shorten(found.title, 80)}", err=True)
    said = f"{_count_things(stats.message_count, 'message')}, {stats.user_message_count} of the user"
    click.echo(f"{said}; version {found.version}, owner {as_printable(found.resource_id) or '-'}", err=True)
    for message in page.messages:
        who = f"{message.role} {message.name}".strip()
        click.echo(f"{message.cursor}  {message.ts}  {as_printable(who, lines=False)}: {as_printable(message.text)}")
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


@threads.command(
    epilog=options.format_examples(
        'vaka threads search "broken pump"',
        "vaka threads search rechnung* --owner kim",
        "vaka threads search 会议 --json",
    )
)
@click.argument("text", nargs=-1, required=True)
@click.option("--thread", "session", default="", metavar="ID", help="Only messages of this thread.")
@click.option("--owner", default="", help="Only messages of threads of this owner.")
@click.option("--agent", default="", help="Only messages of threads of this agent.")
@click.option("--role", type=click.Choice(_ROLES), default=None, help="Only messages of this role.")
@click.option("--since", default="", metavar="TIME", help="Only messages from this time on.")
@click.option("--until", default="", metavar="TIME", help="Only messages up to this time.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next`.")
@options.json_option
@options.store_options
def search(text: tuple[str, ...], role: str | None, **flags: Any) -> None:
    """Search what was said in all threads, the best match first.

    All words must occur. "a phrase" must occur as it is, begin* stands for all words that begin so, and -word must not
    occur; write -- before a text that begins with it.
    """
    names = ("session", "owner", "agent", "since", "until", "limit", "after")
    query = MessageSearch(text=" ".join(text), role=role or "", **{name: flags[name] for name in names})
    if not parse_query(query.text).required:
        raise UsageError("the text has no word that must occur; name one before those that must not: pump -old")

    async def work(runtime: Runtime) -> SearchPage:
        if query.session:
            await runtime.threads.get(query.session)
        return await runtime.threads.search(query)

    page = _with_store(flags, work)
    if flags["as_json"]:
        print_json({"hits": page.hits, "next": page.next or None})
        return
    for hit in page.hits:
        place = f"{hit.message.session}@{hit.message.cursor}"
        click.echo(f"{as_printable(place)}  {hit.message.role}: {_mark_matches(hit)}")
    if not page.hits:
        click.echo("nothing was found", err=True)
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


def _mark_matches(hit: SearchHit) -> str:
    """Return a snippet on one line; a terminal shows what was found in bold."""
    parts, at = list[str](), 0
    for start, end in hit.matches:
        parts += [_one_line(hit.snippet[at:start]), click.style(_one_line(hit.snippet[start:end]), bold=True)]
        at = end
    return "".join([*parts, _one_line(hit.snippet[at:])])


def _one_line(text: str) -> str:
    return as_printable(text.replace("\n", " ").replace("\t", " "), lines=False)


@threads.command(epilog=options.format_examples("vaka threads export demo > demo.jsonl"))
@click.argument("thread", metavar="ID")
@click.option("--owner", default=None, help=_OWNER_HELP)
@options.store_options
def export(thread: str, owner: str | None, **flags: Any) -> None:
    """Write a thread and its messages to stdout, one JSON document on each line."""
    output = sys.stdout.buffer

    async def work(runtime: Runtime) -> None:
        async with aclosing(runtime.threads.export(thread, resource_id=owner)) as lines:
            async for line in lines:
                output.write(line)

    _with_store(flags, work)
    output.flush()


@threads.command(
    "import", epilog=options.format_examples("vaka threads import demo.jsonl", "vaka threads import - --owner kim")
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--id", default="", help="The id of the thread; default: the id in the file.")
@click.option("--owner", default=None, help="The owner; default: the owner in the file.")
@options.json_option
@options.store_options
def import_(file: Path, id: str, owner: str | None, **flags: Any) -> None:
    """Create a thread from an export. Messages that it has already are not added twice."""

    async def work(runtime: Runtime) -> Thread:
        if str(file) == "-":
            return await runtime.threads.import_lines(sys.stdin.buffer, id=id, resource_id=owner)
        with file.open("rb") as lines:
            return await runtime.threads.import_lines(lines, id=id, resource_id=owner)

    _print_thread(_with_store(flags, work), flags)


@threads.command(
    epilog=options.format_examples(
        "vaka threads create --title Pumps --owner kim",
        "vaka threads create --id demo --metadata topic=water",
        "vaka threads create --id desk --idle-timeout 30m --max-messages 100 --auto-archive",
    )
)
@click.option("--id", default="", help="The id; default: a new one.")
@click.option("--title", default="", help="The title; default: the beginning of the first message.")
@click.option("--owner", default="", help="The owner.")
@click.option("--agent", default="", help="The agent that answers in it.")
@click.option("--metadata", "pairs", metavar="KEY=VALUE", multiple=True, help="Metadata; may be repeated.")
@click.option("--max-messages", type=click.IntRange(min=0), help="End it with this number of messages.")
@click.option("--max-duration", type=options.Duration(), help="End it so long after its creation, such as 90 or 12h.")
@click.option("--idle-timeout", type=options.Duration(), help="Pause it after so long without a change.")
@click.option("--auto-archive", is_flag=True, help="Archive it when a limit has ended it.")
@options.json_option
@options.store_options
def create(id: str, title: str, owner: str, agent: str, **flags: Any) -> None:
    """Create an empty thread and print its id. A limit that is not given is none; see `vaka threads apply-policies`."""
    metadata, policy = _parse_pairs(flags["pairs"]), _make_policy(flags)

    async def work(runtime: Runtime) -> Thread:
        return await runtime.threads.create(
            id=id, title=title, agent_id=agent, resource_id=owner, metadata=metadata, policy=policy
        )

    _print_thread(_with_store(flags, work), flags)


def _make_policy(flags: dict[str, Any]) -> ThreadPolicy | None:
    """Return the limits that options name; ``None`` without any."""
    limits = {name: flags[name] for name in ("max_messages", "max_duration", "idle_timeout")}
    if flags["auto_archive"] and limits["max_messages"] is None and limits["max_duration"] is None:
        raise UsageError("--auto-archive needs a limit that ends the thread: --max-messages or --max-duration")
    if all(limit is None for limit in limits.values()):
        return None
    return ThreadPolicy(**limits, auto_archive=flags["auto_archive"])


@threads.command("apply-policies", epilog=options.format_examples("vaka threads apply-policies --json"))
@options.json_option
@options.store_options
def apply_policies(**flags: Any) -> None:
    """Pause, end and archive the threads whose limits say so now, and print how many states have changed.

    A thread shows such a state as soon as it is due; this writes it to the log. Run it from time to time.
    """
    changed = _with_store(flags, lambda runtime: runtime.threads.apply_policies())
    if flags["as_json"]:
        print_json({"changed": changed})
    else:
        click.echo(str(changed))


def _print_thread(thread: Thread, flags: dict[str, Any]) -> None:
    if flags["as_json"]:
        print_json(thread)
    else:
        click.echo(as_printable(thread.id))


@threads.command(
    epilog=options.format_examples(
        "vaka threads update demo --title Pumps", "vaka threads update demo --state paused --version 12"
    )
)
@click.argument("thread", metavar="ID")
@click.option("--title", default=None, help="The new title.")
@click.option("--state", type=click.Choice(THREAD_STATES), default=None, help="The new state.")
@click.option("--metadata", "pairs", metavar="KEY=VALUE", multiple=True, help="Metadata to change; null removes a key.")
@click.option("--version", type=int, default=None, help="Only if this is still its version (exit code 75 otherwise).")
@click.option("--owner", default=None, help=_OWNER_HELP)
@options.json_option
@options.store_options
def update(thread: str, title: str | None, state: ThreadState | None, version: int | None, **flags: Any) -> None:
    """Change title, metadata and state of a thread."""
    metadata, owner = _parse_pairs(flags["pairs"]), flags["owner"]
    if title is None and state is None and not metadata:
        raise UsageError("nothing to update: give --title, --metadata or --state")

    async def work(runtime: Runtime) -> Thread:
        expected = version
        if title is not None or metadata:
            found = await runtime.threads.update(
                thread, title=title, metadata=metadata, version=expected, resource_id=owner
            )
            expected = found.version if expected is not None else None
        if state is not None:
            await runtime.threads.set_state(thread, state, version=expected, resource_id=owner)
        return await runtime.threads.get(thread)

    _print_thread(_with_store(flags, work), flags)


@threads.command(
    epilog=options.format_examples(
        'vaka threads add demo "My pump is broken." --id mail-17', "vaka threads add demo --role assistant < answer.txt"
    )
)
@click.argument("thread", metavar="ID")
@click.argument("text", default="-")
@click.option("--role", type=click.Choice(_ROLES[:2]), default="user", show_default=True, help="Who said it.")
@click.option("--id", default="", help="The id of the message: the same id again adds nothing.")
@click.option("--metadata", "pairs", metavar="KEY=VALUE", multiple=True, help="Metadata of the message.")
@click.option("--owner", default=None, help=_OWNER_HELP)
@options.json_option
@options.store_options
def add(thread: str, text: str, role: str, id: str, **flags: Any) -> None:
    """Add a message without running a turn, and print its id. Without a text, or with -, it is read from stdin."""
    content = text if text != "-" else sys.stdin.read()
    message = {"role": role, "content": content, "id": id, "metadata": _parse_pairs(flags["pairs"])}

    async def work(runtime: Runtime) -> AddedMessage:
        return await runtime.threads.add_message(thread, message, resource_id=flags["owner"])

    added = _with_store(flags, work)
    if flags["as_json"]:
        print_json(added)
    else:
        click.echo(as_printable(added.id))


@threads.command(
    epilog=options.format_examples(
        "vaka threads delete demo --yes", "vaka threads delete demo --message mail-17 --message mail-18 --yes"
    )
)
@click.argument("thread", metavar="ID")
@click.option("--message", "ids", metavar="ID", multiple=True, help="Only this message of the conversation.")
@click.option("--owner", default=None, help=_OWNER_HELP)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.store_options
def delete(thread: str, ids: tuple[str, ...], owner: str | None, yes: bool, **flags: Any) -> None:
    """Delete a thread with its log, or messages of its conversation. Exit code 1 when a message is not there."""
    what = f"{len(ids)} messages of thread" if ids else "thread"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("deleting cannot be undone; add --yes to do it without a terminal")
        click.confirm(f"Delete {what} {as_printable(thread)} for good?", abort=True, err=True)

    async def work(runtime: Runtime) -> DeletedMessages | None:
        if ids:
            return await runtime.threads.delete_messages(thread, ids, resource_id=owner)
        await runtime.threads.delete(thread, resource_id=owner)
        return None

    deleted = _with_store(flags, work)
    count = f"{deleted.affected_count} messages of " if deleted is not None else ""
    click.echo(f"deleted {count}{as_printable(thread)}", err=True)
    if deleted is not None and not deleted.success:
        click.echo(as_printable(deleted.error_message or ""), err=True)
        raise Quit(FAILED)


@threads.command(
    epilog=options.format_examples(
        "vaka threads erase demo", "vaka threads erase --owner kim --dry-run", "vaka threads erase --owner kim --yes"
    )
)
@click.argument("thread", metavar="[ID]", default="")
@click.option("--owner", default="", help="Everything of this owner: all threads and memories.")
@click.option("--dry-run", is_flag=True, help="Only print what would be erased.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.json_option
@options.store_options
def erase(thread: str, owner: str, dry_run: bool, yes: bool, **flags: Any) -> None:
    """Erase what was said in a thread, or everything that is stored of an owner. It cannot be undone.

    The hashes of the events stay, so that `vaka sessions verify` still proves that the log is complete. Exit code 75
    when a turn of a thread runs: erase again when it has ended; 1 when a thread could not be erased for another reason.
    """
    if bool(thread) == bool(owner):
        raise UsageError("name one thread, or --owner")
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            raise UsageError("erasing cannot be undone; add --yes to do it without a terminal")
        what = f"everything of the owner {as_printable(owner)}" if owner else f"thread {as_printable(thread)}"
        click.confirm(f"Erase {what} for good?", abort=True, err=True)
    report = _with_store(flags, lambda runtime: runtime.erase(thread, owner=owner, dry_run=dry_run))
    if flags["as_json"]:
        print_json(report)
    else:
        _print_erasure(report)
    if report.failed:
        raise Quit(BUSY if len(report.busy) == len(report.failed) else FAILED)


def _count_things(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def _print_erasure(report: ErasureReport) -> None:
    for id in report.sessions:
        click.echo(as_printable(id))
    for id, problem in report.failed.items():
        click.echo(f"not erased: {as_printable(id)}: {as_printable(problem)}", err=True)
    if report.busy:
        click.echo("erase again when the turn that runs has ended", err=True)
    # How many of the events have contents is known when they are erased.
    verb, events = ("would erase", "at most {} events") if report.dry_run else ("erased", "{} events")
    parts = [_count_things(len(report.sessions), "thread"), events.format(report.events)]
    parts += [] if report.dry_run else [_count_things(report.blobs, "blob")]
    parts += [
        _count_things(count, f"record of {kind} memory", f"records of {kind} memory")
        for kind, count in report.memories.items()
        if count
    ]
    click.echo(f"{verb} {', '.join(parts)}", err=True)
    if not report.overwritten:
        click.echo("files of the database may still have old copies until it is vacuumed; see the guide", err=True)
