"""``vaka sessions compact``: summarize the older messages of a session, so that its next turns cost less."""

from typing import TYPE_CHECKING, Any

import click

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import load_flag_settings, runtime_from_settings
from vaka.cli.kit.errors import FAILED, Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import as_printable, print_json, result_of_compaction
from vaka.cli.turn.session_record import (
    continue_session,
    explain_recorded_flags,
    find_record,
    load_continued,
    unset_flags,
)
from vaka.core.types.errors import Busy, NotFound

if TYPE_CHECKING:
    from vaka.runtime.session_compaction import CompactionResult


@click.command(
    epilog=options.format_examples(
        "vaka sessions compact demo", 'vaka sessions compact demo --instructions "Keep the names of all tables."'
    )
)
@click.argument("session", metavar="ID")
@click.option("--instructions", "wanted", default="", metavar="TEXT", help="What the summary must keep.")
@click.option("--interrupt", is_flag=True, help="Stop a running turn first.")
@options.agent_options
@options.flag_of("model", help="The model of the agent; default: the model of the last run.")
@options.json_option
@options.store_options
def compact(session: str, wanted: str, interrupt: bool, as_json: bool, **flags: Any) -> None:
    """Summarize the older messages of a session: the model sees the summary, and the log keeps everything.

    The session must be idle; exit code 75 otherwise.
    """
    flags = {**unset_flags(), **flags}  # the flags of the session's last run apply
    settings = load_flag_settings(flags)
    if settings["store"] == "memory:":
        raise UsageError("sessions in memory: end with their process; give --store")
    record = find_record(settings, session)
    if record is None:
        raise NotFound(f"there is no session {session!r}; `vaka sessions list` shows them")
    continued = continue_session(record, flags, settings)
    with explain_recorded_flags(continued):
        continued, agent = load_continued(continued, lambda note: click.echo(as_printable(note), err=True))

        async def work() -> "CompactionResult":
            async with runtime_from_settings(continued.settings, agent, quiet=True, ask="deny") as runtime:
                opened = await runtime.open(id=record.id)
                try:
                    return await opened.compact(wanted, interrupt=interrupt)
                except Busy as error:
                    raise Busy(str(error) if interrupt else f"{error}; add --interrupt to stop its turn") from error

        done = run_loop(work())
    if as_json:
        fields = {"compacted": done.event is not None, "before": done.before, "after": done.after}
        print_json({"session_id": record.id, **fields, "summary": done.summary, "skipped": done.skipped})
    else:
        click.echo(result_of_compaction(done.event, done.skipped))
    if done.skipped:
        raise Quit(FAILED)
