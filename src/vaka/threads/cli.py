"""The commands of ``vaka sessions`` for the messages of a session: create, add, list, search, change, import."""

import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, with_runtime
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.render import as_printable, count_things, print_json, shorten
from vaka.cli.kit.sessions import describe_session, owner_option
from vaka.core.ports.messages import MessageFilter, MessagePage, MessageQuery, MessageSearch, SearchHit, SearchPage
from vaka.core.ports.store import THREAD_STATES, SessionInfo, Store, ThreadState
from vaka.text.search import parse_query
from vaka.threads.stats import ThreadStats
from vaka.threads.thread import AddedMessage, ThreadPolicy
from vaka.threads.threads import Threads

T = TypeVar("T")

_ROLES = ("user", "assistant", "tool")


class OpenThreads(NamedTuple):
    """The threads of a runtime, with its store."""

    store: Store
    threads: Threads


def _with_threads(flags: Mapping[str, Any], work: Callable[[OpenThreads], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with the threads of the runtime that flags and settings describe."""
    return with_runtime(flags, lambda runtime: work(OpenThreads(runtime.store, runtime.threads)))


def _print_session(info: SessionInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(describe_session(info))
    else:
        click.echo(as_printable(info.id))


@click.command(
    epilog=options.format_examples(
        "vaka sessions messages demo",
        "vaka sessions messages demo --newest --limit 5",
        "vaka sessions messages demo --role user --json",
    )
)
@click.argument("session", metavar="ID")
@owner_option
@click.option("--role", type=click.Choice(_ROLES), default=None, help="Only messages of this role.")
@click.option(
    "--keyword", "keywords", multiple=True, help="Only messages with this text; of several, with one of them."
)
@click.option(
    "--since", default="", metavar="TIME", help="Only messages from this time on, such as 2026-01-31T12:00:00Z."
)
@click.option("--until", default="", metavar="TIME", help="Only messages up to this time.")
@options.metadata_option("Only messages with this metadata; may be repeated.")
@click.option("--newest", is_flag=True, help="The newest message first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next`.")
@options.json_option
@options.store_options
def messages(session: str, owner: str | None, **flags: Any) -> None:
    """List the messages of a session, and how many there are."""
    selected = MessageFilter(
        role=flags["role"] or "",
        since=flags["since"],
        until=flags["until"],
        keywords=flags["keywords"],
        metadata=flags["metadata"],
    )
    query = MessageQuery(filter=selected, limit=flags["limit"], cursor=flags["after"], reverse=flags["newest"])

    async def work(opened: OpenThreads) -> tuple[SessionInfo, ThreadStats, MessagePage]:
        info = await find_session(opened, session, owner=owner)
        state = (await opened.threads.get(info.id)).state
        stats = await opened.threads.stats(info.id)
        return msgspec.structs.replace(info, state=state), stats, await opened.threads.get_messages(info.id, query)

    info, stats, page = _with_threads(flags, work)
    if flags["as_json"]:
        found = describe_session(info)
        print_json({"session": found, "stats": stats, "messages": page.messages, "next": page.next or None})
        return
    click.echo(f"{as_printable(info.id)}  {info.state}  {shorten(info.title, 80)}", err=True)
    said = f"{count_things(stats.message_count, 'message')}, {stats.user_message_count} of the user"
    click.echo(f"{said}; version {info.version}, owner {as_printable(info.owner) or '-'}", err=True)
    for message in page.messages:
        who = f"{message.role} {message.name}".strip()
        click.echo(f"{message.cursor}  {message.ts}  {as_printable(who, lines=False)}: {as_printable(message.text)}")
    if page.next:
        click.echo(f"more: --after {page.next}", err=True)


@click.command(
    epilog=options.format_examples(
        'vaka sessions search "broken pump"',
        "vaka sessions search rechnung* --owner kim",
        "vaka sessions search 会议 --json",
    )
)
@click.argument("text", nargs=-1, required=True)
@click.option("--session", default="", metavar="ID", help="Only messages of this session.")
@click.option("--owner", default="", help="Only messages of sessions of this owner.")
@click.option("--agent", default="", help="Only messages of sessions of this agent.")
@click.option("--role", type=click.Choice(_ROLES), default=None, help="Only messages of this role.")
@click.option("--since", default="", metavar="TIME", help="Only messages from this time on.")
@click.option("--until", default="", metavar="TIME", help="Only messages up to this time.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at a time.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after a page: its `next`.")
@options.json_option
@options.store_options
def search(text: tuple[str, ...], role: str | None, **flags: Any) -> None:
    """Search what was said in the sessions of every project, the best match first.

    All words must occur. "a phrase" must occur as it is, begin* stands for all words that begin so, and -word must not
    occur; write -- before a text that begins with it.
    """
    names = ("session", "owner", "agent", "since", "until", "limit", "after")
    query = MessageSearch(text=" ".join(text), role=role or "", **{name: flags[name] for name in names})
    if not parse_query(query.text).required:
        raise UsageError("the text has no word that must occur; name one before those that must not: pump -old")

    async def work(opened: OpenThreads) -> SearchPage:
        if query.session:
            await find_session(opened, query.session)
        return await opened.threads.search(query)

    page = _with_threads(flags, work)
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


@click.command(
    "import",
    epilog=options.format_examples("vaka sessions import messages.jsonl", "vaka sessions import - --owner kim"),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--id", default="", help="The id of the session; default: the id in the file.")
@click.option("--owner", default=None, help="The owner; default: the owner in the file.")
@options.json_option
@options.store_options
def import_messages(file: Path, id: str, owner: str | None, **flags: Any) -> None:
    """Create a session from an export of its messages. Messages that it has already are not added twice."""

    async def work(opened: OpenThreads) -> SessionInfo:
        if str(file) == "-":
            made = await opened.threads.import_lines(sys.stdin.buffer, id=id, resource_id=owner)
        else:
            with file.open("rb") as lines:
                made = await opened.threads.import_lines(lines, id=id, resource_id=owner)
        return await find_session(opened, made.id)

    _print_session(_with_threads(flags, work), as_json=flags["as_json"])


@click.command(
    epilog=options.format_examples(
        "vaka sessions create --title Pumps --owner kim",
        "vaka sessions create --id demo --metadata topic=water",
        "vaka sessions create --id desk --idle-timeout 30m --max-messages 100 --auto-archive",
    )
)
@click.option("--id", default="", help="The id; default: a new one.")
@click.option("--title", default="", help="The title; default: the beginning of the first message.")
@click.option("--owner", default="", help="The owner.")
@click.option("--agent", default="", help="The agent that answers in it.")
@options.metadata_option("Metadata; may be repeated.")
@click.option("--max-messages", type=click.IntRange(min=0), help="End it with this number of messages.")
@click.option("--max-duration", type=options.Duration(), help="End it so long after its creation, such as 90 or 12h.")
@click.option("--idle-timeout", type=options.Duration(), help="Pause it after so long without a change.")
@click.option("--auto-archive", is_flag=True, help="Archive it when a limit has ended it.")
@options.json_option
@options.store_options
def create(id: str, title: str, owner: str, agent: str, **flags: Any) -> None:
    """Create an empty session and print its id. A limit that is not given is none; see `vaka sessions apply-limits`."""
    policy = _make_policy(flags)

    async def work(opened: OpenThreads) -> SessionInfo:
        made = await opened.threads.create(
            id=id, title=title, agent_id=agent, resource_id=owner, metadata=flags["metadata"], policy=policy
        )
        return await find_session(opened, made.id)

    _print_session(_with_threads(flags, work), as_json=flags["as_json"])


def _make_policy(flags: dict[str, Any]) -> ThreadPolicy | None:
    """Return the limits that options name; ``None`` without any."""
    limits = {name: flags[name] for name in ("max_messages", "max_duration", "idle_timeout")}
    if flags["auto_archive"] and limits["max_messages"] is None and limits["max_duration"] is None:
        raise UsageError("--auto-archive needs a limit that ends the session: --max-messages or --max-duration")
    if all(limit is None for limit in limits.values()):
        return None
    return ThreadPolicy(**limits, auto_archive=flags["auto_archive"])


@click.command("apply-limits", epilog=options.format_examples("vaka sessions apply-limits --json"))
@options.json_option
@options.store_options
def apply_limits(**flags: Any) -> None:
    """Pause, end and archive the sessions whose limits say so now, and print how many states have changed.

    `vaka sessions messages` shows such a state as soon as it is due; this writes it to the log. Run it from time to
    time.
    """
    changed = _with_threads(flags, lambda opened: opened.threads.apply_policies())
    if flags["as_json"]:
        print_json({"changed": changed})
    else:
        click.echo(str(changed))


@click.command(
    epilog=options.format_examples(
        "vaka sessions update demo --title Pumps", "vaka sessions update demo --state paused --version 12"
    )
)
@click.argument("session", metavar="ID")
@click.option("--title", default=None, help="The new title.")
@click.option("--state", type=click.Choice(THREAD_STATES), default=None, help="The new state.")
@options.metadata_option("Metadata to change; null removes a key.")
@click.option("--version", type=int, default=None, help="Only if this is still its version (exit code 75 otherwise).")
@owner_option
@options.json_option
@options.store_options
def update(session: str, title: str | None, state: ThreadState | None, version: int | None, **flags: Any) -> None:
    """Change title, metadata and state of a session."""
    metadata = flags["metadata"]
    if title is None and state is None and not metadata:
        raise UsageError("nothing to update: give --title, --metadata or --state")

    async def work(opened: OpenThreads) -> SessionInfo:
        info, expected = await find_session(opened, session, owner=flags["owner"]), version
        if title is not None or metadata:
            found = await opened.threads.update(info.id, title=title, metadata=metadata, version=expected)
            expected = found.version if expected is not None else None
        if state is not None:
            await opened.threads.set_state(info.id, state, version=expected)
        return await find_session(opened, info.id)

    _print_session(_with_threads(flags, work), as_json=flags["as_json"])


@click.command(
    epilog=options.format_examples(
        'vaka sessions add demo "My pump is broken." --id mail-17',
        "vaka sessions add demo --role assistant < answer.txt",
    )
)
@click.argument("session", metavar="ID")
@click.argument("text", default="-")
@click.option("--role", type=click.Choice(_ROLES[:2]), default="user", show_default=True, help="Who said it.")
@click.option("--id", default="", help="The id of the message: the same id again adds nothing.")
@options.metadata_option("Metadata of the message; may be repeated.")
@owner_option
@options.json_option
@options.store_options
def add(session: str, text: str, role: str, id: str, **flags: Any) -> None:
    """Add a message without running a turn, and print its id. Without a text, or with -, it is read from stdin."""
    content = text if text != "-" else sys.stdin.read()
    message = {"role": role, "content": content, "id": id, "metadata": flags["metadata"]}

    async def work(opened: OpenThreads) -> AddedMessage:
        info = await find_session(opened, session, owner=flags["owner"])
        return await opened.threads.add_message(info.id, message)

    added = _with_threads(flags, work)
    if flags["as_json"]:
        print_json(added)
    else:
        click.echo(as_printable(added.id))


MESSAGE_COMMANDS: tuple[click.Command, ...] = (
    create,
    update,
    add,
    messages,
    search,
    import_messages,
    apply_limits,
)
"""The commands of ``vaka sessions`` for messages."""
