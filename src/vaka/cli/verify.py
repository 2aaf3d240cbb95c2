"""``vaka sessions verify``: walk the chain, say where it ends."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import click
import msgspec

from vaka.cli import options
from vaka.cli.errors import FAILED, Quit, UsageError
from vaka.cli.render import printable
from vaka.cli.report import print_json
from vaka.cli.start import found, with_runtime
from vaka.core.ports.store import Query, SessionInfo
from vaka.core.types.errors import Corrupt
from vaka.runtime.runtime import Runtime

_EVERY = 20_000
"""Events between two words of progress."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk along one log found."""

    session_id: str
    ok: bool
    head: int = 0
    hash: str = ""
    expected_at: int | None = None
    """The event whose hash was expected."""
    error: str | None = None


@click.command(
    epilog=options.examples(
        "vaka sessions verify demo", "vaka sessions verify demo --expect 9f86d0…", "vaka sessions verify --all"
    )
)
@click.argument("session", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session of the store.")
@click.option("--expect", metavar="HASH", help="A head kept elsewhere: it must be the hash of an event of this log.")
@options.json_option
@options.store_options
def verify(session: str | None, everything: bool, expect: str | None, **given: Any) -> None:
    """Read a log whole, check every hash, and print its head. Exit code 1 when something is not what was written.

    Only a head that was kept elsewhere and is given with --expect proves that nothing was cut off or rewritten whole.
    """
    if bool(session) == everything or (everything and expect):
        raise UsageError("name one session, or --all; --expect is for one session")

    async def work(runtime: Runtime) -> bool:
        good = True
        async with aclosing(_chosen(runtime, session)) as rows:
            async for info in rows:
                checked = await _walk(runtime, info, expect)
                good = good and checked.ok
                _tell(checked, as_json=given["as_json"])
        return good

    if not with_runtime(given, work):
        raise Quit(FAILED)


async def _chosen(runtime: Runtime, session: str | None) -> AsyncGenerator[SessionInfo]:
    if session is not None:
        yield await found(runtime, session)
        return
    after = ""
    while True:
        page = await runtime.store.sessions.list(Query(limit=200, after=after))
        for info in page.sessions:
            yield info
        if not page.next:
            return
        after = page.next


async def _walk(runtime: Runtime, info: SessionInfo, expect: str | None) -> Checked:
    head, hash, at = 0, "", None
    try:
        async with aclosing(runtime.store.events.read(info.id, upto=info.head)) as events:
            async for event in events:
                head, hash = event.seq, event.hash
                at = head if hash == expect else at
                if head % _EVERY == 0:
                    click.echo(f"{info.id}: {head} of {info.head} events", err=True)
    except Corrupt as error:
        return Checked(session_id=info.id, ok=False, head=head, hash=hash, error=str(error))
    wrong = _wrong(info, head, hash, expect, at)
    return Checked(session_id=info.id, ok=wrong is None, head=head, hash=hash, expected_at=at, error=wrong)


def _wrong(info: SessionInfo, head: int, hash: str, expect: str | None, at: int | None) -> str | None:
    if (head, hash) != (info.head, info.hash):
        return f"the log ends at {head} ({hash}), the index says {info.head} ({info.hash})"
    if expect is not None and at is None:
        return f"no event has the hash {expect}; the head is {hash}"
    return None


def _tell(checked: Checked, *, as_json: bool) -> None:
    if as_json:
        print_json(checked)
        return
    where = f" (expected hash at {checked.expected_at})" if checked.expected_at else ""
    state = f"ok{where}" if checked.ok else f"NOT OK: {checked.error}"
    click.echo(f"{printable(checked.session_id)}  {checked.head}  {checked.hash}  {state}")
