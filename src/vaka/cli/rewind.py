"""``vaka sessions rewind``: go on from an earlier place, with the files or without them."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from vaka.cli import options
from vaka.cli.conversation import split_place
from vaka.cli.errors import UsageError
from vaka.cli.render import printable
from vaka.cli.report import print_json
from vaka.cli.start import with_runtime
from vaka.core.types.event import Event
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from vaka.runtime.restore import FilesBack


@click.command(
    epilog=options.examples(
        "vaka sessions rewind demo 12",
        "vaka sessions rewind demo@before-refactoring",
        "vaka sessions rewind demo@12 --files --dry-run",
        "vaka sessions rewind demo@12 --files",
    )
)
@click.argument("session", metavar="ID[@SEQ|@LABEL]")
@click.argument("place", metavar="[SEQ|LABEL]", default="")
@click.option(
    "--interrupt", is_flag=True, help="Stop the turn that runs first; otherwise a busy session is left alone (75)."
)
@click.option(
    "--files", is_flag=True, help="Also put back the files that Write, Edit, MultiEdit and NotebookEdit changed since."
)
@click.option("--force", is_flag=True, help="With --files: overwrite what somebody else has changed since, too.")
@click.option("--dry-run", is_flag=True, help="With --files: only say what would be done.")
@options.json_option
@options.store_options
def rewind(session: str, place: str, **given: Any) -> None:
    """Go on from an earlier event or checkpoint. What came after it stays readable.

    With --files, what commands changed stays as it is; only what file tools wrote while snapshots were on goes back.
    """
    files = given["files"]
    if (given["force"] or given["dry_run"]) and not files:
        raise UsageError("--force and --dry-run are about files; add --files")

    async def work(runtime: Runtime) -> "tuple[str, Event | None, FilesBack | None]":
        id, to = (session, place) if place else await split_place(runtime, session)
        if not to:
            raise UsageError("where to? Name an event or a checkpoint: ID@12, or ID LABEL")
        back = await runtime.files_back(id, to) if files else None
        if given["dry_run"]:
            return id, None, back
        interrupt, force = given["interrupt"], given["force"]
        return id, await runtime.rewind(id, to, interrupt=interrupt, files=files, force=force), back

    id, event, back = with_runtime(given, work)
    went = getattr(event.data, "to", place) if event is not None else None
    if given["as_json"]:
        told = {"session_id": id, "to": went, "event": event.id if event is not None else None}
        print_json({**told, **({"files": msgspec.to_builtins(back)} if back is not None else {})})
        return
    if back is not None:
        _tell(back, done=event is not None)
    if event is not None:
        click.echo(f"{printable(id)} goes on from {went}; written as event {event.id}", err=True)


def _tell(back: "FilesBack", *, done: bool) -> None:
    verbs = ("put back", "removed") if done else ("would put back", "would remove")
    for verb, paths in zip(verbs, (back.restored, back.removed), strict=True):
        for path in paths:
            note = "  (somebody else has changed it since)" if path in back.changed else ""
            click.echo(f"{verb} {printable(path)}{note}")
    if not (back.restored or back.removed):
        click.echo("no file is to be put back", err=True)
    if back.changed and not done:
        click.echo("what somebody else has changed is only overwritten with --force", err=True)
    for path in back.lost:
        click.echo(f"stays as it is, no copy of it was kept: {printable(path)}", err=True)
    if back.commands:
        click.echo(f"{back.commands} commands ran since; what they changed stays as it is", err=True)
