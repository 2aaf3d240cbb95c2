"""What the commands of a feature need of a runtime besides its sessions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from vaka.cli.kit.bootstrap import world_options
from vaka.config.settings import Settings
from vaka.runtime.middleware_services import RuntimeServices, open_keys
from vaka.runtime.runtime import Runtime
from vaka.runtime.stored_keys import StoredKeys


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncGenerator[RuntimeServices]:
    """Open a runtime with the files and commands of the settings, and nothing stored; yield its services."""
    async with Runtime(**world_options(settings)) as runtime:
        yield RuntimeServices(runtime.options, runtime.store, runtime.env, runtime.secrets.add)


def open_user_keys(folder: str, command: str) -> StoredKeys:
    """Return the secrets of the user that ``command`` has stored, in a folder beside the keys of model providers."""
    return open_keys(folder, command)
