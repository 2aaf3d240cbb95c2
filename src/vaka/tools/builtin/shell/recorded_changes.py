"""Record what a command changes in the files of the workspace, so that it can be undone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from vaka.core.ports.tool import COMMAND_FILES_KEY, CommandBackups, ToolContext


class Recording:
    """The record of one command."""

    goes_on = False
    """Whether the command goes on in the background after its call."""


@asynccontextmanager
async def record_changes(context: ToolContext, command: str) -> AsyncGenerator[Recording]:
    """Record the files before and after a command; the first record is durable before the command starts."""
    recording = Recording()
    backups: object = context.world.snapshots
    begun = await backups.begin_command(context.call, command) if isinstance(backups, CommandBackups) else None
    if begun is None or not isinstance(backups, CommandBackups):
        yield recording
        return
    await context.state.set_now(COMMAND_FILES_KEY, begun)
    try:
        yield recording
    except BaseException as error:
        if context.stopping or not isinstance(error, asyncio.CancelledError):
            context.state.set(COMMAND_FILES_KEY, await backups.end_command(begun, context.session))
        raise  # when the process ends there is no second record: a restore compares with the files as they are then
    context.state.set(COMMAND_FILES_KEY, await backups.end_command(begun, context.session, goes_on=recording.goes_on))
