"""``vaka store``: back up a store to a file, and restore it."""

import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click
import msgspec

from vaka import __version__
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import create_default_store_folder, settings_from_flags
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import print_json
from vaka.core.ports.backup import BackupCounts, StoreBackup
from vaka.runtime.backups import restore_backup, write_backup
from vaka.runtime.open_store import open_backup


@click.group()
def store() -> None:
    """Back up a store to a file, and restore it."""


@store.command(
    epilog=options.format_examples(
        "vaka store backup vaka.backup", "vaka store backup --store postgresql://… /backups/vaka-$(date +%F).backup"
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@options.json_option
@options.store_options
def backup(file: Path, force: bool, **flags: Any) -> None:
    """Write all sessions, blobs, values and vectors of all tenants to FILE, as of one moment.

    The store may be in use. The file gets its name when it is complete; only you may read it. It is not encrypted.
    """
    progress = _Progress("backed up")

    async def work(source: StoreBackup) -> BackupCounts:
        return await write_backup(
            source, file, now=time.time(), version=__version__, overwrite=force, progress=progress.show
        )

    counts = _with_backup(flags, work, progress)
    _print_counts(f"backed up to {file}", counts, as_json=flags["as_json"])


@store.command(
    epilog=options.format_examples(
        "vaka store restore vaka.backup",
        "vaka store restore vaka.backup --store sqlite:///copy.db",
        "vaka store restore vaka.backup --replace",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Remove what the store has.")
@options.json_option
@options.store_options
def restore(file: Path, replace: bool, **flags: Any) -> None:
    """Restore FILE into an empty store of SQLite or PostgreSQL, all of it or nothing.

    No other process may use the store: otherwise the exit code is 75. Every hash is verified. The epoch of each log
    becomes one higher, so clients that follow a session read it again from its start.
    """
    progress = _Progress("restored")

    async def work(target: StoreBackup) -> BackupCounts:
        return await restore_backup(target, file, replace=replace, progress=progress.show)

    counts = _with_backup(flags, work, progress)
    _print_counts(f"restored {file}", counts, as_json=flags["as_json"])


def _with_backup(
    flags: dict[str, Any], work: Callable[[StoreBackup], Coroutine[Any, Any, BackupCounts]], progress: "_Progress"
) -> BackupCounts:
    settings = settings_from_flags(flags)
    create_default_store_folder(settings)
    try:
        return run_loop(work(open_backup(settings["store"])))
    finally:
        progress.end()


class _Progress:
    """Shows on a terminal how much is done; elsewhere nothing."""

    def __init__(self, what: str) -> None:
        self._what, self._shown = what, False

    def show(self, counts: BackupCounts) -> None:
        if sys.stderr.isatty():
            self._shown = True
            click.echo(f"\r\x1b[K{self._what}: {_describe(counts)}", err=True, nl=False)

    def end(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def _print_counts(what: str, counts: BackupCounts, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(counts))
    else:
        click.echo(f"{what}: {_describe(counts)}", err=True)


def _describe(counts: BackupCounts) -> str:
    numbers = (
        f"{counts.sessions} sessions",
        f"{counts.events} events",
        f"{counts.blobs} blobs",
        f"{counts.values} values",
        f"{counts.vectors} vectors",
        f"{counts.bytes / 1e6:.1f} MB" if counts.bytes >= 1e6 else f"{counts.bytes / 1e3:.1f} kB",
    )
    return ", ".join(numbers)
