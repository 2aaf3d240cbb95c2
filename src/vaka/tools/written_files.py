"""Backups of the files that a tool declares to write, so that a rewind restores them."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from vaka.core.ports.tool import CHANGED_FILE_KEY, FileBackups, ToolContext
from vaka.core.types.errors import FileError
from vaka.core.types.ids import JSON
from vaka.core.types.traits import ToolTraits, add_defaults


@asynccontextmanager
async def record_written_files(
    context: ToolContext, traits: ToolTraits, arguments: Mapping[str, Any], parameters: Mapping[str, Any]
) -> AsyncGenerator[None]:
    """Back up the files that a call names before it runs, and record their content after it.

    Files outside the folders of the runtime are not backed up.
    """
    snapshots = context.world.snapshots
    if snapshots is None:
        yield
        return
    given = add_defaults(arguments, parameters)
    named = (given.get(name) for name in traits.paths)
    copies = [
        copy for path in named if isinstance(path, str) and path and (copy := await _back_up(context, snapshots, path))
    ]
    try:
        yield
    finally:  # a failed call may have written too
        for copy in copies:
            await context.state.set_now(CHANGED_FILE_KEY, await snapshots.after(copy))


async def _back_up(context: ToolContext, snapshots: FileBackups, path: str) -> JSON:
    with suppress(FileError):
        copy = await snapshots.back_up(path, session=context.session)
        await context.state.set_now(CHANGED_FILE_KEY, copy)
        if context.world.shells is not None:
            context.world.shells.announce(os.path.join(context.world.cwd, path))  # noqa: PTH118  # a string
        return copy
    return None
