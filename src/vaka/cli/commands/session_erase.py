"""``vaka sessions erase``: erase what was said in a session, or what is stored of an owner."""

import sys
from typing import Any

import click

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import find_session, with_runtime
from vaka.cli.kit.errors import BUSY, FAILED, Quit, UsageError
from vaka.cli.kit.render import as_printable, count_things, print_json
from vaka.runtime.erase import ErasureReport
from vaka.runtime.runtime import Runtime


@click.command(
    epilog=options.format_examples(
        "vaka sessions erase demo",
        "vaka sessions erase --owner kim --dry-run",
        "vaka sessions erase --owner kim --yes",
    )
)
@click.argument("session", metavar="[ID]", default="")
@click.option("--owner", default="", help="Everything of this owner: all sessions and memories.")
@click.option("--dry-run", is_flag=True, help="Only print what would be erased.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.json_option
@options.store_options
def erase(session: str, owner: str, dry_run: bool, yes: bool, **flags: Any) -> None:
    """Erase what was said in a session, or everything that is stored of an owner. It cannot be undone.

    The hashes of the events stay, so that `vaka sessions verify` still proves that the log is complete. Exit code 75
    when a turn of a session runs: erase again when it has ended. Exit code 1 when a session could not be erased for
    another reason.
    """
    if bool(session) == bool(owner):
        raise UsageError("name one session, or --owner")
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            raise UsageError("erasing cannot be undone; add --yes to do it without a terminal")
        what = f"everything of the owner {as_printable(owner)}" if owner else f"session {as_printable(session)}"
        click.confirm(f"Erase {what} for good?", abort=True, err=True)

    async def work(runtime: Runtime) -> ErasureReport:
        id = (await find_session(runtime, session)).id if session else ""
        return await runtime.erase(id, owner=owner, dry_run=dry_run)

    report = with_runtime(flags, work)
    if flags["as_json"]:
        print_json(report)
    else:
        _print_erasure(report)
    if report.failed:
        raise Quit(BUSY if len(report.busy) == len(report.failed) else FAILED)


def _print_erasure(report: ErasureReport) -> None:
    for id in report.sessions:
        click.echo(as_printable(id))
    for id, problem in report.failed.items():
        click.echo(f"not erased: {as_printable(id)}: {as_printable(problem)}", err=True)
    if report.busy:
        click.echo("erase again when the turn that runs has ended", err=True)
    # How many of the events have contents is known when they are erased.
    verb, events = ("would erase", "at most {} events") if report.dry_run else ("erased", "{} events")
    parts = [count_things(len(report.sessions), "session"), events.format(report.events)]
    parts += [] if report.dry_run else [count_things(report.blobs, "blob")]
    parts += [
        count_things(count, f"record of {kind} memory", f"records of {kind} memory")
        for kind, count in report.memories.items()
        if count
    ]
    click.echo(f"{verb} {', '.join(parts)}", err=True)
    if not report.overwritten:
        click.echo("files of the database may still have old copies until it is vacuumed; see the guide", err=True)
