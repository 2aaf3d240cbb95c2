"""``vaka sessions verify``: check the hash chain and the blobs of sessions, and compare their heads with anchors."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, with_runtime
from vaka.cli.kit.errors import FAILED, Quit, UsageError
from vaka.cli.kit.render import as_printable, print_json
from vaka.cli.session_anchors import Anchor, AnchorCheck, AnchorFile, describe_missing
from vaka.config.model_tables import hide_password
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import parse_session_id
from vaka.runtime.log_check import LogCheck, check_log, list_sessions, restore_blobs
from vaka.runtime.open_store import open_store
from vaka.runtime.runtime import Runtime

_PROGRESS_INTERVAL = 20_000
"""Events between two lines of progress."""


class SessionCheck(LogCheck, frozen=True, kw_only=True, omit_defaults=False):
    """The result of checking one session, with its anchor if there is an anchor file."""

    anchor: AnchorCheck | None = None
    restored: tuple[str, ...] = ()
    """The blobs that were copied from another store."""


@click.command(
    epilog=options.format_examples(
        "vaka sessions verify demo",
        "vaka sessions verify demo --expect 9f86d0…",
        "vaka sessions verify --all",
        "vaka sessions verify --all --anchor /mnt/audit/heads.jsonl",
        "vaka sessions verify demo --repair-from sqlite:///backup.db",
    )
)
@click.argument("session", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session of the store.")
@click.option("--expect", metavar="HASH", help="A head stored elsewhere: it must be the hash of an event of this log.")
@click.option(
    "--anchor",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with the heads in this file, and then write the heads of now to it; it need not exist yet.",
)
@click.option("--check-only", is_flag=True, help="With --anchor: do not change the file.")
@click.option(
    "--repair-from", metavar="URL", help="Copy blobs that are missing or damaged from this store, such as a backup."
)
@options.json_option
@options.store_options
def verify(session: str | None, everything: bool, **flags: Any) -> None:
    """Check every hash of a log and every blob it uses, and print its head. Exit code 1 when one does not match.

    Only a head that was stored elsewhere and is given with --expect or --anchor proves that the log was not truncated
    or rewritten.
    """
    if bool(session) == everything or (everything and flags["expect"]):
        raise UsageError("name one session, or --all; --expect is for one session")
    if flags["check_only"] and flags["anchor"] is None:
        raise UsageError("--check-only needs --anchor FILE")
    anchors = AnchorFile(flags["anchor"], must_exist=flags["check_only"]) if flags["anchor"] is not None else None

    async def work(runtime: Runtime) -> bool:
        verification = _Verification(runtime, anchors, flags)
        all_ok = await verification.run(session)
        if anchors is not None and not flags["check_only"]:
            anchors.save()
        return all_ok

    if not with_runtime(flags, work):
        raise Quit(FAILED)


class _Verification:
    """One run of the command."""

    def __init__(self, runtime: Runtime, anchors: AnchorFile | None, flags: dict[str, Any]) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._anchors = anchors
        self._flags = flags

    async def run(self, session: str | None) -> bool:
        """Check the sessions and print the results; return whether all are good."""
        all_ok = True
        found: set[str] = set()
        async with aclosing(self._selected_sessions(session)) as rows:
            async for info in rows:
                found.add(info.id)
                check = await self._check(info)
                all_ok = all_ok and check.ok
                self._print(check)
        for anchor in self._find_missing(session, found):
            all_ok = False
            gone = describe_missing(anchor, self._flags["anchor"])
            self._print(SessionCheck(session_id=anchor.session, ok=False, error=gone.error, anchor=gone))
        return all_ok

    async def _selected_sessions(self, session: str | None) -> AsyncGenerator[SessionInfo]:
        if session is not None:
            try:
                yield await find_session(self._runtime, session)
            except NotFound:
                if not self._find_missing(session, ()):
                    raise
            return
        async with aclosing(list_sessions(self._store)) as rows:
            async for info in rows:
                yield info

    def _find_missing(self, session: str | None, found: "set[str] | tuple[()]") -> list[Anchor]:
        if self._anchors is None:
            return []
        gone = self._anchors.find_missing(self._store.namespace, found)
        return [anchor for anchor in gone if session is None or anchor.session == parse_session_id(session)]

    async def _check(self, info: SessionInfo) -> SessionCheck:
        watch = self._anchors.watch(self._store.namespace, info.id) if self._anchors is not None else None

        def see(event: Event) -> None:
            if watch is not None:
                watch.see(event)
            if event.seq % _PROGRESS_INTERVAL == 0:
                click.echo(f"{as_printable(info.id)}: {event.seq} of {info.head} events", err=True)

        restored: tuple[str, ...] = ()
        check = await check_log(self._store, info, expect=self._flags["expect"], on_event=see)
        if check.blob_problems and self._flags["repair_from"]:
            restored = await self._repair(check)
            check = await check_log(self._store, info, expect=self._flags["expect"], on_event=see)
        fields = {name: getattr(check, name) for name in LogCheck.__struct_fields__}
        if watch is None:
            return SessionCheck(**fields, restored=restored)
        anchor = watch.result(info)
        if anchor.error is not None:
            fields |= {"ok": False, "error": "; ".join(filter(None, (anchor.error, check.error)))}
        elif check.ok and self._anchors is not None:
            self._anchors.move(self._store.namespace, info, format_timestamp(self._runtime.env.clock.time()))
        return SessionCheck(**fields, anchor=anchor, restored=restored)

    async def _repair(self, check: LogCheck) -> tuple[str, ...]:
        backup = _open_existing_store(self._flags["repair_from"], self._store.namespace)
        try:
            return await restore_blobs(self._store, backup, check)
        finally:
            await backup.close()

    def _print(self, check: SessionCheck) -> None:
        if self._flags["as_json"]:
            print_json(check)
            return
        notes = [f"expected hash at {check.expected_at}"] if check.expected_at else []
        notes += [f"{check.erased} events erased"] if check.erased else []
        notes += [f"{len(check.restored)} blobs restored"] if check.restored else []
        notes += [_describe_anchor(check.anchor)] if check.anchor is not None and check.anchor.error is None else []
        where = f" ({', '.join(notes)})" if notes else ""
        state = f"ok{where}" if check.ok else f"NOT OK: {as_printable(check.error or '')}{where}"
        click.echo(f"{as_printable(check.session_id)}  {check.head}  {check.hash}  {state}")


def _open_existing_store(url: str, namespace: str) -> Store:
    """Open a store; a SQLite file that does not exist would be created."""
    store = open_store(url, namespace=namespace)
    if not Path(getattr(store, "path", "/")).exists():
        raise UsageError(f"--repair-from {hide_password(url)}: there is no such store")
    return store


def _describe_anchor(anchor: AnchorCheck) -> str:
    return "new anchor" if anchor.state == "new" else f"contains the anchor at {anchor.seq} of {anchor.time}"
